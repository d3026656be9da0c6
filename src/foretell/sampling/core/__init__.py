"""Thinning under proved bounds, next events, whole futures."""

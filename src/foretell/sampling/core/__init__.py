"""Thinning under proved bounds, which draws next events and whole futures."""

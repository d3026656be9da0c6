"""Exact sampling: draw future events of histories from a model, by thinning under proved bounds on intensities."""

"""Models and histories in, sampled events out: proved bounds on intensities, thinning, whole futures."""

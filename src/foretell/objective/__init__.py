"""Models and batches in, log-likelihoods out: the integral's estimators and the terms of the likelihood."""

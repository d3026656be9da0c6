"""Poisson and Hawkes processes, fitted by maximum likelihood."""

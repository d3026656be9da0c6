"""A model and held-out data in, scores with their uncertainty out."""

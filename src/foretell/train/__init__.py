"""A model and data in, a trained model and a run folder out."""

"""Training: turns a model and data into a trained model and a run folder."""

"""Runs and models in, pictures out. Matplotlib is imported only when something is drawn."""

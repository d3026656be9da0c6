"""`foretell auto`: searches for the best of several models for given data."""

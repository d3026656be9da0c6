"""TIMELINE + TIMES → PLAN: what a program becomes for given sequences, as index tensors that a model only applies."""

"""TIMELINE + TIMES → PLAN: compiles the timelines of sequences to index tensors that a model applies to its parameters."""

"""SEQUENCES + TIMES → BATCH, with its plan where there are rules."""

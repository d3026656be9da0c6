"""The slow twin: the paper's equations as plain loops, the oracle that the fast models are tested against."""

"""The slow twins: the equations as plain loops, which the fast models are tested against."""

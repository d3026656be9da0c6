"""Tensors in, tensors out: the pieces every model is built from. Nothing here knows a program or a file."""

"""Modules and functions on tensors that the models share. They do not depend on programs or files."""

"""Bounds of functions of time on pieces of it."""

"""Proved bounds of functions of time on short windows."""

"""Sampling from models made of rules."""

"""Plots, tables and HTML pages of runs and models. Matplotlib is imported only when something is drawn."""

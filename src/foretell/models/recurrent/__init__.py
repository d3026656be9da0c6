"""Models whose state is moved by each event: NHP."""

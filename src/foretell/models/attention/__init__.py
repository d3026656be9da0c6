"""A-NHP: attention over the events of a history."""

"""Shards: independent parts of a command's work, computed in this process, in several processes, or on a Ray cluster."""

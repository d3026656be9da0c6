"""Independent pieces of a command's work, done in this process, in several, or on a Ray cluster."""

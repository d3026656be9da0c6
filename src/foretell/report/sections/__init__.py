"""The sections of the report, one file each. A section is a function that takes entries and returns a `PageSection`."""

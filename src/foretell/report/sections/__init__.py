"""The sections of the report, one file each: entries in, a `Section` out."""

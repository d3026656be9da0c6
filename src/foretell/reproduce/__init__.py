"""`foretell reproduce`: runs an experiment's definition unit by unit, and makes fits, scores, tests and findings."""

"""`foretell reproduce`: an experiment's definition in; fits, scores, tests and findings out, piece by piece."""

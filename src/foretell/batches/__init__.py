"""Build padded batches from sequences, with times of queries, and with a plan where a model has rules."""

"""The database through time: program + sequence → timeline of facts, possible events and proofs. Does not use torch."""

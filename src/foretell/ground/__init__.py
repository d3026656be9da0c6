"""The database through time: a program and a sequence in, a timeline of facts, possible events and proofs out. No torch."""

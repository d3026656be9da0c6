"""Models whose past is in the states of linear systems: S2P2."""

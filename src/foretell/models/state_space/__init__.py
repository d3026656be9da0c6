"""Models whose past is stored in the states of linear systems: S2P2."""

"""Batches of sequences in, intensities out: every model behind one interface (`base`)."""

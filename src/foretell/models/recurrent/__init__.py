"""Models with a recurrent state that each event updates: NHP and RMTPP."""

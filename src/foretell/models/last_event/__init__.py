"""THP and SAHP: a transformer embeds the events, and intensities depend on the last embedding."""

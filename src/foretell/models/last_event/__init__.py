"""THP and SAHP: a transformer embeds the events, intensities look at the last one."""

"""SEQUENCES ↔ A FOLDER OF FLAT FILES: data sets that are larger than memory, written in bounded memory and mapped when read."""

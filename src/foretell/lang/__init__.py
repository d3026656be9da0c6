"""The rule language: text in, a checked program out (LANGUAGE page of the docs). No numpy, no torch."""

"""Models whose network is a program of rules: A-NDTT and NDTT."""

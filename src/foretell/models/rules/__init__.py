"""Models whose network is a program of rules: A-NDTT, NDTT and S2-NDTT."""

"""Samplers, one file for each algorithm. `base` defines the interfaces; `history` provides the trials that models learn from."""

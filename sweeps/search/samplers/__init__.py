"""Samplers, one file for each algorithm. `base` has the ports; `history` has the trials that models learn from."""

"""Samplers: one file for each algorithm. `base` has the port; `history` is what models learn from."""

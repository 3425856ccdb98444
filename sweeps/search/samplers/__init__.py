"""Samplers, one file for each algorithm.

`base` defines the interfaces; `history` collects the earlier trials for the samplers.
"""

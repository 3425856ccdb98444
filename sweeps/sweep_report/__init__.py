"""The report of a sweep: its text and its figures.

The page of `sweeps ui` and notebooks show the same figures.
"""

"""Decide which checkpoints a sweep keeps, and delete the others."""

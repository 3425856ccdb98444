"""Fit chains of preprocessing steps, apply fitted chains, and store them."""

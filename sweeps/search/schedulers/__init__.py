"""Schedulers: which trials continue at a rung, and population based training."""

"""Which checkpoints a sweep keeps, and deleting the others."""

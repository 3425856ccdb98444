"""Sweeps on a simulated pool: thousands of trials, a hundred nodes, no Ray."""

"""Samplers, one file for each algorithm.

`sampler` defines the interfaces; `trial_groups` collects the earlier trials for the samplers.
"""

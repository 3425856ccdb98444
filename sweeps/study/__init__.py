"""The record of a sweep: the Optuna study, where it is stored, and the state of each trial in it."""

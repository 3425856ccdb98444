"""The record of a sweep: the Optuna study, where it is stored, and what it says of each trial."""

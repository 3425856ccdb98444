"""Write space files for `sweeps init`: from a data file, from a W&B sweep, from an Optuna study, and from an Optuna objective.

Each module `from_*` has a pure function that returns the text of the space file. `files` writes the
texts.
"""

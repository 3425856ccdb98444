"""Write space files for `sweeps init`.

They are made from a data file, a W&B sweep, an Optuna study or an Optuna objective. Each module
`from_*` has a function that returns the text of the space file. `new_files` writes the texts.
"""

"""Run or resume a sweep, conclude it, and return it as an object: the Python API."""

from sweeps.notebook.output_cell import silence_hints

silence_hints()  # before the modules of this package import Optuna and Ray

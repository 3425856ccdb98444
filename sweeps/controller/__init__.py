"""Run, resume, watch and export one sweep. The process that runs a sweep is called its driver."""

from sweeps.core.notebooks import silence_hints

silence_hints()  # before the modules of this package import Optuna and Ray

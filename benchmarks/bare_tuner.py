"""Script that `cold_start` compares with `sweeps run`: `ray.init`, then a bare `Tuner.fit` of one
function trial.

The trial writes the time of its first step to MARK.

python benchmarks/bare_tuner.py MARK STORAGE
"""

import logging
import sys
import time
from pathlib import Path

import ray
from ray import tune


def first_step(config):
    Path(config["mark"]).write_text(repr(time.time()))
    tune.report({"x": 1.0})


if __name__ == "__main__":
    mark, storage = sys.argv[1:]
    ray.init(
        address="local", include_dashboard=False, log_to_driver=False, logging_level=logging.WARNING
    )
    tune.Tuner(
        first_step,
        param_space={"mark": mark},
        tune_config=tune.TuneConfig(metric="x", mode="min"),
        run_config=tune.RunConfig(name="bare", storage_path=storage, verbose=0),
    ).fit()
    ray.shutdown()

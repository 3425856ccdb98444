"""XGBoost with a part of the rows as fidelity: models of its validation loss, fitted to recorded trainings by `record_rows`.

A step is 1/27 of the train rows. Values are logarithms of the validation loss. A trial trains from the beginning at each rung in reality;
the replays count each part of the rows once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.search_quality.axes import Axis, Config, place

FILE = Path(__file__).parent / "rows.npz"
STEPS = 27
DEVELOPMENT, HELD = ("digits", "taxi"), ("cancer", "telco")
INSTANCES = (*DEVELOPMENT, *HELD)
AXES = {
    "rounds": Axis("int", 5, 100, log=True),
    "eta": Axis("float", 0.01, 1.0, log=True),
    "max_depth": Axis("int", 1, 10),
    "min_child_weight": Axis("float", 0.1, 20.0, log=True),
    "subsample": Axis("float", 0.1, 1.0),
    "colsample_bytree": Axis("float", 0.1, 1.0),
    "colsample_bylevel": Axis("float", 0.1, 1.0),
    "lambda": Axis("float", 1e-3, 100.0, log=True),
    "alpha": Axis("float", 1e-3, 10.0, log=True),
    "gamma": Axis("float", 1e-4, 3.0, log=True),
}


def inputs(config: Config, parts: Sequence[int]) -> np.ndarray:
    """Return the model's input for parts of the rows, as an array (parts, 11)."""
    unit = [place(axis, config[name]) for name, axis in AXES.items()]
    return np.array([[*unit, part] for part in parts], dtype=np.float32)


@cache
def load(name: str) -> tuple[Any, float, float]:
    """Return the model of a task, its optimum, and the last value of its median random configuration."""
    import xgboost as xgb

    with np.load(FILE) as file:
        booster = xgb.Booster(model_file=bytearray(file[f"{name}_model"].tobytes()))
        optimum, typical = file[f"{name}_ends"]
    booster.set_param({"nthread": 1})
    return booster, float(optimum), float(typical)


def curve(name: str, config: Config) -> np.ndarray:
    """Return a configuration's values with 1/27 to all of the rows."""
    return load(name)[0].inplace_predict(inputs(config, range(1, STEPS + 1))).astype(np.float64)

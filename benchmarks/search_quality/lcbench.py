"""LCBench as a continuous space: the network that YAHPO Gym fitted to recorded curves of
perceptrons, evaluated with numpy.

`lcbench.npz` holds the weights, made by `record_lcbench`. SOURCES.md has the source and the
licence.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

FILE = Path(__file__).parent / "lcbench.npz"
EPOCHS = 52
INPUTS = (
    "epoch",
    "batch_size",
    "learning_rate",
    "momentum",
    "weight_decay",
    "num_layers",
    "max_units",
    "max_dropout",
)

# The OpenML tasks that may be used, by half of the split. Three more are in the source: 167168,
# 189873 and 189906. They are kept for a judgement by others, so `record_lcbench` never evaluates
# them, and their part of the network is not in the file.
DEVELOPMENT = (
    3945,
    34539,
    126026,
    146212,
    167149,
    167161,
    167184,
    167190,
    167201,
    168330,
    168335,
    168908,
    189354,
    189865,
    189905,
    189909,
)
HELD = (
    7593,
    126025,
    126029,
    167104,
    167152,
    167181,
    167185,
    167200,
    168329,
    168331,
    168868,
    168910,
    189862,
    189866,
    189908,
)


@cache
def network() -> dict[str, np.ndarray]:
    """Return the weights of the network."""
    with np.load(FILE) as file:
        return {
            name: file[name].astype(np.float32) if file[name].dtype == np.float16 else file[name]
            for name in file.files
        }


def predict(weights: Mapping[str, np.ndarray], instance: int, rows: np.ndarray) -> np.ndarray:
    """Return what the network predicts.

    Args:
        weights: The arrays of `lcbench.npz`.
        instance: The number of an OpenML task.
        rows: Array (rows, 8) with the columns `INPUTS`.

    Returns:
        Array (rows, 2): the seconds until the end of the epoch, and the share of wrong predictions
            for the validation rows in percent.
    """
    x = np.where(weights["log_input"], np.log(np.maximum(rows, 1e-12)), rows)
    x = (x - weights["shift_input"]) / weights["scale_input"]
    first = weights["embedding"][list(weights["instances"]).index(instance)]
    h = (
        np.concatenate([np.tile(first, (len(x), 1)), x], axis=1).astype(np.float32)
        @ weights["first"].T
        + weights["first_bias"]
    )
    for i in range(3):
        z = h @ weights[f"in{i}"].T + weights[f"in{i}_bias"]
        half = z.shape[1] // 2
        h = (
            h
            + (z[:, :half] * np.maximum(z[:, half:], 0)) @ weights[f"out{i}"].T
            + weights[f"out{i}_bias"]
        )
    y = (
        np.maximum(h * weights["last_scale"] + weights["last_shift"], 0) @ weights["head"].T
        + weights["head_bias"]
    )
    y = 1 / (1 + np.exp(-y)) * weights["scale_output"] + weights["shift_output"]
    return np.column_stack(
        [y[:, 0], 100 - np.exp(y[:, 1])]
    )  # The network predicts the logarithm of the accuracy in percent.


def rows_of(configs: np.ndarray, epochs: np.ndarray) -> np.ndarray:
    """Return the network's input for an array (configurations, 7), as an array (configurations ×
    epochs, 8).
    """
    return np.column_stack([np.tile(epochs, len(configs)), np.repeat(configs, len(epochs), axis=0)])


def curve(instance: int, config: Mapping[str, Any]) -> np.ndarray:
    """Return a configuration's error rates in percent at epochs 1 to 52."""
    return _curves(instance, config)[:, 1].astype(np.float64)


def seconds(instance: int, config: Mapping[str, Any]) -> np.ndarray:
    """Return the seconds that each of a configuration's 52 epochs takes."""
    until = np.maximum.accumulate(_curves(instance, config)[:, 0])
    return np.diff(until, prepend=0.0).clip(until[-1] / EPOCHS / 10)


def _curves(instance: int, config: Mapping[str, Any]) -> np.ndarray:
    one = np.array([[config[name] for name in INPUTS[1:]]], dtype=np.float64)
    return predict(network(), instance, rows_of(one, np.arange(1, EPOCHS + 1)))

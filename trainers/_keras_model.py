"""Build a Keras model with the user's function, save it, load it, and predict with it."""

from __future__ import annotations

import importlib
import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sweeps.core import references
from sweeps.trainers import float_array

if TYPE_CHECKING:
    import pandas as pd

NETWORK, DESCRIPTION = "model.keras", "model.json"
BLOCK = 64  # number of rows that a loaded model predicts at once
# rows that are predicted at once in training, so that a wide layer over a large table does not fill
# the memory
ROWS_AT_ONCE = 16_384


def import_keras(framework: str) -> Any:
    """Import Keras with a framework, and return the module `keras`.

    Keras reads the environment variable `KERAS_BACKEND` when it is imported. If this process has
    already imported Keras with another framework, Keras keeps that framework.

    Args:
        framework: "torch" or "tensorflow".
    """
    os.environ["KERAS_BACKEND"] = framework
    return importlib.import_module("keras")


@dataclass(frozen=True)
class Description:
    """Facts about a network.

    With these facts, a bundle loads the network and turns its outputs into predictions.

    Attributes:
        framework: The framework that trained the network: "torch" or "tensorflow".
        model: The user's function that made the network, as `module:attr`.
        columns: Names of the features, in the order of the network's inputs.
        task: "binary", "multiclass" or "regression".
        logits: True if the outputs for a classification are logits, not probabilities.
        mean: For a regression, the mean of the target. The network predicts `(target - mean) /
            std`.
        std: For a regression, the standard deviation of the target.
    """

    framework: str
    model: str
    columns: tuple[str, ...]
    task: str
    logits: bool = False
    mean: float = 0.0
    std: float = 1.0

    def save(self, network: Any, folder: Path) -> None:
        """Write the network and this description into a folder."""
        network.save(folder / NETWORK)
        (folder / DESCRIPTION).write_text(json.dumps(asdict(self)))

    @classmethod
    def of(cls, folder: Path) -> Description:
        """Read the description that `save` wrote."""
        stored = json.loads((folder / DESCRIPTION).read_text())
        return cls(**stored | {"columns": tuple(stored["columns"])})

    def load(self, folder: Path) -> Any:
        """Load the network that `save` wrote, onto the CPU. The network is not compiled.

        Layers and functions that the module of `model` defines need no registration with Keras.
        """
        keras = import_keras(self.framework)
        references.resolve(self.model)
        custom = vars(sys.modules[references.parse(self.model)[0]])
        with keras.device("cpu"):
            return keras.saving.load_model(
                folder / NETWORK, {k: v for k, v in custom.items() if callable(v)}, compile=False
            )

    def predictions(self, outputs: np.ndarray) -> np.ndarray:
        """Turn outputs of the network into predictions in the format of `Model.predict`.

        The outputs have the shape (n, k) or (n,).
        """
        outputs = outputs.astype(np.float64).reshape(len(outputs), -1)
        if self.task == "regression":
            return outputs[:, 0] * self.std + self.mean
        if outputs.shape[1] == 1:
            return 1 / (1 + np.exp(-outputs[:, 0])) if self.logits else outputs[:, 0]
        if self.logits:
            powers = np.exp(outputs - outputs.max(axis=1, keepdims=True))
            outputs = powers / powers.sum(axis=1, keepdims=True)
        return outputs if self.task == "multiclass" else outputs[:, 1]

    def target(self, y: np.ndarray) -> np.ndarray:
        """Convert labels to the values that the network learns.

        These are class codes, or standardized numbers for a regression.
        """
        return ((y - self.mean) / self.std).astype(np.float32) if self.task == "regression" else y


def predict(network: Any, x: np.ndarray, rows: int = ROWS_AT_ONCE) -> np.ndarray:
    """Return the outputs of a network for features of shape (n, columns).

    Args:
        network: The Keras model.
        x: The features, float32 of shape (n, columns), n > 0.
        rows: Number of rows to predict at once.
    """
    return np.concatenate(
        [network.predict_on_batch(x[start : start + rows]) for start in range(0, len(x), rows)]
    )


class Model:
    """A trained network on a CPU."""

    def __init__(self, description: Description, network: Any):
        self.description, self.network = description, network

    def predict(self, features: pd.DataFrame) -> np.ndarray:
        """Predict prepared rows.

        Returns:
            A float64 array with the probability of the second class, shape (n,); the probabilities
            of k classes, shape (n, k); or the values of a regression, shape (n,).
        """
        inputs = float_array(features[list(self.description.columns)])
        return self.description.predictions(self.outputs(inputs))[: len(inputs)]

    def outputs(self, x: np.ndarray) -> np.ndarray:
        """Return the outputs of the network for features of shape (n, columns).

        Outputs for rows of zeros follow them.

        The rounding of a matrix product depends on its number of rows. Therefore rows are predicted
        in blocks of `BLOCK` rows, and the outputs for a row do not depend on the number of rows.
        """
        import keras

        blocks = max(1, -(-len(x) // BLOCK))
        with keras.device("cpu"):
            return predict(self.network, np.pad(x, ((0, blocks * BLOCK - len(x)), (0, 0))), BLOCK)

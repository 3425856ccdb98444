"""Build a Keras model with the user's function, save it, load it, and predict with it."""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from sweeps import trial
from sweeps.core.plugins import references

from . import Params, float_array
from ._arguments import SplitParams

if TYPE_CHECKING:
    import pandas as pd
    from keras import Model as KerasModel

LOSSES = {
    "binary": "BinaryCrossentropy",
    "multiclass": "SparseCategoricalCrossentropy",
    "regression": "MeanSquaredError",
}
# Parameters that have no effect if the user's function compiles the model.
COMPILE_PARAMETERS = ("optimizer", "loss", "weight_decay", "clipnorm")
NETWORK = "model.keras"
DESCRIPTION = "model.json"
GUIDE = "https://keras.io/guides/serialization_and_saving"
BLOCK = 64  # number of rows that a loaded model predicts at once
# Number of rows that are predicted at once in training, so that a wide layer does not fill the
# memory.
ROWS_AT_ONCE = 16_384


def import_keras(framework: str) -> ModuleType:
    """Import Keras with a framework, and return the module `keras`.

    Keras reads the environment variable `KERAS_BACKEND` when it is imported. If this process has
    already imported Keras with another framework, Keras keeps that framework.

    Args:
        framework: "torch" or "tensorflow".
    """
    os.environ["KERAS_BACKEND"] = framework
    return importlib.import_module("keras")


@dataclass(frozen=True)
class KerasDefinition:
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

    def save(self, network: KerasModel, folder: Path) -> None:
        """Write the network and this description into a folder."""
        network.save(folder / NETWORK)
        (folder / DESCRIPTION).write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, folder: Path) -> KerasDefinition:
        """Read the description that `save` wrote."""
        stored = json.loads((folder / DESCRIPTION).read_text())
        return cls(**stored | {"columns": tuple(stored["columns"])})

    def load(self, folder: Path) -> KerasModel:
        """Load the network that `save` wrote, onto the CPU. The network is not compiled.

        Layers and functions that the module of `model` defines need no registration with Keras.
        """
        keras = import_keras(self.framework)
        references.resolve(self.model)
        module = sys.modules[references.parse(self.model)[0]]
        custom = {name: value for name, value in vars(module).items() if callable(value)}
        with keras.device("cpu"):
            return keras.saving.load_model(folder / NETWORK, custom, compile=False)

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


def predict(network: KerasModel, x: np.ndarray, rows: int = ROWS_AT_ONCE) -> np.ndarray:
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

    def __init__(self, description: KerasDefinition, network: KerasModel):
        self.description = description
        self.network = network

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

        The result has further rows at its end, so that their number is a multiple of `BLOCK`.

        The rounding of a matrix product depends on its number of rows. Therefore rows are predicted
        in blocks of `BLOCK` rows, and the outputs for a row do not depend on the number of rows.
        """
        import keras

        added = -len(x) % BLOCK if len(x) else BLOCK
        with keras.device("cpu"):
            return predict(self.network, np.pad(x, ((0, added), (0, 0))), BLOCK)


def build(
    keras: ModuleType,
    cur: trial.Current,
    config: Params,
    *,
    params: Params,
    row: np.ndarray,
) -> KerasModel:
    """Call the user's function, and return its model, compiled and with weights.

    Args:
        keras: The module `keras`.
        cur: The trial.
        config: The trial's `params`.
        params: The trainer's parameters, with their defaults.
        row: Features of one row, shape (1, columns).

    Raises:
        ValueError: `params` does not fit the function, or the function does not return a Keras
            model.
    """
    ref = cur.options["model"]
    function = references.resolve(ref)
    facts = {
        "input_shape": row.shape[1:],
        "outputs": len(cur.classes or ()) if cur.task == "multiclass" else 1,
        "task": cur.task,
    }
    arguments = SplitParams("keras", config, [function]).arguments(function, facts)
    model = function(**arguments)
    if not isinstance(model, keras.Model):
        raise ValueError(
            f"`{ref}` returned a {type(model).__name__}, but must return a keras.Model"
        )
    if not model.built:
        model(row)  # `model.build` would not make the weights of layers in a user's class
    if not model.compiled:
        _compile(keras, model, str(cur.task), params)
    else:
        for name in COMPILE_PARAMETERS:
            if config.get(name) is not None and name not in arguments:
                raise ValueError(
                    f"params.{name} has no effect, because `{ref}` compiles its model; make "
                    f"`{name}` an argument of the function, or return a model that is not compiled"
                )
        if params["learning_rate"] is not None and "learning_rate" not in arguments:
            model.optimizer.learning_rate = params["learning_rate"]
    model.optimizer.build(model.trainable_variables)
    return model


def _compile(keras: ModuleType, model: KerasModel, task: str, params: Params) -> None:
    """Compile a model with the optimizer and the loss in `params`."""
    settings = {
        name: params[name]
        for name in ("learning_rate", "weight_decay", "clipnorm")
        if params[name] is not None
    }
    optimizer = keras.optimizers.get({"class_name": params["optimizer"], "config": settings})
    loss = params["loss"]
    if loss is None:
        last = model.layers[-1]
        activations = (keras.activations.sigmoid, keras.activations.softmax)
        gives_probabilities = isinstance(last, keras.layers.Softmax) or (
            getattr(last, "activation", None) in activations
        )
        arguments = {} if task == "regression" else {"from_logits": not gives_probabilities}
        loss = getattr(keras.losses, LOSSES[task])(**arguments)
    model.compile(optimizer=optimizer, loss=loss)


def has_logits(model: KerasModel) -> bool:
    """Return whether the loss of a compiled model expects logits, not probabilities."""
    config = model.loss.get_config() if hasattr(model.loss, "get_config") else {}
    return bool(config.get("from_logits", False))


def require_outputs(description: KerasDefinition, outputs: np.ndarray, cur: trial.Current) -> None:
    """Raise an error if the outputs of the user's model do not fit the label.

    Raises:
        ValueError: The outputs have the wrong shape, or should be probabilities and are not.
    """
    sizes = {"binary": (1, 2), "multiclass": (len(cur.classes or ()),), "regression": (1,)}[
        description.task
    ]
    size = outputs.size // len(outputs)
    if size not in sizes:
        expected = " or ".join(map(str, sizes))
        raise ValueError(
            f"the model of `{description.model}` has {size} outputs, but this label needs "
            f"{expected}"
        )
    if (
        description.task != "regression"
        and not description.logits
        and (outputs.min() < 0 or outputs.max() > 1)
    ):
        raise ValueError(
            f"the outputs of the model of `{description.model}` are not probabilities; end the "
            "model with sigmoid or softmax, or compile it with a loss that has from_logits=True"
        )


def loaded_copy(description: KerasDefinition, network: KerasModel, x: np.ndarray) -> Model:
    """Return a copy of a network on the CPU and without optimizer, which checkpoints contain.

    If Keras cannot load the copy, the trial fails now, not the export.

    Args:
        description: Description of the network.
        network: The network, before the first epoch.
        x: Features of some rows, shape (n, columns), with which the copy is checked.

    Raises:
        ValueError: Keras cannot load the network from the file that it writes, or the loaded
            network predicts other values.
    """
    with tempfile.TemporaryDirectory() as folder:
        description.save(network, Path(folder))
        try:
            copy = Model(description, description.load(Path(folder)))
        except Exception as e:
            raise ValueError(
                f"Keras cannot load the model of `{description.model}` from the file that it "
                f"wrote; see {GUIDE}: {e}"
            ) from e
    outputs = copy.outputs(x)[: len(x)]
    if not np.allclose(predict(network, x), outputs, rtol=1e-2, atol=1e-3, equal_nan=True):
        raise ValueError(
            f"the model of `{description.model}` predicts other values after Keras has saved and "
            "loaded it; does `get_config` of each of your layers return all arguments? See "
            f"{GUIDE}"
        )
    return copy

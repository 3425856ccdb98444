"""Keep the weights of the best epoch of a Keras model, and write and read checkpoints."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from sweeps import trial
from sweeps.trainers._best import Steps
from sweeps.trainers._keras_model import Description, Model, predict

LATEST = "latest.npz"
GUIDE = "https://keras.io/guides/serialization_and_saving"


class KerasSteps(Steps):
    """The steps of a network's training, and the weights of the best step. An epoch is a step.

    Args:
        cur: The trial.
        lead: Metric that decides among the epochs that satisfy the constraints.
        description: Description of the network.
        network: The network, before the first epoch.
        x: Features of some rows, shape (n, columns), with which the file of the network is checked.

    Attributes:
        weights: The network's weights at the best epoch. [] if there is none yet.

    Raises:
        ValueError: Keras cannot load the network from the file that it writes, or the loaded
            network predicts other values.
    """

    def __init__(
        self,
        cur: trial.Current,
        lead: str,
        description: Description,
        *,
        network: Any,
        x: np.ndarray,
    ):
        super().__init__(cur, lead)
        self.description = description
        self.network = network
        self.weights: list[np.ndarray] = []
        # A copy on the CPU and without optimizer, which checkpoints contain. If Keras cannot load
        # it, the trial fails now, not the export.
        with tempfile.TemporaryDirectory() as folder:
            description.save(network, Path(folder))
            try:
                self.copy = Model(description, description.load(Path(folder)))
            except Exception as e:
                text = (
                    f"Keras cannot load the model of `{description.model}` from the file that it "
                    "wrote"
                )
                raise ValueError(f"{text}; see {GUIDE}: {e}") from e
        if not np.allclose(
            predict(network, x),
            self.copy.outputs(x)[: len(x)],
            rtol=1e-2,
            atol=1e-3,
            equal_nan=True,
        ):
            raise ValueError(
                f"the model of `{description.model}` predicts other values after Keras has saved "
                "and loaded it; "
                f"does `get_config` of each of your layers return all arguments? See {GUIDE}"
            )

    def keep(self) -> None:
        """Keep the weights of the latest epoch."""
        self.weights = self.network.get_weights()

    def save(self, folder: Path) -> np.ndarray | None:
        """Write the model of the best epoch, and the state of the training.

        A copy of the model predicts the check rows, because a GPU rounds differently from the CPU,
        on which a bundle predicts.
        """
        latest, optimizer = self.network.get_weights(), self.network.optimizer
        self.copy.network.set_weights(self.weights or latest)
        self.description.save(self.copy.network, folder)
        weights = {f"weight-{number}": value for number, value in enumerate(latest)}
        variables = {
            f"optimizer-{number}": variable.numpy()
            for number, variable in enumerate(optimizer.variables)
        }
        np.savez(folder / LATEST, kind=np.array(type(optimizer).__name__), **weights, **variables)
        return None if self.cur.check is None else self.copy.predict(self.cur.check)

    def load(self, folder: Path) -> None:
        """Restore what `save` wrote.

        Under PBT, the checkpoint may come from another trial. The optimizer keeps its own learning
        rate. If the checkpoint was written with another optimizer, the optimizer starts without a
        state.

        Raises:
            ValueError: The weights in the checkpoint do not have the network's shapes.
        """
        network, optimizer = self.network, self.network.optimizer
        if self.best is not None:
            self.weights = self.description.load(folder).get_weights()
        with np.load(folder / LATEST) as latest:
            stored = {name: latest[name] for name in latest.files}
        weights = [stored[name] for name in stored if name.startswith("weight-")]
        if [value.shape for value in weights] != [value.shape for value in network.get_weights()]:
            raise ValueError(
                "the checkpoint has a model with weights of other shapes than the model that "
                f"`{self.description.model}` returns; "
                "under pbt, arguments that change the shapes must be constants"
            )
        network.set_weights(weights)
        if str(stored["kind"]) == type(optimizer).__name__:
            rate = optimizer.learning_rate
            values = [stored[name] for name in stored if name.startswith("optimizer-")]
            for variable, value in zip(optimizer.variables, values, strict=True):
                if variable is not rate:
                    variable.assign(value)

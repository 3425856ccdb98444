"""Keep the weights of the best epoch of a Keras model, and write and read checkpoints."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from sweeps import trial
from sweeps.trainers._best import BestStep
from sweeps.trainers._keras_model import Description, Model, predict

LATEST = "latest.npz"
GUIDE = "https://keras.io/guides/serialization_and_saving"


class Best(BestStep):
    """Best epoch so far, and the weights of the network after this epoch. An epoch is a step.

    Args:
        cur: The trial.
        description: Description of the network.
        network: The network, before the first epoch.
        x: Features of some rows, shape (n, columns), with which the file of the network is checked.

    Attributes:
        weights: The network's weights at the best epoch. [] if there is none yet.

    Raises:
        ValueError: Keras cannot load the network from the file that it writes, or the loaded
            network predicts other values.
    """

    def __init__(self, cur: trial.Current, description: Description, network: Any, x: np.ndarray):
        super().__init__(cur)
        self.description = description
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

    def save(self, network: Any, epoch: int, folder: Path) -> None:
        """Write a checkpoint, from which a resumed trial continues after `epoch`.

        The checkpoint has the model of the best epoch, and the state of the training.
        """
        self.copy.network.set_weights(self.weights or network.get_weights())
        self.description.save(self.copy.network, folder)
        optimizer = network.optimizer
        weights = {f"weight-{number}": value for number, value in enumerate(network.get_weights())}
        variables = {
            f"optimizer-{number}": variable.numpy()
            for number, variable in enumerate(optimizer.variables)
        }
        np.savez(folder / LATEST, kind=np.array(type(optimizer).__name__), **weights, **variables)
        self.write(folder, epoch)
        # The copy predicts the check rows, because a GPU rounds differently from the CPU, on which
        # a bundle predicts.
        check = None if self.cur.check is None else self.copy.predict(self.cur.check)
        self.cur.note_checkpoint(folder, self.step or epoch, check)

    def restore(self, network: Any) -> int:
        """Restore the checkpoint from which the trial continues, and return its last epoch.

        Return 0 if there is no checkpoint.

        Under PBT, the checkpoint may come from another trial. The optimizer keeps its own learning
        rate. If the checkpoint was written with another optimizer, the optimizer starts without a
        state.

        Raises:
            ValueError: The weights in the checkpoint do not have the network's shapes.
        """
        import ray.train

        checkpoint = ray.train.get_checkpoint()
        if checkpoint is None:
            return 0
        with checkpoint.as_directory() as folder:
            epoch = self.read(Path(folder))
            if self.step is not None:
                self.weights = self.description.load(Path(folder)).get_weights()
            with np.load(Path(folder, LATEST)) as latest:
                stored = {name: latest[name] for name in latest.files}
        weights = [stored[name] for name in stored if name.startswith("weight-")]
        if [value.shape for value in weights] != [value.shape for value in network.get_weights()]:
            raise ValueError(
                "the checkpoint has a model with weights of other shapes than the model that "
                f"`{self.description.model}` returns; "
                "under pbt, arguments that change the shapes must be constants"
            )
        network.set_weights(weights)
        if str(stored["kind"]) == type(network.optimizer).__name__:
            _restore_optimizer(
                network.optimizer,
                [stored[name] for name in stored if name.startswith("optimizer-")],
            )
        return epoch


def _restore_optimizer(optimizer: Any, values: list[np.ndarray]) -> None:
    """Set the variables of an optimizer, except the learning rate."""
    rate = optimizer.learning_rate
    for variable, value in zip(optimizer.variables, values, strict=True):
        if variable is not rate:
            variable.assign(value)

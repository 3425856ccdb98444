"""Definition of a network, and the checkpoints of the network's training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from sweeps import trial
from sweeps.core.label_columns import MULTILABEL, MULTIOUTPUT
from sweeps.trainers._best import BestStep
from sweeps.trainers._torch_parallel import weights_of

if TYPE_CHECKING:
    import pandas as pd


class Predictor(Protocol):
    """A loaded model."""

    def predict(self, features: pd.DataFrame) -> np.ndarray:
        """Predict prepared rows; see `sweeps.trainers`."""


@dataclass(frozen=True, kw_only=True)
class NetworkDefinition:
    """Everything except the weights that is needed to build a network and to interpret its outputs.

    Attributes:
        task: See `Current.task`.
        outputs: Number of outputs for a row.
        mean: Mean of a regression's target. The network predicts (target - mean) / std. For several
            label columns, the mean of each.
        std: Standard deviation of a regression's target, or of each of several label columns.
    """

    task: str
    outputs: int
    mean: float | Sequence[float] = 0.0
    std: float | Sequence[float] = 1.0

    def targets(self, labels: torch.Tensor) -> torch.Tensor:
        """Convert labels to the values and the dtype that the loss function expects."""
        if self.task in ("regression", MULTIOUTPUT):
            mean, std = (
                torch.tensor(value, dtype=labels.dtype, device=labels.device)
                for value in (self.mean, self.std)
            )
            return ((labels - mean) / std).to(torch.float32)
        if self.task == MULTILABEL:
            return labels.to(torch.float32)
        return labels if self.outputs > 1 else labels.to(torch.float32)

    def predictions(self, outputs: torch.Tensor) -> np.ndarray:
        """Convert a network's outputs to predictions.

        Args:
            outputs: float64 of shape (n, outputs), on a CPU.

        Returns:
            A float64 array with the probability of the second class, shape (n,); the probabilities
            of k classes, shape (n, k); or the values of a regression, shape (n,). For k label
            columns, values, or the probability of 1, shape (n, k).
        """
        if self.task == MULTIOUTPUT:
            return (
                outputs * torch.tensor(self.std, dtype=torch.float64)
                + torch.tensor(self.mean, dtype=torch.float64)
            ).numpy()
        if self.task == MULTILABEL:
            return torch.sigmoid(outputs).numpy()
        if self.task == "regression":
            assert isinstance(self.mean, float | int) and isinstance(self.std, float | int)
            return (outputs[:, 0] * self.std + self.mean).numpy()
        if self.outputs == 1:
            return torch.sigmoid(outputs[:, 0]).numpy()
        probabilities = torch.softmax(outputs, dim=1).numpy()
        return probabilities[:, 1] if self.task == "binary" else probabilities

    def loss_input(self, outputs: torch.Tensor) -> torch.Tensor:
        """Return a network's outputs in the shape that loss functions expect.

        The shape is (n,) for one output, else (n, outputs).
        """
        return outputs[:, 0] if self.outputs == 1 and outputs.ndim == 2 else outputs

    def save(self, folder: Path) -> None:
        """Write the files from which the trainer's `load` builds the network."""
        raise NotImplementedError

    def load(self, weights: dict[str, torch.Tensor]) -> Predictor:
        """Return the network with weights, on a CPU, as the trainer's `load` does."""
        raise NotImplementedError


def check_predictions(cur: trial.Current, load: Callable[[], Predictor]) -> np.ndarray | None:
    """Predict the check rows of a trial, which its checkpoints store, with a copy of the network.

    The copy is on the CPU, as in a bundle, because a GPU rounds differently.

    Args:
        cur: The trial.
        load: Function that returns the copy.
    """
    return None if cur.check is None else load().predict(cur.check)


class Best(BestStep):
    """The best epoch so far, and the weights after this epoch, which only rank 0 has.

    Args:
        cur: The trial.
        definition: Definition of the network.

    Attributes:
        weights: The weights after the best epoch, on a CPU; {} on ranks other than 0.
    """

    def __init__(self, cur: trial.Current, definition: NetworkDefinition):
        super().__init__(cur)
        self.definition = definition
        self.weights: dict[str, torch.Tensor] = {}

    def save(self, latest: dict[str, Any], network: nn.Module, folder: Path) -> None:
        """Write a checkpoint, from which a resumed trial continues.

        The checkpoint has the model of the best epoch, and the state of the training.

        Args:
            latest: The state; see `Training.state`.
            network: The network with the latest weights.
            folder: Folder of the checkpoint.
        """
        weights = weights_of(network)
        model = self.weights or weights
        save_file(model, folder / "model.safetensors")
        self.definition.save(folder)
        latest = latest | self.state
        torch.save(
            latest if self.step == latest["epoch"] else latest | {"network": weights},
            folder / "latest.pt",
        )
        check = check_predictions(self.cur, lambda: self.definition.load(model))
        self.cur.note_checkpoint(folder, self.step or latest["epoch"], check)

    def restore(self, network: nn.Module) -> dict[str, Any]:
        """Load the checkpoint from which the trial continues, and return its state.

        Return {} if there is no checkpoint.

        Args:
            network: The newly built network, which gets the latest weights.

        Raises:
            ValueError: The weights in the checkpoint do not have the network's shapes. This happens
                under PBT if arguments of the network are tuned.
        """
        import ray.train

        checkpoint = ray.train.get_checkpoint()
        if checkpoint is None:
            return {}
        with checkpoint.as_directory() as folder:
            latest: dict[str, Any] = torch.load(
                Path(folder, "latest.pt"), map_location="cpu", weights_only=True
            )
            model = load_file(Path(folder, "model.safetensors"))
        self.restore_state(latest)
        self.weights = {} if self.step is None else model
        weights = latest.get("network", model)
        if _shapes(network.state_dict()) != _shapes(weights):
            raise ValueError(
                "the checkpoint has a network of another shape; under pbt, parameters that change "
                "the shape must be constants"
            )
        network.load_state_dict(weights)
        return latest


def _shapes(weights: dict[str, torch.Tensor]) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in weights.items()}

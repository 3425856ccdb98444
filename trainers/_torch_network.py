"""Definition of a network, and the steps of its training."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from sweeps import trial
from sweeps.core.label_columns import MULTILABEL, MULTIOUTPUT, SEVERAL_COLUMNS

from ._best import Steps
from ._metrics import SPLITS, measure
from ._torch_data import TensorColumns
from ._torch_parallel import Ranks, weights_of

if TYPE_CHECKING:
    import pandas as pd

WEIGHTS = "model.safetensors"
DEFINITION = "network.json"


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
        probabilities: True if the outputs of a classifier are probabilities, not logits.
        columns: The columns that the network reads as tensors. None if the network gets other
            inputs.
    """

    task: str | None
    outputs: int
    mean: float | Sequence[float] = 0.0
    std: float | Sequence[float] = 1.0
    probabilities: bool = False
    columns: TensorColumns | None = None

    def targets(self, labels: torch.Tensor) -> torch.Tensor:
        """Convert labels to the values and the dtype that the loss function expects."""
        if self.task in ("regression", MULTIOUTPUT):
            mean = torch.tensor(self.mean, dtype=labels.dtype, device=labels.device)
            std = torch.tensor(self.std, dtype=labels.dtype, device=labels.device)
            return ((labels - mean) / std).to(torch.float32)
        is_code = self.outputs > 1 and self.task != MULTILABEL
        return labels if is_code else labels.to(torch.float32)

    def predictions(self, outputs: torch.Tensor) -> np.ndarray:
        """Convert a network's outputs to predictions.

        Args:
            outputs: Shape (n,), (n, 1) or (n, k). For two classes, one output per row is the output
                for the second class.

        Returns:
            A float64 array with the probability of the second class, shape (n,); the probabilities
            of k classes, shape (n, k); or the values of a regression, shape (n,). For k label
            columns, values, or the probability of 1, shape (n, k). Without a task, the outputs.

        Raises:
            ValueError: The outputs have another shape, or probabilities are outside of 0 to 1.
        """
        out = outputs.detach().to("cpu", torch.float64)
        if not len(out):
            out = out.reshape(0, self.outputs)
        if out.ndim == 2 and out.shape[1] == 1 and self.task in ("binary", "regression"):
            out = out[:, 0]
        self._require_shape(out)
        if self.task is None:
            return out.numpy()
        if self.task in ("regression", MULTIOUTPUT):
            std = torch.tensor(self.std, dtype=out.dtype)
            return (out * std + torch.tensor(self.mean, dtype=out.dtype)).numpy()
        if self.probabilities:
            if len(out) and (out.min() < 0 or out.max() > 1):
                raise ValueError(
                    f"the model predicts {float(out.min())} to {float(out.max())}, which are not "
                    "probabilities; set `output: logits`"
                )
        elif self.task in SEVERAL_COLUMNS or out.ndim == 1:
            out = torch.sigmoid(out)
        else:
            out = torch.softmax(out, dim=1)
        return (out[:, 1] if self.task == "binary" and out.ndim == 2 else out).numpy()

    def _require_shape(self, out: torch.Tensor) -> None:
        """Raise a ValueError if the outputs for some rows do not have the shape of the task."""
        if self.task == "binary":
            is_allowed = out.ndim == 1 or out.shape[1:] == (2,)
            expected = "(n,), (n, 1) or (n, 2)"
        elif self.task == "multiclass":
            is_allowed = out.ndim == 2 and out.shape[1] > 1
            expected = "(n, classes)"
        elif self.task == "regression":
            is_allowed = out.ndim == 1
            expected = "(n,) or (n, 1)"
        else:
            return
        if not is_allowed:
            raise ValueError(
                f"the model's output has the shape {tuple(out.shape)}, but must have the shape "
                f"{expected} for the task {self.task}"
            )

    def loss_input(self, outputs: torch.Tensor) -> torch.Tensor:
        """Return a network's outputs in the shape that loss functions expect.

        The shape is (n,) for one output, else (n, outputs).
        """
        return outputs[:, 0] if self.outputs == 1 and outputs.ndim == 2 else outputs

    @classmethod
    def read(cls, folder: str) -> Self:
        """Read the definition from a checkpoint."""
        stored = json.loads(Path(folder, DEFINITION).read_text())
        if stored["columns"] is not None:
            stored["columns"] = TensorColumns(**stored["columns"])
        return cls(**stored)


def load_weights(folder: str) -> dict[str, torch.Tensor]:
    """Load the weights of a checkpoint's model onto a CPU."""
    return load_file(Path(folder, WEIGHTS))


class NetworkSteps(Steps):
    """The steps of a network's training on one rank, and the weights of the best step.

    Args:
        cur: The trial.
        lead: Metric that decides among the steps that satisfy the constraints.
        ranks: The ranks of the trial.
        load_model: The trainer's function `load`.

    Attributes:
        network: The network.
        definition: Definition of the network.
        weights: The weights of the best step, on a CPU. {} on ranks other than 0, and if there is
            no best step.
    """

    network: nn.Module
    definition: NetworkDefinition

    def __init__(
        self, cur: trial.Current, lead: str, ranks: Ranks, load_model: Callable[[str], Predictor]
    ):
        super().__init__(cur, lead)
        self.ranks = ranks
        self.load_model = load_model
        self.weights: dict[str, torch.Tensor] = {}

    def keep(self) -> None:
        """Keep the weights of the latest step on rank 0."""
        if self.ranks.rank == 0:
            self.weights = weights_of(self.network)

    def labels_of(self, split: str) -> np.ndarray:
        """Return the labels of this rank's rows of "train", or of all rows of "valid"."""
        raise NotImplementedError

    def outputs(self, split: str, rows: range) -> torch.Tensor:
        """Compute the network's outputs for some of this rank's rows of a split."""
        raise NotImplementedError

    def all_outputs(self, split: str) -> torch.Tensor:
        """Return the network's outputs for the rows of all ranks, float64 on a CPU."""
        self.ranks.share_buffers(self.network)
        count = len(self.labels_of(split))
        # Each rank has all rows of valid.
        rows = self.ranks.part_of(count) if split == "valid" else range(count)
        outputs = self.outputs(split, rows).detach().to("cpu", torch.float64)
        return torch.from_numpy(self.ranks.gather_array(outputs.numpy()))

    def predict(self, split: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the labels and the network's predictions for the rows of all ranks."""
        labels = self.labels_of(split)
        if split == "train":
            labels = self.ranks.gather_array(labels)
        return labels, self.definition.predictions(self.all_outputs(split))

    def final(self, reported: Mapping[str, float]) -> dict[str, float]:
        """Measure the network with the weights of the best step.

        The network keeps its latest weights.
        """
        latest = weights_of(self.network)
        self.ranks.load(self.network, self.weights or latest)
        scores: dict[str, float] = {}
        for split in SPLITS:
            scores |= measure(str(self.cur.task), split, *self.predict(split))
        self.ranks.load(self.network, latest)
        return scores

    def save(self, folder: Path) -> np.ndarray | None:
        """Write the model of the best step.

        A loaded copy of the model predicts the check rows. The copy is on the CPU, as in a bundle,
        because a GPU rounds differently.
        """
        save_file(self.weights or weights_of(self.network), folder / WEIGHTS)
        (folder / DEFINITION).write_text(json.dumps(asdict(self.definition)))
        check = self.cur.check
        return None if check is None else self.load_model(str(folder)).predict(check)

    def load(self, folder: Path) -> None:
        """Restore the weights of the best step on rank 0."""
        if self.best is not None and self.ranks.rank == 0:
            self.weights = load_weights(str(folder))

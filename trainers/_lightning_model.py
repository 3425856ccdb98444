"""A module of Lightning: how it is built, loaded, and predicts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.fabric.utilities import move_data_to_device
from lightning.pytorch.plugins.precision import Precision

from sweeps.core.plugins import references

from . import Params
from ._torch_data import Inputs, TensorColumns, TensorRows, few_threads
from ._torch_network import NetworkDefinition, load_weights
from ._torch_training import evaluating

if TYPE_CHECKING:
    import pandas as pd

PREDICTED_AT_ONCE = 1024  # rows
CPU = torch.device("cpu")


class Table(torch.utils.data.Dataset[Any]):
    """Rows in memory. An item is a batch: the rows with the given numbers.

    Args:
        rows: The module's inputs.
        labels: Class codes as int64 or values as float32, shape (n,). None for rows without labels.
    """

    def __init__(self, rows: TensorRows, labels: torch.Tensor | None):
        self.rows = rows
        self.labels = labels

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, numbers: torch.Tensor) -> Inputs | tuple[Inputs, torch.Tensor]:
        x = next(self.rows.batches(len(numbers), numbers))  # all numbers are one batch
        return x if self.labels is None else (x, self.labels[numbers])


@dataclass(frozen=True, kw_only=True)
class LightningDefinition(NetworkDefinition):
    """Everything that is needed to build a module, except its weights.

    Attributes:
        module: Reference to the class or function.
        arguments: Arguments of the class or function.
    """

    module: str
    arguments: Params

    def build(self) -> pl.LightningModule:
        """Return a new module."""
        module: pl.LightningModule = references.resolve(self.module)(**self.arguments)
        return module


def outputs_of(
    module: pl.LightningModule, rows: TensorRows, order: torch.Tensor | None, precision: Precision
) -> torch.Tensor:
    """Return what `predict_step` of a module returns for some rows.

    Args:
        module: The module.
        rows: The rows.
        order: Numbers of the rows to use. None for all rows.
        precision: Lightning's plugin for the precision of the computation.
    """
    with evaluating(module), precision.predict_step_context():
        parts = [
            module.predict_step(
                precision.convert_input(move_data_to_device(x, module.device)), number
            )
            for number, x in enumerate(rows.batches(PREDICTED_AT_ONCE, order))
        ]
    return torch.cat(parts) if parts else torch.zeros(0)


class Model:
    """A trained module on a CPU."""

    def __init__(self, folder: str):
        self.description = LightningDefinition.read(folder)
        self.module = self.description.build()
        self.module.configure_model()
        self.module.load_state_dict(load_weights(folder))

    def predict(self, features: pd.DataFrame) -> np.ndarray:
        """Predict prepared rows; see `NetworkDefinition.predictions` for the result."""
        columns = self.description.columns or TensorColumns.of(features)
        rows = TensorRows(columns.tensors(features), CPU)
        with few_threads(len(features)):
            return self.description.predictions(outputs_of(self.module, rows, None, Precision()))


def load(folder: str) -> Model:
    """Load the best model of a checkpoint that `train_func` wrote."""
    return Model(folder)

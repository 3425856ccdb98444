"""Train a multi-layer perceptron for tables with PyTorch.

It trains on one worker or on several workers (DistributedDataParallel).

`torch_tabular.yaml` describes `params`.

Each epoch sends one report, with the metrics that objectives and constraints name. `valid-rmse` and
`valid-mae` have the unit of the target. If the trial is not stopped, the other metrics of train and
valid are measured after the last epoch, for the model of the best epoch (`Current.report_final`).

A missing value becomes 0. Scale the columns (`StandardScaler`), so that 0 is the mean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from sweeps import trial

from . import Params, fill_parameters
from ._torch_data import NUMBERS, few_threads
from .torch import Model as NetworkModel
from .torch import train

if TYPE_CHECKING:
    import pandas as pd

BLOCK = 64  # number of rows that a loaded model predicts at once
WIDTH = 16  # smallest number of units of each layer of a loaded model
OPTIMIZERS = {"adam": "torch.optim:Adam", "adamw": "torch.optim:AdamW", "sgd": "torch.optim:SGD"}


def perceptron(
    in_features: int, out_features: int, depth: int, width: int, dropout: float
) -> nn.Sequential:
    """Return a newly initialized network.

    The network does not use BatchNorm. BatchNorm fails if the last batch has one row, and its state
    differs between the ranks of DDP.
    """
    layers: list[nn.Module] = []
    size = in_features
    for _ in range(depth):
        layers += [nn.Linear(size, width), nn.ReLU(), nn.Dropout(dropout)]
        size = width
    return nn.Sequential(*layers, nn.Linear(size, out_features))


class Model(NetworkModel):
    """A trained network on a CPU."""

    def __init__(self, folder: str):
        super().__init__(folder)
        self.network = _widened(self.network).eval()

    def predict(self, features: pd.DataFrame) -> np.ndarray:
        """Predict prepared rows. The result has the format of `NetworkDefinition.predictions`.

        The prediction for a row does not depend on other rows, except for the last bits if a layer
        has 1,000 units or more. The rounding of a matrix product depends on its number of rows, so
        rows are predicted in blocks of `BLOCK` rows.
        """
        definition = self.definition
        assert definition.columns is not None
        inputs = definition.columns.tensors(features)[NUMBERS]
        rows = len(inputs)
        padded = nn.functional.pad(inputs, (0, 0, 0, -rows % BLOCK))
        with few_threads(rows), torch.inference_mode():
            outputs = torch.cat([self.network(block) for block in torch.split(padded, BLOCK)])
        return definition.predictions(outputs[:rows, : definition.outputs])


def _widened(network: nn.Module) -> nn.Module:
    """Return the same network with at least `WIDTH` units in each layer.

    The weights of the new units are 0.

    In a narrower layer, the last bits of a prediction depend on the position of the row.
    """
    layers: list[nn.Module] = []
    before: nn.Linear | None = None  # the widened layer before the current one
    for layer in network.children():
        if not isinstance(layer, nn.Linear):
            layers.append(layer)
            continue
        rows, columns = layer.weight.shape
        wide = nn.Linear(columns if before is None else before.out_features, max(rows, WIDTH))
        with torch.no_grad():
            wide.weight.zero_()[:rows, :columns] = layer.weight
            wide.bias.zero_()[:rows] = layer.bias
        layers.append(wide)
        before = wide
    return nn.Sequential(*layers)


def load(folder: str) -> Model:
    """Load the best model of a checkpoint that `train_func` wrote."""
    return Model(folder)


def train_func(config: Params) -> None:
    """Train one network. Report every epoch, and keep the model of the best epoch.

    Args:
        config: The trial's `params`.

    Raises:
        ValueError: The data has no label, a column is not numeric, or a parameter or a requested
            metric is unknown.
    """
    cur = trial.current()
    params = fill_parameters("torch_tabular", config, cur.sweep_max_t)
    momentum = {"momentum": 0.9} if params["optimizer"] == "sgd" else {}
    settings = {
        "epochs": params["epochs"],
        "batch_size": params["batch_size"],
        "optimizer": OPTIMIZERS[params["optimizer"]],
        "lr": params["lr"],
        "optimizer_args": {"weight_decay": params["weight_decay"], **momentum},
    }
    train(
        cur,
        {name: params[name] for name in ("depth", "width", "dropout")},
        fill_parameters("torch", settings, None),
        options={"model": f"{__name__}:{perceptron.__name__}", "loss": None, "dataset": None},
        load_model=load,
    )

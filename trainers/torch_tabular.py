"""Train a multi-layer perceptron for tables with PyTorch.

It trains on one worker or on several workers (DistributedDataParallel).

`torch_tabular.yaml` describes `params`.

Each epoch sends one report, with the metrics that objectives and constraints name. `valid-rmse` and
`valid-mae` have the unit of the target. If the trial is not stopped, the other metrics of train and
valid are measured after the last epoch, for the model of the best epoch (`Current.report_final`).

A missing value becomes 0. Scale the columns (`StandardScaler`), so that 0 is the mean.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn

from sweeps import trial
from sweeps.core.trainer_file import read
from sweeps.trainers import fill_parameters, read_rows, require_task
from sweeps.trainers._torch_data import NUMBERS, Columns, TensorRows, few_threads
from sweeps.trainers._torch_loop import Settings, Split, fit, moments, set_seeds
from sweeps.trainers._torch_network import NetworkDefinition
from sweeps.trainers._torch_parallel import Ranks

if TYPE_CHECKING:
    import pandas as pd

BLOCK = 64  # number of rows that a loaded model predicts at once
WIDTH = 16  # smallest number of units of each layer of a loaded model
LOSSES = {
    "binary": nn.BCEWithLogitsLoss,
    "multiclass": nn.CrossEntropyLoss,
    "regression": nn.MSELoss,
}
OPTIMIZERS = {"adam": "torch.optim:Adam", "adamw": "torch.optim:AdamW", "sgd": "torch.optim:SGD"}


@dataclass(frozen=True, kw_only=True)
class Architecture(NetworkDefinition):
    """Definition of a network; see `NetworkDefinition`."""

    columns: tuple[str, ...]
    depth: int
    width: int
    dropout: float

    def build(self) -> nn.Module:
        """Return a newly initialized network.

        The network does not use BatchNorm. BatchNorm fails if the last batch has one row, and its
        state differs between the ranks of DDP.
        """
        layers: list[nn.Module] = []
        size = len(self.columns)
        for _ in range(self.depth):
            layers += [nn.Linear(size, self.width), nn.ReLU(), nn.Dropout(self.dropout)]
            size = self.width
        return nn.Sequential(*layers, nn.Linear(size, self.outputs))

    def save(self, folder: Path) -> None:
        """Write the definition as JSON."""
        Path(folder, "architecture.json").write_text(json.dumps(asdict(self)))

    def load(self, weights: dict[str, torch.Tensor]) -> Model:
        """Return the network with weights, on a CPU."""
        return Model(self, weights)


class Model:
    """A trained network on a CPU."""

    def __init__(self, architecture: Architecture, weights: dict[str, torch.Tensor]):
        self.architecture = architecture
        network = architecture.build()
        network.load_state_dict(weights)
        self.network = _widened(network).eval()

    def predict(self, features: pd.DataFrame) -> np.ndarray:
        """Predict prepared rows. The result has the format of `NetworkDefinition.predictions`.

        The prediction for a row does not depend on other rows, except for the last bits if a layer
        has 1,000 units or more. The rounding of a matrix product depends on its number of rows, so
        rows are predicted in blocks of `BLOCK` rows.
        """
        inputs = Columns(self.architecture.columns).tensors(features)[NUMBERS]
        rows = len(inputs)
        padded = nn.functional.pad(inputs, (0, 0, 0, -rows % BLOCK))
        with few_threads(rows), torch.inference_mode():
            outputs = [
                self.network(block).to(torch.float64) for block in torch.split(padded, BLOCK)
            ]
        return self.architecture.predictions(torch.cat(outputs)[:rows, : self.architecture.outputs])


def _widened(network: nn.Module) -> nn.Module:
    """Return the same network with at least `WIDTH` units in each layer.

    The weights of the new units are 0.

    In a narrower layer, the last bits of a prediction depend on the position of the row.
    """
    layers: list[nn.Module] = []
    inputs: int | None = None
    for layer in network.children():
        if isinstance(layer, nn.Linear):
            rows, columns = layer.weight.shape
            wide = nn.Linear(columns if inputs is None else inputs, max(rows, WIDTH))
            with torch.no_grad():
                wide.weight.zero_()[:rows, :columns] = layer.weight
                wide.bias.zero_()[:rows] = layer.bias
            layer, inputs = wide, wide.out_features
        layers.append(layer)
    return nn.Sequential(*layers)


def load(folder: str) -> Model:
    """Load the best model of a checkpoint that `train_func` wrote."""
    stored = json.loads(Path(folder, "architecture.json").read_text())
    architecture = Architecture(**stored | {"columns": tuple(stored["columns"])})
    return Model(architecture, load_file(Path(folder, "model.safetensors")))


def train_func(config: dict[str, Any]) -> None:
    """Train one network. Report every epoch, and keep the model of the best epoch.

    Args:
        config: The trial's `params`.

    Raises:
        ValueError: The data has no label, a column is not numeric, or a parameter or a requested
            metric is unknown.
    """
    cur = trial.current()
    task = require_task(cur.task)
    params = fill_parameters("torch_tabular", config, cur.sweep_max_t)
    ranks = Ranks.of()
    torch.set_num_threads(cur.threads)
    columns, train = cur.cached(
        f"torch_tabular.train.{ranks.device}", lambda: _split("train", cur, ranks.device)
    )
    _, valid = cur.cached(
        f"torch_tabular.valid.{ranks.device}", lambda: _split("valid", cur, ranks.device)
    )
    mean, std = moments(train.labels, ranks, train.weights) if task == "regression" else (0.0, 1.0)
    architecture = Architecture(
        columns=columns,
        task=task,
        outputs=len(cur.classes or ()) if task == "multiclass" else 1,
        mean=mean,
        std=std,
        **{name: params[name] for name in ("depth", "width", "dropout")},
    )
    momentum = {"momentum": 0.9} if params["optimizer"] == "sgd" else {}
    settings = Settings(
        epochs=params["epochs"],
        batch_size=params["batch_size"],
        optimizer=OPTIMIZERS[params["optimizer"]],
        lr=params["lr"],
        optimizer_args={"weight_decay": params["weight_decay"], **momentum},
    )
    set_seeds(cur.seed)
    fit(
        architecture.build(),
        architecture,
        LOSSES[task](),
        settings,
        data=(train, valid),
        ranks=ranks,
        usual=read("torch_tabular")["metrics"][task],
    )


def _split(name: str, cur: trial.Current, device: torch.device) -> tuple[tuple[str, ...], Split]:
    """Return the names of the columns, and this rank's rows of a split."""
    rows = read_rows(name, cur)
    columns = Columns(tuple(map(str, rows.features.columns)))
    return columns.numbers, Split.of(
        TensorRows(columns.tensors(rows.features), device), rows, device
    )

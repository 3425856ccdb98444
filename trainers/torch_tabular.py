"""Train a multi-layer perceptron for tables with PyTorch, on one worker or on several workers (DistributedDataParallel).

`TRAINER["parameters"]` describes `params`.

Each epoch sends one report, with the metrics that objectives and constraints name. `valid-rmse` and
`valid-mae` have the unit of the target. If the trial is not stopped, the other metrics of train and
valid are measured after the last epoch, for the model of the best epoch (`Current.report_final`).
With `params.report: all`, every epoch reports all metrics of `TRAINER["metrics"]`.

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
from sweeps.trainers import fill_parameters, read_rows, reports_all, require_task
from sweeps.trainers._torch_data import NUMBERS, Columns, TensorRows, few_threads
from sweeps.trainers._torch_loop import Settings, Split, fit, moments, set_seeds
from sweeps.trainers._torch_network import NetworkDefinition
from sweeps.trainers._torch_parallel import Ranks

if TYPE_CHECKING:
    import pandas as pd

# Description of this trainer, which is read from the source without an import.
# `sweeps/space/trainer_definition.py` explains the keys.
TRAINER: dict[str, Any] = {
    "loop": "train_func",
    "backend": "torch",
    "load": "load",
    "resume_files": ["latest.pt"],
    "reads_numbers": True,
    "needs_label": True,
    "weights": True,
    # At most the best weights, the latest weights, and two moments of each latest weight.
    "checkpoint_bytes": (
        "20_000 + 30 * features + 16 * ((features + 1) * (width or 64)"
        " + (depth or 2) * ((width or 64) + 1) ** 2 + ((width or 64) + features + 1) * outputs)"
    ),
    "metrics": {
        "binary": ["valid-logloss", "valid-error", "valid-accuracy", "valid-auc", "train-loss"],
        "multiclass": ["valid-mlogloss", "valid-merror", "valid-accuracy", "train-loss"],
        "regression": ["valid-rmse", "valid-mae", "train-loss"],
    },
    "all_metrics": True,
    "parameters": {
        "depth": {
            "type": "integer",
            "minimum": 0,
            "default": 2,
            "description": "Number of hidden layers.",
        },
        "width": {
            "type": "integer",
            "minimum": 1,
            "default": 64,
            "description": "Number of units in each hidden layer.",
        },
        "dropout": {
            "type": "number",
            "minimum": 0,
            "exclusiveMaximum": 1,
            "default": 0.0,
            "description": "Dropout rate of hidden units.",
        },
        "optimizer": {
            "enum": ["adam", "adamw", "sgd"],
            "default": "adam",
            "description": "Optimizer; sgd has a momentum of 0.9.",
        },
        "lr": {
            "type": "number",
            "exclusiveMinimum": 0,
            "default": 0.001,
            "description": "Learning rate.",
        },
        "weight_decay": {
            "type": "number",
            "minimum": 0,
            "default": 0.0,
            "description": "L2 penalty on the weights.",
        },
        "batch_size": {
            "type": "integer",
            "minimum": 1,
            "default": 64,
            "description": "Number of rows in each training step of a worker.",
        },
        "epochs": {
            "type": "integer",
            "minimum": 1,
            "description": "Number of passes over the rows. Each pass sends one report. Default: `max_t`, or "
            "20.",
        },
        "report": {
            "enum": ["asked", "all"],
            "default": "asked",
            "description": "Metrics in each report: `asked` for the metrics that the space file names, or "
            "`all`.",
        },
    },
    # A value of each option and parameter, or a domain to tune it with, for editors
    "examples": {
        "depth": {"randint": [1, 4]},
        "width": {"lograndint": [16, 256]},
        "dropout": {"uniform": [0.0, 0.5]},
        "lr": {"loguniform": [0.0001, 0.1]},
        "weight_decay": {"loguniform": [1e-05, 0.01]},
        "batch_size": {"choice": [32, 64, 128]},
        "epochs": 50,
    },
}
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
        config: The trial's `params`; see `TRAINER`.

    Raises:
        ValueError: The data has no label, a column is not numeric, or a parameter or a requested
            metric is unknown.
    """
    cur = trial.current()
    task = require_task(cur.task)
    params = fill_parameters("torch_tabular", TRAINER["parameters"], config, cur.sweep_max_t)
    ranks = Ranks.of("ddp")
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
        report_all=reports_all(config),
    )
    set_seeds(cur.seed)
    fit(
        architecture.build(),
        architecture,
        LOSSES[task](),
        settings,
        (train, valid),
        ranks,
        TRAINER["metrics"],
    )


def _split(name: str, cur: trial.Current, device: torch.device) -> tuple[tuple[str, ...], Split]:
    """Return the names of the columns, and this rank's rows of a split."""
    rows = read_rows(name, cur)
    columns = Columns(tuple(map(str, rows.features.columns)))
    return columns.numbers, Split.of(
        TensorRows(columns.tensors(rows.features), device), rows, device
    )

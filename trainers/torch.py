"""Train your own PyTorch network. This trainer has the training loop.

You bring the network, and optionally the loss.

    trainer: {name: torch, model: "my_nets:Net", loss: "torch.nn:CrossEntropyLoss"}

`torch.yaml` describes the keys of the section `trainer`, and `params`. Each epoch is one step.

The network gets the prepared columns. All columns of numbers are one float32 tensor of shape
(batch, columns), in which missing values are
0. A column with an array in each row, such as an image, is a tensor of shape (batch, *shape).
Arrays of floats become float32; arrays of integers keep their dtype. If there are several of these
inputs, the network gets them as keyword arguments: `features` for the numbers, and each column of
arrays under its own name. With a single input, the network gets this input as its only argument.

`model` is a class or function that returns a network. Each name in `params` that
`torch.yaml` lacks is an argument of `model`. The trainer also passes the following arguments if the
signature names them: `in_features`, the number of values in a
row; `input_shape`, the shape of a row; `out_features`, `num_classes` or `outputs`, the number of
outputs; and `task`.

| task | outputs | default loss | prediction |
|---|---|---|---|
| binary | 1, or 2 with a loss for classes | BCEWithLogitsLoss | sigmoid of 1 output, softmax of 2 |
| multiclass | one for each class | CrossEntropyLoss | softmax |
| regression | 1 | MSELoss | the output, scaled back to the target's unit |
| several labels of 0 and 1 | one for each label | BCEWithLogitsLoss | sigmoid of the outputs |
| several labels of numbers | one for each label | MSELoss | outputs, scaled to the targets' units |

The loss is called with outputs and targets, and returns the mean over the rows. Outputs have the
shape (batch,) if there is one output, else (batch, outputs). Targets have the shape (batch,): class
codes as int64 if there are several outputs, else floats. For several labels, targets are floats of
shape (batch, labels). With `torch.nn:BCELoss`, the output itself is the probability.
"""

from __future__ import annotations

import functools
import inspect
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn

from sweeps import trial
from sweeps.core.label_columns import MULTILABEL, MULTIOUTPUT, label_columns
from sweeps.core.trainer_file import read
from sweeps.trainers import fill_parameters, read_rows, require_task
from sweeps.trainers._arguments import SplitParams
from sweeps.trainers._torch_data import (
    Columns,
    DatasetRows,
    Rows,
    TensorRows,
    call,
    few_threads,
    forward,
    row_shape,
)
from sweeps.trainers._torch_loop import Settings, Split, fit, moments, set_seeds
from sweeps.trainers._torch_network import NetworkDefinition
from sweeps.trainers._torch_optimizer import build, resolve
from sweeps.trainers._torch_parallel import Ranks

if TYPE_CHECKING:
    import pandas as pd

LOSSES = {
    "binary": "torch.nn:BCEWithLogitsLoss",
    "multiclass": "torch.nn:CrossEntropyLoss",
    "regression": "torch.nn:MSELoss",
    "multilabel": "torch.nn:BCEWithLogitsLoss",
    "multioutput": "torch.nn:MSELoss",
}
# Losses whose targets are class codes. With two classes, the network then has two outputs.
OF_CLASSES = (
    nn.CrossEntropyLoss,
    nn.NLLLoss,
    nn.MultiMarginLoss,
    nn.functional.cross_entropy,
    nn.functional.nll_loss,
)
OF_PROBABILITIES = (nn.BCELoss, nn.functional.binary_cross_entropy)
FILE = "network.json"


@dataclass(frozen=True, kw_only=True)
class UserNetwork(NetworkDefinition):
    """Definition of a user's network; see `NetworkDefinition`.

    Attributes:
        model: The class or function that returns the network, as `module:attr`.
        arguments: Arguments of `model`, by name.
        columns: The columns that the network reads. None if `dataset` makes the inputs.
        dataset: The function that makes the inputs, as `module:attr`, or None.
        dataset_args: Further arguments of `dataset`, by name.
        probabilities: True if the output of a binary classification, or of labels of 0 and 1, is a
            probability.
    """

    model: str
    arguments: Mapping[str, Any]
    columns: Columns | None
    dataset: str | None
    dataset_args: Mapping[str, Any]
    probabilities: bool

    def build(self) -> nn.Module:
        """Return a newly initialized network.

        Raises:
            ValueError: The arguments do not fit the signature of `model`, or `model` returns no
                network.
        """
        network = build("trainer.model", self.model, self.arguments)
        if not isinstance(network, nn.Module):
            raise ValueError(
                f"trainer.model: `{self.model}` returned a {type(network).__name__}, but must "
                "return a torch.nn.Module"
            )
        return network

    def rows(
        self, features: pd.DataFrame, train: bool, device: torch.device, workers: int = 0
    ) -> Rows:
        """Return the network's inputs for prepared features.

        Args:
            features: The features.
            train: True for the rows of train.
            device: Device of the network.
            workers: Number of processes that read items of `dataset`.
        """
        if self.columns is not None:
            return TensorRows(self.columns.tensors(features), device)
        return DatasetRows(
            build("trainer.dataset", str(self.dataset), self.dataset_args, features, train),
            device,
            workers,
        )

    def predictions(self, outputs: torch.Tensor) -> np.ndarray:
        """Convert a network's outputs to predictions; see `NetworkDefinition.predictions`."""
        if self.probabilities:
            return (outputs if self.task == MULTILABEL else outputs[:, 0]).numpy()
        return super().predictions(outputs)

    def save(self, folder: Path) -> None:
        """Write the definition as JSON."""
        Path(folder, FILE).write_text(json.dumps(asdict(self)))

    def load(self, weights: dict[str, torch.Tensor]) -> Model:
        """Return the network with weights, on a CPU."""
        return Model(self, weights)

    @classmethod
    def read(cls, folder: Path) -> UserNetwork:
        """Read the definition that `save` wrote."""
        stored = json.loads(Path(folder, FILE).read_text())
        columns = stored.pop("columns")
        return cls(
            columns=columns and Columns(*(tuple(columns[field.name]) for field in fields(Columns))),
            **stored,
        )


class Model:
    """A trained network on a CPU."""

    def __init__(self, definition: UserNetwork, weights: dict[str, torch.Tensor]):
        self.definition = definition
        self.network = definition.build()
        self.network.load_state_dict(weights)
        self.network.eval()

    def predict(self, features: pd.DataFrame) -> np.ndarray:
        """Predict prepared rows. The result has the format of `NetworkDefinition.predictions`."""
        if not len(features):
            return self.definition.predictions(
                torch.zeros((0, self.definition.outputs), dtype=torch.float64)
            )
        with few_threads(len(features)):
            outputs = forward(
                self.network, self.definition.rows(features, False, torch.device("cpu"))
            )
        return self.definition.predictions(outputs.to(torch.float64))


def load(folder: str) -> Model:
    """Load the best model of a checkpoint that `train_func` wrote."""
    return Model(UserNetwork.read(Path(folder)), load_file(Path(folder, "model.safetensors")))


def train_func(config: dict[str, Any]) -> None:
    """Train one network. Report every epoch, and keep the model of the best epoch.

    Args:
        config: The trial's `params`.

    Raises:
        ValueError: The data has no label, a column or a parameter is invalid, a requested metric is
            unknown, or the network has another number of outputs than the task needs.
    """
    cur = trial.current()
    task = require_task(cur.task)
    options = cur.options
    params = fill_parameters("torch", config, cur.sweep_max_t)
    if params["loader_workers"] and options["dataset"] is None:
        raise ValueError(
            "params.loader_workers: needs trainer.dataset, because without it all inputs are in "
            "memory"
        )
    ranks = Ranks.of()
    torch.set_num_threads(cur.threads)
    loss = _loss(options["loss"] or LOSSES[task], params["loss_args"] or {}, ranks.device)
    definition = UserNetwork(
        task=task,
        outputs=1,
        model=options["model"],
        arguments={},
        columns=None,
        dataset=options["dataset"],
        dataset_args=params["dataset_args"] or {},
        probabilities=resolve("trainer.loss", options["loss"] or LOSSES[task]) in OF_PROBABILITIES,
    )
    definition, data = _data(cur, definition, ranks.device, params["loader_workers"])
    if task == MULTIOUTPUT and params["standardize_target"]:
        columns = [moments(column, ranks, data[0].weights) for column in data[0].labels.T]
        definition = replace(
            definition, mean=[mean for mean, _ in columns], std=[std for _, std in columns]
        )
    elif task == "regression" and params["standardize_target"]:
        mean, std = moments(data[0].labels, ranks, data[0].weights)
        definition = replace(definition, mean=mean, std=std)
    set_seeds(cur.seed)
    network, definition = _network(definition, config, data[0].rows, cur)
    settings = {
        field.name: params[field.name]
        for field in fields(Settings)
        if params.get(field.name) is not None
    }
    usual = read("torch")["metrics"][task]
    fit(network, definition, loss, Settings(**settings), data=data, ranks=ranks, usual=usual)


def _loss(reference: str, given: dict[str, Any], device: torch.device) -> Any:
    """Return the loss as a function of outputs and targets.

    Args:
        reference: A class, or a function of outputs and targets, as `module:attr`.
        given: Arguments of the class, or further arguments of the function, by name. Lists of
            numbers become tensors.
        device: Device of the outputs.
    """
    arguments = {
        name: torch.tensor(value, dtype=torch.float32) if isinstance(value, list) else value
        for name, value in given.items()
    }
    function = resolve("trainer.loss", reference)
    if not inspect.isclass(function):
        return functools.partial(function, **arguments)
    loss = build("trainer.loss", reference, arguments)
    return loss.to(device) if isinstance(loss, nn.Module) else loss


def _data(
    cur: trial.Current, definition: UserNetwork, device: torch.device, workers: int
) -> tuple[UserNetwork, tuple[Split, Split]]:
    """Read train and valid.

    Return the definition with the columns that the network reads, and the two splits.

    Args:
        cur: The trial.
        definition: Definition of the network, without columns.
        device: Device of the network.
        workers: Number of processes that read items of `trainer.dataset`.
    """

    def tensors(name: str) -> tuple[Columns, Split]:
        rows = read_rows(name, cur)
        columns = Columns.of(rows.features)
        return columns, Split.of(
            replace(definition, columns=columns).rows(rows.features, name == "train", device),
            rows,
            device,
        )

    def items(name: str) -> Split:
        rows = cur.cached(f"torch.{name}.frame", lambda: read_rows(name, cur))
        return Split.of(
            definition.rows(rows.features, name == "train", device, workers), rows, device
        )

    if definition.dataset is not None:
        return definition, (items("train"), items("valid"))
    columns, train = cur.cached(f"torch.train.{device}", lambda: tensors("train"))
    _, valid = cur.cached(f"torch.valid.{device}", lambda: tensors("valid"))
    return replace(definition, columns=columns), (train, valid)


def _network(
    definition: UserNetwork, config: Mapping[str, Any], rows: Rows, cur: trial.Current
) -> tuple[nn.Module, UserNetwork]:
    """Build the network. Return the network and the complete definition.

    Args:
        definition: Definition of the network, without arguments.
        config: The trial's `params`.
        rows: Rows of train. The network computes its outputs for the first row, so that its number
            of outputs is known.
        cur: The trial.

    Raises:
        ValueError: `params` has a name that neither the trainer nor the network takes, or the
            outputs do not have a shape that the task needs.
    """
    of_classes = (
        cur.options["loss"] is not None
        and resolve("trainer.loss", cur.options["loss"]) in OF_CLASSES
    )
    outputs = (
        len(cur.classes or ())
        if cur.task == "multiclass" or (cur.task == "binary" and of_classes)
        else len(label_columns(cur.label))
    )
    shape = row_shape(rows)
    known = {"in_features": math.prod(shape), "input_shape": list(shape), "task": cur.task}
    known |= dict.fromkeys(("out_features", "num_classes", "outputs"), outputs)
    function = resolve("trainer.model", definition.model)
    arguments = SplitParams("torch", config, [function]).arguments(function, known)
    definition = replace(definition, arguments=arguments)
    network = definition.build()
    network.eval()
    with torch.no_grad():
        found = call(network, rows.first())
    if not isinstance(found, torch.Tensor):
        raise ValueError(
            f"trainer.model: the network returned a {type(found).__name__}, but must return a "
            "tensor"
        )
    sizes = {outputs, 2} if cur.task == "binary" and not definition.probabilities else {outputs}
    size = found.shape[1] if found.ndim == 2 else 1
    if found.ndim > 2 or len(found) != 1 or size not in sizes:
        wanted = " or ".join(f"(batch, {size})" for size in sorted(sizes))
        raise ValueError(
            "trainer.model: for a batch of 1 row, the outputs have the shape "
            f"{tuple(found.shape)}, but must have {wanted}"
        )
    return network, replace(definition, outputs=size)

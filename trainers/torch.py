"""Train your own PyTorch network. This trainer has the training loop.

You bring the network, and optionally the loss.

    trainer: {name: torch, model: "my_nets:Net", loss: "torch.nn:CrossEntropyLoss"}

`TRAINER["options"]` describes the keys of the section `trainer`, and `TRAINER["parameters"]`
describes `params`. Each epoch is one step.

The network gets the prepared columns. All columns of numbers are one float32 tensor of shape
(batch, columns), in which missing values are
0. A column with an array in each row, such as an image, is a tensor of shape (batch, *shape).
Arrays of floats become float32; arrays of integers keep their dtype. If there are several of these
inputs, the network gets them as keyword arguments: `features` for the numbers, and each column of
arrays under its own name. With a single input, the network gets this input as its only argument.

`model` is a class or function that returns a network. Each name in `params` that
`TRAINER["parameters"]` lacks is an argument of `model`. The trainer also passes the following
arguments if the signature names them without a default: `in_features`, the number of values in a
row; `input_shape`, the shape of a row; `out_features`, `num_classes` or `outputs`, the number of
outputs; and `task`.

| task | outputs | default loss | prediction |
|---|---|---|---|
| binary | 1, or 2 with a loss for classes | BCEWithLogitsLoss | sigmoid of the output, or softmax of the two outputs |
| multiclass | one for each class | CrossEntropyLoss | softmax |
| regression | 1 | MSELoss | the output, scaled back to the target's unit |
| several labels of 0 and 1 | one for each label | BCEWithLogitsLoss | sigmoid of the outputs |
| several labels of numbers | one for each label | MSELoss | the outputs, scaled back to the targets' units |

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
from sweeps.core.suggestions import did_you_mean
from sweeps.trainers import fill_parameters, read_rows, reports_all, require_task
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
from sweeps.trainers._torch_optimizer import all_arguments, build, resolve
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
    "needs_label": True,
    "weights": True,
    "several_labels": True,
    "options": {
        "model": {
            "format": "reference",
            "description": "Class or function that returns your network, a `torch.nn.Module`.",
        },
        "loss": {
            "format": "reference",
            "default": None,
            "description": "Class of the loss, or the loss as a function of outputs and targets. The default "
            "depends on the task.",
        },
        "dataset": {
            "format": "reference",
            "default": None,
            "description": (
                "Function of the prepared features (a frame) and of a boolean, true for train. It "
                "returns a map-style "
                "`torch.utils.data.Dataset` whose items are the inputs of one row: a tensor, or a "
                "dict of tensors. Without it, the "
                "columns are the inputs."
            ),
        },
    },
    "metrics": {
        "binary": [
            "valid-logloss",
            "valid-error",
            "valid-accuracy",
            "valid-auc",
            "valid-loss",
            "train-loss",
        ],
        "multiclass": [
            "valid-mlogloss",
            "valid-merror",
            "valid-accuracy",
            "valid-loss",
            "train-loss",
        ],
        "regression": ["valid-rmse", "valid-mae", "valid-loss", "train-loss"],
        "multilabel": [
            "valid-logloss",
            "valid-error",
            "valid-accuracy",
            "valid-loss",
            "train-loss",
        ],
        "multioutput": ["valid-rmse", "valid-mae", "valid-loss", "train-loss"],
    },
    "all_metrics": True,
    "additional_parameters": True,  # the arguments of the model
    "parameters": {
        "loss_args": {
            "type": "object",
            "description": "Arguments of `loss`, by name. A list of numbers becomes a tensor.",
        },
        "dataset_args": {
            "type": "object",
            "description": "Further arguments of `dataset`, by name.",
        },
        "epochs": {
            "type": "integer",
            "minimum": 1,
            "description": "Number of passes over the rows. Each pass sends one report. Default: `max_t`, or "
            "20.",
        },
        "batch_size": {
            "type": "integer",
            "minimum": 1,
            "default": 64,
            "description": "Number of rows in each batch of a worker.",
        },
        "accumulate": {
            "type": "integer",
            "minimum": 1,
            "default": 1,
            "description": "Number of batches for each optimizer step. The step uses the mean gradient over "
            "the rows of these batches.",
        },
        "shuffle": {
            "type": "boolean",
            "default": True,
            "description": (
                "Whether each epoch has another order of the rows. If false, n workers with "
                "batches of b rows train at each step on the "
                "same rows as one worker with batches of n * b rows."
            ),
        },
        "drop_last": {
            "type": "boolean",
            "default": False,
            "description": "Whether an epoch leaves out a last batch with too few rows.",
        },
        "loader_workers": {
            "type": "integer",
            "minimum": 0,
            "default": 0,
            "description": "Number of processes of each worker that read items of `trainer.dataset`; 0 to "
            "read them in the worker.",
        },
        "optimizer": {
            "format": "reference",
            "default": "torch.optim:AdamW",
            "description": "Class of the optimizer, as `module:attr`.",
        },
        "optimizer_args": {
            "type": "object",
            "description": "Arguments of `optimizer`, by name, such as `weight_decay`.",
        },
        "lr": {
            "type": "number",
            "exclusiveMinimum": 0,
            "default": 0.001,
            "description": "Learning rate.",
        },
        "schedule": {
            "format": "reference",
            "default": None,
            "description": (
                "Class of the learning-rate schedule, such as "
                "`torch.optim.lr_scheduler:CosineAnnealingLR`. By default, the rate is "
                "constant. `T_max`, `total_steps` and `max_lr` follow from `epochs` and `lr`, "
                "unless `schedule_args` gives them."
            ),
        },
        "schedule_args": {"type": "object", "description": "Arguments of `schedule`, by name."},
        "schedule_every": {
            "enum": ["epoch", "step"],
            "default": "epoch",
            "description": "Whether the schedule advances after each epoch, or after each optimizer step.",
        },
        "warmup_epochs": {
            "type": "number",
            "minimum": 0,
            "default": 0.0,
            "description": "Number of epochs, such as 0.5, in which the learning rate rises linearly to the "
            "rate of the schedule.",
        },
        "clip_norm": {
            "type": "number",
            "exclusiveMinimum": 0,
            "description": "Largest norm of the gradient. Default: no limit.",
        },
        "precision": {
            "enum": ["fp32", "bf16", "fp16"],
            "default": "fp32",
            "description": "Precision of the computation. The weights are 32-bit floats in any case. fp16 "
            "also scales the loss.",
        },
        "patience": {
            "type": "integer",
            "minimum": 1,
            "description": "End the trial after this many epochs without an improvement. Default: train all "
            "epochs.",
        },
        "standardize_target": {
            "type": "boolean",
            "default": True,
            "description": "Whether a regression trains on the target minus its mean, divided by its "
            "standard deviation.",
        },
        "compile": {
            "type": "boolean",
            "default": False,
            "description": "Whether `torch.compile` compiles the network.",
        },
        "strategy": {
            "enum": ["ddp", "fsdp"],
            "default": "ddp",
            "description": (
                "How several workers train a network: each has all weights "
                "(DistributedDataParallel), or each has a part of the weights "
                "(`fully_shard` of the elements of each outermost ModuleList and Sequential)."
            ),
        },
        "parallel_args": {
            "type": "object",
            "description": "Arguments of DistributedDataParallel or of `fully_shard`, by name.",
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
        "loss_args": {"reduction": "sum"},
        "dataset_args": {"size": 32},
        "epochs": 50,
        "batch_size": {"choice": [32, 64, 128]},
        "accumulate": {"choice": [1, 2, 4]},
        "loader_workers": 2,
        "optimizer": {"choice": ["torch.optim:AdamW", "torch.optim:SGD"]},
        "optimizer_args": {"weight_decay": 0.01},
        "lr": {"loguniform": [0.0001, 0.1]},
        "schedule": "torch.optim.lr_scheduler:CosineAnnealingLR",
        "schedule_args": {"gamma": 0.9},
        "warmup_epochs": 1,
        "clip_norm": {"loguniform": [0.1, 10]},
        "patience": 5,
        "parallel_args": {"find_unused_parameters": True},
        "model": "my_model:Net",
        "loss": "torch.nn:HuberLoss",
        "dataset": "my_data:Rows",
    },
}
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
        config: The trial's `params`; see `TRAINER`.

    Raises:
        ValueError: The data has no label, a column or a parameter is invalid, a requested metric is
            unknown, or the network has another number of outputs than the task needs.
    """
    cur = trial.current()
    task, options, rules = require_task(cur.task), cur.options, TRAINER["parameters"]
    params = fill_parameters(
        "torch",
        rules,
        {name: value for name, value in config.items() if name in rules},
        cur.sweep_max_t,
    )
    if params["loader_workers"] and options["dataset"] is None:
        raise ValueError(
            "params.loader_workers: needs trainer.dataset, because without it all inputs are in "
            "memory"
        )
    ranks = Ranks.of(params["strategy"])
    torch.set_num_threads(cur.threads)
    loss = _loss(options["loss"] or LOSSES[task], params["loss_args"] or {}, ranks.device)
    definition = UserNetwork(
        task=task,
        outputs=1,
        model=options["model"],
        arguments={name: value for name, value in config.items() if name not in rules},
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
    network, definition = _network(definition, data[0].rows, cur)
    settings = {
        field.name: params[field.name]
        for field in fields(Settings)
        if params.get(field.name) is not None
    }
    fit(
        network,
        definition,
        loss,
        Settings(**settings, report_all=reports_all(config)),
        data,
        ranks,
        TRAINER["metrics"],
    )


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
    definition: UserNetwork, rows: Rows, cur: trial.Current
) -> tuple[nn.Module, UserNetwork]:
    """Build the network. Return the network and the complete definition.

    Args:
        definition: Definition of the network, with the arguments in `params`.
        rows: Rows of train. The network computes its outputs for the first row, so that its number
            of outputs is known.
        cur: The trial.

    Raises:
        ValueError: The outputs do not have a shape that the task needs.
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
    _require_arguments(function, definition)
    definition = replace(definition, arguments=all_arguments(function, definition.arguments, known))
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


def _require_arguments(function: Any, definition: UserNetwork) -> None:
    """Raise an error if `params` has a name that is neither a parameter of this trainer nor an argument of the network.

    Raises:
        ValueError: There is such a name. The message suggests the most similar name.
    """
    try:
        signature = inspect.signature(function).parameters
    except ValueError:  # a class in C has no signature
        return
    if any(each.kind is each.VAR_KEYWORD for each in signature.values()):
        return
    for name in definition.arguments:
        if name not in signature:
            hint = did_you_mean(name, [*signature, *TRAINER["parameters"]])
            raise ValueError(
                f"params.{name} is neither a parameter of torch nor an argument of "
                f"`{definition.model}`; {hint}"
            )

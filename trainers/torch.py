"""Train your own PyTorch network. This trainer has the training loop.

You bring the network, and optionally the loss.

    trainer: {name: torch, model: "my_nets:Net", loss: "torch.nn:CrossEntropyLoss"}

`torch.yaml` describes the keys of the section `trainer`, and `params`. Each epoch is one step.

The network gets the prepared columns. All columns of numbers are one float32 tensor of shape
(batch, columns), in which missing values are 0. A column with an array in each row, such as an
image, is a tensor of shape (batch, *shape). Arrays of floats become float32; arrays of integers
keep their dtype. If there are several of these inputs, the network gets them as keyword arguments:
`features` for the numbers, and each column of arrays under its own name. With a single input, the
network gets this input as its only argument.

`model` is a class or function that returns a network. Each name in `params` that `torch.yaml` lacks
is an argument of `model`. The trainer also passes the following arguments if the signature names
them: `in_features`, the number of values in a row; `input_shape`, the shape of a row;
`out_features`, `num_classes` or `outputs`, the number of outputs; and `task`.

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
import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from sweeps import trial
from sweeps.core.label_columns import MULTIOUTPUT, label_columns
from sweeps.core.plugins.trainer_file import read

from . import Params, fill_parameters, read_rows, require_task
from ._arguments import SplitParams
from ._metrics import SPLITS, checked_names
from ._torch_data import (
    DatasetRows,
    Rows,
    Split,
    TensorColumns,
    TensorRows,
    call,
    few_threads,
    forward,
    row_shape,
)
from ._torch_loop import Loss, Settings, TorchTraining, moments, set_seeds
from ._torch_network import NetworkDefinition, Predictor, load_weights
from ._torch_optimizer import build, resolve
from ._torch_parallel import Ranks

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
LOSSES_OF_CODES = (
    nn.CrossEntropyLoss,
    nn.NLLLoss,
    nn.MultiMarginLoss,
    nn.functional.cross_entropy,
    nn.functional.nll_loss,
)
# Losses whose inputs are probabilities, not logits.
LOSSES_OF_PROBABILITIES = (nn.BCELoss, nn.functional.binary_cross_entropy)


@dataclass(frozen=True, kw_only=True)
class UserNetwork(NetworkDefinition):
    """Definition of a user's network; see `NetworkDefinition`.

    Attributes:
        model: The class or function that returns the network, as `module:attr`.
        arguments: Arguments of `model`, by name.
        dataset: The function that makes the inputs, as `module:attr`; None if the inputs are
            `columns`.
        dataset_args: Further arguments of `dataset`, by name.
    """

    model: str
    arguments: Params
    dataset: str | None
    dataset_args: Params

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


class Model:
    """A trained network on a CPU."""

    def __init__(self, folder: str):
        self.definition = UserNetwork.read(folder)
        self.network = self.definition.build()
        self.network.load_state_dict(load_weights(folder))
        self.network.eval()

    def predict(self, features: pd.DataFrame) -> np.ndarray:
        """Predict prepared rows. The result has the format of `NetworkDefinition.predictions`."""
        if not len(features):
            return self.definition.predictions(torch.zeros(0))
        with few_threads(len(features)):
            rows = self.definition.rows(features, False, torch.device("cpu"))
            return self.definition.predictions(forward(self.network, rows))


def load(folder: str) -> Model:
    """Load the best model of a checkpoint that `train_func` wrote."""
    return Model(folder)


def train_func(config: Params) -> None:
    """Train one network. Report every epoch, and keep the model of the best epoch.

    Args:
        config: The trial's `params`.

    Raises:
        ValueError: The data has no label, a column or a parameter is invalid, a requested metric is
            unknown, or the network has another number of outputs than the task needs.
    """
    cur = trial.current()
    params = fill_parameters("torch", config, cur.sweep_max_t)
    train(cur, config, params, options=cur.options, load_model=load)


def train(
    cur: trial.Current,
    config: Params,
    params: Params,
    *,
    options: Params,
    load_model: Callable[[str], Predictor],
) -> None:
    """Train one network, as the trainers `torch` and `torch_tabular` do.

    Args:
        cur: The trial.
        config: Those of the trial's `params` that may be arguments of the network.
        params: The parameters of the trainer `torch`.
        options: The options of the trainer `torch`.
        load_model: The trainer's function `load`.
    """
    task = require_task(cur.task)
    names = checked_names(cur, read("torch")["metrics"][task])
    ranks = Ranks()
    torch.set_num_threads(cur.threads)
    loss = options["loss"] or LOSSES[task]
    definition = UserNetwork(
        task=task,
        outputs=1,
        model=options["model"],
        arguments={},
        dataset=options["dataset"],
        dataset_args=params["dataset_args"] or {},
        probabilities=resolve("trainer.loss", loss) in LOSSES_OF_PROBABILITIES,
    )
    definition, data = _data(cur, definition, ranks.device, params["loader_workers"])
    if params["standardize_target"] and task in ("regression", MULTIOUTPUT):
        mean, std = _moments(data["train"], ranks)
        definition = replace(definition, mean=mean, std=std)
    set_seeds(cur.seed)
    network, definition = _network(definition, config, data["train"].rows, loss)
    settings = Settings(**{field.name: params[field.name] for field in fields(Settings)})
    training = TorchTraining(
        network,
        definition,
        _loss(loss, params["loss_args"] or {}, ranks.device),
        settings,
        data=data,
        asked=names,
        ranks=ranks,
        load_model=load_model,
    )
    training.restore()
    training.run()


def _moments(train: Split, ranks: Ranks) -> tuple[list[float], list[float]]:
    """Return the mean and the standard deviation of each label column."""
    columns = train.labels.reshape(len(train.labels), -1).T
    moments_of = [moments(column, ranks, train.weights) for column in columns]
    return [mean for mean, _ in moments_of], [std for _, std in moments_of]


def _loss(reference: str, arguments: Params, device: torch.device) -> Loss:
    """Return the loss as a function of outputs and targets.

    Args:
        reference: A class, or a function of outputs and targets, as `module:attr`.
        arguments: Arguments of the class, or further arguments of the function, by name. Lists of
            numbers become tensors.
        device: Device of the outputs.
    """
    arguments = {
        name: torch.tensor(value, dtype=torch.float32) if isinstance(value, list) else value
        for name, value in arguments.items()
    }
    function = resolve("trainer.loss", reference)
    if not inspect.isclass(function):
        return functools.partial(function, **arguments)
    loss = build("trainer.loss", reference, arguments)
    return loss.to(device) if isinstance(loss, nn.Module) else loss


def _data(
    cur: trial.Current, definition: UserNetwork, device: torch.device, workers: int
) -> tuple[UserNetwork, dict[str, Split]]:
    """Read train and valid.

    Return the definition with the columns that the network reads, and the two splits.

    Args:
        cur: The trial.
        definition: Definition of the network, without columns.
        device: Device of the network.
        workers: Number of processes that read items of `trainer.dataset`.

    Raises:
        ValueError: There are such processes, but no `trainer.dataset`.
    """
    if workers and definition.dataset is None:
        raise ValueError(
            "params.loader_workers: needs trainer.dataset, because without it all inputs are in "
            "memory"
        )

    def read_table(name: str) -> tuple[TensorColumns, Split]:
        """Read a split, and return its columns, too."""
        rows = read_rows(name, cur)
        columns = TensorColumns.of(rows.features)
        return columns, Split.of(TensorRows(columns.tensors(rows.features), device), rows, device)

    splits = {}
    for name in SPLITS:
        if definition.dataset is None:  # the inputs are the prepared columns
            read_split = functools.partial(read_table, name)
            columns, splits[name] = cur.cached(f"torch.{name}.{device}", read_split)
            if name == "train":
                definition = replace(definition, columns=columns)
        else:
            rows = cur.cached(f"torch.{name}.frame", functools.partial(read_rows, name, cur))
            inputs = definition.rows(rows.features, name == "train", device, workers)
            splits[name] = Split.of(inputs, rows, device)
    return definition, splits


def _network(
    definition: UserNetwork, config: Params, rows: Rows, loss: str
) -> tuple[nn.Module, UserNetwork]:
    """Build the network. Return the network and the complete definition.

    Args:
        definition: Definition of the network, without arguments.
        config: Those of the trial's `params` that may be arguments of the network.
        rows: Rows of train. The network computes its outputs for the first row, so that its number
            of outputs is known.
        loss: The loss, as `module:attr`.

    Raises:
        ValueError: The network does not take a parameter, or the outputs do not have a shape that
            the task needs.
    """
    cur = trial.current()
    has_codes = resolve("trainer.loss", loss) in LOSSES_OF_CODES
    outputs = len(label_columns(cur.label))
    if cur.task == "multiclass" or (cur.task == "binary" and has_codes):
        outputs = len(cur.classes or ())
    shape = row_shape(rows)
    known = {"in_features": math.prod(shape), "input_shape": list(shape), "task": cur.task}
    known |= dict.fromkeys(("out_features", "num_classes", "outputs"), outputs)
    function = resolve("trainer.model", definition.model)
    arguments = SplitParams("torch", config, [function]).arguments(function, known)
    definition = replace(definition, arguments=arguments)
    network = definition.build()
    network.eval()
    with torch.no_grad():
        output = call(network, rows.first())
    if not isinstance(output, torch.Tensor):
        raise ValueError(
            f"trainer.model: the network returned a {type(output).__name__}, but must return a "
            "tensor"
        )
    sizes = {outputs}
    if cur.task == "binary" and not definition.probabilities:
        sizes.add(2)
    size = output.shape[1] if output.ndim == 2 else 1
    if output.ndim > 2 or len(output) != 1 or size not in sizes:
        wanted = " or ".join(f"(batch, {size})" for size in sorted(sizes))
        raise ValueError(
            "trainer.model: for a batch of 1 row, the outputs have the shape "
            f"{tuple(output.shape)}, but must have {wanted}"
        )
    return network, replace(definition, outputs=size)

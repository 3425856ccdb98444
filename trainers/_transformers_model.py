"""Convert rows for a model of Hugging Face's Transformers, load the model, and predict with it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import transformers

from sweeps.core.plugins import references

from . import Params
from ._torch_data import few_threads
from ._torch_network import NetworkDefinition, load_weights
from ._torch_training import evaluating

if TYPE_CHECKING:
    import pandas as pd

TOKENIZER = "tokenizer"  # folder of the tokenizer in a checkpoint
PREDICTED_AT_ONCE = 64  # rows


def encoded(features: pd.DataFrame, tokenizer: Any, max_length: int | None = None) -> Any:
    """Encode the text of one column, or of a pair of columns.

    This is the default of the option `dataset`.

    Args:
        features: Prepared rows. Missing text becomes "".
        tokenizer: The tokenizer.
        max_length: Number of tokens to which a text is cut; None for the tokenizer's limit.

    Raises:
        ValueError: There are more than two columns, or a column is not text.
    """
    numeric = [str(name) for name, dtype in features.dtypes.items() if dtype.kind in "biufc"]
    problem = ""
    if numeric:
        problem = f"the column `{numeric[0]}` is not text"
    elif len(features.columns) > 2:
        problem = f"there are {len(features.columns)} columns"
    if problem:
        raise ValueError(
            f"{problem}; a tokenizer encodes one column of text, or a pair of columns; choose "
            "columns with `data.features`, or write a function for `trainer.dataset`"
        )
    texts = [column.fillna("").astype(str).tolist() for _, column in features.items()]
    return tokenizer(*texts, truncation=True, max_length=max_length)


class Rows(torch.utils.data.Dataset[Params]):
    """Inputs of a model.

    An item is a mapping with the inputs of one row, and with its label if there are labels.

    Args:
        inputs: The return value of the function that the option `dataset` names: a mapping with the
            inputs of all rows by name, or a sequence with a mapping for each row.
        targets: Targets of the training, shape (n,); None for rows to predict.
        names: Names of the inputs that the model accepts. Other inputs are left out, as in
            `transformers.Trainer`.
    """

    def __init__(self, inputs: Any, targets: torch.Tensor | None, names: Sequence[str]):
        self.inputs = inputs
        self.targets = targets
        self.names = names
        # The inputs of all rows by name; None if `inputs` has a mapping for each row.
        self.columns: Params | None = None
        # A tokenizer returns a `BatchEncoding`, which is no `Mapping`.
        if isinstance(inputs, (Mapping, transformers.BatchEncoding, transformers.BatchFeature)):
            self.columns = {name: inputs[name] for name in inputs if name in names}

    def __len__(self) -> int:
        return len(self.inputs) if self.columns is None else len(next(iter(self.columns.values())))

    def __getitem__(self, index: int | torch.Tensor) -> Params:
        row = int(index)
        if self.columns is not None:
            item = {name: values[row] for name, values in self.columns.items()}
        else:
            item = {name: value for name, value in self.inputs[row].items() if name in self.names}
        return item if self.targets is None else item | {"labels": self.targets[row].item()}


@dataclass(frozen=True, kw_only=True)
class TransformersDefinition(NetworkDefinition):
    """Everything that is needed to predict with a model, except its weights and its tokenizer.

    Attributes:
        model: Reference to the function that returns the model.
        arguments: Arguments of this function.
        network: Reference to the class of a `PreTrainedModel`, which can be built from its
            configuration. None for other models.
        tokenizer: Reference to the class of the tokenizer; None if there is no tokenizer.
        dataset: Reference to the function that converts rows.
        dataset_arguments: Arguments of this function, except the rows and the tokenizer.
        inputs: Names of the inputs that the model accepts.
        features: Names of the columns.
    """

    model: str
    arguments: Params
    network: str | None
    tokenizer: str | None
    dataset: str
    dataset_arguments: Params
    inputs: Sequence[str]
    features: Sequence[str]

    def convert(self, rows: pd.DataFrame, tokenizer: Any) -> Any:
        """Convert prepared rows to the model's inputs."""
        function = references.resolve(self.dataset)
        arguments = self.dataset_arguments
        if "tokenizer" in inspect.signature(function).parameters:
            arguments = {"tokenizer": tokenizer, **arguments}
        return function(rows[list(self.features)], **arguments)


def outputs_of(
    network: torch.nn.Module, rows: Any, tokenizer: Any, batch_size: int
) -> tuple[torch.Tensor, float]:
    """Return a model's logits for rows, and the sum of the losses of the rows.

    The sum is 0 without labels.

    Args:
        network: The model.
        rows: `Rows`, or a subset of `Rows`.
        tokenizer: The tokenizer; None if there is none.
        batch_size: Number of rows in a batch.
    """
    device = next(network.parameters()).device
    total = 0.0
    parts = [torch.zeros(0)]
    with evaluating(network):
        for batch in torch.utils.data.DataLoader(
            rows, batch_size=batch_size, collate_fn=collator(tokenizer)
        ):
            out = network(**{name: value.to(device) for name, value in batch.items()})
            labelled = "labels" in batch
            if not isinstance(out, dict):  # a tuple that begins with the loss, if there are labels
                out = {"loss": out[0], "logits": out[1]} if labelled else {"logits": out[0]}
            logits = out["logits"]
            parts.append(logits.to("cpu", torch.float32))
            if labelled:
                total += float(out["loss"]) * len(logits)
    return torch.cat(parts), total


def collator(tokenizer: Any) -> Callable[..., Any]:
    """Return the function that combines rows to a batch.

    A tokenizer pads the rows to the same length.
    """
    collate: Callable[..., Any] = transformers.default_data_collator
    if isinstance(tokenizer, transformers.PreTrainedTokenizerBase):
        collate = transformers.DataCollatorWithPadding(tokenizer)
    return collate


class Model:
    """A trained model on a CPU."""

    def __init__(self, folder: str):
        self.description = description = TransformersDefinition.read(folder)
        if description.network is None:
            self.network = references.resolve(description.model)(**description.arguments)
        else:
            network_class = references.resolve(description.network)
            self.network = network_class(network_class.config_class.from_pretrained(folder))
        self.network.load_state_dict(load_weights(folder))
        self.tokenizer = None
        if description.tokenizer is not None:
            tokenizer_class = references.resolve(description.tokenizer)
            self.tokenizer = tokenizer_class.from_pretrained(str(Path(folder, TOKENIZER)))

    def predict(self, features: pd.DataFrame) -> np.ndarray:
        """Predict prepared rows; see `NetworkDefinition.predictions` for the result."""
        description = self.description
        if not len(features):
            return description.predictions(torch.zeros(0))
        with few_threads(len(features)):
            rows = Rows(description.convert(features, self.tokenizer), None, description.inputs)
            logits, _ = outputs_of(self.network, rows, self.tokenizer, PREDICTED_AT_ONCE)
            return description.predictions(logits)


def load(folder: str) -> Model:
    """Load the best model of a checkpoint that `train_func` wrote.

    Nothing is downloaded for a `PreTrainedModel` and its tokenizer.
    """
    return Model(folder)

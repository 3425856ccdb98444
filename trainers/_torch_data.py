"""Convert prepared rows to the inputs of a network, and pass them to the network in batches."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from . import LabeledRows, float_array, require_numbers

if TYPE_CHECKING:
    import pandas as pd

Inputs = torch.Tensor | dict[str, torch.Tensor]

NUMBERS = "features"  # name of the input that has all columns of numbers
EVALUATED_AT_ONCE = 1 << 24  # values in a batch without gradients: 64 MB of 32-bit floats
COPIED_AT_ONCE = 1 << 26  # bytes of shuffled rows that are copied at once
# Number of rows in a batch without gradients, so that a wide layer over a large table does not fill
# the memory.
ROWS_AT_ONCE = 65_536
# Number of rows of `Current.check`, whose predictions in a bundle must equal those in training.
CHECK_ROWS = 32


@dataclass(frozen=True)
class TensorColumns:
    """Columns that a network reads.

    Attributes:
        numbers: Names of the columns of numbers. Together, they are one input of shape (rows,
            columns).
        arrays: Names of the columns that have an array in every row, such as an image. Each is an
            input of shape (rows, *shape).
    """

    numbers: tuple[str, ...]
    arrays: tuple[str, ...] = ()

    @classmethod
    def of(cls, features: pd.DataFrame) -> TensorColumns:
        """Return the columns of prepared features.

        Raises:
            ValueError: A column has neither numbers nor arrays, or arrays and numbers would have
                the same name as inputs.
        """
        arrays = tuple(str(name) for name, values in features.items() if _has_arrays(values))
        numbers = features.drop(columns=list(arrays))
        require_numbers(numbers)
        if NUMBERS in arrays and len(numbers.columns):
            raise ValueError(
                f"the column `{NUMBERS}` has arrays, but this is the name of the input with the "
                "columns of numbers; rename it"
            )
        return cls(tuple(map(str, numbers.columns)), arrays)

    def tensors(self, features: pd.DataFrame) -> dict[str, torch.Tensor]:
        """Return the network's inputs by name.

        A missing number becomes 0. Numbers and arrays of floats become float32. Other arrays keep
        their dtype.

        Args:
            features: Prepared features, with these columns in any order.

        Raises:
            ValueError: A column that should have arrays of one shape has other values.
        """
        inputs = {}
        if self.numbers or not self.arrays:
            inputs[NUMBERS] = torch.from_numpy(float_array(features[list(self.numbers)]))
        return inputs | {name: _arrays(features[name]) for name in self.arrays}


def _has_arrays(values: pd.Series) -> bool:
    """Return whether the rows of a column are arrays.

    Ray Data's tensors are recognized without Ray.
    """
    if type(values.dtype).__name__ == "TensorDtype":
        return True
    return (
        values.dtype == object
        and len(values) > 0
        and isinstance(values.iloc[0], (np.ndarray, list, tuple))
    )


def _arrays(values: pd.Series) -> torch.Tensor:
    """Return a column of arrays as one tensor.

    Raises:
        ValueError: The column has other values, or arrays of several shapes.
    """
    array = np.asarray(values.array)
    try:
        stacked = np.stack(array.tolist()) if array.dtype == object else array
        if stacked.dtype.kind not in "biuf":
            raise ValueError  # for the message below
    except (TypeError, ValueError):
        raise ValueError(
            f"the column `{values.name}` must have an array of numbers in every row, and all "
            "arrays the same shape"
        ) from None
    dtype = np.float32 if stacked.dtype.kind == "f" else None
    return torch.from_numpy(np.array(stacked, dtype))


class TensorRows:
    """Rows in memory.

    Args:
        tensors: The network's inputs by name, with one row for each row of the table.
        device: Device of the network. On a GPU, the tensors move to the GPU if they fill at most a
            quarter of its memory. Otherwise, each part of the rows moves to the GPU when it is
            needed.
    """

    def __init__(self, tensors: dict[str, torch.Tensor], device: torch.device):
        self.device = device
        size = sum(tensor.nbytes for tensor in tensors.values())
        self.tensors = tensors
        if device.type != "cuda" or size <= torch.cuda.mem_get_info(device)[1] // 4:
            self.tensors = {name: tensor.to(device) for name, tensor in tensors.items()}
        self.row_bytes = max(1, size // max(1, len(self)))

    def __len__(self) -> int:
        return len(next(iter(self.tensors.values())))

    def batches(self, size: int, order: torch.Tensor | None = None) -> Iterator[Inputs]:
        """Yield the inputs of `size` rows at a time, on the device.

        Args:
            size: Number of rows in a batch. The last batch may have fewer rows.
            order: Numbers of the rows to yield. None for all rows in their order.
        """
        order = torch.arange(len(self)) if order is None else order
        # Rows are copied in the order of many batches at once, and then split into batches.
        rows_at_once = size * max(1, COPIED_AT_ONCE // (size * self.row_bytes))
        for start in range(0, len(order), rows_at_once):
            rows = order[start : start + rows_at_once]
            batches = [
                torch.split(tensor[rows.to(tensor.device)].to(self.device), size)
                for tensor in self.tensors.values()
            ]
            for batch in zip(*batches, strict=True):
                yield self._inputs(batch)

    def first(self) -> Inputs:
        """Return the inputs of the first row, as a batch on a CPU."""
        return self._inputs([tensor[:1].cpu() for tensor in self.tensors.values()])

    def _inputs(self, tensors: Sequence[torch.Tensor]) -> Inputs:
        """Return what the network gets: one tensor, or several tensors by name."""
        return tensors[0] if len(tensors) == 1 else dict(zip(self.tensors, tensors, strict=True))


class DatasetRows:
    """Rows that a map-style `Dataset` of the user makes when they are read.

    Args:
        dataset: Dataset whose items are the inputs of one row: a tensor, or a dict of tensors by
            name.
        device: Device of the network.
        workers: Number of processes that read items; 0 to read them in this process.
    """

    def __init__(self, dataset: Any, device: torch.device, workers: int = 0):
        self.dataset = dataset
        self.device = device
        self.workers = workers

    def __len__(self) -> int:
        return len(self.dataset)

    def batches(self, size: int, order: torch.Tensor | None = None) -> Iterator[Inputs]:
        """Yield the inputs of `size` rows at a time, on the device; see `TensorRows.batches`."""
        sampler = range(len(self)) if order is None else order.tolist()
        pinned = self.device.type == "cuda"
        loader = torch.utils.data.DataLoader(
            self.dataset, size, sampler=sampler, num_workers=self.workers, pin_memory=pinned
        )
        for batch in loader:
            if isinstance(batch, dict):
                yield {
                    name: tensor.to(self.device, non_blocking=pinned)
                    for name, tensor in batch.items()
                }
            else:
                yield batch.to(self.device, non_blocking=pinned)

    def first(self) -> Inputs:
        """Return the inputs of the first row, as a batch on a CPU."""
        inputs: Inputs = torch.utils.data.default_collate([self.dataset[0]])
        return inputs


Rows = TensorRows | DatasetRows


@dataclass(frozen=True)
class Split:
    """The rows of a split that a rank has.

    Attributes:
        rows: Inputs of the network.
        labels: Class codes or values, shape (n,), or (n, k) for k label columns, on the network's
            device.
        weights: Weight of each row, float32 of shape (n,), on the device. None if the rows have no
            weights.
    """

    rows: Rows
    labels: torch.Tensor
    weights: torch.Tensor | None = None

    @classmethod
    def of(cls, inputs: Rows, rows: LabeledRows, device: torch.device) -> Split:
        """Return a split with the network's inputs, and with the labels and weights of `rows`."""
        weights = (
            None
            if rows.weight is None
            else torch.tensor(rows.weight, dtype=torch.float32, device=device)
        )
        return cls(inputs, torch.tensor(rows.label, device=device), weights)


def row_shape(rows: Rows) -> tuple[int, ...]:
    """Return the shape of the input of one row, without the dimension of the batch.

    With several inputs, the shape is (number of all values,).
    """
    first = rows.first()
    if isinstance(first, dict):
        return (sum(tensor.numel() for tensor in first.values()),)
    return tuple(first.shape[1:])


def call(network: torch.nn.Module, inputs: Inputs) -> Any:
    """Call a network with one input as argument, or with several inputs as keyword arguments."""
    return network(**inputs) if isinstance(inputs, dict) else network(inputs)


def forward(
    network: torch.nn.Module, rows: Rows, order: torch.Tensor | None = None
) -> torch.Tensor:
    """Compute a network's outputs for many rows, without gradients.

    Args:
        network: A network in evaluation mode.
        rows: The rows.
        order: Numbers of the rows to use. None for all rows.

    Returns:
        The outputs, float32 of shape (n, outputs), on the network's device.
    """
    values = int(np.prod(row_shape(rows)))
    size = max(CHECK_ROWS, min(ROWS_AT_ONCE, EVALUATED_AT_ONCE // max(1, values)))
    with torch.no_grad():
        outputs = [call(network, batch).float() for batch in rows.batches(size, order)]
        outputs = [output.reshape(len(output), -1) for output in outputs]
        return torch.cat(outputs) if outputs else torch.zeros(0)


@contextlib.contextmanager
def few_threads(rows: int) -> Iterator[None]:
    """In the block, PyTorch uses one thread if there are at most `CHECK_ROWS` rows.

    The rounding of a matrix product can depend on the number of threads.
    """
    before = torch.get_num_threads()
    if rows <= CHECK_ROWS:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)

"""Exchange arrays between the ranks of a trial that trains a Keras model."""

from __future__ import annotations

from typing import Any

import numpy as np


class Ranks:
    """The ranks of a trial.

    torch is imported only here, and only for several ranks, because a bundle for TensorFlow
    predicts without torch.

    Args:
        rank: Rank of this process.
        world: Number of ranks. Above 1, torch's default process group connects the ranks.
    """

    def __init__(self, rank: int, world: int):
        self.rank, self.world = rank, world
        if world > 1:
            import torch.distributed

            # A new group, because the default group of workers with GPUs cannot send arrays in the
            # memory of the CPU.
            self._group = torch.distributed.new_group(backend="gloo")

    def mean(self, array: np.ndarray) -> np.ndarray:
        """Return the mean of the arrays of all ranks.

        Each rank must call this method with an array of the same shape and dtype.
        """
        if self.world == 1:
            return array
        import torch

        total = torch.tensor(array)
        torch.distributed.all_reduce(total, group=self._group)
        return (total / self.world).numpy()

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all ranks, in the order of the ranks."""
        if self.world == 1:
            return [value]
        import torch

        values: list[Any] = [None] * self.world
        torch.distributed.all_gather_object(values, value, group=self._group)
        return values

    def first(self, value: Any) -> Any:
        """Return rank 0's value on every rank."""
        if self.world == 1:
            return value
        import torch

        values = [value]
        torch.distributed.broadcast_object_list(values, src=0, group=self._group)
        return values[0]

"""Define the parts of the trainer `keras` that depend on PyTorch.

These parts are threads, seeds, the order of batches, and the mean of all ranks' gradients.
"""

import numpy as np
import torch

from . import Params
from ._torch_parallel import Ranks


def set_threads(threads: int) -> None:
    """Set the number of threads that one operation uses."""
    torch.set_num_threads(threads)


def set_seed(seed: int) -> None:
    """Seed the random numbers of PyTorch."""
    torch.manual_seed(seed)


class KerasTorchBatches:
    """The training rows of this rank, in an order that each epoch draws anew.

    Args:
        x: Features, float32 of shape (n, columns).
        y: Labels, shape (n,).
        weights: Weights of the rows, float32 of shape (n,). None if all rows count the same.
        size: Number of rows of a batch. The last batch of an epoch may be smaller.

    Attributes:
        arguments: Arguments of `keras.Model.fit`.
    """

    def __init__(self, x: np.ndarray, y: np.ndarray, weights: np.ndarray | None, size: int):
        self.arguments: Params = {
            "x": x,
            "y": y,
            "sample_weight": weights,
            "batch_size": size,
            "shuffle": True,
        }

    def start_epoch(self, seed: int) -> None:
        """Choose the order of the rows of the next epoch. The same seed gives the same order."""
        torch.manual_seed(seed)  # the order is drawn from PyTorch's generator


BATCHES = KerasTorchBatches


def average(values: torch.Tensor, ranks: Ranks) -> torch.Tensor:
    """Return the mean of the tensors of all ranks."""
    torch.distributed.all_reduce(values)
    mean: torch.Tensor = values / ranks.world
    return mean

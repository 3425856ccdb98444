"""Distribute a network over the ranks of a trial, and exchange tensors between the ranks."""

import contextlib
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn


class Ranks:
    """The ranks of the current trial.

    Attributes:
        rank: Rank of this process.
        world: Number of ranks.
        device: Device of this rank, which is a GPU if Ray has assigned one to the worker.
    """

    def __init__(self) -> None:
        import ray.train
        import ray.train.torch

        context = ray.train.get_context()
        self.rank = context.get_world_rank()
        self.world = context.get_world_size()
        self.device = ray.train.torch.get_device()

    def distribute(self, network: nn.Module) -> nn.Module:
        """Move a network to the device, and return the module that trains it on all ranks."""
        import ray.train.torch

        return ray.train.torch.prepare_model(network)

    def accumulating(self, model: nn.Module, last: bool) -> contextlib.AbstractContextManager[Any]:
        """Return a context in which a batch is processed.

        The ranks exchange gradients only for the last batch of an optimizer step.
        """
        if self.world > 1 and not last:
            return model.no_sync()  # type: ignore[no-any-return, operator]
        return contextlib.nullcontext()

    def load(self, network: nn.Module, weights: dict[str, torch.Tensor]) -> None:
        """Load the weights of rank 0 into the network of every rank.

        Every rank must call this method.

        Args:
            network: The network.
            weights: All weights on rank 0. The other ranks ignore this argument.
        """
        if self.rank == 0:
            network.load_state_dict(weights)
        if self.world > 1:
            for tensor in network.state_dict().values():
                dist.broadcast(tensor, 0)

    def share_buffers(self, network: nn.Module) -> None:
        """Copy the buffers of rank 0, such as the statistics of BatchNorm, to every rank."""
        if self.world > 1:
            for buffer in network.buffers():
                dist.broadcast(buffer, 0)

    def mean(self, total: torch.Tensor, count: int) -> float:
        """Return the mean over the rows of all ranks.

        The mean is the sum of the ranks' totals divided by the sum of their counts.

        Args:
            total: Sum over this rank's rows.
            count: Number of this rank's rows.
        """
        total_and_count = torch.stack([total, torch.full_like(total, count)])
        if self.world > 1:
            dist.all_reduce(total_and_count)
        return float(total_and_count[0] / total_and_count[1])

    def average(self, values: np.ndarray) -> np.ndarray:
        """Return the element-wise mean of the arrays of all ranks, which have the same shape."""
        if self.world == 1:
            return values
        total = torch.tensor(values, device=self.device)
        dist.all_reduce(total)
        mean: np.ndarray = (total / self.world).cpu().numpy()
        return mean

    def from_rank_0(self, value: Any) -> Any:
        """Return rank 0's value on every rank."""
        values = [value]
        if self.world > 1:
            dist.broadcast_object_list(values, src=0)
        return values[0]

    def part_of(self, rows: int) -> range:
        """Return the numbers of the rows that this rank evaluates.

        No row is evaluated twice, and a rank may have no rows.
        """
        return range(rows * self.rank // self.world, rows * (self.rank + 1) // self.world)

    def gather_array(self, values: np.ndarray) -> np.ndarray:
        """Return the arrays of all ranks as one array, one rank after the other.

        Arrays without rows may have any shape.
        """
        if self.world == 1:
            return values
        parts: list[Any] = [None] * self.world
        dist.all_gather_object(parts, values)
        return np.concatenate([part for part in parts if len(part)] or parts[:1])


def weights_of(network: nn.Module) -> dict[str, torch.Tensor]:
    """Return a copy of all weights of a network on a CPU."""
    return {
        name: tensor.detach().to("cpu", copy=True).contiguous()
        for name, tensor in network.state_dict().items()
    }

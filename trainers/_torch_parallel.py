"""Distribute a network over the ranks of a trial, and exchange tensors between the ranks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn


@dataclass(frozen=True)
class Ranks:
    """The ranks of a trial.

    Attributes:
        rank: Rank of this process.
        world: Number of ranks.
        device: Device of this rank.
        sharded: True if each rank stores only a part of the weights (FSDP). False if each rank
            stores all weights (DDP, or one rank).
    """

    rank: int
    world: int
    device: torch.device
    sharded: bool

    @classmethod
    def of(cls, strategy: str) -> Ranks:
        """Return the ranks of the current trial.

        The device is a GPU if Ray has assigned one to the worker.

        Args:
            strategy: "ddp" or "fsdp".
        """
        import ray.train
        import ray.train.torch

        context = ray.train.get_context()
        return cls(
            context.get_world_rank(),
            context.get_world_size(),
            ray.train.torch.get_device(),
            strategy == "fsdp",
        )

    def distribute(self, network: nn.Module, arguments: dict[str, Any]) -> nn.Module:
        """Move a network to the device, and return the module that trains the network on all ranks.

        Args:
            network: The network, with the same weights on every rank.
            arguments: Keyword arguments of `DistributedDataParallel` or of `fully_shard`.
        """
        import ray.train.torch

        if not self.sharded:
            return ray.train.torch.prepare_model(network, parallel_strategy_kwargs=arguments)
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        ray.train.torch.prepare_model(network, parallel_strategy=None)
        mesh = init_device_mesh(self.device.type, (self.world,))
        for module in [*_blocks(network), network]:
            fully_shard(module, mesh=mesh, **arguments)
        return network

    def accumulating(self, model: nn.Module, last: bool) -> contextlib.AbstractContextManager[Any]:
        """Return a context in which a batch is processed.

        The ranks exchange gradients only for the last batch of an optimizer step.
        """
        if self.sharded:
            model.set_requires_gradient_sync(last)  # type: ignore[operator]
        elif self.world > 1 and not last:
            return model.no_sync()  # type: ignore[no-any-return, operator]
        return contextlib.nullcontext()

    def weights(self, network: nn.Module) -> dict[str, torch.Tensor]:
        """Return a copy of all weights on a CPU.

        With FSDP, every rank must call this method, and only rank 0 gets the weights.
        """
        if not self.sharded:
            return {
                name: tensor.detach().to("cpu", copy=True).contiguous()
                for name, tensor in network.state_dict().items()
            }
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

        found: dict[str, Any] = get_model_state_dict(
            network, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
        )
        return found

    def load(self, network: nn.Module, weights: dict[str, torch.Tensor]) -> None:
        """Load the weights of rank 0 into the network of every rank.

        Every rank must call this method.

        Args:
            network: The network that `distribute` has distributed.
            weights: All weights on rank 0. The other ranks ignore this argument.
        """
        if self.sharded:
            from torch.distributed.checkpoint.state_dict import (
                StateDictOptions,
                set_model_state_dict,
            )

            options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
            set_model_state_dict(network, dict(weights) if self.rank == 0 else {}, options=options)
            return
        if self.rank == 0:
            network.load_state_dict(weights)
        if self.world > 1:
            for tensor in network.state_dict().values():
                dist.broadcast(tensor, 0)

    def optimizer_state(
        self, network: nn.Module, optimizer: torch.optim.Optimizer
    ) -> dict[str, Any]:
        """Return the state of an optimizer.

        With FSDP, every rank must call this method, and only rank 0 gets the state.
        """
        if not self.sharded:
            return optimizer.state_dict()
        from torch.distributed.checkpoint.state_dict import (
            StateDictOptions,
            get_optimizer_state_dict,
        )

        return get_optimizer_state_dict(
            network, optimizer, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
        )

    def load_optimizer_state(
        self, network: nn.Module, optimizer: torch.optim.Optimizer, state: dict[str, Any]
    ) -> None:
        """Load a state that `optimizer_state` returned in a training with the same strategy.

        Every rank must pass the whole state.
        """
        if not self.sharded:
            optimizer.load_state_dict(state)
            return
        from torch.distributed.checkpoint.state_dict import (
            StateDictOptions,
            set_optimizer_state_dict,
        )

        set_optimizer_state_dict(
            network, optimizer, state, options=StateDictOptions(full_state_dict=True)
        )

    def share_buffers(self, network: nn.Module) -> None:
        """Copy the buffers of rank 0, such as the statistics of BatchNorm, to every rank."""
        if self.world > 1:
            for buffer in network.buffers():
                dist.broadcast(buffer, 0)

    def agree(self, decision: bool) -> bool:
        """Return the decision of rank 0. Every rank must call this method."""
        if self.world == 1:
            return decision
        chosen = torch.tensor(int(decision), device=self.device)
        dist.broadcast(chosen, 0)
        return bool(chosen)

    def mean(self, total: torch.Tensor, count: int) -> float:
        """Return the mean over the rows of all ranks: the sum of the ranks' totals divided by the sum of their counts.

        Args:
            total: Sum over this rank's rows.
            count: Number of this rank's rows.
        """
        total_and_count = torch.stack([total, torch.full_like(total, count)])
        if self.world > 1:
            dist.all_reduce(total_and_count)
        return float(total_and_count[0] / total_and_count[1])

    def share_of(self, rows: int) -> torch.Tensor | None:
        """Return the numbers of the rows that this rank evaluates.

        None for all rows, if there is one rank.

        All ranks get the same number of rows, because all ranks of FSDP must process the same
        number of batches. Some rows may be evaluated twice.
        """
        each = -(-rows // self.world)
        return (
            None
            if self.world == 1
            else torch.arange(self.rank * each, (self.rank + 1) * each) % rows
        )

    def part_of(self, rows: int) -> range:
        """Return the numbers of the rows that this rank evaluates.

        No row is evaluated twice, and a rank may have no rows.
        """
        return range(rows * self.rank // self.world, rows * (self.rank + 1) // self.world)

    def gather(self, values: torch.Tensor) -> torch.Tensor:
        """Return the values of all ranks, one rank after the other.

        All ranks must pass tensors of the same shape.
        """
        if self.world == 1:
            return values
        parts = [torch.empty_like(values) for _ in range(self.world)]
        dist.all_gather(parts, values.contiguous())
        return torch.cat(parts)

    def gather_array(self, values: np.ndarray) -> np.ndarray:
        """Return the arrays of all ranks as one array, one rank after the other.

        Arrays without rows may have any shape.
        """
        if self.world == 1:
            return values
        parts: list[Any] = [None] * self.world
        dist.all_gather_object(parts, values)
        return np.concatenate([part for part in parts if len(part)] or parts[:1])


def _blocks(network: nn.Module) -> Iterator[nn.Module]:
    """Yield the modules that FSDP gathers one after the other: the elements of the outermost `ModuleList` and `Sequential` modules."""
    for child in network.children():
        is_list = isinstance(child, (nn.ModuleList, nn.ModuleDict))
        if isinstance(network, (nn.ModuleList, nn.Sequential)) and not is_list:
            if any(True for _ in child.parameters()):
                yield child
        else:
            yield from _blocks(child)

"""Parts that the trainers `lightning` and `transformers` share.

These parts are the order of the rows, the steps, and settings that change during a trial.
"""

import contextlib
import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from . import Params, without
from ._torch_loop import seed_of
from ._torch_network import NetworkSteps

SETTINGS = "settings.pt"


class TorchBatches(torch.utils.data.Sampler[Any]):
    """Batches of row numbers.

    Their order depends only on the seed and the epoch, so a resumed trial repeats the order.

    Args:
        rows: Number of rows.
        size: Number of rows in a batch. The last batch may be smaller.
        seed: Seed of the order. None to keep the rows in their order.

    Attributes:
        epoch: Number of the epoch; the first is 0.
    """

    def __init__(self, rows: int, size: int, seed: int | None = None):
        self.rows = rows
        self.size = size
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the epoch for the next iteration."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[torch.Tensor]:
        if self.seed is None:
            order = torch.arange(self.rows)
        else:
            generator = torch.Generator().manual_seed(seed_of(self.seed, self.epoch))
            order = torch.randperm(self.rows, generator=generator)
        yield from torch.split(order, self.size) if self.rows else ()

    def __len__(self) -> int:
        return math.ceil(self.rows / self.size)


@contextlib.contextmanager
def evaluating(network: torch.nn.Module) -> Iterator[None]:
    """Put a network into evaluation mode in the block, and then restore the mode of each part."""
    modes = [(part, part.training) for part in network.modules()]
    network.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        for part, mode in modes:
            part.training = mode


class FrameworkSteps(NetworkSteps):
    """The steps of a training whose loop belongs to a framework.

    Attributes:
        settings: Settings of the new optimizers and schedulers; see `settings_of`.
        settings_before: Settings in the checkpoint from which the trial continues. None for a new
            trial.
    """

    settings: list[Params]
    settings_before: list[Params] | None = None

    def end(self, metrics: Mapping[str, float], last: bool) -> bool:
        """End a step, but do not report it yet. Return whether a checkpoint is due.

        Args:
            metrics: The metrics of the step. If no metric is requested, the first one decides.
            last: True if the training ends after this step.
        """
        self.lead = self.lead or next(iter(metrics), "")
        self.compare(self.step + 1, metrics)
        if last or self.step == self.cur.max_t:
            self.report_final(metrics)
        # Rank 0 decides, because a checkpoint is due after a time, and each rank has another clock.
        return bool(self.ranks.from_rank_0(self.cur.checkpoint_due(self.step, last=last)))

    def save(self, folder: Path) -> np.ndarray | None:
        """Write the model of the best step, and the settings."""
        torch.save(self.settings, folder / SETTINGS)
        return super().save(folder)

    def load(self, folder: Path) -> None:
        """Restore what `save` wrote."""
        super().load(folder)
        self.settings_before = torch.load(folder / SETTINGS, weights_only=True)

    def apply_changes(
        self, optimizers: Sequence[torch.optim.Optimizer], schedulers: Sequence[Any]
    ) -> None:
        """Apply settings that have changed since the checkpoint, if there is one.

        Under PBT, a trial continues from another trial's checkpoint with other `params`. Restored
        optimizers and schedulers have the other trial's settings. A learning rate that a schedule
        has changed is scaled.
        """
        if self.settings_before is None:
            return
        changes = [
            {name: value for name, value in new.items() if name not in old or old[name] != value}
            for old, new in zip(self.settings_before, self.settings, strict=True)
        ]
        # The settings of groups come first, then those of schedulers; see `settings_of`.
        groups = [group for optimizer in optimizers for group in optimizer.param_groups]
        for group, old, changed in zip(groups, self.settings_before, changes, strict=False):
            base = "initial_lr" if "initial_lr" in old else "lr"
            rate = group["lr"]
            if base in changed:
                rate *= changed[base] / old[base]
            group.update(changed, lr=rate)
        for scheduler, changed in zip(schedulers, changes[len(groups) :], strict=True):
            scheduler.load_state_dict(scheduler.state_dict() | changed)


def settings_of(
    optimizers: Sequence[torch.optim.Optimizer], schedulers: Sequence[Any]
) -> list[Params]:
    """Return the settings of each group of parameters, and then of each learning-rate scheduler.

    The settings of new optimizers and schedulers follow from a trial's `params`.
    """
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    settings = [without(group, ("params",)) for group in groups]
    for scheduler in schedulers:
        # Names with an underscore are counters, which are no settings.
        state = scheduler.state_dict()
        settings.append({name: value for name, value in state.items() if name[:1] != "_"})
    return copy.deepcopy(settings)

"""Define what the trainers `lightning` and `transformers` share.

They share the order of the rows, steps, and changed settings.
"""

import contextlib
import copy
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from . import Params
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
            order = torch.randperm(
                self.rows, generator=torch.Generator().manual_seed(seed_of(self.seed, self.epoch))
            )
        yield from torch.split(order, self.size) if self.rows else ()

    def __len__(self) -> int:
        return -(-self.rows // self.size)


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
        return bool(self.ranks.first(self.cur.checkpoint_due(self.step, last=last)))

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
        groups = [group for each in optimizers for group in each.param_groups]
        for group, old, changed in zip(groups, self.settings_before, changes, strict=False):
            base = "initial_lr" if "initial_lr" in old else "lr"
            rate = group["lr"] * (changed[base] / old[base] if base in changed else 1)
            group.update(changed, lr=rate)
        for scheduler, changed in zip(schedulers, changes[len(groups) :], strict=True):
            scheduler.load_state_dict(scheduler.state_dict() | changed)


def settings_of(
    optimizers: Sequence[torch.optim.Optimizer], schedulers: Sequence[Any]
) -> list[Params]:
    """Return the settings of each group of parameters, and then of each learning-rate scheduler.

    The settings of new optimizers and schedulers follow from a trial's `params`.
    """
    groups = [group for each in optimizers for group in each.param_groups]
    # Names with an underscore are counters, which are no settings.
    return copy.deepcopy(
        [{name: group[name] for name in group if name != "params"} for group in groups]
        + [
            {name: value for name, value in each.state_dict().items() if name[:1] != "_"}
            for each in schedulers
        ]
    )

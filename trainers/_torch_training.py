"""Define what the trainers `lightning` and `transformers` share.

They share the order of the rows, predictions, steps, and changed settings.
"""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sweeps import trial
from sweeps.trainers._best import BestStep
from sweeps.trainers._metrics import measure
from sweeps.trainers._torch_loop import seed_of
from sweeps.trainers._torch_network import Predictor, check_predictions
from sweeps.trainers._torch_parallel import Ranks, weights_of

WEIGHTS, DESCRIPTION, STATE = "model.pt", "model.json", "steps.pt"


class Batches(torch.utils.data.Sampler[Any]):
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
        self.rows, self.size, self.seed, self.epoch = rows, size, seed, 0

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


def predictions(outputs: torch.Tensor, task: str | None, are_logits: bool = True) -> np.ndarray:
    """Convert a network's outputs to predictions.

    Args:
        outputs: Shape (n,), (n, 1) or (n, k). For two classes, one output per row is the output for
            the second class.
        task: "binary", "multiclass" or "regression". None for data without a label.
        are_logits: True if the outputs of a classifier are logits; False if they are probabilities.

    Returns:
        A float64 array with the probability of the second class, shape (n,); the probabilities of
        all k classes, shape (n, k); or the values of a regression, shape (n,). Without a task, the
        outputs.

    Raises:
        ValueError: The outputs have another shape, or probabilities are outside of 0 to 1.
    """
    out = outputs.detach().to("cpu", torch.float64)
    if task is None:
        return out.numpy()
    shape = tuple(out.shape)
    if out.ndim == 2 and out.shape[1] == 1:
        out = out[:, 0]
    wanted = {
        "binary": "(n,), (n, 1) or (n, 2)",
        "multiclass": "(n, classes)",
        "regression": "(n,) or (n, 1)",
    }[task]
    if not (
        out.ndim == 1
        if task == "regression"
        else out.ndim == 2
        if task == "multiclass"
        else out.ndim == 1 or shape[1:] == (2,)
    ):
        raise ValueError(
            f"the model's output has the shape {shape}, but must have the shape {wanted} for the "
            f"task {task}"
        )
    if task == "regression":
        return out.numpy()
    if are_logits:
        out = torch.softmax(out, dim=1) if out.ndim == 2 else torch.sigmoid(out)
    elif len(out) and not 0 <= float(out.min()) <= float(out.max()) <= 1:
        raise ValueError(
            f"the model predicts {float(out.min())} to {float(out.max())}, which are not "
            "probabilities; set `output: logits`"
        )
    return (out[:, 1] if task == "binary" and out.ndim == 2 else out).numpy()


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


class Steps:
    """The steps of a trial on one rank, and the model of the best step.

    Args:
        cur: The trial.
        names: Metrics that every step reports. The first metric decides the best step. Without
            names, the first reported metric decides.
        ranks: The ranks of the trial.

    Attributes:
        done: Number of steps that are done.
        best: The best step.
        weights: The weights of the best step, on a CPU. {} on ranks other than 0, and if there is
            no best step.
        settings: Settings of the new optimizers and schedulers; see `settings_of`.
        settings_before: Settings in the checkpoint from which the trial continues. None for a new
            trial.
    """

    def __init__(self, cur: trial.Current, names: Sequence[str], ranks: Ranks):
        self.cur, self.names, self.ranks = cur, names, ranks
        self.done = 0
        self.best = BestStep(cur)
        self.weights: dict[str, torch.Tensor] = {}
        self.settings: dict[str, Any] = {}
        self.settings_before: dict[str, Any] | None = None
        self._last = False

    def end(self, metrics: Mapping[str, float], network: torch.nn.Module, last: bool) -> bool:
        """End a step. Return whether a checkpoint is due.

        Args:
            metrics: The metrics of the step.
            network: The network after the step. If the step is the best step, its weights are kept.
            last: True if the training ends after this step.
        """
        self.done, self._last = self.done + 1, last
        lead = next(iter([*self.names, *metrics]), "")
        if self.best.compare(self.done, metrics, lead) and self.ranks.rank == 0:
            self.weights = weights_of(network)
        # Rank 0 decides, because a checkpoint is due after a time, and each rank has another clock.
        return self.ranks.agree(self.cur.checkpoint_due(self.done, last=last))

    @property
    def ends(self) -> bool:
        """True if the latest step is the last step of the trial.

        That is so if the training is finished, or if the step is the scheduler's `max_t`.
        """
        return self._last or self.done == self.cur.max_t

    def report_final(
        self,
        network: torch.nn.Module,
        predict: Callable[[str], tuple[np.ndarray, np.ndarray]],
        reported: Mapping[str, float],
    ) -> None:
        """Measure the best step's model on train and valid for `Current.report_final`.

        The network keeps its latest weights.

        Args:
            network: The network.
            predict: Function of a split. It returns the labels and the network's predictions for
                the rows of all ranks.
            reported: Metrics of the last step, which are not reported again.
        """
        latest = weights_of(network)
        self.ranks.load(network, self.weights or latest)
        scores: dict[str, float] = {}
        for split in ("train", "valid"):
            scores |= measure(str(self.cur.task), split, *predict(split))
        self.ranks.load(network, latest)
        self.cur.report_final(
            {name: value for name, value in scores.items() if name not in reported}
        )

    def save(
        self,
        folder: Path,
        network: torch.nn.Module,
        description: Any,
        load: Callable[[str], Predictor],
    ) -> None:
        """Write a checkpoint: the model of the best step, and the state of these steps.

        Args:
            folder: Folder of the checkpoint.
            network: The network. Its weights are written if there is no best step.
            description: A dataclass, which is written as JSON.
            load: Function that loads the model from the folder.
        """
        torch.save(self.weights or weights_of(network), folder / WEIGHTS)
        (folder / DESCRIPTION).write_text(json.dumps(asdict(description)))
        state = {
            "done": self.done,
            **self.best.state,
            "settings": self.settings,
        }
        torch.save(state, folder / STATE)
        check = check_predictions(self.cur, lambda: load(str(folder)))
        self.cur.note_checkpoint(folder, self.best.step or self.done, check)

    def restore(self, folder: Path) -> None:
        """Restore what `save` wrote."""
        state = torch.load(folder / STATE, weights_only=True)
        self.done = state["done"]
        self.best.restore_state(state)
        self.settings_before = state["settings"]
        if self.best.step is not None and self.ranks.rank == 0:
            self.weights = load_weights(folder)


def load_weights(folder: Path) -> dict[str, torch.Tensor]:
    """Load the weights that `Steps.save` wrote, onto a CPU."""
    weights: dict[str, torch.Tensor] = torch.load(
        folder / WEIGHTS, map_location="cpu", weights_only=True
    )
    return weights


def settings_of(
    optimizers: Sequence[torch.optim.Optimizer], schedulers: Sequence[Any]
) -> dict[str, Any]:
    """Return the settings of new optimizers and learning-rate schedulers.

    They follow from a trial's `params`.

    A checkpoint contains these settings. `apply_changes` compares them with the settings of the
    trial that continues from the checkpoint.
    """
    groups = [
        [
            {name: value for name, value in group.items() if name != "params"}
            for group in each.param_groups
        ]
        for each in optimizers
    ]
    return copy.deepcopy(
        {
            "groups": groups,
            # Names with an underscore are counters, which are no settings.
            "schedulers": [
                {name: value for name, value in each.state_dict().items() if name[:1] != "_"}
                for each in schedulers
            ],
        }
    )


def apply_changes(
    optimizers: Sequence[torch.optim.Optimizer],
    schedulers: Sequence[Any],
    before: dict[str, Any],
    now: dict[str, Any],
) -> None:
    """Apply settings that have changed since a checkpoint to restored optimizers and schedulers.

    Under PBT, a trial continues from another trial's checkpoint with other `params`. Restored
    optimizers have the other trial's settings.

    Args:
        optimizers: The restored optimizers.
        schedulers: The restored schedulers.
        before: Settings in the checkpoint; see `settings_of`.
        now: Settings that follow from the trial's `params`.
    """
    for optimizer, olds, news in zip(optimizers, before["groups"], now["groups"], strict=True):
        for group, old, new in zip(optimizer.param_groups, olds, news, strict=True):
            _change_group(group, old, new)
    for scheduler, old, new in zip(
        schedulers, before["schedulers"], now["schedulers"], strict=True
    ):
        changed = {
            name: value for name, value in new.items() if name not in old or old[name] != value
        }
        scheduler.load_state_dict(scheduler.state_dict() | copy.deepcopy(changed))


def _change_group(group: dict[str, Any], old: dict[str, Any], new: dict[str, Any]) -> None:
    """Apply changed settings to one group of an optimizer's parameters.

    A learning rate that a schedule has changed is scaled.
    """
    base = "initial_lr" if "initial_lr" in old else "lr"
    if old[base] != new[base]:
        group["lr"] = (
            new[base] if group["lr"] == old[base] else group["lr"] * (new[base] / old[base])
        )
    for name, value in new.items():
        if name != "lr" and (name not in old or old[name] != value):
            group[name] = copy.deepcopy(value)

"""Training loop of the trainers `torch` and `torch_tabular`. A step is an epoch."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import itertools
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from sweeps import trial
from sweeps.trainers import LabeledRows, report
from sweeps.trainers._metrics import measure, requested
from sweeps.trainers._torch_data import Rows, call, forward
from sweeps.trainers._torch_network import Best, NetworkDefinition
from sweeps.trainers._torch_optimizer import Schedule, build
from sweeps.trainers._torch_parallel import Ranks, weights_of

NO_REDUCTION = (
    'weights of rows need a loss with `reduction="none"`, which returns the loss of each row; '
    "take a loss of PyTorch, or leave out "
    "data.weight and data.class_weight"
)
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


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


@dataclass(frozen=True)
class Settings:
    """Parameters of the loop; `trainers/torch.yaml` describes them."""

    epochs: int
    batch_size: int
    lr: float
    optimizer: str = "torch.optim:AdamW"
    optimizer_args: Mapping[str, Any] = field(default_factory=dict)
    schedule: str | None = None
    schedule_args: Mapping[str, Any] = field(default_factory=dict)
    schedule_every: str = "epoch"
    warmup_epochs: float = 0.0
    accumulate: int = 1
    clip_norm: float | None = None
    precision: str = "fp32"
    patience: int | None = None
    compile: bool = False
    shuffle: bool = True


class Training:
    """A network in training on one rank.

    Args:
        network: The newly built network.
        definition: Definition of the network.
        loss: Loss function of the outputs and the targets of a batch. It returns the mean over the
            rows.
        settings: Parameters of the loop.
        train: This rank's rows of train.
        ranks: The ranks of the trial.

    Attributes:
        epoch: Number of epochs that are done.
        values: The objective's value after each of these epochs.
    """

    def __init__(
        self,
        network: nn.Module,
        definition: NetworkDefinition,
        loss: Any,
        settings: Settings,
        train: Split,
        ranks: Ranks,
    ):
        self.network = network
        self.definition = definition
        self.loss = loss
        self.settings = settings
        self.train = train
        self.ranks = ranks
        self.targets = definition.targets(train.labels)
        self.weights, self.row_loss = None, None
        if train.weights is not None:
            # With a mean of 1 over the rows of all ranks, the mean of the weighted losses of a
            # batch needs no division by its weights.
            self.weights = train.weights / ranks.mean(train.weights.sum(), len(train.labels))
            self.row_loss = loss_of_each_row(loss)
        self.epoch = 0
        self.values: list[float] = []
        self.rows = len(train.labels)
        batches = -(-self.rows // settings.batch_size)
        self.updates = -(-batches // settings.accumulate)  # optimizer steps in an epoch

    def start(self, latest: dict[str, Any]) -> None:
        """Distribute the network, and create the optimizer and the schedule.

        Args:
            latest: State from which the training continues; {} for a new training. The network must
                already have the weights that belong to the state. Under PBT, the state may come
                from another trial. Settings in the state, such as the learning rate, are ignored.
        """
        settings = self.settings
        if settings.compile:
            # code that was compiled for the networks of earlier trials counts against a limit
            torch.compiler.reset()
            torch._inductor.config.compile_threads = (
                1  # a pool of processes would not survive the trial
            )
            self.network.compile()
        self.model = self.ranks.distribute(self.network)
        arguments = {"lr": settings.lr} | dict(settings.optimizer_args)
        self.optimizer = build(
            "params.optimizer", settings.optimizer, arguments, self.model.parameters()
        )
        self.scaler = torch.amp.GradScaler(
            self.ranks.device.type, enabled=settings.precision == "fp16"
        )
        if latest:
            self.epoch = latest["epoch"]
            self.values = latest["values"]
            self._restore_optimizer(latest)
            if latest["scaler"]:
                self.scaler.load_state_dict(latest["scaler"])
        self.schedule = self._schedule()
        self.schedule.replay(self.epoch * self.updates, self.values)

    def _restore_optimizer(self, latest: dict[str, Any]) -> None:
        """Restore the optimizer's state, but not its settings.

        If the state is from another kind of optimizer or another strategy, the optimizer starts
        without a state.
        """
        kind = type(self.optimizer).__name__
        if latest["kind"] != kind:
            return
        own = [
            {name: value for name, value in group.items() if name != "params"}
            for group in self.optimizer.param_groups
        ]
        self.optimizer.load_state_dict(latest["optimizer"])
        for group, mine in zip(self.optimizer.param_groups, own, strict=True):
            parameters = group["params"]
            group.clear()
            group.update(mine, params=parameters)

    def _schedule(self) -> Schedule:
        settings, schedule = self.settings, None
        every_step = settings.schedule_every == "step"
        if settings.schedule is not None:
            total = settings.epochs * (self.updates if every_step else 1)
            mode = "min" if trial.current().goal == "minimize" else "max"
            offered = {"T_max": total, "total_steps": total, "max_lr": settings.lr}
            given = {"mode": mode} if settings.schedule.endswith(":ReduceLROnPlateau") else {}
            arguments = given | dict(settings.schedule_args)
            schedule = build(
                "params.schedule", settings.schedule, arguments, self.optimizer, offered=offered
            )
        return Schedule(
            self.optimizer, schedule, every_step, round(settings.warmup_epochs * self.updates)
        )

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """Return the context in which the network computes its outputs."""
        dtype = DTYPES.get(self.settings.precision)
        return (
            contextlib.nullcontext()
            if dtype is None
            else torch.autocast(self.ranks.device.type, dtype)
        )

    def train_epoch(self, sum_losses: bool) -> torch.Tensor:
        """Train on the rows of this rank once.

        Return the sum of the losses of all rows, float64 of shape ().

        Args:
            sum_losses: False to return 0, because the sum of small batches takes a few percent of
                the time.
        """
        self.epoch += 1
        settings, device, rows = self.settings, self.ranks.device, len(self.targets)
        order = torch.randperm(rows, device="cpu") if settings.shuffle else torch.arange(rows)
        targets = torch.split(self.targets[order.to(device)], settings.batch_size)
        weights: Iterable[torch.Tensor | None] = itertools.repeat(None, len(targets))
        if self.weights is not None:
            weights = torch.split(self.weights[order.to(device)], settings.batch_size)
        self.model.train()
        total = torch.zeros((), dtype=torch.float64, device=device)
        batches = zip(
            self.train.rows.batches(settings.batch_size, order), targets, weights, strict=True
        )
        for number, (batch, wanted, weight) in enumerate(batches, 1):
            last = number % settings.accumulate == 0 or number == len(targets)
            with self.ranks.accumulating(self.model, last):
                with self.autocast():
                    loss, mean = self._losses(
                        self.definition.loss_input(call(self.model, batch)), wanted, weight
                    )
                share = self._share(number, len(wanted))
                self.scaler.scale(loss if share == 1 else loss * share).backward()
            if last:
                self.schedule.step(self._update)
            if sum_losses:
                total += mean.detach() * len(wanted)
        return total

    def _losses(
        self, outputs: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor | None
    ) -> tuple[Any, torch.Tensor]:
        """Return the loss that the optimizer minimizes for a batch, and the mean loss of the rows.

        Weights do not count in the mean loss.

        Args:
            outputs: The network's outputs for the batch.
            targets: The targets, shape (n,) or (n, k).
            weights: The weights of the rows, shape (n,). None if the rows have no weights.
        """
        if weights is None or self.row_loss is None:
            loss = self.loss(outputs, targets)
            return loss, loss
        losses = self.row_loss(outputs, targets)
        if not losses.ndim:
            raise ValueError(f"trainer.loss: {NO_REDUCTION}")
        losses = losses.reshape(len(targets), -1).mean(1)
        return (losses * weights).mean(), losses.mean()

    def _share(self, number: int, rows: int) -> float:
        """Return the fraction of the rows of an optimizer step that are in one batch.

        Args:
            number: Number of the batch; the first is 1.
            rows: Number of rows in the batch.
        """
        settings = self.settings
        if settings.accumulate == 1:
            return 1.0
        together = settings.batch_size * settings.accumulate
        before = (number - 1) // settings.accumulate * together
        return rows / min(together, self.rows - before)

    def _update(self) -> None:
        if self.settings.clip_norm is not None:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()

    def outputs(self, rows: Rows, shared: bool) -> torch.Tensor:
        """Compute the network's outputs for many rows.

        Args:
            rows: The rows.
            shared: True if every rank has the same rows. Each rank then computes a part of the
                outputs.

        Returns:
            The outputs for the rows of all ranks, float32 of shape (n, outputs), on the device.
        """
        self.network.eval()
        self.ranks.share_buffers(self.network)
        with self.autocast():
            found = self.ranks.gather(
                forward(self.network, rows, self.ranks.share_of(len(rows)) if shared else None)
            )
        return found[: len(rows)] if shared else found

    def measure(self, split: str, data: Split, names: tuple[str, ...] | None) -> dict[str, float]:
        """Measure metrics of the network on a split. All ranks get the same numbers.

        Args:
            split: "train", of which each rank has a part, or "valid", of which each rank has all
                rows.
            data: This rank's rows of the split.
            names: Names of the metrics; None for all metrics of the task.
        """
        shared = split == "valid"
        outputs = self.outputs(data.rows, shared)
        labels = (
            data.labels.cpu().numpy()
            if shared
            else self.ranks.gather_array(data.labels.cpu().numpy())
        )
        predictions = self.definition.predictions(outputs.to("cpu", torch.float64))
        others = None if names is None else [name for name in names if not name.endswith("-loss")]
        scores = measure(self.definition.task, split, labels, predictions, others)
        if names is not None and "valid-loss" in names:
            scores["valid-loss"] = float(
                self.loss(self.definition.loss_input(outputs), self.definition.targets(data.labels))
            )
        return scores

    def end_epoch(self, value: float) -> None:
        """Record the objective's value after an epoch, and advance the schedule."""
        self.values.append(value)
        self.schedule.end_epoch(value)

    def state(self) -> dict[str, Any]:
        """Return the state from which the training continues, without the weights."""
        return {
            "epoch": self.epoch,
            "values": self.values,
            "optimizer": self.optimizer.state_dict(),
            "kind": type(self.optimizer).__name__,
            "scaler": self.scaler.state_dict(),
        }


def fit(
    network: nn.Module,
    definition: NetworkDefinition,
    loss: Any,
    settings: Settings,
    *,
    data: tuple[Split, Split],
    ranks: Ranks,
    usual: Sequence[str],
) -> None:
    """Train a network. Report every epoch, and keep the model of the best epoch.

    Args:
        network: The newly built network.
        definition: Definition of the network.
        loss: Loss function of the outputs and the targets of a batch. It returns the mean over the
            rows.
        settings: Parameters of the loop.
        data: This rank's rows of train, and all rows of valid.
        ranks: The ranks of the trial.
        usual: The metrics that the trainer can report for the task.

    Raises:
        ValueError: An objective or a constraint names a metric that the trainer does not report.
    """
    cur = trial.current()
    train, valid = data
    asked = requested(cur, usual)
    best = Best(cur, definition)
    training = Training(network, definition, loss, settings, train, ranks)
    training.start(best.restore(network))
    last = min(settings.epochs, cur.max_t or settings.epochs)
    for epoch in range(training.epoch + 1, settings.epochs + 1):
        # the seeds follow from the epoch, so a resumed trial repeats its draws
        set_seeds(cur.seed, epoch, ranks.rank)
        total = training.train_epoch("train-loss" in asked)
        found = {"train-loss": ranks.mean(total, training.rows)} if "train-loss" in asked else {}
        if any(name.startswith("valid-") for name in asked):
            found |= training.measure("valid", valid, asked)
        if best.compare(epoch, found, asked[0]) and ranks.rank == 0:
            best.weights = weights_of(network)
        training.end_epoch(found[asked[0]])
        ends = epoch == last or epoch - (best.step or 0) >= (settings.patience or epoch + 1)
        if ends:  # before `report`, which ends the trial at the scheduler's `max_t`
            final = _final(training, best, data)
            cur.report_final({name: value for name, value in final.items() if name not in found})
        due = ranks.rank == 0 and cur.checkpoint_due(epoch, last=ends)
        report(found, functools.partial(best.save, training.state(), network) if due else None)
        if ends:
            return


def _final(training: Training, best: Best, data: tuple[Split, Split]) -> dict[str, float]:
    """Measure all metrics of train and valid for the model of the best epoch.

    The network keeps its latest weights.
    """
    ranks, network = training.ranks, training.network
    latest = weights_of(network)
    ranks.load(network, best.weights or latest)
    scores = training.measure("train", data[0], None) | training.measure("valid", data[1], None)
    ranks.load(network, latest)
    return scores


def moments(
    labels: torch.Tensor, ranks: Ranks, weights: torch.Tensor | None = None
) -> tuple[float, float]:
    """Return the target's mean and standard deviation over the rows of all ranks.

    Rows count by their weights if there are any.

    All ranks get the same numbers.
    """
    weights = torch.ones_like(labels) if weights is None else weights.to(labels.dtype)
    total = ranks.mean(weights.sum(), len(labels))
    mean = ranks.mean((weights * labels).sum(), len(labels)) / total
    variance = ranks.mean((weights * (labels - mean) ** 2).sum(), len(labels)) / total
    return mean, variance**0.5 or 1.0


def seed_of(*parts: int) -> int:
    """Combine several numbers into one seed.

    Other numbers, or another order, give independent seeds.
    """
    return int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0] >> np.uint64(1))


def loss_of_each_row(loss: Any) -> Any:
    """Return a loss function that returns the loss of each row instead of the mean.

    Args:
        loss: A module with an attribute `reduction`, or a function with an argument `reduction`, as
            PyTorch's losses have.

    Raises:
        ValueError: The loss has no `reduction`.
    """
    if isinstance(loss, nn.Module) and hasattr(loss, "reduction"):
        each: Any = copy.copy(loss)
        each.reduction = "none"
        return each
    with contextlib.suppress(TypeError, ValueError):  # an object without a signature
        if not isinstance(loss, nn.Module) and "reduction" in inspect.signature(loss).parameters:
            return functools.partial(loss, reduction="none")
    raise ValueError(f"trainer.loss: {NO_REDUCTION}")


def set_seeds(*parts: int) -> None:
    """Seed torch, NumPy and `random` from several numbers; see `seed_of`."""
    seed = seed_of(*parts)
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)

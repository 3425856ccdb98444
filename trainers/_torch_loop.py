"""Training loop of the trainers `torch` and `torch_tabular`. A step is an epoch."""

import contextlib
import copy
import functools
import inspect
import itertools
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from sweeps import trial

from . import Params, without
from ._metrics import measure
from ._torch_data import Split, call, forward
from ._torch_network import NetworkDefinition, NetworkSteps, Predictor, load_weights
from ._torch_optimizer import Schedule, build, resolve
from ._torch_parallel import Ranks, weights_of

# A loss of outputs and targets
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
NO_REDUCTION = (
    'weights of rows need a loss with `reduction="none"`, which returns the loss of each row; '
    "take a loss of PyTorch, or leave out data.weight and data.class_weight"
)
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Settings:
    """Parameters of the loop; `trainers/torch.yaml` describes them."""

    epochs: int
    batch_size: int
    lr: float
    optimizer: str
    optimizer_args: Params | None
    schedule: str | None
    schedule_args: Params | None
    schedule_every: str
    warmup_epochs: float
    accumulate: int
    clip_norm: float | None
    precision: str
    patience: int | None
    compile: bool
    shuffle: bool


class TorchTraining(NetworkSteps):
    """A network in training on one rank. A step is an epoch.

    Args:
        network: The newly built network.
        definition: Definition of the network.
        loss: Loss function of the outputs and the targets of a batch. It returns the mean over the
            rows.
        settings: Parameters of the loop.
        data: This rank's rows of "train", and all rows of "valid".
        asked: Metrics that every epoch reports. The first metric decides the best epoch.
        ranks: The ranks of the trial.
        load_model: The trainer's function `load`.

    Attributes:
        values: The objective's value after each epoch.
    """

    def __init__(
        self,
        network: nn.Module,
        definition: NetworkDefinition,
        loss: Loss,
        settings: Settings,
        *,
        data: Mapping[str, Split],
        asked: Sequence[str],
        ranks: Ranks,
        load_model: Callable[[str], Predictor],
    ):
        super().__init__(trial.current(), asked[0], ranks, load_model)
        self.network = network
        self.definition = definition
        self.loss = loss
        self.settings = settings
        self.data = data
        self.asked = asked
        train = data["train"]
        self.targets = definition.targets(train.labels)
        self.weights_of_rows = None
        self.row_loss = None
        if train.weights is not None:
            # With a mean of 1 over the rows of all ranks, the mean of the weighted losses of a
            # batch needs no division by its weights.
            mean = ranks.mean(train.weights.sum(), len(train.labels))
            self.weights_of_rows = train.weights / mean
            self.row_loss = loss_of_each_row(loss)
        self.values: list[float] = []
        batches = math.ceil(len(train.labels) / settings.batch_size)
        self.updates = math.ceil(batches / settings.accumulate)  # optimizer steps in an epoch
        self._distribute()

    def _distribute(self) -> None:
        """Distribute the network, and create the optimizer."""
        settings = self.settings
        if settings.compile:
            # code that was compiled for the networks of earlier trials counts against a limit
            torch.compiler.reset()
            # a pool of processes would not survive the trial
            torch._inductor.config.compile_threads = 1
            self.network.compile()
        self.model = self.ranks.distribute(self.network)
        arguments = {"lr": settings.lr} | dict(settings.optimizer_args or {})
        self.optimizer = build(
            "params.optimizer", settings.optimizer, arguments, self.model.parameters()
        )
        self.scaler = torch.amp.GradScaler(
            self.ranks.device.type, enabled=settings.precision == "fp16"
        )

    def run(self) -> None:
        """Train the epochs that are left, and report each of them."""
        self.schedule = self._schedule()
        self.schedule.replay(self.step * self.updates, self.values)
        cur = self.cur
        for epoch in range(self.step + 1, self.settings.epochs + 1):
            # the seeds follow from the epoch, so a resumed trial repeats its draws
            set_seeds(cur.seed, epoch, self.ranks.rank)
            total = self.train_epoch()
            metrics = self.measure()
            if "train-loss" in self.asked:
                metrics["train-loss"] = self.ranks.mean(total, len(self.targets))
            self.compare(epoch, metrics)
            self.values.append(metrics[self.lead])
            self.schedule.end_epoch(metrics[self.lead])
            patience = self.settings.patience
            stalled = patience is not None and epoch - (self.best or 0) >= patience
            last = epoch in (self.settings.epochs, cur.max_t) or stalled
            self.report(metrics, last=last, due=cur.checkpoint_due(epoch, last=last))
            if last:
                return

    def _schedule(self) -> Schedule:
        """Create the schedule of the learning rate.

        Arguments that the schedule's signature requires, such as `T_max`, get default values.
        """
        settings = self.settings
        schedule = None
        every_step = settings.schedule_every == "step"
        if settings.schedule is not None:
            function = resolve("params.schedule", settings.schedule)
            total = settings.epochs * (self.updates if every_step else 1)
            defaults: Params = {"T_max": total, "total_steps": total, "max_lr": settings.lr}
            arguments: Params = {
                name: defaults[name]
                for name, parameter in inspect.signature(function).parameters.items()
                if name in defaults and parameter.default in (parameter.empty, None)
            }
            if function is ReduceLROnPlateau:
                arguments["mode"] = "min" if self.cur.goal == "minimize" else "max"
            arguments |= settings.schedule_args or {}
            schedule = build("params.schedule", settings.schedule, arguments, self.optimizer)
        return Schedule(
            self.optimizer, schedule, every_step, round(settings.warmup_epochs * self.updates)
        )

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """Return the context in which the network computes its outputs."""
        dtype = DTYPES.get(self.settings.precision)
        device = self.ranks.device.type
        return contextlib.nullcontext() if dtype is None else torch.autocast(device, dtype)

    def train_epoch(self) -> torch.Tensor:
        """Train on the rows of this rank once.

        Return the sum of the losses of all rows, float64 of shape (). If no report needs the sum,
        return 0, because the sum of small batches takes a few percent of the time.
        """
        sum_losses = "train-loss" in self.asked
        settings = self.settings
        device = self.ranks.device
        rows = len(self.targets)
        order = torch.randperm(rows, device="cpu") if settings.shuffle else torch.arange(rows)
        targets = torch.split(self.targets[order.to(device)], settings.batch_size)
        weights: Iterable[torch.Tensor | None] = itertools.repeat(None, len(targets))
        if self.weights_of_rows is not None:
            weights = torch.split(self.weights_of_rows[order.to(device)], settings.batch_size)
        self.model.train()
        total = torch.zeros((), dtype=torch.float64, device=device)
        batches = zip(
            self.data["train"].rows.batches(settings.batch_size, order),
            targets,
            weights,
            strict=True,
        )
        for number, (batch, target, weight) in enumerate(batches, 1):
            # An optimizer step follows after `accumulate` batches, and after the last batch.
            ends_step = number % settings.accumulate == 0 or number == len(targets)
            with self.ranks.accumulating(self.model, ends_step):
                with self.autocast():
                    output = self.definition.loss_input(call(self.model, batch))
                    loss, mean = self._losses(output, target, weight)
                share = self._share(number, len(target))
                self.scaler.scale(loss if share == 1 else loss * share).backward()
            if ends_step:
                self.schedule.step(self._update)
            if sum_losses:
                total += mean.detach() * len(target)
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
        rows_of_step = settings.batch_size * settings.accumulate
        rows_before_step = (number - 1) // settings.accumulate * rows_of_step
        return rows / min(rows_of_step, len(self.targets) - rows_before_step)

    def _update(self) -> None:
        """Make an optimizer step with the accumulated gradients."""
        if self.settings.clip_norm is not None:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()

    def labels_of(self, split: str) -> np.ndarray:
        """Return the labels of this rank's rows of a split."""
        return self.data[split].labels.cpu().numpy()

    def outputs(self, split: str, rows: range) -> torch.Tensor:
        """Compute the network's outputs for some rows, float32 of shape (n, outputs)."""
        inputs = self.data[split].rows
        order = None if len(rows) == len(inputs) else torch.arange(rows.start, rows.stop)
        self.network.eval()
        with self.autocast():
            return forward(self.network, inputs, order)

    def measure(self) -> dict[str, float]:
        """Measure the network on valid. All ranks get the same numbers."""
        names = [name for name in self.asked if name.startswith("valid-")]
        if not names:
            return {}
        outputs = self.all_outputs("valid")
        valid = self.data["valid"]
        scores: dict[str, float] = {}
        if "valid-loss" in names:
            names.remove("valid-loss")
            loss_input = self.definition.loss_input(outputs.to(self.ranks.device, torch.float32))
            targets = self.definition.targets(valid.labels)
            scores["valid-loss"] = float(self.loss(loss_input, targets))
        predictions = self.definition.predictions(outputs)
        return scores | measure(
            str(self.cur.task), "valid", self.labels_of("valid"), y_pred=predictions, names=names
        )

    def save(self, folder: Path) -> np.ndarray | None:
        """Write the model of the best epoch, and the state of the training."""
        state = {
            "values": self.values,
            "optimizer": self.optimizer.state_dict(),
            "kind": type(self.optimizer).__name__,
            "scaler": self.scaler.state_dict(),
        }
        if self.best != self.step:
            state["network"] = weights_of(self.network)
        torch.save(state, folder / "latest.pt")
        return super().save(folder)

    def load(self, folder: Path) -> None:
        """Continue from the state of the training.

        Under PBT, the state may come from another trial. Settings in the state, such as the
        learning rate, are ignored.

        Raises:
            ValueError: The weights in the checkpoint do not have the network's shapes. This happens
                under PBT if arguments of the network are tuned.
        """
        super().load(folder)
        latest = torch.load(folder / "latest.pt", map_location="cpu", weights_only=True)
        weights = latest["network"] if "network" in latest else load_weights(str(folder))
        if _shapes(self.network.state_dict()) != _shapes(weights):
            raise ValueError(
                "the checkpoint has a network of another shape; under pbt, parameters that change "
                "the shape must be constants"
            )
        self.network.load_state_dict(weights)
        self.values = latest["values"]
        if latest["kind"] == type(self.optimizer).__name__:
            self._restore_optimizer(latest["optimizer"])
        if latest["scaler"]:
            self.scaler.load_state_dict(latest["scaler"])

    def _restore_optimizer(self, state: Params) -> None:
        """Restore the optimizer's state, but not its settings."""
        settings = [without(group, ("params",)) for group in self.optimizer.param_groups]
        self.optimizer.load_state_dict(state)
        for group, own in zip(self.optimizer.param_groups, settings, strict=True):
            parameters = group["params"]
            group.clear()
            group.update(own, params=parameters)


def _shapes(weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in weights.items()}


def moments(
    labels: torch.Tensor, ranks: Ranks, weights: torch.Tensor | None = None
) -> tuple[float, float]:
    """Return the target's mean and standard deviation over the rows of all ranks.

    Rows count by their weights if there are any. All ranks get the same numbers. A standard
    deviation of 0 becomes 1, because targets are divided by it.
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
        unreduced: Any = copy.copy(loss)
        unreduced.reduction = "none"
        return unreduced
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

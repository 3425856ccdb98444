"""Build the objects that a space file names, and change the learning rate during the training."""

import inspect
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau

from sweeps.core.plugins import references

from . import Params


def build(place: str, reference: str, arguments: Params, *positional: Any) -> Any:
    """Call a class or function that a space file names, and return the result.

    Args:
        place: Key of the space file that names the class or function, such as `params.optimizer`.
        reference: The class or function, as `module:attr`.
        arguments: Keyword arguments.
        *positional: Positional arguments.

    Raises:
        ValueError: The object that the reference names does not exist, or the signature does not
            accept the arguments.
    """
    function = resolve(place, reference)
    try:
        inspect.signature(function).bind(*positional, **arguments)
    except TypeError as e:
        raise ValueError(
            f"{place}: `{reference}` cannot be called with the arguments "
            f"{', '.join(arguments) or 'none'}: {e}"
        ) from None
    except ValueError:  # a function in C has no signature
        pass
    return function(*positional, **arguments)


def resolve(place: str, reference: str) -> Any:
    """Return the object that a key of the space file names.

    Raises:
        ValueError: There is no such object.
    """
    try:
        return references.resolve(reference)
    except references.RefError as e:
        raise ValueError(f"{place}: {e}") from None


class Schedule:
    """Learning rates of an optimizer: a warm-up over the first steps, and a schedule.

    The schedule has no state in checkpoints. It is replayed when a trial continues, so that a
    changed learning rate takes effect.

    Args:
        optimizer: The optimizer.
        schedule: Learning-rate scheduler of PyTorch; None for a constant rate.
        every_step: True if the schedule advances after each optimizer step. False if it advances
            after each epoch.
        warmup: Number of optimizer steps in which the rate rises linearly to the rate of the
            schedule.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, schedule: Any, every_step: bool, warmup: int
    ):
        self.optimizer = optimizer
        self.schedule = schedule
        self.every_step = every_step
        self.warmup = warmup
        self.steps = 0  # optimizer steps so far

    def replay(self, steps: int, values: Iterable[float]) -> None:
        """Advance a new schedule as far as in an earlier part of the training.

        Args:
            steps: Number of optimizer steps of the earlier part.
            values: The objective's value after each epoch of the earlier part.
        """
        self.steps = steps
        with warnings.catch_warnings():
            # PyTorch warns that no optimizer step came before.
            warnings.simplefilter("ignore", UserWarning)
            if self.schedule is not None and self.every_step:
                for _ in range(steps):
                    self.schedule.step()
            for value in values:
                self.end_epoch(value)

    def step(self, update: Callable[[], Any]) -> None:
        """Make an optimizer step, and advance the schedule.

        Args:
            update: Function that makes the optimizer step.
        """
        self.steps += 1
        if self.steps <= self.warmup:
            rates = [group["lr"] for group in self.optimizer.param_groups]
            for group in self.optimizer.param_groups:
                group["lr"] *= self.steps / self.warmup
            update()
            for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
                group["lr"] = rate
        else:
            update()
        if self.every_step and self.schedule is not None:
            self.schedule.step()

    def end_epoch(self, value: float) -> None:
        """Advance a schedule that advances after each epoch.

        Args:
            value: The objective's value after the epoch, which `ReduceLROnPlateau` needs.
        """
        if self.schedule is None or self.every_step:
            return
        if isinstance(self.schedule, ReduceLROnPlateau):
            self.schedule.step(value)
        else:
            self.schedule.step()

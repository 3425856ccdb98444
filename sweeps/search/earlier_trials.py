"""Trials of earlier sweeps from which a new sweep learns (`search.from`).

The trials are translated to the dimensions of the new space once, and saved in the new sweep's
folder. A resumed sweep reads this file. It makes the same suggestions, even if the earlier sweeps
have been deleted.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from optuna.distributions import BaseDistribution
from pydantic import JsonValue, TypeAdapter, ValidationError

from sweeps.core.errors import InputError
from sweeps.core.files.atomic_files import write_text
from sweeps.core.files.json_files import read_json
from sweeps.core.files.sweep_folder import EARLIER_TRIALS, SweepFolder
from sweeps.space import Space
from sweeps.space.model.conditions import Key
from sweeps.study.distributions import distribution_of


@dataclass(frozen=True)
class EarlierTrial:
    """A configuration of an earlier sweep, in the dimensions of the new space.

    Attributes:
        keys: Key of each dimension that both the trial and the new space have, by the dimension's
            name; see `Dimension.value`.
        rungs: Values of the first objective at the steps at which the earlier sweep compared
            trials, by step.
        values: Final value of each objective. None if the trial was stopped or failed.
        violation: Sum of the violations of constraints. Infinity for a failed trial, and 0 for a
            feasible one.
    """

    keys: Mapping[str, Key]
    rungs: Mapping[int, float] = field(default_factory=dict)
    values: tuple[float, ...] | None = None
    violation: float = 0.0


@dataclass(frozen=True)
class EarlierSweep:
    """An earlier sweep from which a new sweep learns.

    Attributes:
        name: Name of the earlier sweep's folder.
        place: Folder or address of the earlier sweep.
        trials: The configurations that the new sweep learns from.
        left_out: Number of configurations that the new sweep does not learn from, by the reason.
        new: Names of the dimensions of the new space for which no trial has a value.
    """

    name: str
    place: str
    trials: tuple[EarlierTrial, ...]
    left_out: Mapping[str, int] = field(default_factory=dict)
    new: tuple[str, ...] = ()

    def __str__(self) -> str:
        total = len(self.trials) + sum(self.left_out.values())
        plural = "" if total == 1 else "s"
        text = f"{len(self.trials)} of {total} configuration{plural} of {self.name}"
        if self.left_out:
            reasons = ", ".join(f"{count} {reason}" for reason, count in self.left_out.items())
            text += f"; left out: {reasons}"
        if self.new:
            text += f"; it has no values for {', '.join(self.new)}"
        return text

    def summary(self) -> dict[str, JsonValue]:
        """Return a JSON object with the number of trials in place of the trials."""
        left_out: dict[str, JsonValue] = {**self.left_out}
        return {
            "name": self.name,
            "place": self.place,
            "taken": len(self.trials),
            "left_out": left_out,
            "new": [*self.new],
        }


_FILE_CONTENT = TypeAdapter(tuple[EarlierSweep, ...])


def save(folder: Path, sweeps: Sequence[EarlierSweep]) -> None:
    """Save the trials of earlier sweeps in the folder of a new sweep."""
    objects = [dataclasses.asdict(sweep) for sweep in sweeps]
    write_text(SweepFolder(folder).earlier_trials, json.dumps(objects) + "\n")


def read(folder: Path, space: Space) -> tuple[EarlierSweep, ...]:
    """Return the trials of earlier sweeps that were saved in a sweep's folder.

    Nothing in the file is executed.

    Args:
        folder: The sweep's folder.
        space: The space of the sweep.

    Raises:
        InputError: The file is missing or invalid, or has a value that is not in the space.
    """
    file = SweepFolder(folder).earlier_trials
    restore = f"restore {EARLIER_TRIALS} from a backup"
    try:
        sweeps = _FILE_CONTENT.validate_python(read_json(file))
    except (ValidationError, ArithmeticError):
        text = "is missing or damaged, but the space file has `search.from`"
        raise InputError(str(file), f"{text}; {restore}") from None
    distributions = {dimension.name: distribution_of(dimension) for dimension in space.dimensions}
    for trial in (trial for sweep in sweeps for trial in sweep.trials):
        for name, key in trial.keys.items():
            if name not in distributions or not _contains(distributions[name], key):
                raise InputError(str(file), f"`{name}`: {key!r} is not in the space; {restore}")
    return sweeps


def _contains(distribution: BaseDistribution, key: Key) -> bool:
    try:
        return bool(distribution._contains(distribution.to_internal_repr(key)))
    except (ValueError, TypeError, ArithmeticError):
        return False

"""Trials of earlier sweeps from which a new sweep learns (`search.from`).

The trials are translated to the dimensions of the new space once, and saved in the new sweep's
folder. A resumed sweep reads this file. It makes the same suggestions, even if the earlier sweeps
have been deleted.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NotRequired

from optuna.distributions import BaseDistribution
from pydantic import AfterValidator, TypeAdapter
from typing_extensions import TypedDict

from sweeps.core.atomic_files import write_text
from sweeps.core.errors import InputError
from sweeps.core.json_files import Count, Number, Text, find_errors, is_number, read_json_object
from sweeps.core.sweep_folder import EARLIER_TRIALS, SweepFolder
from sweeps.space import Space
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

    keys: Mapping[str, Any]
    rungs: Mapping[int, float] = field(default_factory=dict)
    values: tuple[float, ...] | None = None
    violation: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Return the trial as a JSON object. Values that are not finite become null."""
        shown: dict[str, Any] = {
            "keys": dict(self.keys),
            "rungs": [[step, _finite(value)] for step, value in sorted(self.rungs.items())],
        }
        shown |= (
            {} if self.values is None else {"values": [_finite(value) for value in self.values]}
        )
        return shown | ({} if self.violation == 0 else {"violation": _finite(self.violation)})

    @classmethod
    def from_json(cls, shown: Mapping[str, Any]) -> EarlierTrial:
        """Return the trial that `to_json` returned."""
        values = shown.get("values")
        return cls(
            dict(shown["keys"]),
            {step: math.nan if value is None else value for step, value in shown["rungs"]},
            None
            if values is None
            else tuple(math.nan if value is None else value for value in values),
            math.inf if shown.get("violation", 0.0) is None else shown.get("violation", 0.0),
        )


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
        text = f"{len(self.trials)} of {total} configuration{'s' * (total != 1)} of {self.name}"
        reasons = ", ".join(f"{count} {reason}" for reason, count in self.left_out.items())
        text += f"; left out: {reasons}" if reasons else ""
        return text + (f"; it has no values for {', '.join(self.new)}" if self.new else "")

    def to_json(self) -> dict[str, Any]:
        """Return the sweep as a JSON object."""
        return {**self.summary(), "trials": [trial.to_json() for trial in self.trials]}

    def summary(self) -> dict[str, Any]:
        """Return the JSON object without the trials, but with their number."""
        counts = {"taken": len(self.trials), "left_out": dict(self.left_out)}
        return {"name": self.name, "place": self.place, **counts, "new": list(self.new)}

    @classmethod
    def from_json(cls, shown: Mapping[str, Any]) -> EarlierSweep:
        """Return the sweep that `to_json` returned."""
        trials = tuple(EarlierTrial.from_json(trial) for trial in shown["trials"])
        return cls(
            shown["name"], shown["place"], trials, dict(shown["left_out"]), tuple(shown["new"])
        )


def save(folder: Path, sweeps: Sequence[EarlierSweep]) -> None:
    """Save the trials of earlier sweeps in the folder of a new sweep."""
    shown = {"sweeps": [sweep.to_json() for sweep in sweeps]}
    write_text(SweepFolder(folder).earlier_trials, json.dumps(shown, allow_nan=False) + "\n")


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
    content = read_json_object(file)
    if content is None:
        text = (
            "is missing or no JSON, but the space file has `search.from`; restore "
            f"{EARLIER_TRIALS} from a backup"
        )
        raise InputError(str(file), text)
    if errors := find_errors(_RULES, content):
        raise InputError(
            str(file), f"{next(iter(errors.values()))}; restore the file from a backup"
        )
    sweeps = tuple(map(EarlierSweep.from_json, content["sweeps"]))
    distributions = {dimension.name: distribution_of(dimension) for dimension in space.dimensions}
    for name, key in (
        item for sweep in sweeps for trial in sweep.trials for item in trial.keys.items()
    ):
        if name not in distributions or not _contains(distributions[name], key):
            raise InputError(
                str(file), f"`{name}`: {key!r} is not in the space; restore the file from a backup"
            )
    return sweeps


def _contains(distribution: BaseDistribution, key: Any) -> bool:
    try:
        return bool(distribution._contains(distribution.to_internal_repr(key)))
    except (ValueError, TypeError):
        return False


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _check_rung(rung: list[Any]) -> list[Any]:
    if (
        len(rung) != 2
        or type(rung[0]) is not int
        or rung[0] < 0
        or not (rung[1] is None or is_number(rung[1]))
    ):
        raise ValueError("must be a step and a value")
    return rung


_Key = None | bool | int | Number | Text


class _Trial(TypedDict):
    keys: dict[Text, _Key]
    rungs: list[Annotated[list[Any], AfterValidator(_check_rung)]]
    values: NotRequired[list[Number | None]]
    violation: NotRequired[Number | None]


class _Sweep(TypedDict):
    name: Text
    place: Text
    left_out: dict[Text, Count]
    new: list[Text]
    trials: list[_Trial]


class _Sweeps(TypedDict):
    sweeps: list[_Sweep]


_RULES = TypeAdapter(_Sweeps)

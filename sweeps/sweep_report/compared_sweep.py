"""A sweep that is compared with others, and the values that two sweeps have in common."""

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pydantic import JsonValue

from sweeps.core.trial import Result
from sweeps.evaluation.paired import ComparedModel
from sweeps.space import Space
from sweeps.space.model.settings_texts import SAME_VALID_ROWS, settings_of
from sweeps.study import ranking
from sweeps.study.record_reader import Record

from .configuration import dotted_rows
from .importance import Importance
from .regret import Moment, pauses_of, progress_of

V = TypeVar("V")
# A row of a comparison: a name, and the value of each sweep. None stands for a value that a sweep
# does not have.
Row = tuple[str, tuple[JsonValue, ...]]


@dataclass(frozen=True)
class ComparedSweep:
    """A sweep to compare, as it was read from its folder.

    Attributes:
        name: Name of the sweep's folder.
        place: The folder, or the address of the sweep in a store.
        state: State of the sweep; see `SweepSummary.state`.
        record: The content of the study; None if there is no study yet.
        space: The space; None if the saved space file cannot be read.
        importance: The importances of the dimensions.
        algorithm: Name of the sampler; None if it is unknown.
        test: Score of the best trial on the test split; None if it is unknown.
        drivers: When the sweep was started and each time resumed, in seconds since the epoch.
        problems: Messages about files of the sweep that cannot be read.
        model: The exported model; None if there is none, or if it cannot be compared.
    """

    name: str
    place: str
    state: str
    record: Record | None
    space: Space | None
    importance: Importance
    algorithm: str | None = None
    test: float | None = None
    drivers: tuple[float, ...] = ()
    problems: tuple[str, ...] = ()
    model: ComparedModel | None = None

    @property
    def objective(self) -> str | None:
        """The objectives as text, such as `minimize valid-logloss`; None if they are unknown."""
        if self.record is not None:
            return ", ".join(f"{o.goal} {o.metric}" for o in self.record.objectives.objectives)
        return None

    @functools.cached_property
    def settings(self) -> dict[str, str] | None:
        """The settings of the space; None if the space cannot be read."""
        return None if self.space is None else settings_of(self.space)

    @functools.cached_property
    def progress(self) -> tuple[Moment, ...]:
        """Budget and best value of the sweep at the end of each trial."""
        if self.record is None:
            return ()
        return progress_of(self.record, pauses_of(self.record, self.drivers))

    @functools.cached_property
    def configuration(self) -> dict[str, JsonValue] | None:
        """The best configuration with dotted names; None if there is no best trial."""
        best = None if self.record is None else self.record.best
        if best is None:
            return None
        steps = [("steps", best.result.steps), ("best step", best.result.best_step)]
        return dict([*dotted_rows(best.trial, "params."), *steps])

    @functools.cached_property
    def best(self) -> Result | None:
        """The result of the best configuration; None if there is none."""
        return None if self.record is None else self.record.best_result


def data_differ(a: ComparedSweep, b: ComparedSweep) -> bool:
    """Return whether the values of two sweeps are measured on different rows.

    Return False, too, if a sweep has no record yet, or if its record does not show the rows.
    """
    if a.record is None or b.record is None:
        return False
    if a.space is None or b.space is None:
        return a.record.data != b.record.data
    if a.space.data.is_named != b.space.data.is_named or a.space.data.folds != b.space.data.folds:
        return True
    # Without data, the record has a hash of the loop's code.
    if not a.space.data.is_named or a.record.data == b.record.data:
        return False
    keys = _data_keys(a, b)
    return not keys or not keys <= {*SAME_VALID_ROWS}


def _data_keys(a: ComparedSweep, b: ComparedSweep) -> set[str]:
    """Return the settings that differ, and that decide about the rows."""
    rows, _ = differences([a.settings, b.settings])
    return {name for name, _ in rows if name.startswith("data.") or name == "search.seed"}


def why_not_comparable(a: ComparedSweep, b: ComparedSweep) -> str:
    """Return why the values of two sweeps cannot be compared."""
    if a.objective is None or b.objective is None:
        return "one of them has no trial yet"
    if a.objective != b.objective:
        return f"the objectives differ: {a.objective}; {b.objective}"
    keys = sorted(_data_keys(a, b))
    return f"they are measured on different rows: {', '.join(keys) or 'the data differ'}"


def leader_of(sweeps: Sequence[ComparedSweep]) -> Result | None:
    """Return the best result of several comparable sweeps."""
    results = {i: sweep.best for i, sweep in enumerate(sweeps) if sweep.best is not None}
    if not results or sweeps[0].record is None:
        return None
    winner = ranking.winner(results.items(), sweeps[0].record.goal == "minimize")
    return None if winner is None else results[winner]


def regret_of(sweep: ComparedSweep, value: float | None, leader: Result | None) -> float | None:
    """Return the distance of a value to the best value of comparable sweeps.

    None if the sweep's best trial and the best trial of all sweeps have different tiers; see
    `ranking.tier`.

    Args:
        sweep: The sweep.
        value: A value of the sweep.
        leader: The best result of the comparable sweeps; None if there is none.
    """
    best = sweep.best
    if value is None or best is None or leader is None or leader.value is None:
        return None
    distance = abs(value - leader.value)
    is_known = ranking.tier(best) == ranking.tier(leader) and math.isfinite(distance)
    return distance if is_known else None


def rows_of(columns: Sequence[Mapping[str, V]]) -> Iterator[tuple[str, tuple[V | None, ...]]]:
    """Yield a row for each name, with the value of each column; None if a column has no value."""
    for name in dict.fromkeys(name for column in columns for name in column):
        yield name, tuple(column.get(name) for column in columns)


def differences(
    columns: Sequence[Mapping[str, JsonValue] | None],
) -> tuple[tuple[Row, ...], dict[str, JsonValue]]:
    """Return the rows of the values that differ, and the values that are equal.

    A column that is None counts as unknown.
    """
    known = [column for column in columns if column is not None]
    rows = []
    equal = {}
    for name, values in rows_of([column or {} for column in columns]):
        if all(name in column and column[name] == known[0][name] for column in known):
            equal[name] = known[0][name]
        else:
            rows.append((name, values))
    return tuple(rows), equal

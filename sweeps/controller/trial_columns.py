"""The columns of a sweep's table of trials, and the order of its rows.

The terminal and notebooks show this table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sweeps.core.errors import InputError
from sweeps.core.suggestions import did_you_mean
from sweeps.core.trial import flat, format_trial_id

if TYPE_CHECKING:
    from sweeps.controller.sweep_summary import SweepSummary
    from sweeps.study.record import Record, TrialRecord


@dataclass(frozen=True)
class Column:
    """A column of the table of trials.

    Attributes:
        name: Name in CSV and for `--columns` and `--sort`, such as `params.eta`.
        head: Name in the table, such as `eta`.
        value: Function that returns the value of a trial; None if the trial has no value.
        is_number: True if the column is aligned to the right.
    """

    name: str
    head: str
    value: Callable[[TrialRecord], Any]
    is_number: bool = False


def default_columns(study: Record, sweep: SweepSummary) -> list[Column]:
    """Return the columns that `sweeps show` prints if the user names none."""
    judge = study.objectives
    front = {t.number for t in study.front}
    asked = {o.metric for o in judge.objectives}
    columns = [Column("trial", "TRIAL", lambda t: t.id), Column("state", "STATE", sweep.state_of)]
    for i, objective in enumerate(judge.objectives):
        columns.append(Column(objective.metric, objective.metric.upper(), _objective(i), True))
    for constraint in judge.constraints:
        if constraint.metric not in {*asked, "seconds"}:
            columns.append(
                Column(
                    constraint.metric, constraint.metric.upper(), _metric(constraint.metric), True
                )
            )
    if judge.constraints:
        columns.append(
            Column(
                "feasible",
                "FEASIBLE",
                lambda t: ("yes" if t.result.feasible else "no") if t.result.metrics else None,
            )
        )
    if study.repeats.count > 1:
        columns.append(
            Column(
                "repeats",
                "REPEATS",
                lambda t: None if t.repeat_of is None else format_trial_id(t.repeat_of),
            )
        )
    if front:
        columns.append(Column("front", "FRONT", lambda t: "*" if t.number in front else ""))
    if any(t.enqueued for t in study.trials):
        columns.append(Column("enqueued", "ENQUEUED", lambda t: "yes" if t.enqueued else ""))
    columns.append(Column("steps", "STEPS", lambda t: t.result.steps, True))
    columns.append(Column("seconds", "SECONDS", lambda t: t.result.seconds, True))
    return columns + [
        Column(name, _short(name), _label(name))
        for name in dict.fromkeys(name for t in study.trials for name in t.labels)
    ]


def further_columns(study: Record) -> list[Column]:
    """Return the columns that `sweeps show` prints only if the user names them."""
    columns = [
        Column("best_step", "BEST_STEP", lambda t: t.result.best_step, True),
        Column("attempts", "ATTEMPTS", lambda t: t.attempts, True),
        Column("reason", "REASON", lambda t: t.reason),
        Column("seed", "SEED", lambda t: t.seed, True),
        Column("began", "BEGAN", lambda t: t.began and t.began.isoformat(" ", "seconds")),
        Column("ended", "ENDED", lambda t: t.ended and t.ended.isoformat(" ", "seconds")),
    ]
    metrics = dict.fromkeys(name for t in study.trials for name in t.result.metrics)
    columns += [Column(name, name.upper(), _metric(name), True) for name in metrics]
    finals = dict.fromkeys(name for t in study.trials for name in t.result.final)
    columns += [
        Column(f"final.{name}", f"FINAL.{name.upper()}", _final(name), True) for name in finals
    ]
    constants = dict.fromkeys(name for t in study.trials for name, _ in flat(t.params, "params."))
    return columns + [Column(name, _short(name), _param(name)) for name in constants]


# Each of these functions returns a function, so that a loop does not change the name that an
# earlier column uses.


def _objective(i: int) -> Callable[[TrialRecord], Any]:
    return lambda t: (
        (t.result.values or (t.result.value,))[i] if i < len(t.result.values or (None,)) else None
    )


def _metric(name: str) -> Callable[[TrialRecord], Any]:
    return lambda t: t.result.metrics.get(name)


def _final(name: str) -> Callable[[TrialRecord], Any]:
    return lambda t: t.result.final.get(name)


def _label(name: str) -> Callable[[TrialRecord], Any]:
    return lambda t: t.labels.get(name)


def _param(name: str) -> Callable[[TrialRecord], Any]:
    return lambda t: dict(flat(t.params, "params.")).get(name)


def _short(name: str) -> str:
    return name.removeprefix("params.").removeprefix("scaling.")


def chosen_columns(names: Sequence[str], study: Record, sweep: SweepSummary) -> list[Column]:
    """Return the columns that the user named; the default columns if the user named none.

    Args:
        names: Names of columns, such as `params.eta` or `eta`, in upper or lower case.
        study: Record of the sweep's trials.
        sweep: The sweep.

    Raises:
        InputError: There is no such column.
    """
    if not names:
        return default_columns(study, sweep)
    return [_find(name, "--columns", study, sweep) for name in names]


def _find(name: str, option: str, study: Record, sweep: SweepSummary) -> Column:
    """Return the column of a name.

    Raises:
        InputError: There is no such column.
    """
    columns = [*default_columns(study, sweep), *further_columns(study)]
    for column in columns:
        if name.lower() in (column.name.lower(), column.head.lower()):
            return column
    heads = dict.fromkeys(column.head.lower() for column in columns)
    raise InputError(
        option, f"`{name}` is not a column of this sweep; {did_you_mean(name.lower(), heads)}"
    )


def sorted_trials(study: Record, sweep: SweepSummary, by: str | None = None) -> list[TrialRecord]:
    """Return the trials in the order of a table.

    Args:
        study: Record of the sweep's trials.
        sweep: The sweep.
        by: Name of the column to sort by, the smallest value first. With `-` before the name, the
            largest value comes first. Trials without a value come last. None sorts the best trial
            first.

    Raises:
        InputError: There is no such column.
    """
    best_first = sorted(study.trials, key=_rank(study))
    if by is None:
        return best_first
    column = _find(by.removeprefix("-"), "--sort", study, sweep)
    values = {t.number: column.value(t) for t in best_first}
    known = [t for t in best_first if not is_missing(values[t.number])]
    numbers = all(isinstance(values[t.number], (int, float)) for t in known)
    known.sort(
        key=lambda t: values[t.number] if numbers else str(values[t.number]),
        reverse=by.startswith("-"),
    )
    return known + [t for t in best_first if is_missing(values[t.number])]


def is_missing(value: Any) -> bool:
    """Return whether a trial has no value in a column."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def _rank(study: Record) -> Callable[[TrialRecord], tuple[Any, ...]]:
    """Return a function that returns the sort key of a trial: first the Pareto front, then feasible and complete trials, then the value.

    Repeats of one configuration stay together.
    """
    sign = 1 if study.goal == "minimize" else -1
    front = {t.number for t in study.front}
    of_configurations = study.configurations.results() if study.repeats.count > 1 else {}

    def rank(t: TrialRecord) -> tuple[Any, ...]:
        r = of_configurations.get(t.first_trial, t.result)
        low = not r.feasible or r.state.name != "COMPLETE" or r.given
        order = (2 * (not r.feasible) + (r.state.name != "COMPLETE")) if low else 0
        value = math.inf if r.value is None or math.isnan(r.value) else sign * r.value
        return (t.number not in front, r.given, order, value, t.first_trial, t.number)

    return rank


def cell_of(column: Column, t: TrialRecord) -> Any:
    """Return the value of a trial in a column, for display; None if the trial has no value."""
    value = column.value(t)
    return f"{value:.1f}" if column.name.endswith("seconds") and isinstance(value, float) else value

"""The trials of a sweep as a table or as CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from sweeps.core.trial import format_trial_id
from sweeps.terminal.text import format_table

if TYPE_CHECKING:
    from sweeps.controller.sweep_summary import SweepSummary
    from sweeps.study.record import Record
    from sweeps.study.states import TrialState


def trial_rows(study: Record, sweep: SweepSummary) -> Iterator[dict[str, Any]]:
    """Yield the values of each trial by the name of the column. The best trial comes first."""
    judge = study.objectives
    metrics = [o.metric for o in judge.objectives]
    limited = [c.metric for c in judge.constraints if c.metric not in {*metrics, "seconds"}]
    dimensions = list(dict.fromkeys(name for t in study.trials for name in t.labels))
    front = {t.number for t in study.front}
    any_enqueued = any(t.trial.enqueued for t in study.trials)
    for t in sorted(study.trials, key=_rank(study)):
        values = t.result.values or (t.result.value,)
        row: dict[str, Any] = {"trial": t.id, "state": sweep.state_of(t)}
        for i, metric in enumerate(metrics):
            row[metric] = values[i] if i < len(values) else None
        row |= {name: t.result.metrics.get(name) for name in limited}
        if judge.constraints:
            feasible = "yes" if t.result.feasible else "no"
            row["feasible"] = feasible if t.result.metrics else None
        if study.repeats.count > 1:
            row["repeats"] = (
                None if t.trial.repeat_of is None else format_trial_id(t.trial.repeat_of)
            )
        if front:
            row["front"] = "*" if t.number in front else ""
        if any_enqueued:
            row["enqueued"] = "yes" if t.trial.enqueued else ""
        row |= {"steps": t.result.steps, "seconds": t.result.seconds}
        yield row | {name: t.labels.get(name) for name in dimensions}


def _rank(study: Record) -> Callable[[TrialState], tuple[Any, ...]]:
    """Return a function that returns the sort key of a trial.

    The Pareto front comes first, then feasible and complete trials, then the value. Repeats of one
    configuration stay together.
    """
    sign = 1 if study.goal == "minimize" else -1
    front = {t.number for t in study.front}
    of_configurations = study.configurations.results() if study.repeats.count > 1 else {}

    def rank(t: TrialState) -> tuple[Any, ...]:
        r = of_configurations.get(t.trial.first_trial, t.result)
        order = 2 * (not r.feasible) + (r.state.name != "COMPLETE")
        value = math.inf if r.value is None or math.isnan(r.value) else sign * r.value
        return (t.number not in front, r.given, order, value, t.trial.first_trial, t.number)

    return rank


def format_trials(study: Record, sweep: SweepSummary, width: int, most: int | None) -> str:
    """Format the trials as a table.

    Args:
        study: Record of the sweep's trials.
        sweep: The sweep.
        width: Width of the terminal.
        most: Largest number of trials to show; None shows all.
    """
    rows = list(trial_rows(study, sweep))
    dimensions = {name for t in study.trials for name in t.labels}
    heads = {
        name: name.removeprefix("params.").removeprefix("scaling.")
        if name in dimensions
        else name.upper()
        for name in rows[0]
    }
    texts = {"trial", "state", "feasible", "repeats", "front", "enqueued", *dimensions}
    right = [head for name, head in heads.items() if name not in texts]
    cells = [[_cell(name, value) for name, value in row.items()] for row in rows[:most]]
    text = format_table(list(heads.values()), cells, width, right=right)
    left = len(rows) - len(cells)
    return text + (f"\n… and {left} more (--all)" if left else "")


def _cell(name: str, value: Any) -> Any:
    if value is None:
        return "-"
    return f"{value:.1f}" if name.endswith("seconds") and isinstance(value, float) else value


def trials_csv(study: Record | None, sweep: SweepSummary) -> str:
    """Return all trials as CSV with a header.

    Numbers are not rounded, and a missing value is an empty cell.
    """
    if study is None or not study.trials:
        return ""
    out = io.StringIO()
    rows = list(trial_rows(study, sweep))
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        nan = [name for name, value in row.items() if value != value]
        writer.writerow(row | dict.fromkeys(nan, ""))
    return out.getvalue()

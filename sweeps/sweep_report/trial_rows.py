"""The trials of a sweep as rows of a table, and the facts about one trial."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

from sweeps.core.resources import COSTS
from sweeps.core.trial import format_trial_id

if TYPE_CHECKING:
    from pydantic import JsonValue

    from sweeps.study.record_reader import Record
    from sweeps.study.states import TrialState


def trial_rows(
    study: Record, state_of: Callable[[TrialState], str]
) -> Iterator[dict[str, JsonValue]]:
    """Yield the values of each trial by the name of the column. The best trial comes first.

    Args:
        study: Record of the sweep's trials.
        state_of: Function that returns the state of a trial in one word.
    """
    constraints = study.objectives.constraints
    metrics = [o.metric for o in study.objectives.objectives]
    # The metrics of constraints that have no column yet
    constrained = [c.metric for c in constraints if c.metric not in {*metrics, "seconds"}]
    dimensions = list(dict.fromkeys(name for t in study.trials for name in t.labels))
    front = {t.number for t in study.front}
    any_enqueued = any(t.trial.enqueued for t in study.trials)
    for t in sorted(study.trials, key=_rank(study, front)):
        values = t.result.values or (t.result.value,)
        row: dict[str, JsonValue] = {"trial": t.id, "state": state_of(t)}
        for i, metric in enumerate(metrics):
            row[metric] = values[i] if i < len(values) else None
        row |= {name: t.result.metrics.get(name) for name in constrained}
        if constraints:
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
        labels = {name: "null" if label is None else label for name, label in t.labels.items()}
        yield row | {name: labels.get(name) for name in dimensions}


def _rank(study: Record, front: Collection[int]) -> Callable[[TrialState], tuple[float, ...]]:
    """Return a function that returns the sort key of a trial.

    The Pareto front comes first, then feasible and complete trials, then the value. Repeats of one
    configuration stay together.
    """
    sign = 1 if study.goal == "minimize" else -1
    # Results of repeated configurations, by the number of the first trial
    configurations = study.configurations.results() if study.repeats.count > 1 else {}

    def rank(t: TrialState) -> tuple[float, ...]:
        r = configurations.get(t.trial.first_trial, t.result)
        order = 2 * (not r.feasible) + (r.state.name != "COMPLETE")
        value = math.inf if r.value is None or math.isnan(r.value) else sign * r.value
        return (t.number not in front, r.given, order, value, t.trial.first_trial, t.number)

    return rank


def trial_facts(t: TrialState) -> Iterator[tuple[str, JsonValue]]:
    """Yield what a reader may want to know of a trial, besides its configuration and values."""
    r = t.result
    metric = t.objectives.objectives[0].metric
    yield "seed", t.trial.seed
    if t.sizes:
        yield "workers", ", ".join(map(str, t.sizes))
    if t.trial.enqueued:
        yield "origin", "the command `sweeps enqueue`"
    if t.trial.repeat_of is not None:
        yield "repeats", f"trial {format_trial_id(t.trial.repeat_of)}"
    for perturbation in t.lineage:
        text = f"copied trial {perturbation.donor}"
        values = {
            name.removeprefix("pbt.params."): f"{value:.6g}"
            for name, value in perturbation.metrics.items()
        } | perturbation.options
        if values:
            text += ": " + ", ".join(f"{name} {value}" for name, value in values.items())
        yield f"at step {perturbation.step}", text
    for name, value in r.metrics.items():
        if name not in (*COSTS, metric):
            yield name, value
    if not r.feasible:
        yield "feasible", "no"
    if r.metrics:
        spent = {name: r.metrics.get(name, 0.0) for name in COSTS}
        shown = [
            f"{v:.1f} {name.replace('_', ' ')}"
            for name, v in spent.items()
            if v or name != "gpu_seconds"
        ]
        yield "cost", ", ".join(shown)
    yield "started", t.began.strftime("%Y-%m-%d %H:%M:%S")

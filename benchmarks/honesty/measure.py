"""Measure how honest the intervals are, on simulated sweeps."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from benchmarks.honesty.simulate import Pool, Setting, Sweep, settings, simulate
from benchmarks.tables.catalog import tables
from sweeps.bundle import ensemble
from sweeps.bundle.averaging import average
from sweeps.bundle.resampling import units_of
from sweeps.bundle.selection import select
from sweeps.core import metrics
from sweeps.evaluation.model_scores import (
    Interval,
    gain,
    hidden_optimism,
    interval,
    score_models,
)

# The trials whose predictions are kept, as `checkpoints.predictions` says by default.
KEPT = 20
MEMBERS = 8
LEAST_OF_CLASS = 5
Facts = dict[str, float | str | bool]


def measured(pools: Path, names: Sequence[str], count: int) -> Iterator[Facts]:
    """Yield what was measured on simulated sweeps, the same number for each table."""
    for name in names:
        task = tables()[name].task
        pool = Pool.read(pools / f"{name}.holdout.npz", task)
        for number, setting in enumerate(settings(task, count, np.random.default_rng(0))):
            sweep = simulate(pool, setting, np.random.default_rng([0, number]))
            labels = sweep.valid.labels
            if task != "regression" and np.bincount(labels, minlength=2).min() < LEAST_OF_CLASS:
                continue  # sweeps says that there is no interval.
            yield {"table": name, **asdict(setting), **_measure(sweep, setting, task)}


def _measure(sweep: Sweep, setting: Setting, task: str) -> Facts:
    """Measure one sweep.

    The score on the new rows has a standard error, because they are not all the rows that there
    could be. It widens the interval with which the score is compared.
    """
    minimize = metrics.usual_goal(setting.metric) == "minimize"
    sign = 1 if minimize else -1
    units = units_of(sweep.valid, task != "regression", 5 * setting.rows)
    defaults = [place for place, number in enumerate(sweep.numbers) if number == 0]
    best = range(min(KEPT, len(sweep.numbers)))
    places = [*best, *(place for place in defaults if place not in best)]
    predictions = [sweep.predictions[place] for place in places]
    chosen = select(predictions, sweep.scores.score, minimize, MEMBERS)
    assert chosen is not None
    weights = list(chosen.weights.values())
    members = list(chosen.weights)
    averaged = average([predictions[i] for i in members], weights)
    new_average = average([sweep.new_predictions[places[i]] for i in members], weights)
    models = score_models(sweep.scores, [*predictions, averaged], units, minimize)
    hidden = hidden_optimism(models, 0, best, len(sweep.numbers))
    optimism = models.optimism(0, best) + hidden
    known = metrics.score(setting.metric, task, sweep.new_labels, new_average)
    assert known is not None
    rows = np.arange(len(sweep.valid.labels))
    gain_of_average = ensemble.gain_of(
        sweep.scores, predictions, averaged, rows, minimize=minimize, rounds=MEMBERS
    )
    average_optimism = hidden
    if gain_of_average is not None:
        average_optimism += gain_of_average.optimism
    error = float(np.nanstd(models.draws[:, 0], ddof=1))
    share = np.sqrt(setting.rows / len(sweep.new_labels))
    facts: Facts = {
        "printed": float(models.values[0]),
        "new": float(sweep.new[0]),
        "best_new": sign * float((sign * sweep.new).min()),
        "median_new": float(np.median(sweep.new)),
        **_covers("trial", interval(models, 0, optimism), float(sweep.new[0]), error * share, sign),
        **_covers(
            "average",
            interval(models, len(places), average_optimism),
            known,
            error * share,
            sign,
        ),
        "average_new": known,
    }
    default = places.index(defaults[0]) if defaults else 0
    if default:
        amount = gain(models, 0, default, optimism)
        truth = sign * float(sweep.new[places[default]] - sweep.new[0])
        spread = float(np.nanstd(models.draws[:, default] - models.draws[:, 0], ddof=1))
        facts |= _covers("gain", amount, truth, spread * share, -1)
        facts |= {"claimed": amount.low > 0, "is_better": truth > 0, "refuted": amount.high < 0}
    return facts


def _covers(name: str, about: Interval, truth: float, error: float, sign: int = 1) -> Facts:
    """Return whether an interval has the truth, which is itself known with a standard error.

    `sign` is 1 if larger values are worse, and −1 otherwise.
    """
    half = (about.high - about.low) / 2
    wide = float(np.hypot(half, 1.645 * error))
    return {
        f"{name}_covers": bool(abs(truth - about.value) <= wide),
        f"{name}_above": bool(sign * (truth - about.value) > wide),
        f"{name}_width": 2 * half,
        f"{name}_bias": sign * (truth - about.value) / max(half / 1.645, 1e-12),
    }


def write(rows: Iterator[Facts], file: Path) -> None:
    """Write what was measured, a line for each sweep, as soon as it is known."""
    with open(file, "w") as out:
        for row in rows:
            rounded = {k: float(f"{v:.4g}") if isinstance(v, float) else v for k, v in row.items()}
            print(json.dumps(rounded), file=out, flush=True)

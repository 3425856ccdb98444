"""Measure how honest the intervals are, and how good the choices, on simulated sweeps."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from benchmarks.honesty.folds import FoldPool, FoldSweep, simulate_folds
from benchmarks.honesty.pools import FOLDS, inputs
from benchmarks.honesty.simulate import Pool, Setting, Sweep, settings, simulate
from benchmarks.tables.catalog import tables
from sweeps.bundle import ensemble
from sweeps.bundle.averaging import average
from sweeps.bundle.resampling import units_of
from sweeps.bundle.selection import select
from sweeps.core import metrics
from sweeps.evaluation.model_scores import (
    Interval,
    ModelScores,
    gain,
    hidden_optimism,
    interval,
    score_folds,
    score_models,
)
from sweeps.evaluation.racing import CANDIDATES, ROUNDS, still_racing
from sweeps.evaluation.value_noise import noise_of_draws
from sweeps.search.samplers.gaussian_process import LEAST_NOISE, Noise, Process
from sweeps.search.samplers.gp_observations import scaled

# The trials whose predictions are kept, as `checkpoints.predictions` says by default.
KEPT = 20
MEMBERS = 8
LEAST_OF_CLASS = 5
SWEEPS_OF_SAMPLE = 3
VALID_SHARE = 0.2  # the share of the rows of valid in those of train and valid
Facts = dict[str, float | str | bool]
# What is measured, and not in the report
UNUSED = {
    f"{name}_{fact}"
    for name in ("average", "gain", "mean", "confirmed", "folds", "refit", "values")
    for fact in ("above", "width", "bias")
    if not (name in ("folds", "refit", "values") and fact != "width")
}


def measured(pools: Path, names: Sequence[str], count: int) -> Iterator[Facts]:
    """Yield what was measured on simulated sweeps.

    These are `count` sweeps with a holdout for each table, and `SWEEPS_OF_SAMPLE` sweeps in folds
    for each sample of rows and each metric.
    """
    for name in names:
        task = tables()[name].task
        pool = Pool.read(pools / f"{name}.holdout.npz", task)
        for number, setting in enumerate(settings(task, count, np.random.default_rng(0))):
            sweep = simulate(pool, setting, np.random.default_rng([0, number]))
            if _has_interval(task, sweep.valid.labels):
                yield {"table": name, **asdict(setting), **_measure(sweep, setting, task)}
        folds = FoldPool.read(pools / f"{name}.folds.npz", task)
        for metric in ("rmse",) if task == "regression" else ("logloss", "auc"):
            for sample in range(len(folds.labels) * SWEEPS_OF_SAMPLE):
                rng = np.random.default_rng([1, sample])
                in_folds = simulate_folds(folds, sample // SWEEPS_OF_SAMPLE, metric, rng)
                if _has_interval(task, in_folds.valid.labels, FOLDS):
                    yield {"table": name, **_measure_folds(in_folds, task)}


def _has_interval(task: str, labels: np.ndarray, folds: int = 1) -> bool:
    """Return whether sweeps gives an interval for these labels of valid.

    The folds of the tables are not stratified, so each of them should have enough of a class.
    """
    least = LEAST_OF_CLASS * folds
    return task == "regression" or np.bincount(labels, minlength=2).min() >= least


def _measure(sweep: Sweep, setting: Setting, task: str) -> Facts:
    """Measure one sweep.

    The score on the new rows has a standard error, because they are not all the rows that there
    could be. It widens the interval with which the score is compared.
    """
    minimize = metrics.usual_goal(setting.metric) == "minimize"
    sign = 1 if minimize else -1
    share = float(np.sqrt(setting.rows / len(sweep.new_labels)))
    units = units_of(sweep.valid, task != "regression", 5 * setting.rows)
    defaults = [place for place, number in enumerate(sweep.numbers) if number == 0]
    best = range(min(KEPT, len(sweep.numbers)))
    places = [*best, *(place for place in defaults if place not in best)]
    predictions = [sweep.predictions[place] for place in places]
    chosen = select(predictions, sweep.scores.score, minimize, MEMBERS)
    assert chosen is not None
    weights = list(chosen.weights.values())
    averaged = average([predictions[i] for i in chosen.weights], weights)
    new_average = average([sweep.new_predictions[places[i]] for i in chosen.weights], weights)
    models = score_models(sweep.scores, [*predictions, averaged], units, minimize)
    hidden = hidden_optimism(models, 0, best, len(sweep.numbers))
    optimism = models.optimism(0, best) + hidden
    average_score = metrics.score(setting.metric, task, sweep.new_labels, new_average)
    assert average_score is not None
    rows = np.arange(len(sweep.valid.labels))
    gain_of_average = ensemble.gain_of(
        sweep.scores, predictions, averaged, rows, minimize=minimize, rounds=MEMBERS
    )
    average_optimism = hidden + (0.0 if gain_of_average is None else gain_of_average.optimism)
    facts: Facts = {
        "printed": float(models.values[0]),
        "new": float(sweep.new[0]),
        "best_new": sign * float((sign * sweep.new).min()),
        "median_new": float(np.median(sweep.new)),
        "average_new": average_score,
        **_covers("trial", models, 0, optimism, float(sweep.new[0]), share),
        **_covers("average", models, len(places), average_optimism, average_score, share),
    }
    for rule, place in _choices(sweep, models, minimize).items():
        facts[f"{rule}_new"] = float(sweep.new[place])
        if place < len(best):
            own = models.optimism(place, best) + hidden
            further = sweep.further[place] if rule == "confirmed" else ()
            truth = float(sweep.new[place])
            facts |= _covers(rule, models, place, own, truth, share, further=further)
    default = places.index(defaults[0]) if defaults else 0
    if default:
        amount = gain(models, 0, default, optimism)
        truth = sign * float(sweep.new[places[default]] - sweep.new[0])
        spread = float(np.nanstd(models.draws[:, default] - models.draws[:, 0], ddof=1))
        facts |= _compare("gain", amount, truth, spread * share, -1)
        facts |= {"claimed": amount.low > 0, "is_better": truth > 0, "refuted": amount.high < 0}
    return facts


def _choices(sweep: Sweep, models: ModelScores, minimize: bool) -> dict[str, int]:
    """Return the place of the trial that each rule of `objective.choose` would choose."""
    sign = 1 if minimize else -1
    values = np.array([sweep.scores.score(each) for each in sweep.predictions])
    noise = noise_of_draws(models.draws[:, : min(KEPT, len(values))])
    columns, categorical = inputs()
    means = posterior_means(columns[sweep.numbers], sign * values, categorical, noise)
    own = {
        place: [values[place], *sweep.further[place]]
        for place in range(min(CANDIDATES, len(values)))
    }
    left = list(own)
    for rounds in range(2, ROUNDS + 2):
        known = {p: own[p][:rounds] if p in left else [*own[p][:1], None] for p in own}
        left = still_racing(known, minimize)
    return {"mean": 0 if means is None else int(means.argmin()), "confirmed": left[0]}


def posterior_means(
    x: np.ndarray, y: np.ndarray, categorical: np.ndarray, variance: float
) -> np.ndarray | None:
    """Return the means of the process of `GpModel.final_means` at its observations."""
    y, factor = scaled(y)
    if not factor:
        return None
    noise = Noise(float(np.log(np.clip(variance * factor**2, LEAST_NOISE, 1.0))), 0.0)
    process = Process(x, y, categorical, noise=noise)
    process.condition(process.fit(process.start))
    return process.predict(x)[0]


def _measure_folds(sweep: FoldSweep, task: str) -> Facts:
    """Measure one sweep in folds; see `_measure`."""
    minimize = metrics.usual_goal(sweep.metric) == "minimize"
    rows = len(sweep.valid.labels)
    share = float(np.sqrt(rows / sweep.new_rows))
    units = units_of(sweep.valid, task != "regression", rows)
    best = range(min(KEPT, sweep.trials))
    models = score_models(sweep.scores, sweep.predictions, units, minimize)
    optimism = models.optimism(0, best) + hidden_optimism(models, 0, best, sweep.trials)
    facts: Facts = {"metric": sweep.metric, "folds": True, "trials": sweep.trials}
    for name, truth in (("folds", sweep.new_average), ("refit", sweep.new_refit)):
        facts |= _covers(name, models, 0, optimism, truth, share, of_folds=True)
    # Without predictions, only the values of the folds are known.
    models = score_folds(sweep.fold_values, minimize)
    optimism = models.optimism(0, best) + hidden_optimism(models, 0, best, sweep.trials)
    facts |= _covers("values", models, 0, optimism, sweep.new_average, share, of_folds=True)
    return facts


def _covers(
    name: str,
    models: ModelScores,
    model: int,
    optimism: float,
    truth: float,
    share: float,
    *,
    of_folds: bool = False,
    further: Sequence[float] = (),
) -> Facts:
    """Return whether the interval of a model has its score on the new rows.

    The score has a standard error: the model's, times `share`.
    """
    error = float(np.nanstd(models.draws[:, model], ddof=1)) * share
    sign = 1 if models.minimize else -1
    about = interval(models, model, optimism, of_folds, further, VALID_SHARE)
    return _compare(name, about, truth, error, sign)


def _compare(name: str, about: Interval, truth: float, error: float, sign: int) -> Facts:
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
    """Write what the report needs, a line for each sweep, as soon as it is known."""
    with open(file, "w") as out:
        for row in rows:
            rounded = {
                key: float(f"{value:.4g}") if isinstance(value, float) else value
                for key, value in row.items()
                if key not in UNUSED
            }
            print(json.dumps(rounded), file=out, flush=True)

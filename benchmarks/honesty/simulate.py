"""Simulated sweeps on the tables of predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sweeps.bundle.valid_scores import ValidScores
from sweeps.core import metrics
from sweeps.data.splits.valid_rows import ValidRows
from sweeps.evaluation.racing import ROUNDS

ETA = 3


@dataclass(frozen=True)
class Pool:
    """A table of predictions; see `pools.make_holdout`."""

    name: str
    task: str
    labels: np.ndarray
    full: np.ndarray
    parts: np.ndarray

    @classmethod
    def read(cls, file: Path, task: str) -> Pool:
        """Read a table."""
        with np.load(file) as kept:
            name = file.name.partition(".")[0]
            return cls(name, task, kept["labels"], kept["full"], kept["parts"])


@dataclass(frozen=True)
class Setting:
    """The setting of a simulated sweep.

    Attributes:
        rows: Number of rows of valid.
        trials: Number of trials.
        asha: True if trials are stopped early, by their models of fewer rows.
        kinds: Number of trainers, 1 or 2.
        metric: The objective.
    """

    rows: int
    trials: int
    asha: bool
    kinds: int
    metric: str


@dataclass(frozen=True)
class Sweep:
    """A simulated sweep: its completed trials, the best first.

    Attributes:
        valid: The rows of valid.
        scores: Scores predictions for them.
        numbers: Number of each trial.
        predictions: Predictions of each trial's best model for valid.
        further: Scores of each trial's model on other rows, of as many rows as valid; shape
            (trials, further rounds).
        new: Score of each trial's best model on the new rows.
        new_predictions: Predictions of each trial's best model for the new rows.
        new_labels: Labels of the new rows.
    """

    valid: ValidRows
    scores: ValidScores
    numbers: list[int]
    predictions: list[np.ndarray]
    further: np.ndarray
    new: np.ndarray
    new_predictions: list[np.ndarray]
    new_labels: np.ndarray


def draw_valid(pool: Pool, count: int, rng: np.random.Generator) -> np.ndarray:
    """Draw rows of valid: with the class shares of five times as many rows, as a split has."""
    several = rng.choice(len(pool.labels), size=min(5 * count, len(pool.labels)), replace=False)
    if pool.task == "regression":
        return several[:count]
    order = several[np.argsort(pool.labels[several], kind="stable")]
    offset = rng.integers(5) if len(several) == 5 * count else 0
    step = len(order) / count
    places = (offset / 5 * step + np.arange(count) * step).astype(int) % len(order)
    return np.asarray(order[places])


def simulate(pool: Pool, setting: Setting, rng: np.random.Generator) -> Sweep:
    """Run a simulated sweep: a random search, perhaps with ASHA over rows.

    The first trials are the defaults. They are never stopped. The number of rounds of each model is
    chosen on valid.
    """
    rows = draw_valid(pool, setting.rows, rng)
    others = rng.permutation(np.setdiff1d(np.arange(len(pool.labels)), rows))
    count = min(setting.rows, len(others) // (2 * ROUNDS))
    further, new = others[: ROUNDS * count].reshape(ROUNDS, count), others[ROUNDS * count :]
    all_labels = pool.labels if pool.task == "regression" else pool.labels.astype(np.int64)
    labels = all_labels[rows]
    valid = ValidRows(np.zeros(len(rows), np.uint64), labels, np.zeros(len(rows), np.int64))
    scores = ValidScores(setting.metric, pool.task, valid)
    sign = 1 if metrics.usual_goal(setting.metric) == "minimize" else -1
    known = np.arange(len(pool.full))
    if setting.kinds == 1:
        known = known[::2]
    defaults = list(known[: setting.kinds])
    left = list(rng.permutation(known[setting.kinds :])[: setting.trials - len(defaults)])
    if setting.asha:
        for part in range(pool.parts.shape[1]):
            values = {n: sign * scores.score(pool.parts[n, part, rows]) for n in left}
            left = sorted(left, key=values.__getitem__)[: max(1, len(left) // ETA)]
    trials = []
    for number in [*defaults, *left]:
        curve = [sign * scores.score(each) for each in pool.full[number][:, rows]]
        best = int(np.argmin(curve))
        trials.append((curve[best], number, best))
    trials.sort()
    chosen = [pool.full[number, best].astype(np.float64) for _, number, best in trials]
    new_predictions = [each[new] for each in chosen]
    new_labels = all_labels[new]
    return Sweep(
        valid,
        scores,
        [number for _, number, _ in trials],
        [each[rows] for each in chosen],
        np.array(
            [
                [score_of(setting.metric, pool.task, all_labels[part], p[part]) for part in further]
                for p in chosen
            ]
        ),
        np.array([score_of(setting.metric, pool.task, new_labels, p) for p in new_predictions]),
        new_predictions,
        new_labels,
    )


def score_of(metric: str, task: str, labels: np.ndarray, predictions: np.ndarray) -> float:
    """Return the score of predictions by a metric of sweeps."""
    value = metrics.score(metric, task, labels, predictions)
    assert value is not None
    return value


def settings(task: str, count: int, rng: np.random.Generator) -> Sequence[Setting]:
    """Draw the settings of some simulated sweeps."""
    names = ("rmse",) if task == "regression" else ("logloss", "logloss", "error", "auc")
    return [
        Setting(
            int(rng.choice([100, 200, 500, 1000, 2000])),
            int(rng.choice([20, 50, 150, 290])),
            bool(rng.integers(2)),
            int(rng.integers(1, 3)),
            str(rng.choice(names)),
        )
        for _ in range(count)
    ]

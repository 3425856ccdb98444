"""Simulated sweeps with a cross-validation, on the tables of predictions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.honesty.pools import FOLDS
from benchmarks.honesty.simulate import score_of
from sweeps.bundle.valid_scores import ValidScores
from sweeps.core import metrics
from sweeps.data.splits.valid_rows import ValidRows

KEPT = 20


@dataclass(frozen=True)
class FoldPool:
    """A table of predictions in folds; see `pools.make_folds`. The first axis is the sample."""

    task: str
    labels: np.ndarray
    valid: np.ndarray
    average: np.ndarray
    refit: np.ndarray
    new_labels: np.ndarray

    @classmethod
    def read(cls, file: Path, task: str) -> FoldPool:
        """Read a table."""
        with np.load(file) as kept:
            return cls(task, **{name: kept[name] for name in kept.files})


@dataclass(frozen=True)
class FoldSweep:
    """A simulated sweep in folds.

    Attributes:
        metric: The objective.
        trials: Number of trials.
        valid: The rows of valid, one fold after the other.
        scores: Scores predictions for them.
        predictions: Predictions of the best trials, the best first.
        fold_values: Their scores in each fold, shape (trials, folds).
        new_rows: Number of new rows.
        new_average: Score of the average of the folds' models of the best trial on new rows.
        new_refit: Score of the best trial's model of all rows on new rows.
    """

    metric: str
    trials: int
    valid: ValidRows
    scores: ValidScores
    predictions: list[np.ndarray]
    fold_values: np.ndarray
    new_rows: int
    new_average: float
    new_refit: float


def simulate_folds(pool: FoldPool, sample: int, metric: str, rng: np.random.Generator) -> FoldSweep:
    """Run a simulated sweep: a random search in folds, without a scheduler."""
    count = pool.labels.shape[1]
    order = np.concatenate([np.arange(count)[fold::FOLDS] for fold in range(FOLDS)])
    folds = np.concatenate([np.full(len(range(fold, count, FOLDS)), fold) for fold in range(FOLDS)])
    labels, new_labels = pool.labels[sample][order], pool.new_labels
    if pool.task != "regression":
        labels, new_labels = labels.astype(np.int64), new_labels.astype(np.int64)
    valid = ValidRows(np.zeros(count, np.uint64), labels, folds)
    scores = ValidScores(metric, pool.task, valid)
    sign = 1 if metrics.usual_goal(metric) == "minimize" else -1
    known = pool.valid.shape[1]
    trials = int(rng.choice([known // 3, 2 * known // 3, known]))
    drawn = rng.permutation(known)[:trials]
    predictions = [pool.valid[sample][number][order].astype(float) for number in drawn]
    ranked = np.argsort([sign * scores.score(each) for each in predictions])
    best = drawn[ranked[0]]
    rows = [np.flatnonzero(folds == fold) for fold in range(FOLDS)]
    kept = [predictions[place] for place in ranked[:KEPT]]
    return FoldSweep(
        metric,
        trials,
        valid,
        scores,
        kept,
        np.array([[scores.score(each[own], own) for own in rows] for each in kept]),
        len(new_labels),
        score_of(metric, pool.task, new_labels, pool.average[sample][best].astype(float)),
        score_of(metric, pool.task, new_labels, pool.refit[sample][best].astype(float)),
    )

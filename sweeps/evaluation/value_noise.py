"""Estimate how noisy the values of trials are, because valid has few rows. Pure, no I/O."""

from __future__ import annotations

import numpy as np

from sweeps.bundle.resampling import bootstrap, units_of
from sweeps.bundle.trial_predictions import TrialPredictions
from sweeps.core import metrics
from sweeps.study.study_store import StudyStore

DRAWS = 100
# The noise is estimated from at least this many trials, and from the best of them.
LEAST_TRIALS = 3
MOST_TRIALS = 20


def value_noise(study_store: StudyStore, trials: TrialPredictions | None) -> float | None:
    """Return the variance of the noise of a trial's value.

    It is the noise by which the differences between trials change with the rows of valid. Noise
    that all trials share does not count. Return None if it is unknown.

    Args:
        study_store: The study.
        trials: The predictions of its trials; see `read_trial_predictions`.
    """
    if trials is not None and len(trials.models) >= LEAST_TRIALS and trials.scores.is_fast:
        has_classes = trials.info.task in metrics.CLASSIFICATION
        rows = sum(trials.info.rows.get(split, 0) for split in ("train", "valid"))
        units = units_of(trials.valid, has_classes, rows)
        kept = list(trials.models.values())[:MOST_TRIALS]
        predictions = [model.predictions for model in kept]
        draws = bootstrap(units, DRAWS, seed=0)
        return noise_of_draws(trials.scores.draw_scores(predictions, units, draws))
    folds = study_store.space.data.folds
    if not folds or study_store.objectives.metric != study_store.space.objective.metric:
        return None
    values = [
        fold_values([value for _, value in state.curve])
        for state in study_store.states.values()
        if state.has_ended and len(state.curve) == folds
    ]
    return noise_of_folds(np.array(values)) if len(values) >= LEAST_TRIALS else None


def fold_values(means: list[float]) -> list[float]:
    """Return the value of each fold, given the means over the first 1, 2, ... folds."""
    sums = [count * mean for count, mean in enumerate(means, 1)]
    return [later - before for before, later in zip([0.0, *sums], sums, strict=False)]


def noise_of_draws(scores: np.ndarray) -> float:
    """Return the variance of a model's score that other models do not share; the median of models.

    Args:
        scores: Scores of k models on draws of the rows, shape (draws, k).
    """
    known = scores[np.isfinite(scores).all(axis=1)]
    own = known - known.mean(axis=1, keepdims=True)
    return float(np.median(own.var(axis=0, ddof=1)))


def noise_of_folds(values: np.ndarray) -> float | None:
    """Return the variance of a trial's mean over folds that other trials do not share.

    It is the residual variance of an analysis of variance by trial and fold, divided by the number
    of folds.

    Args:
        values: Values of n trials in k folds, shape (n, k), both at least 2.

    Returns:
        The variance; None if a value is not finite.
    """
    if not np.isfinite(values).all():
        return None
    trials, folds = values.shape
    expected = values.mean(axis=1, keepdims=True) + values.mean(axis=0) - values.mean()
    freedom = (trials - 1) * (folds - 1)
    return float(np.square(values - expected).sum() / freedom / folds)

"""Estimate how noisy the values of trials are. Pure, no I/O."""

from __future__ import annotations

import numpy as np

from sweeps.bundle.resampling import bootstrap
from sweeps.bundle.trial_predictions import TrialPredictions
from sweeps.study.study_store import StudyStore

DRAWS = 100
# The noise is estimated from at least this many trials, and from the best of them.
LEAST_TRIALS = 3
MOST_TRIALS = 20


def value_noise(study_store: StudyStore, trials: TrialPredictions | None) -> float | None:
    """Return the variance of the noise of a configuration's value of the first objective.

    It is the noise by which the differences between trials change with the rows of valid. Noise
    that all trials share does not count. Return None if it is unknown.

    Args:
        study_store: The study.
        trials: The predictions of its trials; see `read_trial_predictions`.
    """
    if trials is not None and len(trials.models) >= LEAST_TRIALS and trials.scores.is_fast:
        kept = list(trials.models.values())[:MOST_TRIALS]
        predictions = [model.predictions for model in kept]
        draws = bootstrap(trials.units, DRAWS, seed=0)
        return noise_of_draws(trials.scores.draw_scores(predictions, trials.units, draws))
    variances = recorded_noise(study_store)
    return None if variances is None else variances[0]


def recorded_noise(study_store: StudyStore) -> list[float] | None:
    """Return the variance of the noise of a configuration's value, one for each objective.

    It is known from repeats, or from the folds of a cross-validation. A cost is exact then. Return
    None if there is neither.
    """
    count, folds = study_store.space.repeats.count, study_store.space.data.folds
    if count > 1:
        groups = [
            np.array([result.values for _, result in pairs], float)
            for pairs in study_store.configurations().trials.values()
            if len(pairs) == count
        ]
        within = [g.var(axis=0, ddof=1) for g in groups if np.isfinite(g).all()]
        return [*map(float, np.mean(within, axis=0) / count)] if within else None
    variances = []
    for objective in study_store.space.objectives:
        curves = [state.curve_of(objective.metric) for state in study_store.states.values()]
        rows = [fold_values([v for _, v in curve]) for curve in curves if len(curve) == folds > 1]
        noise = noise_of_folds(np.array(rows)) if len(rows) >= LEAST_TRIALS else None
        variances.append(noise or 0.0)
    return variances if any(variances) else None


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

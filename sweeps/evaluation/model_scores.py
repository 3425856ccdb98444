"""Estimate the score of a chosen model on new rows, from predictions for valid.

Pure functions, no I/O.

The score of the best of many models is too good, because the choice looked at the same rows. How
much too good is measured with draws of the rows of valid, with replacement: the best model is
chosen on a draw, and scored on the rows that are not in the draw. There, the model that was chosen
on all rows scores better by the *optimism*.

Ioannis Tsamardinos, Elissavet Greasidou and Giorgos Borboudakis: Bootstrapping the out-of-sample
predictions for efficient and accurate cross-validation. Machine Learning 107, 2018.
https://doi.org/10.1007/s10994-018-5714-4
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sweeps.bundle.resampling import Units, bootstrap
from sweeps.bundle.valid_scores import ValidScores

# Half of the width of an interval of 90% in standard errors
WIDTH = 1.645
DRAWS = 200
# The standard error of an optimism, as a share of it; `benchmarks.honesty` has found it.
ERROR_OF_OPTIMISM = 0.5
# By so many standard errors, the average of the models of folds, or a model of all rows, is better
# than the models of single folds, which have fewer rows. `benchmarks.honesty` has found it, too.
GAIN_OF_FOLDS = 0.5


@dataclass(frozen=True)
class Interval:
    """An estimate with an interval of 90%."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class ModelScores:
    """Scores of k models on the rows of valid, and on draws of them.

    Attributes:
        values: Scores on all rows, shape (k,).
        draws: Scores on draws with replacement, shape (draws, k).
        outside: Scores on the rows that are not in the draw, shape (draws, k).
        minimize: True if smaller scores are better.
    """

    values: np.ndarray
    draws: np.ndarray
    outside: np.ndarray
    minimize: bool

    def optimism(self, model: int, among: Sequence[int]) -> float:
        """Return how much better a model's score is than on new rows, because it was chosen.

        Args:
            model: The model with the best score.
            among: The models among which it was chosen.
        """
        candidates = np.asarray(among)
        sign = 1 if self.minimize else -1
        losses = sign * self.draws[:, candidates]
        known = np.isfinite(losses).all(axis=1)
        chosen = candidates[losses[known].argmin(axis=1)]
        outside = sign * self.outside[known]
        worse = outside[np.arange(len(chosen)), chosen] - outside[:, model]
        worse = worse[np.isfinite(worse)]
        return max(0.0, float(worse.mean())) if len(worse) else 0.0


def hidden_optimism(models: ModelScores, model: int, among: Sequence[int], count: int) -> float:
    """Return the optimism that models without predictions add, because they were worse.

    The optimism grows with the logarithm of the number of models, so the last doubling tells what
    further doublings add.

    Args:
        models: The scores of the models with predictions.
        model: The model with the best score.
        among: The models among which it was chosen, the best first.
        count: Number of all models among which it was chosen.
    """
    if count <= len(among) or len(among) < 2:
        return 0.0
    doubling = models.optimism(model, among) - models.optimism(model, among[: len(among) // 2])
    return max(0.0, doubling) * math.log2(count / len(among))


def score_models(
    scores: ValidScores,
    predictions: Sequence[np.ndarray],
    units: Units,
    minimize: bool,
    seed: int = 0,
) -> ModelScores:
    """Score models on all rows of valid, on draws, and on the rows that are not in a draw.

    Args:
        scores: Scores predictions.
        predictions: Predictions of each model for all rows, as `averaging.to_numbers` returns them.
        units: The units that are drawn.
        minimize: True if smaller scores are better.
        seed: Seed of the draws.
    """
    drawn = bootstrap(units, DRAWS, seed)
    whole = np.ones((1, len(units.strata)), dtype=np.int64)
    rows = np.concatenate([whole, drawn, (drawn == 0).astype(np.int64)])
    scored = scores.draw_scores(predictions, units, rows)
    values, draws, outside = np.split(scored, [1, 1 + DRAWS])
    return ModelScores(values[0], draws, outside, minimize)


def score_folds(values: np.ndarray, minimize: bool, seed: int = 0) -> ModelScores:
    """Score models whose scores in each fold are all that is known. The folds are drawn.

    With so few folds, draws vary less than means of other folds would. They are spread out as much
    as the quantiles of Student's distribution ask for.

    Args:
        values: Scores of k models in each fold, shape (k, folds).
        minimize: True if smaller scores are better.
        seed: Seed of the draws.
    """
    from scipy.stats import t

    folds = values.shape[1]
    drawn = np.random.default_rng(seed).multinomial(folds, np.full(folds, 1 / folds), size=DRAWS)
    means = values.mean(axis=1)
    widening = float(t.ppf(0.95, folds - 1)) / WIDTH * math.sqrt(folds / (folds - 1))
    draws = means + (drawn @ values.T / folds - means) * widening
    absent = drawn == 0
    with np.errstate(invalid="ignore"):  # a draw may have all folds
        outside = (absent @ values.T) / absent.sum(axis=1, keepdims=True)
    return ModelScores(means, draws, outside, minimize)


def interval(
    models: ModelScores,
    model: int,
    optimism: float,
    of_folds: bool = False,
    further: Sequence[float] = (),
    overlap: float = 1.0,
) -> Interval:
    """Return the score of a model on new rows.

    Args:
        models: The scores of all models.
        model: The model.
        optimism: See `ModelScores.optimism`.
        of_folds: True if the predictions are those of the models of folds, and the exported model
            is their average, or a model of all rows. The error is then larger by as much as the
            model is better.
        further: Scores of the same configuration on other random choices of the rows of valid. The
            variance is the mean of that of the draws and that of these scores, because the draws
            of lucky rows vary too little.
        overlap: Share of the rows that two such choices have in common.
    """
    sign = 1 if models.minimize else -1
    count = 1 + len(further)
    values = [float(models.values[model]) + sign * optimism, *further]
    value = math.fsum(values) / count
    error = float(np.nanstd(models.draws[:, model], ddof=1))
    if len(further) and overlap < 1:
        spread = float(np.std(values, ddof=1)) / math.sqrt(1 - overlap)
        error = math.hypot(error, spread) / math.sqrt(2)
    error *= math.sqrt((1 + len(further) * overlap) / count)
    better = GAIN_OF_FOLDS * error if of_folds else 0.0
    return _interval(value - sign * better, math.hypot(error, better), optimism / count)


def gain(models: ModelScores, model: int, other: int, optimism: float) -> Interval:
    """Return how much better a model is than another on new rows; below 0 if it is worse."""
    sign = 1 if models.minimize else -1
    value = sign * float(models.values[other] - models.values[model]) - optimism
    error = float(np.nanstd(models.draws[:, other] - models.draws[:, model], ddof=1))
    return _interval(value, error, optimism)


def _interval(value: float, error: float, optimism: float) -> Interval:
    """Return the interval of a value with a standard error, corrected by an optimism."""
    error = math.hypot(error, ERROR_OF_OPTIMISM * optimism)
    return Interval(value, value - WIDTH * error, value + WIDTH * error)


def similar(models: ModelScores, model: int) -> list[int]:
    """Return the models that cannot be told from a model, which is among them.

    All differences are judged together, with the largest of their standardized deviations (Hsu,
    1996: Multiple Comparisons, chapter 4).
    """
    sign = 1 if models.minimize else -1
    behind = sign * (models.values - models.values[model])
    drawn = sign * (models.draws - models.draws[:, [model]])
    errors = np.nanstd(drawn, axis=0, ddof=1)
    varies = errors > 0
    deviations = (behind[varies] - drawn[:, varies]) / errors[varies]
    limit = float(np.nanquantile(deviations.max(axis=1), 0.9)) if varies.any() else math.inf
    return [int(i) for i in np.flatnonzero(behind <= limit * errors)]

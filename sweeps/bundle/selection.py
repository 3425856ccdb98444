"""Choose the models of an ensemble greedily, and with replacement, after Caruana et al. (2004).

Pure functions, no I/O.

Rich Caruana, Alexandru Niculescu-Mizil, Geoff Crew and Alex Ksikes: Ensemble Selection from
Libraries of Models. ICML 2004. https://doi.org/10.1145/1015330.1015432
"""

import functools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .averaging import average

Score = Callable[[np.ndarray], float]


@dataclass(frozen=True)
class Selection:
    """The models of an ensemble.

    Attributes:
        weights: Weight of each chosen model, by the model's index. The models are in the order in
            which the ensemble adds them up: The largest weight first; among equal weights, the
            better model first. The weights have no common divisor.
        single: Index of the best single model.
        round_values: Score of the ensemble after each round. A later round may be worse than an
            earlier one.
    """

    weights: Mapping[int, int]
    single: int
    round_values: tuple[float, ...]


def select(
    predictions: Sequence[np.ndarray], score: Score, minimize: bool, rounds: int
) -> Selection | None:
    """Choose the models of an ensemble.

    Each round adds the model with which the average of all chosen models scores best. A model may
    be added again, which gives the model more weight. The result is the ensemble of the round with
    the best score. It is never worse than the best single model, which is the ensemble of the first
    round. Among equally good models, the better single model is added, and then the model with the
    lower index. Among equally good rounds, the first one is the result.

    Args:
        predictions: Predictions of each model for the same rows, as `averaging.to_numbers` returns
            them.
        score: Function that scores predictions. A model whose own score is NaN or infinite is never
            chosen.
        minimize: True if smaller scores are better.
        rounds: Number of rounds, at least 1.

    Returns:
        The chosen models, or None if no model has a finite score.
    """
    sign = 1 if minimize else -1

    def loss(predictions: np.ndarray) -> float:
        value = sign * score(predictions)
        return value if math.isfinite(value) else math.inf

    single_losses = [loss(prediction) for prediction in predictions]
    usable = [model for model, value in enumerate(single_losses) if value < math.inf]
    ranked = sorted(usable, key=lambda model: single_losses[model])
    if not ranked:
        return None
    single = ranked[0]
    counts = Counter([single])  # how many times each model was chosen
    best_weights = dict(counts)
    round_losses = [single_losses[single]]
    total = predictions[single].astype(np.float64)  # sum of the predictions of all chosen models
    for size in range(2, rounds + 1):
        candidate_losses = [loss((total + predictions[model]) / size) for model in ranked]
        added = ranked[candidate_losses.index(min(candidate_losses))]
        counts[added] += 1
        total = total + predictions[added]
        weights = _reduced(counts, ranked)
        averaged = average([predictions[model] for model in weights], list(weights.values()))
        round_loss = loss(averaged)
        if round_loss < min(round_losses):
            best_weights = weights
        round_losses.append(round_loss)
    return Selection(
        weights=best_weights,
        single=single,
        round_values=tuple(sign * value for value in round_losses),
    )


def _reduced(counts: Mapping[int, int], ranked: Sequence[int]) -> dict[int, int]:
    """Return the weights without a common divisor, in the order of `Selection.weights`.

    Without this, a model that was chosen three times could get another score than the model alone,
    because sums are rounded.

    Args:
        counts: How many times each model was chosen.
        ranked: The models, the best single model first.
    """
    divisor = math.gcd(*counts.values())
    ordered = sorted(counts, key=lambda model: (-counts[model], ranked.index(model)))
    return {model: counts[model] // divisor for model in ordered}


@dataclass(frozen=True)
class Gain:
    """The gain of an ensemble over the best single model, on rows on which neither was chosen.

    Attributes:
        mean: Mean gain in the metric. It is above 0 if the ensemble is better.
        noise: Standard error of the mean over divisions of the rows. It is the noise of the choice
            of the members, not that of the rows.
        optimism: How much better the score of the ensemble is than on new rows, because its members
            were chosen by it.
    """

    mean: float
    noise: float
    optimism: float

    @property
    def is_clear(self) -> bool:
        """True if the gain is larger than its noise."""
        return self.mean > self.noise


def measure_gain(
    predictions: Sequence[np.ndarray],
    final: np.ndarray,
    score: Callable[[np.ndarray, np.ndarray], float],
    halves: Sequence[np.ndarray],
    *,
    minimize: bool,
    rounds: int,
) -> Gain | None:
    """Measure how much better an ensemble is than the best single model.

    The ensemble and the single model are chosen on one half of the rows, and compared on the other
    half. Then the halves change places.

    Args:
        predictions: See `select`.
        final: Predictions of the ensemble that was chosen on all rows.
        score: Function that scores predictions for some rows. Its first argument has the indices of
            these rows.
        halves: Divisions of the rows: for each of them, the mask of the first half.
        minimize: See `select`.
        rounds: See `select`.

    Returns:
        The gain. None if a model cannot be chosen or scored on a half.
    """
    sign = 1 if minimize else -1
    gains = []
    optimisms = []
    for first in (mask for half in halves for mask in (half, ~half)):
        rows = np.flatnonzero(first)
        others = np.flatnonzero(~first)
        chosen = select(
            [prediction[rows] for prediction in predictions],
            functools.partial(score, rows),
            minimize,
            rounds,
        )
        if chosen is None:
            return None
        members = [predictions[model][others] for model in chosen.weights]
        averaged = score(others, average(members, list(chosen.weights.values())))
        single = score(others, predictions[chosen.single][others])
        gains.append(sign * (single - averaged))
        optimisms.append(sign * (averaged - score(others, final[others])))
    if not np.isfinite([gains, optimisms]).all():
        return None
    noise = float(np.std(gains, ddof=1)) / math.sqrt(len(gains))
    return Gain(float(np.mean(gains)), noise, max(0.0, float(np.mean(optimisms))))

"""Score predictions for the rows of valid: for all of them, for some, and for many draws."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from sweeps.core import metrics
from sweeps.core.errors import InputError
from sweeps.data.splits.valid_rows import ValidRows

from .resampling import Units

# Draws are scored at once as long as they have this many rows together.
MOST_COUNTS = 5_000_000


class ValidScores:
    """Scores predictions by a metric: in a cross-validation, the mean over the folds.

    Args:
        metric: The metric.
        task: Task of the label.
        valid: The rows.

    Attributes:
        is_fast: True if a score takes less than a millisecond for a thousand rows.
    """

    def __init__(self, metric: str, task: str | None, valid: ValidRows):
        self.metric = metric
        self.task = task
        self.valid = valid
        self.is_fast = metrics.base_name(metric) in metrics.OWN

    def score(self, predictions: np.ndarray, rows: np.ndarray | None = None) -> float:
        """Return the score of predictions for some rows.

        Args:
            predictions: The predictions, as `averaging.to_numbers` returns them.
            rows: Indices of their rows; None for all rows of valid.

        Raises:
            InputError: The metric cannot be computed.
        """
        rows = np.arange(len(self.valid.folds)) if rows is None else rows
        folds = self.valid.folds[rows]
        labels = self.valid.labels[rows]
        scores = []
        for fold in np.unique(folds):
            mask = folds == fold
            scores.append(self._score_fold(labels[mask], predictions[mask]))
        return float(np.mean(scores))

    def _score_fold(self, labels: np.ndarray, predictions: np.ndarray) -> float:
        metric = self.metric
        try:
            value = metrics.score(metric, self.task, labels, predictions)
        except Exception as e:  # a user's metric may raise anything
            text = f"the metric `{metric}` cannot be computed on valid: {type(e).__name__}: {e}"
            raise InputError("objective.metric", text) from e
        if value is None:
            text = f"cannot compute the metric `{metric}` for the task {self.task}"
            raise InputError("objective.metric", f"{text}, because only the loop knows it")
        return value

    def draw_scores(
        self, predictions: Sequence[np.ndarray], units: Units, draws: np.ndarray
    ) -> np.ndarray:
        """Score models on draws of rows.

        Args:
            predictions: Predictions of each of k models for all rows of valid.
            units: The units that are drawn.
            draws: How many times each draw has each unit, integers of shape (draws, units).

        Returns:
            The scores, shape (draws, k). NaN if the metric cannot be computed for a draw.
        """
        scores = np.full((len(draws), len(predictions)), np.nan)
        at_once = max(1, MOST_COUNTS // len(units.of_row))
        for start in range(0, len(draws), at_once):
            # Floats are multiplied faster than integers.
            counts = draws[start : start + at_once].astype(np.float64)[:, units.of_row]
            for model, each in enumerate(predictions):
                scores[start : start + at_once, model] = self._score_counts(each, counts)
        return scores

    def _score_counts(self, predictions: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Return the score for several draws, given how many times each has each row."""
        total = np.zeros(len(counts))
        folds = np.unique(self.valid.folds)
        for fold in folds:
            mask = self.valid.folds == fold
            labels, drawn = self.valid.labels[mask], counts[:, mask]
            scores = metrics.draw_values(self.metric, self.task, labels, predictions[mask], drawn)
            if scores is None:
                return np.array([self._score_draw(predictions, own) for own in counts])
            total += scores
        return total / len(folds)

    def _score_draw(self, predictions: np.ndarray, counts: np.ndarray) -> float:
        """Return the score for one draw; NaN if the draw lacks a class that the metric needs."""
        rows = np.repeat(np.arange(len(counts)), counts.astype(np.int64))
        try:
            return self.score(predictions[rows], rows)
        except InputError:
            return math.nan

"""Score predictions for the rows of valid: for all of them, for some, and for many draws."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import numpy as np

from sweeps.core import metrics
from sweeps.core.errors import InputError
from sweeps.data.splits.valid_rows import ValidRows

from .resampling import Units

# Draws are scored at once as long as they have this many rows together.
MOST_COUNTS = 2_000_000


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
        values = [
            metrics.row_values(self.metric, self.task, self.valid.labels, each)
            for each in predictions
        ]
        known = [value for value in values if value is not None]
        if known and len(known) == len(values):
            return self._mean_scores(np.stack(known, axis=1), units, draws)
        return np.stack([self._computed(each, units, draws) for each in predictions], axis=1)

    def _computed(self, predictions: np.ndarray, units: Units, draws: np.ndarray) -> np.ndarray:
        """Return the scores of a metric that is no mean, shape (draws,); see `draw_scores`.

        NaN if the metric cannot be computed for a draw, which may lack a class.
        """
        scores = np.full(len(draws), np.nan)
        at_once = max(1, MOST_COUNTS // len(units.of_row))
        for start in range(0, len(draws), at_once):
            counts = draws[start : start + at_once][:, units.of_row]
            fast = self._at_once(predictions, counts)
            if fast is not None:
                scores[start : start + at_once] = fast
                continue
            for number, of_row in enumerate(counts, start):
                rows = np.repeat(np.arange(len(of_row)), of_row)
                with contextlib.suppress(InputError):
                    scores[number] = self.score(predictions[rows], rows)
        return scores

    def _at_once(self, predictions: np.ndarray, counts: np.ndarray) -> np.ndarray | None:
        """Return the scores of several draws at once; None if the metric has no way to do this.

        Args:
            predictions: Predictions for all rows of valid.
            counts: How many times each draw has each row, shape (draws, n).
        """
        total = np.zeros(len(counts))
        folds = np.unique(self.valid.folds)
        for fold in folds:
            mask = self.valid.folds == fold
            labels = self.valid.labels[mask]
            scores = metrics.draw_values(
                self.metric, self.task, labels, predictions[mask], counts[:, mask]
            )
            if scores is None:
                return None
            total += scores
        return total / len(folds)

    def _mean_scores(self, values: np.ndarray, units: Units, draws: np.ndarray) -> np.ndarray:
        """Return the scores of a metric that is a power of a mean; see `draw_scores`.

        Args:
            values: Value of each row and model, shape (n, k).
            units: The units that are drawn.
            draws: See `draw_scores`.
        """
        known = metrics.METRICS[metrics.base_name(self.metric)]
        folds = np.unique(self.valid.folds)
        total = np.zeros((len(draws), values.shape[1]))
        for fold in folds:
            mask = self.valid.folds == fold
            sums = np.zeros((draws.shape[1], values.shape[1]))
            np.add.at(sums, units.of_row[mask], values[mask])
            sizes = np.bincount(units.of_row[mask], minlength=draws.shape[1])
            with np.errstate(invalid="ignore", divide="ignore"):  # a draw without rows of the fold
                total += ((draws @ sums) / (draws @ sizes)[:, None]) ** known.power
        return total / len(folds)

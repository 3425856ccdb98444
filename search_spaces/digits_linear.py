"""The linear classifier of `digits_trainable.py`.

This module does not import Ray, so its bundle predicts without Ray.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

WEIGHTS = "weights.npz"


def probabilities(weights: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return the probability of each digit, shape (n, 10).

    Args:
        weights: Weights of shape (columns + 1, 10). The last row is the intercept.
        x: Rows of shape (n, columns).
    """
    logits = x @ weights[:-1] + weights[-1]
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


class Linear:
    """The trained classifier, for the bundle."""

    def __init__(self, weights: np.ndarray):
        self.weights = weights

    def predict(self, frame: pd.DataFrame) -> np.ndarray:
        """Return the probability of each digit, shape (n, 10)."""
        return probabilities(self.weights, frame.to_numpy(np.float64))


def load(folder: str) -> Linear:
    """Load the classifier of a checkpoint that `DigitsTrainable.save_checkpoint` wrote."""
    with np.load(Path(folder, WEIGHTS)) as saved:
        return Linear(saved["weights"])

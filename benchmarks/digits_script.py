"""A training script that knows nothing about sweeps. It prints a line of JSON after each step.

python benchmarks/digits_script.py SEED
"""

from __future__ import annotations

import json
import sys

from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import log_loss

STEPS = 20
METRIC = "valid-logloss"


class Training:
    """Stochastic gradient descent on the digits data."""

    def __init__(self, seed: int):
        self.x, self.y = load_digits(return_X_y=True)
        self.model = SGDClassifier(loss="log_loss", alpha=0.1, random_state=seed)

    def step(self) -> float:
        """Make ten passes over the rows of train. Return the logloss on valid."""
        for _ in range(10):
            self.model.partial_fit(self.x[:1200], self.y[:1200], classes=range(10))
        return float(log_loss(self.y[1200:], self.model.predict_proba(self.x[1200:])))


if __name__ == "__main__":
    training = Training(int(sys.argv[1]))
    for _ in range(STEPS):
        print(json.dumps({METRIC: training.step()}), flush=True)

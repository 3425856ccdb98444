"""A class for Ray Tune that trains a linear classifier on images of digits.

`trainable.yaml` runs it without a change.

With Ray Tune, the class would read its own data in `setup`. Here, it reads the rows that sweeps has
prepared.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import ray.train
from digits_linear import WEIGHTS, probabilities
from ray import tune


class DigitsTrainable(tune.Trainable):
    """Gradient descent with momentum. One step is one pass over the rows."""

    def setup(self, config: dict[str, Any]) -> None:
        """Read the rows, and start with weights of zero."""
        self.train_rows, self.valid_rows = (self._rows(name) for name in ("train", "valid"))
        self.reset_config(config)

    def _rows(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        frame = ray.train.get_dataset_shard(name).materialize().to_pandas()
        return frame.drop(columns="target").to_numpy(np.float64), frame["target"].to_numpy()

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Prepare the instance for another configuration: start again, but keep the rows."""
        self.lr, self.momentum = new_config["lr"], new_config["momentum"]
        self.weights = np.zeros((self.train_rows[0].shape[1] + 1, 10))
        self.velocity = np.zeros_like(self.weights)
        return True

    def step(self) -> dict[str, float]:
        """Train one pass, in batches of 64 rows in an order that depends on the iteration."""
        x, y = self.train_rows
        order = np.random.default_rng(self.iteration).permutation(len(x))
        for rows in np.split(order, range(64, len(x), 64)):
            error = probabilities(self.weights, x[rows])
            error[np.arange(len(rows)), y[rows]] -= 1
            gradient = np.column_stack([x[rows], np.ones(len(rows))]).T @ error / len(rows)
            self.velocity = self.momentum * self.velocity - self.lr * gradient
            self.weights = self.weights + self.velocity
        x, y = self.valid_rows
        found = probabilities(self.weights, x)
        loss = -np.log(found[np.arange(len(y)), y].clip(1e-16)).mean()
        return {
            "valid-mlogloss": float(loss),
            "valid-accuracy": float((found.argmax(axis=1) == y).mean()),
        }

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Write the weights and the velocity."""
        np.savez(Path(checkpoint_dir, WEIGHTS), weights=self.weights, velocity=self.velocity)

    def load_checkpoint(self, checkpoint: str) -> None:
        """Read the weights and the velocity."""
        with np.load(Path(checkpoint, WEIGHTS)) as saved:
            self.weights, self.velocity = saved["weights"], saved["velocity"]

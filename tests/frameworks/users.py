"""Code that users bring to the trainers `sklearn`, `command` and `trainable`."""

from __future__ import annotations

import json
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.linear_model import SGDClassifier, SGDRegressor
from sklearn.metrics import log_loss, mean_squared_error
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import PolynomialFeatures


def polynomial(degree: int = 1) -> Any:
    """An estimator with `partial_fit` in a pipeline."""
    return Pipeline([("poly", PolynomialFeatures(degree)), ("clf", SGDClassifier(loss="log_loss"))])


def line(degree: int = 1) -> Any:
    """The same for a regression."""
    return Pipeline([("poly", PolynomialFeatures(degree)), ("clf", SGDRegressor())])


class Model:
    """Predicts with a pickled estimator of scikit-learn."""

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    def predict(self, frame: Any) -> Any:
        if hasattr(self.estimator, "predict_proba"):
            return self.estimator.predict_proba(frame)[:, 1]
        return self.estimator.predict(frame)


def load(folder: Any) -> Any:
    """Load what the script or the class below saved."""
    file = next(
        f for f in Path(folder).iterdir() if f.name in ("model.pkl", "_dict_checkpoint.pkl")
    )
    return Model(pickle.loads(file.read_bytes())["model"])


class Descent:
    """Stochastic gradient descent, an epoch at a time."""

    def __init__(self, train: Any, valid: Any, alpha: Any) -> None:
        self.train, self.valid = train, valid
        self.is_regression = train["label"].dtype.kind == "f"
        self.model = (
            SGDRegressor(alpha=alpha)
            if self.is_regression
            else SGDClassifier(loss="log_loss", alpha=alpha)
        )

    def step(self) -> Any:
        classes = {} if self.is_regression else {"classes": np.unique(self.train["label"])}
        self.model.partial_fit(self.train.drop(columns="label"), self.train["label"], **classes)
        x, y = self.valid.drop(columns="label"), self.valid["label"]
        if self.is_regression:
            return {"loss": mean_squared_error(y, self.model.predict(x))}
        return {"loss": log_loss(y, self.model.predict_proba(x)[:, 1])}


def script() -> None:
    """Train as a script that continues from its file, and prints each loss."""
    file = Path(os.environ["SWEEPS_CHECKPOINT_DIR"], "model.pkl")
    train, valid = (
        pd.read_parquet(Path(os.environ["SWEEPS_DATA_DIR"], f"{split}.parquet"))
        for split in ("train", "valid")
    )
    descent, step = Descent(train, valid, float(sys.argv[1])), 0
    if file.exists():
        state = pickle.loads(file.read_bytes())
        descent.model, step = state["model"], state["step"]
    for number in range(step + 1, 7):
        result = descent.step()
        file.write_bytes(pickle.dumps({"model": descent.model, "step": number}))
        print(json.dumps(result))


if __name__ == "__main__":
    script()

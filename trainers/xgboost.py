"""Train gradient-boosted trees with XGBoost, on one or several workers. A step is a boosting round.

`params` has XGBoost's own parameters, and `num_boost_round` (default: the scheduler's `max_t`, or
100). The objective, the number of classes, the number of threads and the seed follow from the
trial, unless `params` sets them. `params.patience` ends the training earlier.
`sweeps.trainers._rounds` chooses the rounds that are reported.

A report has only the metrics that objectives, constraints and `params.eval_metric` name, because
each metric takes time. The metrics of `eval_metric` are measured on valid. Objectives and
constraints may also name metrics that only `sweeps.core.metrics` has.

If the trial is not stopped, more metrics are measured after the last round, on train and valid, for
the model of the best round (`Current.report_final`). If `params.eval_metric` is set, these are the
metrics in `params.eval_metric`. Otherwise they are logloss, error and auc for two classes, mlogloss
and merror for more classes, and rmse and mae for a regression. For several label columns, they are
logloss and error, or rmse and mae, over all columns. If an error rate is among these metrics,
`valid-accuracy` is added.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import xgboost as xgb
from scipy.special import expit

from sweeps import trial

from . import Params, constraints_by_position, main_names, require_task, without
from ._booster import LOGITS, UNSLICEABLE, XGBoostTraining, has_gpu, predict
from ._dmatrix import matrix, with_codes

if TYPE_CHECKING:
    import pandas as pd

OBJECTIVES = {
    "binary": "binary:logistic",
    "multiclass": "multi:softprob",
    "regression": "reg:squarederror",
    "multilabel": "binary:logistic",
    "multioutput": "reg:squarederror",
}
# Parameters of the trainer, which XGBoost does not have
OWN = ("num_boost_round", "patience", "eval_metric")
FEW = 2_000  # up to this number of rows, a loaded model predicts with one thread


def train_func(config: Params) -> None:
    """Train one booster, and keep the model of the best round that is reported.

    Args:
        config: The trial's `params`: XGBoost's parameters, and the trainer's own (`OWN`).

    Raises:
        ValueError: The data has no label, a column is not numeric, or XGBoost does not have a
            requested metric.
    """
    cur = trial.current()
    config = main_names("xgboost", config)
    training = XGBoostTraining(cur, config, parameters(config, cur))
    training.restore()
    training.run(training.step)


def load(folder: str) -> Model:
    """Load the best model of a checkpoint that `train_func` wrote."""
    return Model(xgb.Booster(model_file=str(Path(folder, "model.ubj"))))


class Model:
    """A trained booster."""

    def __init__(self, booster: xgb.Booster):
        self.booster = booster
        config = booster.save_config()
        self._has_logits = LOGITS in config
        # One thread predicts a few rows faster than several threads. Boosters that cannot be sliced
        # do not use this method: they accept only a DMatrix, or the last bits of their predictions
        # for an array differ.
        self._one_thread: xgb.Booster | None = None
        if not any(f'"name":"{kind}"' in config for kind in UNSLICEABLE):
            self._one_thread = booster.copy()
            self._one_thread.set_param({"nthread": 1})

    def predict(self, features: pd.DataFrame) -> np.ndarray:
        """Predict prepared rows.

        Args:
            features: The training columns, in their order.

        Returns:
            A float64 array with the probability of the second class, shape (n,); the probabilities
            of k classes, shape (n, k); or the values of a regression, shape (n,).
        """
        codes = with_codes(features)
        if (
            self._one_thread is not None
            and len(features) <= FEW
            and all(dtype.kind in "biuf" for dtype in codes.dtypes)
        ):
            with np.errstate(over="ignore"):
                values = codes.to_numpy(np.float32)
            if not np.isinf(values).any():
                outputs = self._one_thread.inplace_predict(values, validate_features=False)
                outputs = outputs.astype(np.float64)
                return expit(outputs) if self._has_logits else outputs
        return predict(self.booster, matrix(features))


def parameters(config: Params, cur: trial.Current) -> Params:
    """Return XGBoost's parameters: the defaults for the trial, overridden by `config`.

    `eval_metric` is not included.

    Args:
        config: The trial's `params`.
        cur: The trial.
    """
    task = require_task(cur.task)
    # With a seed for each round, a resumed trial samples the same rows and columns as an
    # uninterrupted one.
    defaults: Params = {
        "objective": OBJECTIVES[task],
        "nthread": cur.threads,
        "seed": cur.seed,
        "seed_per_iteration": True,
    }
    if task == "multiclass":
        defaults["num_class"] = len(cur.classes or ())
    if has_gpu():
        defaults["device"] = "cuda"
    user_params = without(config, OWN)
    if user_params.get("objective") == "multi:softmax":
        # The training is the same, but the predictions are probabilities.
        user_params["objective"] = "multi:softprob"
    params = defaults | user_params
    # XGBoost knows the columns by other names, because it refuses some characters in names.
    params |= constraints_by_position(user_params, () if cur.check is None else cur.check.columns)
    # XGBoost accepts signs only as a tuple, and positions only as text.
    for name, convert in (("monotone_constraints", tuple), ("interaction_constraints", json.dumps)):
        if isinstance(params.get(name), list):
            params[name] = convert(params[name])
    return params

"""Train gradient-boosted trees with LightGBM, on one or several workers.

A step is a boosting round.

`params` has LightGBM's own parameters, and `num_boost_round` (default: the scheduler's `max_t`, or
100). The objective, the number of classes, the number of threads and the seed follow from the
trial, unless `params` sets them. A column of the pandas type `category` is a categorical feature,
and the saved model has its categories. `params.patience` ends the training earlier.
`sweeps.trainers._rounds` chooses the rounds that are reported.

A report has only the metrics named in the objectives, the constraints and `params.eval_metric`,
because each metric takes time. The metrics of `eval_metric` are measured on valid. Names are those
of `sweeps.core.metrics`, or LightGBM's own.

If the trial is not stopped, more metrics are measured after the last round, on train and valid, for
the model of the best round (`Current.report_final`).

With several workers, each worker measures the metrics of train on its own part of the rows, because
LightGBM does so. sweeps uses the metrics of rank 0.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import lightgbm as lgb
import numpy as np

from sweeps import trial

from . import Params, constraints_by_position, main_names, require_task, without
from ._lightgbm_booster import LightGBMTraining, predict

if TYPE_CHECKING:
    import pandas as pd

# Parameters of the trainer, which LightGBM does not have
OWN = ("num_boost_round", "patience", "eval_metric")
# Parameters that the trainer sets itself
RESERVED = ("num_iterations", "num_rounds", "max_iter", "metrics", "early_stopping_round")
NARROW = 50  # a table with fewer columns has its histograms built row by row
FEW = 2_000  # up to this number of rows, a loaded model predicts with one thread


def train_func(config: Params) -> None:
    """Train one booster, and keep the model of the best round that is reported.

    Args:
        config: The trial's `params`: LightGBM's parameters, and the trainer's own (`OWN`).

    Raises:
        ValueError: The data has no label, a column is not numeric, a parameter is refused, or a
            requested metric is unknown.
    """
    cur = trial.current()
    config = main_names("lightgbm", config, RESERVED)
    training = LightGBMTraining(cur, config, parameters(config, cur) | _network())
    training.restore()
    training.train()


def load(folder: str) -> Model:
    """Load the best model of a checkpoint that `train_func` wrote."""
    return Model(lgb.Booster(model_file=str(Path(folder, "model.txt"))))


class Model:
    """A trained booster."""

    def __init__(self, booster: lgb.Booster):
        self.booster = booster

    def predict(self, features: pd.DataFrame) -> np.ndarray:
        """Predict prepared rows.

        Args:
            features: The training columns, in their order.

        Returns:
            A float64 array with the probability of the second class, shape (n,); the probabilities
            of k classes, shape (n, k); or the values of a regression, shape (n,).
        """
        return predict(self.booster, features, threads=1 if len(features) <= FEW else 0)


def parameters(config: Params, cur: trial.Current) -> Params:
    """Return LightGBM's parameters: the defaults for the trial, overridden by `config`.

    `metric` is not included.

    Args:
        config: The trial's `params`.
        cur: The trial.

    Raises:
        ValueError: The data has no label, or a constraint names an unknown column.
    """
    task = require_task(cur.task)
    columns = () if cur.check is None else cur.check.columns
    user_params = without(config, OWN)
    params: Params = {
        "objective": task,
        "boosting": "gbdt",
        "num_threads": cur.threads,
        "seed": cur.seed % 2**31,
        "verbosity": -1,
        # Without these two, LightGBM adds numbers in another order in each run, and measures at the
        # start which histograms are faster.
        "deterministic": True,
        **_histograms(user_params, len(columns)),
        # One data set then serves trials with other values of `min_data_in_leaf` and `seed`.
        "feature_pre_filter": False,
        "data_random_seed": 1,
    }
    if task == "multiclass":
        params["num_class"] = len(cur.classes or ())
    return params | user_params | constraints_by_position(user_params, columns)


def _histograms(user_params: Params, columns: int) -> dict[str, bool]:
    """Choose how LightGBM builds histograms, unless `user_params` chooses.

    Row by row is up to 15 % faster for a narrow table.
    """
    if user_params.get("force_col_wise") or user_params.get("force_row_wise"):
        return {}
    return {"force_row_wise": columns < NARROW, "force_col_wise": columns >= NARROW}


def _network() -> Params:
    """Return the parameters that connect the workers of the trial; {} for a single worker."""
    import ray.train
    from ray.train.lightgbm import get_network_params

    if ray.train.get_context().get_world_size() == 1:
        return {}
    return {"pre_partition": True, "tree_learner": "data"} | get_network_params()

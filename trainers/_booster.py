"""Train a booster of XGBoost, and write checkpoints.

A checkpoint has the best model and its predictions.
"""

import contextlib
import functools
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import xgboost as xgb
from scipy.special import expit

from sweeps import trial

from . import Params, shard
from ._dmatrix import (
    MatrixColumns,
    equal_weights,
    matrix,
    remove_names,
    require_category_support,
    set_columns,
)
from ._metrics import measure
from ._requested import RequestedMetrics
from ._rounds import BoostingSteps
from ._xgboost_metrics import METRICS, metric_name, parsed

# This text is in the configuration of a booster that predicts logits.
LOGITS = '"name":"binary:logitraw"'
# Boosters whose rounds cannot be sliced: later rounds of dart change the weights of earlier trees,
# and gblinear has no trees.
UNSLICEABLE = ("dart", "gblinear")
SAMPLING = ("subsample", "colsample_bytree", "colsample_bylevel", "colsample_bynode")
LARGE = 400_000  # from this number of values in a rank's table, a round takes several milliseconds


class XGBoostTraining(BoostingSteps):
    """The training of one booster. A step is a round.

    Models in memory have no column names, and saved models have them.

    Args:
        cur: The trial.
        config: The trial's `params`.
        params: XGBoost's parameters, without metrics.

    Attributes:
        is_sliceable: True if XGBoost can cut the model of an earlier round out of the booster.
        best_model: The model of the best round as bytes, if the booster is not sliceable.
    """

    def __init__(self, cur: trial.Current, config: Params, params: Params):
        translate = functools.partial(metric_name, str(cur.task))
        super().__init__(cur, config, RequestedMetrics(config, cur, METRICS, translate))
        self.train, self.columns = cur.cached(
            "xgboost.train",
            lambda: remove_names(matrix(shard("train"), cur.label, cur.threads, cur.weight)),
        )
        self.valid, _ = cur.cached(
            "xgboost.valid", lambda: remove_names(matrix(shard("valid"), cur.label, cur.threads))
        )
        self.check: xgb.DMatrix | None = None
        rows = cur.check
        if rows is not None:
            self.check, _ = cur.cached(
                "xgboost.check", lambda: remove_names(matrix(rows, None, cur.threads))
            )
        require_category_support(params, self.columns)
        self.params = params | {
            "eval_metric": self.requested.framework_metrics(self.requested.reported)
        }
        self.is_sliceable = self.params.get("booster") not in UNSLICEABLE
        self.booster = self._booster()
        self.best_model: bytearray | None = None
        interval = _renewal_interval(self.params, self.train.num_row() * self.train.num_col())
        if interval:
            self.renewals = self.rounds.renewal_rounds(interval)

    def grow(self, step: int) -> None:
        """Train a round."""
        self.booster.update(self.train, step - 1)

    def renew(self, step: int) -> None:
        """Make XGBoost create a new updater, by changing the tree method and changing it back."""
        method = self.params.get("tree_method", "auto")
        self.booster.set_param({"tree_method": "hist" if method == "approx" else "approx"})
        self.booster.num_boosted_rounds()  # applies the change
        self.booster.set_param({"tree_method": method})

    def measure(self) -> dict[str, float]:
        """Measure the last round."""
        cur = self.cur
        splits = self.requested.splits
        matrices = {"train": self.train, "valid": self.valid}
        evals = [(matrices[split], split) for split in splits]
        with equal_weights(self.train) if "train" in splits else contextlib.nullcontext():
            measured = parsed(self.booster.eval_set(evals))
        if self.requested.computed:
            labels = self.valid.get_label()
            if isinstance(cur.label, list):
                labels = labels.reshape(-1, len(cur.label))
            predictions = predict(self.booster, self.valid)
            measured |= measure(
                str(cur.task), "valid", labels, y_pred=predictions, names=self.requested.computed
            )
        return self.requested.select(measured)

    def keep(self) -> None:
        """Keep the booster, if its rounds cannot be sliced."""
        if not self.is_sliceable:
            self.best_model = self.booster.save_raw("ubj")

    def final(self, reported: Mapping[str, float]) -> dict[str, float]:
        """Measure the model of the best round."""
        model = self._best_booster()
        metrics = self.requested.framework_metrics(self.requested.final)
        for metric in metrics:
            model.set_param({"eval_metric": metric})  # adds the metric, unless the model has it
        if not metrics:
            return {}
        with equal_weights(self.train):
            return parsed(model.eval_set([(self.train, "train"), (self.valid, "valid")]))

    def _best_booster(self) -> xgb.Booster:
        """Return the booster of the best round."""
        if self.is_best:
            return self.booster
        if self.best_model is None:
            return self.booster[: self.best]
        return xgb.Booster(model_file=self.best_model)

    def save(self, folder: Path) -> np.ndarray | None:
        """Write the model of the best round, and that of the last round if it is another one."""
        model = self._best_booster()
        if not self.is_best:
            self._save_model(self.booster, folder / "latest.ubj")
        self._save_model(model, folder / "model.ubj")
        if self.check is None:
            return None
        if has_gpu():  # a bundle predicts on a CPU
            model = model.copy()
            model.set_param({"device": "cpu"})
        elif self.is_sliceable:  # the first rounds of `booster` predict the same as a slice
            return predict(self.booster, self.check, self.best or self.step)
        return predict(model, self.check)

    def _save_model(self, model: xgb.Booster, file: Path) -> None:
        """Write a model with column names."""
        set_columns(model, self.columns)
        model.save_model(file)
        set_columns(model, MatrixColumns())

    def load(self, folder: Path) -> None:
        """Restore the boosters that `save` wrote."""
        best = folder / "model.ubj"
        latest = folder / "latest.ubj"
        self.booster = self._booster(latest if latest.exists() else best)
        if not self.is_sliceable and self.best is not None:
            self.best_model = bytearray(best.read_bytes())

    def _booster(self, model_file: Path | None = None) -> xgb.Booster:
        """Return a booster, which continues from the model in a file if one is given."""
        booster = xgb.Booster(self.params, [self.train, self.valid], model_file=model_file)
        set_columns(booster, MatrixColumns())
        return booster


def _renewal_interval(params: Params, values: int) -> int:
    """Return the number of rounds between two calls of `renew`; 0 if `renew` is never called.

    XGBoost's updater samples columns with a random state that no model file contains. The state is
    seeded when the updater is created. The updater is therefore created again at fixed rounds, and
    only these rounds have checkpoints. A resumed trial then grows the same trees as an
    uninterrupted one. Each call takes 0.6 ms. A small table therefore has at least 50 rounds
    between two calls; a table with at least `LARGE` values has at least 1 round. `values` is the
    number of values in this rank's table.

    If no columns or rows are sampled, no call is needed. On a GPU, or with the user's own
    `updater`, a resumed trial samples other columns.
    """
    samples = any(float(params.get(name, 1)) < 1 for name in SAMPLING)
    if (
        not samples
        or params.get("booster") == "gblinear"
        or "updater" in params
        or str(params.get("device", "cpu")) != "cpu"
    ):
        return 0
    return 1 if values >= LARGE else 50


def predict(booster: xgb.Booster, matrix: xgb.DMatrix, rounds: int = 0) -> np.ndarray:
    """Predict rows with the first rounds of a booster.

    Args:
        booster: The model.
        matrix: The rows.
        rounds: Number of rounds to use; 0 for all.

    Returns:
        A float64 array with the probability of the second class, shape (n,); the probabilities of k
        classes, shape (n, k); or the values of a regression, shape (n,).
    """
    outputs = booster.predict(matrix, iteration_range=(0, rounds)).astype(np.float64)
    return expit(outputs) if LOGITS in booster.save_config() else outputs


def has_gpu() -> bool:
    """Return whether Ray has assigned a GPU, or a fraction of a GPU, to this worker."""
    import ray

    return bool(ray.is_initialized() and ray.get_gpu_ids())

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

import contextlib
import functools
import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xgboost as xgb

from sweeps import trial
from sweeps.trainers import constraints_by_position, main_names, report
from sweeps.trainers._booster import LOGITS, BestRound, has_gpu, predict
from sweeps.trainers._dmatrix import (
    Columns,
    matrix,
    named,
    require_trees,
    unnamed,
    unweighted,
    with_codes,
)
from sweeps.trainers._metrics import measure
from sweeps.trainers._requested import RequestedMetrics
from sweeps.trainers._rounds import Rounds, agree, max_rounds
from sweeps.trainers._xgboost_metrics import METRICS, final_metrics, metric_name, parsed

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
# Boosters whose rounds cannot be sliced: later rounds of dart change the weights of earlier trees,
# and gblinear has no trees.
UNSLICEABLE = ("dart", "gblinear")
SAMPLING = ("subsample", "colsample_bytree", "colsample_bylevel", "colsample_bynode")
FEW = 2_000  # up to this number of rows, a loaded model predicts with one thread
LARGE = 400_000  # from this number of values in a rank's table, a round takes several milliseconds


def train_func(config: dict[str, Any]) -> None:
    """Train one booster, and keep the model of the best round that is reported.

    Args:
        config: The trial's `params`: XGBoost's parameters, and the trainer's own (`OWN`).

    Raises:
        ValueError: The data has no label, a column is not numeric, or XGBoost does not have a
            requested metric.
    """
    import ray.train

    cur, config = trial.current(), main_names("xgboost", config)
    requested = RequestedMetrics.of(
        config, cur, METRICS, functools.partial(metric_name, str(cur.task))
    )
    most = int(config.get("num_boost_round") or cur.max_t or max_rounds(config, 100))
    rounds = Rounds.of(config, most, cur.max_t)
    own = parameters(config, cur)
    train, valid, columns = _matrices(cur)
    require_trees(own, columns)
    params = own | {"eval_metric": requested.framework_metrics(requested.reported)}
    best = BestRound(cur, params.get("booster") in UNSLICEABLE, _check_matrix(cur), columns=columns)
    booster, done = _restore(params, [train, valid], best)
    saves = ray.train.get_context().get_world_rank() == 0
    metrics_of = _RoundMetrics(cur, requested, {"train": train, "valid": valid})
    interval = _renewal_interval(params, train.num_row() * train.num_col())
    renewals = rounds.resumable(interval)
    # `xgb.train` is not used, because it counts rounds from 0 again after a resume, and the number
    # of a round is its seed.
    for step in rounds.after(done, best):
        if interval and (step - 1 in renewals or step - 1 in cur.milestones) and step > done + 1:
            _renew(booster, params)
        booster.update(train, step - 1)
        if not cur.report_due(step, step in rounds.reported):
            continue
        metrics = metrics_of.measure(booster, step)
        if best.compare(step, metrics, requested.lead) and best.whole:
            best.raw = booster.save_raw("ubj")
        if config.get("patience"):
            agree(best)
        is_last = rounds.is_last(step, best.step)
        resumable = not interval or step in renewals or is_last or step in cur.milestones
        if is_last:  # before `report`, which ends the trial at the scheduler's `max_t`
            cur.report_final(metrics_of.final(best.model(booster, step), metrics))
        due = saves and resumable and cur.checkpoint_due(step, last=is_last)
        report(metrics, functools.partial(best.save, booster, step) if due else None)


def _matrices(cur: trial.Current) -> tuple[xgb.DMatrix, xgb.DMatrix, Columns]:
    """Return this rank's rows of train and the rows of valid, and the columns' names and types.

    The matrices have no column names.
    """
    train, columns = cur.cached(
        "xgboost.train",
        lambda: unnamed(matrix(_shard("train"), cur.label, cur.threads, cur.weight)),
    )
    valid, _ = cur.cached(
        "xgboost.valid", lambda: unnamed(matrix(_shard("valid"), cur.label, cur.threads))
    )
    return train, valid, columns


def _check_matrix(cur: trial.Current) -> xgb.DMatrix | None:
    """Return the rows for which each checkpoint records predictions; None if there are none."""
    if cur.check is None:
        return None
    check: xgb.DMatrix = cur.cached(
        "xgboost.check", lambda: unnamed(matrix(cur.check, None, cur.threads))
    )[0]
    return check


@dataclass(frozen=True)
class _RoundMetrics:
    """Measures the metrics that each round reports, and the metrics of the finished model.

    Attributes:
        cur: The trial.
        requested: The requested metrics.
        splits: The rows of "train" and "valid".
    """

    cur: trial.Current
    requested: RequestedMetrics
    splits: dict[str, xgb.DMatrix]

    def measure(self, booster: xgb.Booster, step: int) -> dict[str, float]:
        """Measure a round, which is the last one of the booster."""
        cur, requested = self.cur, self.requested
        train, valid = self.splits["train"], self.splits["valid"]
        evals = [(self.splits[part], part) for part in requested.splits]
        with unweighted(train) if "train" in requested.splits else contextlib.nullcontext():
            measured = parsed(booster.eval_set(evals, step - 1))
        if requested.computed:
            labels = valid.get_label()
            labels = labels.reshape(-1, len(cur.label)) if isinstance(cur.label, list) else labels
            predictions = predict(booster, valid)
            measured |= measure(
                str(cur.task), "valid", labels, y_pred=predictions, names=requested.computed
            )
        return requested.select(measured)

    def final(self, model: xgb.Booster, reported: Collection[str]) -> dict[str, float]:
        """Measure the finished model. Leave out the metrics that the trial reported."""
        metrics = self.requested.framework_metrics(self.requested.final)
        with unweighted(self.splits["train"]):
            final = final_metrics(model, self.splits, metrics)
        return {name: value for name, value in final.items() if name not in reported}


def _restore(
    params: dict[str, Any], matrices: list[xgb.DMatrix], best: BestRound
) -> tuple[xgb.Booster, int]:
    """Return the booster of the checkpoint to continue from, and its number of rounds.

    If there is no checkpoint, return a new booster and 0.
    """
    import ray.train

    checkpoint = ray.train.get_checkpoint()
    if checkpoint is None:
        return _booster(params, matrices), 0
    with checkpoint.as_directory() as folder:
        done = best.restore(Path(folder))
        latest = Path(folder, "latest.ubj")
        return _booster(
            params, matrices, latest if latest.exists() else Path(folder, "model.ubj")
        ), done


def load(folder: str) -> Model:
    """Load the best model of a checkpoint that `train_func` wrote."""
    return Model(xgb.Booster(model_file=str(Path(folder, "model.ubj"))))


class Model:
    """A trained booster."""

    def __init__(self, booster: xgb.Booster):
        self.booster = booster
        config = booster.save_config()
        self._logits = LOGITS in config
        # One thread predicts a few rows faster than several threads. Boosters that cannot be sliced
        # do not use this method: they accept only a DMatrix, or the last bits of their predictions
        # for an array differ.
        self._few = (
            None if any(f'"name":"{kind}"' in config for kind in UNSLICEABLE) else booster.copy()
        )
        if self._few is not None:
            self._few.set_param({"nthread": 1})

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
            self._few is not None
            and len(features) <= FEW
            and all(dtype.kind in "biuf" for dtype in codes.dtypes)
        ):
            with np.errstate(over="ignore"):
                values = codes.to_numpy(np.float32)
            if (
                infinite := np.isinf(values).any(axis=0)
            ).any():  # A DMatrix refuses such a value too.
                raise ValueError(
                    f"a value of the column `{features.columns[infinite][0]}` is infinite, or too "
                    "large for a 32-bit float"
                )
            out = self._few.inplace_predict(values, validate_features=False).astype(np.float64)
            return 1.0 / (1.0 + np.exp(-out)) if self._logits else out
        return predict(self.booster, matrix(features))


def parameters(config: dict[str, Any], cur: trial.Current) -> dict[str, Any]:
    """Return XGBoost's parameters: the defaults for the trial, overridden by `config`.

    `eval_metric` is not included.

    Args:
        config: The trial's `params`.
        cur: The trial.
    """
    task = str(cur.task)
    # With a seed for each round, a resumed trial samples the same rows and columns as an
    # uninterrupted one.
    defaults: dict[str, Any] = {
        "objective": OBJECTIVES[task],
        "nthread": cur.threads,
        "seed": cur.seed,
        "seed_per_iteration": True,
    }
    if task == "multiclass":
        defaults["num_class"] = len(cur.classes or ())
    if has_gpu():
        defaults["device"] = "cuda"
    given = {name: value for name, value in config.items() if name not in OWN}
    if given.get("objective") == "multi:softmax":
        given["objective"] = (
            "multi:softprob"  # the training is the same, but the predictions are probabilities
        )
    params = defaults | given
    # XGBoost knows the columns by other names, because it refuses some characters in names.
    params |= constraints_by_position(given, () if cur.check is None else cur.check.columns)
    # XGBoost accepts signs only as a tuple, and positions only as text.
    for name, form in (("monotone_constraints", tuple), ("interaction_constraints", json.dumps)):
        if isinstance(params.get(name), list):
            params[name] = form(params[name])
    return params


def _booster(
    params: dict[str, Any], matrices: list[xgb.DMatrix], model_file: Path | None = None
) -> xgb.Booster:
    """Create a booster without column names.

    If `model_file` is given, the booster continues from the model in this file.
    """
    booster = xgb.Booster(params, matrices, model_file=model_file)
    named(booster, Columns())
    return booster


def _renewal_interval(params: dict[str, Any], values: int) -> int:
    """Return the number of rounds between two calls of `_renew`; 0 if `_renew` is never called.

    XGBoost's updater samples columns with a random state that no model file contains. The state is
    seeded when the updater is created. The updater is therefore created again at fixed rounds, and
    only these rounds have checkpoints. A resumed trial then grows the same trees as an
    uninterrupted one. Each call takes 0.6 ms. A small table therefore has at least 50 rounds
    between two calls; a table with at least `LARGE` values has at least 1 round. `values` is the
    number of values in this rank's table.

    If no columns or rows are sampled, no call is needed. On a GPU, or with the user's own
    `updater`, a resumed trial samples other columns.
    """
    draws = any(float(params.get(name, 1)) < 1 for name in SAMPLING)
    if (
        not draws
        or params.get("booster") == "gblinear"
        or "updater" in params
        or str(params.get("device", "cpu")) != "cpu"
    ):
        return 0
    return 1 if values >= LARGE else 50


def _renew(booster: xgb.Booster, params: dict[str, Any]) -> None:
    """Make XGBoost create a new updater, by changing the tree method and changing it back."""
    method = params.get("tree_method", "auto")
    booster.set_param({"tree_method": "hist" if method == "approx" else "approx"})
    booster.num_boosted_rounds()  # applies the change
    booster.set_param({"tree_method": method})


def _shard(name: str) -> pd.DataFrame:
    """Return this rank's rows of `train` or `valid`."""
    import ray.train

    return ray.train.get_dataset_shard(name).materialize().to_pandas()

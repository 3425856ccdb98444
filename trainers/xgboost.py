"""Gradient-boosted trees: XGBoost on one worker or several, a report a boosting round.

`params` are XGBoost's own, and `num_boost_round` (default: the scheduler's `max_t`, or 100). Objective, classes, threads and
seed follow the trial unless `params` says otherwise.

Every round reports the metrics that objectives, constraints and `params.eval_metric` name, and no others: a metric costs as much
as a part of the round. `eval_metric` is measured on valid. After the last round of a trial that was not stopped, the other metrics
of train and valid are measured for the model of the best round (`Current.report_final`): logloss, error and auc for two
classes, mlogloss and merror for more, rmse and mae for a regression, or those of `eval_metric`; and `valid-accuracy` for classes.
`params.report: all` reports all of these every round.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xgboost as xgb

from sweeps import trial
from sweeps.trainers._best import LOGITS, Best, answers, has_gpu
from sweeps.trainers._dmatrix import Columns, matrix, named, unnamed
from sweeps.trainers._requested import RequestedMetrics, parsed

if TYPE_CHECKING:
    import pandas as pd

BACKEND = "xgboost"
READS_NUMBERS = True  # a chain that leaves text is refused before a trial is begun
NEEDS_LABEL = True  # a space without `data.label` is refused
# Bytes of a checkpoint at most: two models of full trees. `sweeps plan` reckons it without importing this file; the names are those of
# `params`, each at its largest and 0 if absent, and max_t, rows, features, outputs (the classes if more than two, else 1).
CHECKPOINT_BYTES = (
    "10_000 + 2 * (num_boost_round or max_t or 100) * outputs * (num_parallel_tree or 1)"
    " * (1_000 + 40 * min(2 ** ((max_depth or 6) + 1), 2 * rows))"
)

# Of a checkpoint, what only going on with the training needs: a bundle is made without it.
RESUME_FILES = ("latest.ubj", "state.json")

OBJECTIVES = {"binary": "binary:logistic", "multiclass": "multi:softprob", "regression": "reg:squarederror"}
# What the objective may be, by the label's task: of train and of valid, unless its name says which.
REPORTS = {
    "binary": ("logloss", "error", "auc", "aucpr", "valid-accuracy", "rmse", "rmsle", "mae", "mape", "mphe", "pre", "map", "ndcg"),
    "multiclass": ("mlogloss", "merror", "auc", "aucpr", "valid-accuracy"),
    "regression": (
        "rmse",
        "mae",
        "rmsle",
        "mape",
        "mphe",
        "poisson-nloglik",
        "gamma-nloglik",
        "gamma-deviance",
        "quantile",
        "cox-nloglik",
        "aft-nloglik",
        "interval-regression-accuracy",
    ),
}
# What `params` may hold. XGBoost itself only warns of a name it does not know.
PARAMETERS = (
    "num_boost_round",
    "report",
    "booster",
    "device",
    "verbosity",
    "validate_parameters",
    "nthread",
    "n_jobs",
    "disable_default_eval_metric",
    "eta",
    "learning_rate",
    "gamma",
    "min_split_loss",
    "max_depth",
    "min_child_weight",
    "max_delta_step",
    "subsample",
    "sampling_method",
    "colsample_bytree",
    "colsample_bylevel",
    "colsample_bynode",
    "lambda",
    "reg_lambda",
    "alpha",
    "reg_alpha",
    "tree_method",
    "scale_pos_weight",
    "updater",
    "refresh_leaf",
    "process_type",
    "grow_policy",
    "max_leaves",
    "max_bin",
    "num_parallel_tree",
    "monotone_constraints",
    "interaction_constraints",
    "multi_strategy",
    "max_cached_hist_node",
    "max_cat_to_onehot",
    "max_cat_threshold",
    "sample_type",
    "normalize_type",
    "rate_drop",
    "one_drop",
    "skip_drop",
    "feature_selector",
    "top_k",
    "tolerance",
    "sparse_threshold",
    "default_direction",
    "opt_dense_col",
    "objective",
    "base_score",
    "eval_metric",
    "seed",
    "random_state",
    "seed_per_iteration",
    "num_class",
    "num_target",
    "tweedie_variance_power",
    "huber_slope",
    "quantile_alpha",
    "expectile_alpha",
    "aft_loss_distribution",
    "aft_loss_distribution_scale",
    "lambdarank_pair_method",
    "lambdarank_num_pair_per_sample",
    "lambdarank_normalization",
    "lambdarank_score_normalization",
    "lambdarank_unbiased",
    "lambdarank_bias_norm",
    "ndcg_exp_gain",
    "boost_from_average",
    "debug_synchronize",
    "max_row_perbatch",
)
ALIASES = {"nthread": "n_jobs", "seed": "random_state"}
# An earlier round's model cannot be cut out of these: later rounds of dart reweigh its trees, gblinear has none.
UNSLICEABLE = ("dart", "gblinear")
CONSTRAINTS = ("monotone_constraints", "interaction_constraints")
SAMPLING = ("subsample", "colsample_bytree", "colsample_bylevel", "colsample_bynode")
FEW = 2_000  # rows that a loaded model predicts with one thread
LARGE = 400_000  # values of a rank's table from which a round takes several milliseconds


def train_func(config: dict[str, Any]) -> None:
    """Train one booster, reporting every round and keeping the best.

    Args:
        config: XGBoost's parameters, `num_boost_round` and `report`.

    Raises:
        ValueError: no label, a column that is not numeric, or an objective that XGBoost does not measure.
    """
    import ray.train

    cur = trial.current()
    if cur.task is None:
        raise ValueError("data.label is missing: the xgboost trainer needs a column to predict")
    rounds = int(config.get("num_boost_round") or cur.max_t or 100)
    train, columns = cur.cached("xgboost.train", lambda: unnamed(matrix(_shard("train"), cur.label, cur.threads)))
    valid, _ = cur.cached("xgboost.valid", lambda: unnamed(matrix(_shard("valid"), cur.label, cur.threads)))
    check, _ = (None, None) if cur.check is None else cur.cached("xgboost.check", lambda: unnamed(matrix(cur.check, None, cur.threads)))

    requested = RequestedMetrics.of(config, cur)
    params = parameters(config, cur) | {"eval_metric": list(requested.metrics)}
    best = Best(cur, params.get("booster") in UNSLICEABLE, check, columns)
    if checkpoint := ray.train.get_checkpoint():
        with checkpoint.as_directory() as folder:
            done = best.restore(Path(folder))
            latest = Path(folder, "latest.ubj")
            latest = latest if latest.exists() else Path(folder, "model.ubj")
            booster = _booster(params, [train, valid], columns, latest)
    else:
        booster, done = _booster(params, [train, valid], columns), 0

    saves = ray.train.get_context().get_world_rank() == 0
    splits = {"train": train, "valid": valid}
    evals = [(splits[part], part) for part in requested.splits]
    last = min(rounds, cur.max_t or rounds)
    stretch = _stretch(params, train.num_row() * train.num_col())
    # Not `xgb.train`: it counts rounds from 0 again when it goes on from a model, and the seed of a round is its number.
    for step in range(done + 1, rounds + 1):
        if stretch and ((step - 1) % stretch == 0 or step - 1 in cur.milestones) and step > done + 1:
            _renew(booster, params)
        booster.update(train, step - 1)
        found = parsed(booster.eval_set(evals, step - 1))
        if step == done + 1:
            requested.require(found)
        metrics = requested.reported(found)
        best.see(booster, step, metrics[requested.lead])
        resumable = not stretch or step % stretch == 0 or step == last or step in cur.milestones
        if step == last:  # before its report, which ends the trial where the scheduler's `max_t` is reached
            cur.report_final(requested.final(best.model(booster, step), splits, metrics))
        if saves and resumable and cur.checkpoint_due(step, last=step == last):
            with tempfile.TemporaryDirectory() as folder:
                best.save(booster, step, Path(folder))
                ray.train.report(metrics, checkpoint=ray.train.Checkpoint.from_directory(folder))
        else:
            ray.train.report(metrics)


def load(folder: str) -> Model:
    """The best model of a checkpoint that `train_func` wrote."""
    booster = xgb.Booster(model_file=str(Path(folder, "model.ubj")))
    return Model(booster)


class Model:
    """A trained booster."""

    def __init__(self, booster: xgb.Booster):
        self.booster = booster
        config = booster.save_config()
        self._logits = LOGITS in config
        # Few rows are answered sooner by one thread than by several that must be woken. What cannot be sliced takes a DMatrix alone, or
        # answers an array with other last bits
        self._few = None if any(f'"name":"{kind}"' in config for kind in UNSLICEABLE) else booster.copy()
        if self._few is not None:
            self._few.set_param({"nthread": 1})

    def predict(self, features: pd.DataFrame) -> np.ndarray:
        """Predict prepared rows.

        Args:
            features: the columns it was trained on, in that order.

        Returns:
            float64: P(second class) (n,), class probabilities (n, k) or values (n,).
        """
        if self._few is not None and len(features) <= FEW and all(dtype.kind in "biuf" for dtype in features.dtypes):
            with np.errstate(over="ignore"):
                values = features.to_numpy(np.float32)
            if np.isinf(values).any():  # as a matrix refuses it, which more rows are made
                raise ValueError("a value is infinite, or too large for 32 bits")
            out = self._few.inplace_predict(values, validate_features=False).astype(np.float64)
            return 1.0 / (1.0 + np.exp(-out)) if self._logits else out
        return answers(self.booster, matrix(features))


def parameters(config: dict[str, Any], cur: trial.Current) -> dict[str, Any]:
    """Return XGBoost's parameters but for its metrics: the trial's defaults, overridden by `config`."""
    task = str(cur.task)
    # With a seed a round, a resumed trial draws the same rows and columns as one that was never interrupted.
    defaults: dict[str, Any] = {"objective": OBJECTIVES[task], "nthread": cur.threads, "seed": cur.seed, "seed_per_iteration": True}
    if task == "multiclass":
        defaults["num_class"] = len(cur.classes or ())
    if has_gpu():
        defaults["device"] = "cuda"
    given = {k: v for k, v in config.items() if k not in ("num_boost_round", "report", "eval_metric")}
    if given.get("objective") == "multi:softmax":
        given["objective"] = "multi:softprob"  # the same training; it answers with probabilities, as the others do
    params = {k: v for k, v in defaults.items() if ALIASES.get(k) not in given} | given
    if isinstance(signs := params.get("monotone_constraints"), list):  # YAML has no tuples, which is what XGBoost reads
        params["monotone_constraints"] = tuple(signs)
    return params


def _booster(params: dict[str, Any], matrices: list[xgb.DMatrix], columns: Columns, model_file: Path | None = None) -> xgb.Booster:
    """A booster without names, but for the moment in which XGBoost looks up those of the constraints.

    Raises:
        ValueError: a constraint names a column that there is not.
    """
    constrained = [key for key in CONSTRAINTS if params.get(key) is not None]
    if constrained:
        for each in matrices:
            named(each, columns)
    try:
        booster = xgb.Booster(params, matrices, model_file=model_file)
    except ValueError as e:
        if not constrained:
            raise
        raise ValueError(f"{', '.join(constrained)}: {e}; the prepared data has: {', '.join(columns.names or ())}") from None
    finally:
        if constrained:
            for each in matrices:
                named(each, columns.in_training())
    named(booster, Columns())
    return booster


def _stretch(params: dict[str, Any], values: int) -> int:
    """After how many rounds `_renew` is due, which costs 0.6 ms: 1 on a large table, 50 on a small one, 0 for never.

    XGBoost's updater draws columns from a state that no model file keeps, and seeds it when it is made. Made anew at fixed
    rounds, and checkpointed there alone, a resumed trial grows the trees of an uninterrupted one. Without sampling nothing
    is drawn; on a GPU, or with an updater of the user's choice, a resumed trial draws others.
    """
    draws = any(float(params.get(name, 1)) < 1 for name in SAMPLING)
    if not draws or params.get("booster") == "gblinear" or "updater" in params or str(params.get("device", "cpu")) != "cpu":
        return 0
    return 1 if values >= LARGE else 50


def _renew(booster: xgb.Booster, params: dict[str, Any]) -> None:
    """Have XGBoost make a new updater: it does when the tree method changes, so change it there and back."""
    method = params.get("tree_method", "auto")
    booster.set_param({"tree_method": "hist" if method == "approx" else "approx"})
    booster.num_boosted_rounds()  # makes it take note
    booster.set_param({"tree_method": method})


def _shard(name: str) -> pd.DataFrame:
    import ray.train

    return ray.train.get_dataset_shard(name).materialize().to_pandas()

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
the model of the best round (`Current.report_final`). With `params.report: all`, every report has
these metrics.

With several workers, each worker measures the metrics of train on its own part of the rows, because
LightGBM does so. sweeps uses the metrics of rank 0.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightgbm as lgb
import numpy as np

from sweeps import trial
from sweeps.trainers import (
    LabeledRows,
    constraints_by_position,
    read_rows,
    report,
    require_numbers,
    safe_names,
    whole_numbers,
)
from sweeps.trainers._lightgbm_booster import (
    REFUSED_IN_NAMES,
    BestRound,
    RoundMetrics,
    metric_name,
    metric_parameters,
    predict,
)
from sweeps.trainers._metrics import REPORTED
from sweeps.trainers._requested import RequestedMetrics
from sweeps.trainers._rounds import Rounds, agree, max_rounds

if TYPE_CHECKING:
    import pandas as pd

# Description of this trainer, which is read from the source without an import.
# `sweeps/space/trainer_definition.py` explains the keys.
TRAINER: dict[str, Any] = {
    "loop": "train_func",
    "backend": "lightgbm",
    "load": "load",
    "extra": "lightgbm",
    "packages": ["lightgbm"],
    "resume_files": ["latest.txt", "state.json"],
    "reads_numbers": True,
    "reads_categories": True,
    "needs_label": True,
    "weights": True,
    "ranking": "lambdarank|rank_xendcg|xendcg|xe_ndcg|xe_ndcg_mart|xendcg_mart",
    # At most two models as text, in which every tree has all its leaves.
    "checkpoint_bytes": (
        "10_000 + 100 * features"
        " + 2 * (num_boost_round or max_t or max(100, min(5_000, 5_000 * patience)))"
        " * outputs * (500 + 150 * min(num_leaves or 31, 2 * rows))"
    ),
    "metrics": {
        "binary": [
            "logloss",
            "error",
            "accuracy",
            "auc",
            "average_precision",
            "cross_entropy",
            "kullback_leibler",
            "rmse",
            "mae",
            "mse",
        ],
        "multiclass": ["mlogloss", "merror", "accuracy", "auc_mu"],
        "regression": [
            "rmse",
            "mae",
            "mse",
            "mape",
            "huber",
            "fair",
            "quantile",
            "poisson",
            "gamma",
            "gamma_deviance",
            "tweedie",
        ],
    },
    "all_metrics": True,
    # New versions of LightGBM add parameters. Therefore, names that are not listed below are passed
    # to LightGBM, unless they are similar to a listed name.
    "additional_parameters": True,
    "parameters": {
        "num_boost_round": {
            "type": "integer",
            "minimum": 1,
            "description": "Largest number of rounds. Default: `max_t`, or 100; with `patience`, 5000.",
        },
        "patience": {
            "type": "integer",
            "minimum": 1,
            "description": "Training ends after this many rounds without an improvement.",
        },
        "report": {
            "enum": ["asked", "all"],
            "default": "asked",
            "description": "Metrics in each report: `asked` for the metrics that the space file names, or "
            "`all`.",
        },
        "eval_metric": {
            "type": ["string", "array"],
            "description": "Additional metrics, measured on `valid`, in every report.",
        },
        "objective": {
            "type": "string",
            "description": "Loss function. The default depends on the task.",
        },
        "boosting": {
            "enum": ["gbdt", "dart", "rf"],
            "default": "gbdt",
            "description": "Gradient boosting, boosting with dropped trees, or a random forest.",
        },
        "boosting_type": {
            "enum": ["gbdt", "dart", "rf"],
            "default": "gbdt",
            "description": "Alias of `boosting`.",
        },
        "data_sample_strategy": {
            "enum": ["bagging", "goss"],
            "default": "bagging",
            "description": "How rows are drawn: at random, or by the size of their gradients.",
        },
        "learning_rate": {
            "type": "number",
            "exclusiveMinimum": 0,
            "default": 0.1,
            "description": "Learning rate.",
        },
        "eta": {
            "type": "number",
            "exclusiveMinimum": 0,
            "default": 0.1,
            "description": "Alias of `learning_rate`.",
        },
        "num_leaves": {
            "type": "integer",
            "minimum": 2,
            "maximum": 131_072,
            "default": 31,
            "description": "Largest number of leaves.",
        },
        "max_depth": {
            "type": "integer",
            "minimum": -1,
            "default": -1,
            "description": "Largest depth of a tree; -1 or 0 for no limit.",
        },
        "min_data_in_leaf": {
            "type": "integer",
            "minimum": 0,
            "default": 20,
            "description": "Smallest number of rows in a leaf.",
        },
        "min_child_samples": {
            "type": "integer",
            "minimum": 0,
            "default": 20,
            "description": "Alias of `min_data_in_leaf`.",
        },
        "min_sum_hessian_in_leaf": {
            "type": "number",
            "minimum": 0,
            "default": 0.001,
            "description": "Smallest sum of second derivatives of the loss in a leaf.",
        },
        "min_child_weight": {
            "type": "number",
            "minimum": 0,
            "default": 0.001,
            "description": "Alias of `min_sum_hessian_in_leaf`.",
        },
        "bagging_fraction": {
            "type": "number",
            "exclusiveMinimum": 0,
            "maximum": 1,
            "default": 1,
            "description": "Fraction of the rows that are drawn; only with a `bagging_freq` above 0.",
        },
        "subsample": {
            "type": "number",
            "exclusiveMinimum": 0,
            "maximum": 1,
            "default": 1,
            "description": "Alias of `bagging_fraction`.",
        },
        "bagging_freq": {
            "type": "integer",
            "minimum": 0,
            "default": 0,
            "description": "Number of rounds that use the same drawn rows; 0 to use all rows in every round.",
        },
        "subsample_freq": {
            "type": "integer",
            "minimum": 0,
            "default": 0,
            "description": "Alias of `bagging_freq`.",
        },
        "pos_bagging_fraction": {
            "type": "number",
            "exclusiveMinimum": 0,
            "maximum": 1,
            "default": 1,
            "description": "Fraction of the rows of the second class that are drawn.",
        },
        "neg_bagging_fraction": {
            "type": "number",
            "exclusiveMinimum": 0,
            "maximum": 1,
            "default": 1,
            "description": "Fraction of the rows of the first class that are drawn.",
        },
        "feature_fraction": {
            "type": "number",
            "exclusiveMinimum": 0,
            "maximum": 1,
            "default": 1,
            "description": "Fraction of the columns that each tree uses.",
        },
        "colsample_bytree": {
            "type": "number",
            "exclusiveMinimum": 0,
            "maximum": 1,
            "default": 1,
            "description": "Alias of `feature_fraction`.",
        },
        "feature_fraction_bynode": {
            "type": "number",
            "exclusiveMinimum": 0,
            "maximum": 1,
            "default": 1,
            "description": "Fraction of the columns that each split uses.",
        },
        "extra_trees": {
            "type": "boolean",
            "default": False,
            "description": "Whether each split tries one random threshold per column.",
        },
        "lambda_l1": {
            "type": "number",
            "minimum": 0,
            "default": 0,
            "description": "L1 regularization.",
        },
        "reg_alpha": {
            "type": "number",
            "minimum": 0,
            "default": 0,
            "description": "Alias of `lambda_l1`.",
        },
        "lambda_l2": {
            "type": "number",
            "minimum": 0,
            "default": 0,
            "description": "L2 regularization.",
        },
        "reg_lambda": {
            "type": "number",
            "minimum": 0,
            "default": 0,
            "description": "Alias of `lambda_l2`.",
        },
        "linear_lambda": {
            "type": "number",
            "minimum": 0,
            "default": 0,
            "description": "L2 regularization of linear models in leaves.",
        },
        "linear_tree": {
            "type": "boolean",
            "default": False,
            "description": "Whether each leaf has a linear model.",
        },
        "min_gain_to_split": {
            "type": "number",
            "minimum": 0,
            "default": 0,
            "description": "Smallest gain for which a leaf is split.",
        },
        "min_split_gain": {
            "type": "number",
            "minimum": 0,
            "default": 0,
            "description": "Alias of `min_gain_to_split`.",
        },
        "max_delta_step": {
            "type": "number",
            "default": 0,
            "description": "Largest absolute value of a leaf; 0 or less for no limit.",
        },
        "path_smooth": {
            "type": "number",
            "minimum": 0,
            "default": 0,
            "description": "How much leaves with few rows follow their parents.",
        },
        "drop_rate": {
            "type": "number",
            "minimum": 0,
            "maximum": 1,
            "default": 0.1,
            "description": "Fraction of trees that `dart` drops.",
        },
        "max_drop": {
            "type": "integer",
            "default": 50,
            "description": "Largest number of trees that `dart` drops; 0 or less for no limit.",
        },
        "skip_drop": {
            "type": "number",
            "minimum": 0,
            "maximum": 1,
            "default": 0.5,
            "description": "Probability that `dart` drops no tree in a round.",
        },
        "xgboost_dart_mode": {
            "type": "boolean",
            "default": False,
            "description": "Whether `dart` weights trees as XGBoost does.",
        },
        "uniform_drop": {
            "type": "boolean",
            "default": False,
            "description": "Whether `dart` drops every tree with equal probability.",
        },
        "top_rate": {
            "type": "number",
            "exclusiveMinimum": 0,
            "maximum": 1,
            "default": 0.2,
            "description": "Fraction of rows with large gradients that `goss` keeps.",
        },
        "other_rate": {
            "type": "number",
            "exclusiveMinimum": 0,
            "maximum": 1,
            "default": 0.1,
            "description": "Fraction of rows with small gradients that `goss` draws.",
        },
        "min_data_per_group": {
            "type": "integer",
            "minimum": 1,
            "default": 100,
            "description": "Smallest number of rows of a group of categories.",
        },
        "max_cat_threshold": {
            "type": "integer",
            "minimum": 1,
            "default": 32,
            "description": "Largest number of groups of categories.",
        },
        "cat_l2": {
            "type": "number",
            "minimum": 0,
            "default": 10,
            "description": "L2 regularization in splits by category.",
        },
        "cat_smooth": {
            "type": "number",
            "minimum": 0,
            "default": 10,
            "description": "Smoothing of categories with few rows.",
        },
        "max_cat_to_onehot": {
            "type": "integer",
            "minimum": 1,
            "default": 4,
            "description": "Up to this number of categories, a split separates one category from all others.",
        },
        "max_bin": {
            "type": "integer",
            "minimum": 2,
            "default": 255,
            "description": "Number of bins in the histogram of a column.",
        },
        "min_data_in_bin": {
            "type": "integer",
            "minimum": 1,
            "default": 3,
            "description": "Smallest number of rows in a bin.",
        },
        "bin_construct_sample_cnt": {
            "type": "integer",
            "minimum": 1,
            "default": 200_000,
            "description": "Number of rows from which the bins are computed.",
        },
        "monotone_constraints": {
            "type": ["object", "array"],
            "description": "For each column: 1 for increasing, -1 for decreasing, 0 for no constraint. A "
            "mapping names only some columns.",
        },
        "monotone_constraints_method": {
            "enum": ["basic", "intermediate", "advanced"],
            "default": "basic",
            "description": "How `monotone_constraints` are enforced.",
        },
        "monotone_penalty": {
            "type": "number",
            "minimum": 0,
            "default": 0,
            "description": "Penalty of monotone splits near the root.",
        },
        "interaction_constraints": {
            "type": "array",
            "description": "Lists of columns, by name or position, that may occur together.",
        },
        "is_unbalance": {
            "type": "boolean",
            "default": False,
            "description": "Whether rows of the rarer class weigh more.",
        },
        "scale_pos_weight": {
            "type": "number",
            "exclusiveMinimum": 0,
            "default": 1,
            "description": "Weight of the second class.",
        },
        "boost_from_average": {
            "type": "boolean",
            "default": True,
            "description": "Whether training starts from the label's mean.",
        },
        "alpha": {
            "type": "number",
            "exclusiveMinimum": 0,
            "default": 0.9,
            "description": "Parameter of `huber` and `quantile`.",
        },
        "tweedie_variance_power": {
            "type": "number",
            "minimum": 1,
            "exclusiveMaximum": 2,
            "default": 1.5,
            "description": "Variance power of `tweedie`.",
        },
        "use_quantized_grad": {
            "type": "boolean",
            "default": False,
            "description": "Whether gradients are rounded to a few levels.",
        },
        "tree_learner": {
            "enum": ["data", "voting"],
            "default": "data",
            "description": "How several workers find splits: exactly, or with less communication.",
        },
        "top_k": {
            "type": "integer",
            "minimum": 1,
            "default": 20,
            "description": "Number of columns for which a worker votes in `voting`.",
        },
        "deterministic": {
            "type": "boolean",
            "default": True,
            "description": "Whether the same data and seed give the same model.",
        },
        "force_col_wise": {
            "type": "boolean",
            "description": "Whether histograms are built column by column. Default: if the table has at "
            "least 50 columns.",
        },
        "force_row_wise": {
            "type": "boolean",
            "description": "Whether histograms are built row by row. Default: if the table has fewer than 50 "
            "columns.",
        },
        "device_type": {
            "enum": ["cpu", "gpu", "cuda"],
            "default": "cpu",
            "description": "Device for training.",
        },
        "seed": {"type": "integer", "description": "Seed. The default is the seed of the trial."},
        "random_state": {"type": "integer", "description": "Alias of `seed`."},
        "num_threads": {
            "type": "integer",
            "description": "Number of threads. The default is the number of CPUs of the worker.",
        },
        "n_jobs": {"type": "integer", "description": "Alias of `num_threads`."},
        "verbosity": {
            "type": "integer",
            "default": -1,
            "description": "-1 for errors only, 0 for warnings, 1 for information.",
        },
    },
    # A value of each option and parameter, or a domain to tune it with, for editors
    "examples": {
        "num_boost_round": {"randint": [50, 500]},
        "patience": 50,
        "eval_metric": "auc",
        "objective": "binary",
        "learning_rate": {"loguniform": [0.01, 0.3]},
        "eta": {"loguniform": [0.01, 0.3]},
        "num_leaves": {"lograndint": [15, 255]},
        "max_depth": {"randint": [3, 12]},
        "min_data_in_leaf": {"lograndint": [5, 100]},
        "min_child_samples": {"lograndint": [5, 100]},
        "min_sum_hessian_in_leaf": {"loguniform": [0.001, 10]},
        "min_child_weight": {"loguniform": [0.001, 10]},
        "bagging_fraction": {"uniform": [0.5, 1.0]},
        "subsample": {"uniform": [0.5, 1.0]},
        "bagging_freq": {"choice": [0, 1, 5]},
        "subsample_freq": {"choice": [0, 1, 5]},
        "pos_bagging_fraction": {"uniform": [0.5, 1.0]},
        "neg_bagging_fraction": {"uniform": [0.5, 1.0]},
        "feature_fraction": {"uniform": [0.5, 1.0]},
        "colsample_bytree": {"uniform": [0.5, 1.0]},
        "feature_fraction_bynode": {"uniform": [0.5, 1.0]},
        "lambda_l1": {"loguniform": [0.001, 10.0]},
        "reg_alpha": {"loguniform": [0.001, 10.0]},
        "lambda_l2": {"loguniform": [0.001, 10.0]},
        "reg_lambda": {"loguniform": [0.001, 10.0]},
        "linear_lambda": {"loguniform": [0.001, 10.0]},
        "min_gain_to_split": {"loguniform": [0.001, 1.0]},
        "min_split_gain": {"loguniform": [0.001, 1.0]},
        "max_delta_step": {"uniform": [0.0, 10.0]},
        "path_smooth": {"uniform": [0.0, 10.0]},
        "drop_rate": {"uniform": [0.05, 0.3]},
        "max_drop": {"randint": [10, 100]},
        "skip_drop": {"uniform": [0.0, 0.9]},
        "top_rate": {"uniform": [0.1, 0.4]},
        "other_rate": {"uniform": [0.05, 0.2]},
        "min_data_per_group": {"lograndint": [10, 200]},
        "max_cat_threshold": {"lograndint": [8, 128]},
        "cat_l2": {"loguniform": [1, 100]},
        "cat_smooth": {"loguniform": [1, 100]},
        "max_cat_to_onehot": {"choice": [4, 10]},
        "max_bin": {"choice": [63, 255]},
        "min_data_in_bin": {"choice": [1, 3, 10]},
        "bin_construct_sample_cnt": 50000,
        "monotone_constraints": {"age": 1},
        "monotone_penalty": {"uniform": [0.0, 2.0]},
        "interaction_constraints": [["age", "income"], ["city"]],
        "scale_pos_weight": {"loguniform": [1, 10]},
        "alpha": {"choice": [0.5, 0.9]},
        "tweedie_variance_power": {"uniform": [1.1, 1.9]},
        "top_k": 50,
        "seed": 1,
        "random_state": 1,
        "num_threads": 2,
        "n_jobs": 2,
        "verbosity": 0,
    },
}

OBJECTIVES = {"binary": "binary", "multiclass": "multiclass", "regression": "regression"}
# Parameters of the trainer, which LightGBM does not have
OWN = ("num_boost_round", "patience", "report", "eval_metric")
ALIASES = {
    "boosting_type": "boosting",
    "eta": "learning_rate",
    "min_child_samples": "min_data_in_leaf",
    "min_child_weight": "min_sum_hessian_in_leaf",
    "subsample": "bagging_fraction",
    "subsample_freq": "bagging_freq",
    "colsample_bytree": "feature_fraction",
    "reg_alpha": "lambda_l1",
    "reg_lambda": "lambda_l2",
    "min_split_gain": "min_gain_to_split",
    "random_state": "seed",
    "n_jobs": "num_threads",
}
# Parameters that the trainer has in another form, and what to write instead.
REFUSED = {
    **dict.fromkeys(
        ("num_iterations", "n_estimators", "num_rounds", "max_iter"), "write `num_boost_round`"
    ),
    **dict.fromkeys(("metric", "metrics"), "write `eval_metric`"),
    **dict.fromkeys(
        (
            "early_stopping_round",
            "early_stopping_rounds",
            "early_stopping",
            "n_iter_no_change",
        ),
        "write `patience`",
    ),
}
# Parameters of the data set. They cannot change after the data set is made.
DATASET_PARAMETERS = (
    "bin_construct_sample_cnt",
    "data_random_seed",
    "enable_bundle",
    "feature_pre_filter",
    "is_enable_sparse",
    "linear_tree",
    "max_bin",
    "max_bin_by_feature",
    "min_data_in_bin",
    "pre_partition",
    "use_missing",
    "zero_as_missing",
)
SEEDS = ("bagging_seed", "feature_fraction_seed", "extra_seed")
NARROW = 50  # a table with fewer columns has its histograms built row by row
FEW = 2_000  # up to this number of rows, a loaded model predicts with one thread
LARGE = 400_000  # from this number of values in a rank's table, a round takes several milliseconds


def train_func(config: dict[str, Any]) -> None:
    """Train one booster, and keep the model of the best round that is reported.

    Args:
        config: The trial's `params`: LightGBM's parameters, and the trainer's own (`OWN`).

    Raises:
        ValueError: The data has no label, a column is not numeric, a parameter is refused, or a
            requested metric is unknown.
    """
    import ray.train

    cur, rank = trial.current(), ray.train.get_context().get_world_rank()
    requested = RequestedMetrics.of(
        config, cur, REPORTED, functools.partial(metric_name, str(cur.task))
    )
    most = int(config.get("num_boost_round") or cur.max_t or max_rounds(config, 100))
    rounds = Rounds.of(config, most, cur.max_t)
    if cur.weight is not None:
        requested = requested.with_computed_train(str(cur.task))
    rows = {
        split: cur.cached(f"lightgbm.{split}", functools.partial(_rows, split, cur))
        for split in ("train", "valid")
    }
    params = parameters(config, cur, list(rows["train"].features.columns)) | _network()
    params |= metric_parameters(requested.framework_metrics(requested.reported))
    best = BestRound(cur, params["boosting"] == "dart")
    previous, done = _restore(best, _can_continue(params))
    if rounds.is_last(done, best.step):
        return
    train, valid = _datasets(cur, rows, params, previous is not None)
    metrics_of = RoundMetrics(requested, str(cur.task))
    interval = _renewal_interval(params, rows["train"].features.size)
    renewals = rounds.resumable(interval, params["bagging_freq"] if _draws_rows(params) else 1)
    booster: lgb.Booster | None = None
    try:
        for step in rounds.after(0 if previous is None else done, best):
            if booster is None:
                booster = _first_round(
                    params | (_seeds(params, step) if interval else {}), train, valid, previous
                )
            else:
                if interval and (step - 1 in renewals or step - 1 in cur.milestones):
                    _renew(booster, params, step)
                booster.update()
            if step <= done:  # a round before the checkpoint, which is trained again
                continue
            if not cur.report_due(step, step in rounds.reported):
                continue
            metrics = metrics_of.measure(booster)
            if best.compare(step, metrics, requested.lead):
                best.rounds = booster.current_iteration()
                best.text = booster.model_to_string(num_iteration=-1) if best.whole else None
            if config.get("patience"):
                agree(best)
            is_last = rounds.is_last(step, best.step)
            resumable = not interval or step in renewals or is_last or step in cur.milestones
            if (
                is_last and rank == 0
            ):  # before `report`, which ends the trial at the scheduler's `max_t`
                cur.report_final(metrics_of.final(booster, best, step, rows, metrics))
            due = rank == 0 and resumable and cur.checkpoint_due(step, last=is_last)
            report(metrics, functools.partial(best.save, booster, step) if due else None)
    finally:
        if booster is not None:
            # when Python deletes this booster later, the booster must not close the network of the
            # next trial
            booster.free_network()


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


def parameters(
    config: dict[str, Any], cur: trial.Current, columns: Sequence[str]
) -> dict[str, Any]:
    """Return LightGBM's parameters: the defaults for the trial, overridden by `config`.

    `metric` is not included.

    Args:
        config: The trial's `params`.
        cur: The trial.
        columns: Names of the columns. `monotone_constraints` and `interaction_constraints` may name
            them.

    Raises:
        ValueError: A parameter is refused, or a constraint names an unknown column.
    """
    for name in REFUSED.keys() & config.keys():
        raise ValueError(f"params.{name} is not a parameter of lightgbm; {REFUSED[name]}")
    given = {
        name: value
        for name, value in whole_numbers(config, TRAINER["parameters"]).items()
        if name not in OWN and value is not None
    }
    given = {ALIASES.get(name, name): value for name, value in given.items()}
    params: dict[str, Any] = {
        "objective": OBJECTIVES[str(cur.task)],
        "boosting": "gbdt",
        "num_threads": cur.threads,
        "seed": cur.seed % 2**31,
        "verbosity": -1,
        # Without these two, LightGBM adds numbers in another order in each run, and measures at the
        # start which histograms are faster.
        "deterministic": True,
        **_histograms(given, len(columns)),
        # One data set then serves trials with other values of `min_data_in_leaf` and `seed`.
        "feature_pre_filter": False,
        "data_random_seed": 1,
    }
    if cur.task == "multiclass":
        params["num_class"] = len(cur.classes or ())
    return params | given | constraints_by_position(given, columns)


def _histograms(given: dict[str, Any], columns: int) -> dict[str, bool]:
    """Choose how LightGBM builds histograms, unless `given` chooses.

    Row by row is up to 15 % faster for a narrow table.
    """
    if given.get("force_col_wise") or given.get("force_row_wise"):
        return {}
    return {"force_row_wise": columns < NARROW, "force_col_wise": columns >= NARROW}


def _network() -> dict[str, Any]:
    """Return the parameters that connect the workers of the trial; {} for a single worker."""
    import ray.train
    from ray.train.lightgbm import get_network_params

    if ray.train.get_context().get_world_size() == 1:
        return {}
    return {"pre_partition": True, "tree_learner": "data"} | get_network_params()


def _rows(split: str, cur: trial.Current) -> LabeledRows:
    """Return this rank's rows of `train` or `valid`."""
    rows = read_rows(split, cur)
    require_numbers(rows.features, also="category")
    return rows


def _datasets(
    cur: trial.Current, rows: dict[str, LabeledRows], params: dict[str, Any], continued: bool
) -> tuple[lgb.Dataset, lgb.Dataset]:
    """Return LightGBM's data sets of train and valid, which an earlier trial may have built.

    The worker keeps one pair for new trials and one pair for trials that continue from a model,
    because LightGBM stores the predictions of this model in the data set. A pair is built again if
    a parameter of the data set has another value.

    Args:
        cur: The trial.
        rows: Rows of "train" and "valid".
        params: LightGBM's parameters.
        continued: True if the trial continues from a model.
    """
    wanted = {name: params[name] for name in DATASET_PARAMETERS if name in params}
    kept = cur.cached("lightgbm.datasets", dict)
    if kept.get(continued, (None,))[0] != wanted:
        settings = wanted | {"num_threads": params["num_threads"], "verbosity": params["verbosity"]}

        def dataset(part: LabeledRows, reference: lgb.Dataset | None) -> lgb.Dataset:
            names = safe_names(part.features.columns, REFUSED_IN_NAMES)
            return lgb.Dataset(
                part.features.set_axis(names, axis=1),
                part.label,
                reference=reference,
                weight=part.weight,
                group=None if part.query is None else np.bincount(part.query),
                params=settings,
                free_raw_data=False,
            )

        train = dataset(rows["train"], None)
        kept[continued] = (wanted, train, dataset(rows["valid"], train))
    _, train, valid = kept[continued]
    return train, valid


def _restore(best: BestRound, can_continue: bool) -> tuple[lgb.Booster | None, int]:
    """Restore the best round from the checkpoint from which the trial continues.

    Args:
        best: The best round.
        can_continue: True if training can continue from the model of the last round.

    Returns:
        The model of the last round, and the number of rounds. The model is None if there is no
        checkpoint, or if the rounds must be trained again.
    """
    import ray.train

    checkpoint = ray.train.get_checkpoint()
    if checkpoint is None:
        return None, 0
    with checkpoint.as_directory() as folder:
        done, latest = best.restore(Path(folder)), Path(folder, "latest.txt")
        if not can_continue:
            return None, done
        return lgb.Booster(
            model_file=latest if latest.exists() else Path(folder, "model.txt")
        ), done


def _can_continue(params: dict[str, Any]) -> bool:
    """Return whether training that continues from a model grows the same trees as uninterrupted training.

    Otherwise the rounds before the checkpoint are trained again: `dart` changes the weights of
    earlier trees, a forest has one set of gradients, `goss` begins after some rounds, and no model
    file contains the random state of quantized gradients, the values of linear leaves in full, or
    the costs that CEGB has counted.
    """
    return (
        params["boosting"] == "gbdt"
        and params.get("data_sample_strategy", "bagging") == "bagging"
        and not params.get("use_quantized_grad")
        and not params.get("linear_tree")
        and not any(name.startswith("cegb_") for name in params)
    )


def _first_round(
    params: dict[str, Any], train: lgb.Dataset, valid: lgb.Dataset, previous: lgb.Booster | None
) -> lgb.Booster:
    """Create a booster, and train one round.

    If `previous` is given, the booster continues from this model.
    """
    if previous is not None:  # `lgb.train` is LightGBM's only public way to continue from a model
        return lgb.train(
            params, train, 1, [valid], ["valid"], init_model=previous, keep_training_booster=True
        )
    booster = lgb.Booster(params, train)
    booster.add_valid(valid, "valid")
    booster.update()
    return booster


def _renewal_interval(params: dict[str, Any], values: int) -> int:
    """Return the number of rounds between two calls of `_renew`; 0 if `_renew` is never called.

    LightGBM samples rows and columns with random states that no model file contains. The states
    therefore get new seeds at fixed rounds, and only these rounds have checkpoints. A resumed trial
    then grows the same trees as an uninterrupted one. A small table has about 50 rounds between two
    calls, because a call takes as long as a round; a table with at least `LARGE` values has 1
    round. The number is a multiple of `bagging_freq`, because LightGBM counts rounds from 0 again
    after a resume.

    If nothing is sampled, or if rounds are trained again after a resume, no call is needed.
    """
    if not _can_continue(params) or not (_draws_rows(params) or _draws_columns(params)):
        return 0
    frequency = params["bagging_freq"] if _draws_rows(params) else 1
    return frequency * math.ceil((1 if values >= LARGE else 50) / frequency)


def _draws_rows(params: dict[str, Any]) -> bool:
    fractions = ("bagging_fraction", "pos_bagging_fraction", "neg_bagging_fraction")
    return params.get("bagging_freq", 0) > 0 and any(params.get(name, 1) < 1 for name in fractions)


def _draws_columns(params: dict[str, Any]) -> bool:
    return any(
        params.get(name, 1) < 1 for name in ("feature_fraction", "feature_fraction_bynode")
    ) or bool(params.get("extra_trees"))


def _seeds(params: dict[str, Any], step: int) -> dict[str, int]:
    """Return the seeds of all random states from a round on."""
    given = [params["seed"], step, *(params.get(name, 0) for name in SEEDS)]
    return dict.fromkeys(SEEDS, int(np.random.SeedSequence(given).generate_state(1)[0] >> 1))


def _renew(booster: lgb.Booster, params: dict[str, Any], step: int) -> None:
    """Give LightGBM's random states new seeds.

    They then equal the random states of a new booster that starts at round `step`.
    """
    frequency = {"bagging_freq": params["bagging_freq"]} if _draws_rows(params) else {}
    if frequency:  # the random state of bagging gets a new seed only if bagging changes
        booster.reset_parameter({"bagging_freq": params["bagging_freq"] + 1})
    booster.reset_parameter(frequency | _seeds(params, step))

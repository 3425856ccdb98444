"""Train gradient-boosted trees with CatBoost, on one worker. A step is an iteration.

`params` has CatBoost's own parameters. `iterations` is the number of trees (default: the
scheduler's `max_t`, or 1000). The loss function, the number of threads and the seed follow from the
trial, unless `params` sets them. Columns with text or with the pandas type `category` are
categorical features, so no encoder is needed. `params.patience` ends the training earlier.
`sweeps.trainers._rounds` chooses the iterations that are reported.

A report has only the metrics that objectives, constraints and `params.eval_metric` name, because
each metric takes time. The metrics of `eval_metric` are measured on valid. Names are those of
`sweeps.core.metrics`, or CatBoost's own.

If the trial is not stopped, more metrics are measured after the last iteration, on train and valid,
for the model of the best iteration (`Current.report_final`). With `params.report: all`, every
report has these metrics.

CatBoost returns a model only when `fit` ends. The trainer therefore ends `fit` at each checkpoint,
and continues from CatBoost's snapshot.
"""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path
from typing import Any

import catboost as cb
import numpy as np

from sweeps import trial
from sweeps.trainers import read_rows, whole_numbers
from sweeps.trainers._catboost_model import Model, categorical, metric_name, with_text
from sweeps.trainers._catboost_rounds import Training
from sweeps.trainers._metrics import REPORTED
from sweeps.trainers._requested import RequestedMetrics
from sweeps.trainers._rounds import Rounds, max_rounds

# Description of this trainer, which is read from the source without an import.
# `sweeps/space/trainer_definition.py` explains the keys.
TRAINER: dict[str, Any] = {
    "loop": "train_func",
    "backend": "none",
    "load": "load",
    "extra": "catboost",
    "packages": ["catboost"],
    "max_workers": 1,
    "resume_files": ["snapshot", "state.json"],
    "needs_label": True,
    "weights": True,
    "ranking": (
        "(YetiRank|PairLogit|QueryRMSE|QuerySoftMax|QueryCrossEntropy|StochasticFilter|StochasticRank|LambdaMart|GroupQuantile"
        "|NDCG|DCG|PFound|MRR|ERR|MAP|PrecisionAt|RecallAt|AverageGain|QueryAverage|QueryAUC)(Pairwise)?(:.*)?"
    ),
    # A model and a snapshot, in which every tree has all its leaves. The snapshot also has
    # predictions for every row.
    "checkpoint_bytes": (
        "100_000 + 1_000 * features + 40 * rows * outputs"
        " + 2 * (iterations or max_t or max(1_000, min(5_000, 5_000 * patience)))"
        " * (400 + 16 * outputs * 2 ** (depth or 6))"
    ),
    "metrics": {
        "binary": ["logloss", "error", "accuracy", "auc"],
        "multiclass": ["mlogloss", "merror", "accuracy"],
        "regression": ["rmse", "mae"],
    },
    "all_metrics": True,
    # New versions of CatBoost add parameters. Therefore, names that are not listed below are passed
    # to CatBoost, unless they are similar to a listed name.
    "additional_parameters": True,
    "parameters": {
        "iterations": {
            "type": "integer",
            "minimum": 1,
            "description": "Largest number of trees. Default: `max_t`, or 1000; with `patience`, 5000.",
        },
        "patience": {
            "type": "integer",
            "minimum": 1,
            "description": "Training ends after this many trees without an improvement.",
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
        "loss_function": {
            "type": "string",
            "description": "Loss function. The default depends on the task.",
        },
        "learning_rate": {
            "type": "number",
            "exclusiveMinimum": 0,
            "maximum": 1,
            "description": "Learning rate. Default: CatBoost chooses it from the number of rows and "
            "iterations.",
        },
        "eta": {
            "type": "number",
            "exclusiveMinimum": 0,
            "maximum": 1,
            "description": "Alias of `learning_rate`.",
        },
        "depth": {
            "type": "integer",
            "minimum": 1,
            "maximum": 16,
            "default": 6,
            "description": "Depth of each tree.",
        },
        "max_depth": {
            "type": "integer",
            "minimum": 1,
            "maximum": 16,
            "default": 6,
            "description": "Alias of `depth`.",
        },
        "l2_leaf_reg": {
            "type": "number",
            "minimum": 0,
            "default": 3,
            "description": "L2 regularization.",
        },
        "reg_lambda": {
            "type": "number",
            "minimum": 0,
            "default": 3,
            "description": "Alias of `l2_leaf_reg`.",
        },
        "random_strength": {
            "type": "number",
            "minimum": 0,
            "default": 1,
            "description": "Amount of randomness in the scores of splits.",
        },
        "bootstrap_type": {
            "enum": ["Bayesian", "Bernoulli", "MVS", "Poisson", "No"],
            "description": "How rows are weighted or drawn. CatBoost chooses the default. `Poisson` needs a "
            "GPU.",
        },
        "bagging_temperature": {
            "type": "number",
            "minimum": 0,
            "default": 1,
            "description": "Spread of the weights of `Bayesian`.",
        },
        "subsample": {
            "type": "number",
            "exclusiveMinimum": 0,
            "maximum": 1,
            "description": "Fraction of the rows that are drawn; not with `Bayesian`.",
        },
        "sampling_frequency": {
            "enum": ["PerTree", "PerTreeLevel"],
            "default": "PerTreeLevel",
            "description": "Whether rows are drawn once a tree or once a level.",
        },
        "rsm": {
            "type": "number",
            "exclusiveMinimum": 0,
            "maximum": 1,
            "default": 1,
            "description": "Fraction of the columns that each split considers.",
        },
        "colsample_bylevel": {
            "type": "number",
            "exclusiveMinimum": 0,
            "maximum": 1,
            "default": 1,
            "description": "Alias of `rsm`.",
        },
        "border_count": {
            "type": "integer",
            "minimum": 1,
            "maximum": 65_535,
            "default": 254,
            "description": "Number of borders of a column.",
        },
        "max_bin": {
            "type": "integer",
            "minimum": 1,
            "maximum": 65_535,
            "default": 254,
            "description": "Alias of `border_count`.",
        },
        "feature_border_type": {
            "enum": [
                "Median",
                "Uniform",
                "UniformAndQuantiles",
                "MaxLogSum",
                "MinEntropy",
                "GreedyLogSum",
            ],
            "default": "GreedyLogSum",
            "description": "How the borders of a column are chosen.",
        },
        "nan_mode": {
            "enum": ["Min", "Max", "Forbidden"],
            "default": "Min",
            "description": "Whether missing numbers are smallest, largest or an error.",
        },
        "grow_policy": {
            "enum": ["SymmetricTree", "Depthwise", "Lossguide"],
            "default": "SymmetricTree",
            "description": "How trees are grown.",
        },
        "min_data_in_leaf": {
            "type": "integer",
            "minimum": 1,
            "default": 1,
            "description": "Smallest number of rows in a leaf; not with `SymmetricTree`.",
        },
        "min_child_samples": {
            "type": "integer",
            "minimum": 1,
            "default": 1,
            "description": "Alias of `min_data_in_leaf`.",
        },
        "max_leaves": {
            "type": "integer",
            "minimum": 2,
            "default": 31,
            "description": "Largest number of leaves; only with `Lossguide`.",
        },
        "num_leaves": {
            "type": "integer",
            "minimum": 2,
            "default": 31,
            "description": "Alias of `max_leaves`.",
        },
        "one_hot_max_size": {
            "type": "integer",
            "minimum": 0,
            "description": "Up to this number of categories, a column is one-hot encoded. CatBoost chooses "
            "the default.",
        },
        "max_ctr_complexity": {
            "type": "integer",
            "minimum": 0,
            "default": 4,
            "description": "Largest number of categorical columns that are combined.",
        },
        "boosting_type": {
            "enum": ["Ordered", "Plain"],
            "description": "Boosting scheme. CatBoost chooses the default. `Ordered` can be better for few "
            "rows.",
        },
        "boost_from_average": {
            "type": "boolean",
            "description": "Whether training starts from the label's mean.",
        },
        "score_function": {
            "enum": ["Cosine", "L2", "NewtonCosine", "NewtonL2"],
            "default": "Cosine",
            "description": "Score by which splits are chosen.",
        },
        "leaf_estimation_method": {
            "enum": ["Newton", "Gradient", "Exact"],
            "description": "How the values of leaves are computed. CatBoost chooses the default.",
        },
        "leaf_estimation_iterations": {
            "type": "integer",
            "minimum": 1,
            "description": "Number of steps that compute the values of leaves.",
        },
        "auto_class_weights": {
            "enum": ["None", "Balanced", "SqrtBalanced"],
            "default": "None",
            "description": "How classes are weighted by their frequency.",
        },
        "class_weights": {"type": "array", "description": "Weight of each class."},
        "scale_pos_weight": {
            "type": "number",
            "exclusiveMinimum": 0,
            "default": 1,
            "description": "Weight of the second class.",
        },
        "monotone_constraints": {
            "type": ["object", "array", "string"],
            "description": "For each column: 1 for increasing, -1 for decreasing, 0 for no constraint.",
        },
        "langevin": {
            "type": "boolean",
            "default": False,
            "description": "Whether noise is added to the gradients.",
        },
        "model_shrink_rate": {
            "type": "number",
            "minimum": 0,
            "description": "How much earlier trees shrink in each iteration.",
        },
        "task_type": {
            "enum": ["CPU", "GPU"],
            "default": "CPU",
            "description": "Device for training.",
        },
        "thread_count": {
            "type": "integer",
            "description": "Number of threads. The default is the number of CPUs of the worker.",
        },
        "random_seed": {
            "type": "integer",
            "minimum": 0,
            "description": "Seed. The default is the seed of the trial.",
        },
        "random_state": {"type": "integer", "minimum": 0, "description": "Alias of `random_seed`."},
        "logging_level": {
            "enum": ["Silent", "Verbose", "Info", "Debug"],
            "default": "Silent",
            "description": "What CatBoost prints.",
        },
    },
    # A value of each option and parameter, or a domain to tune it with, for editors
    "examples": {
        "iterations": {"randint": [100, 1000]},
        "patience": 50,
        "eval_metric": "AUC",
        "loss_function": "Logloss",
        "learning_rate": {"loguniform": [0.01, 0.3]},
        "eta": {"loguniform": [0.01, 0.3]},
        "depth": {"randint": [4, 10]},
        "max_depth": {"randint": [4, 10]},
        "l2_leaf_reg": {"loguniform": [1, 30]},
        "reg_lambda": {"loguniform": [1, 30]},
        "random_strength": {"loguniform": [0.1, 10]},
        "bagging_temperature": {"uniform": [0.0, 1.0]},
        "subsample": {"uniform": [0.5, 1.0]},
        "rsm": {"uniform": [0.5, 1.0]},
        "colsample_bylevel": {"uniform": [0.5, 1.0]},
        "border_count": {"choice": [128, 254]},
        "max_bin": {"choice": [128, 254]},
        "min_data_in_leaf": {"lograndint": [1, 64]},
        "min_child_samples": {"lograndint": [1, 64]},
        "max_leaves": {"lograndint": [15, 127]},
        "num_leaves": {"lograndint": [15, 127]},
        "one_hot_max_size": {"choice": [2, 10]},
        "max_ctr_complexity": {"randint": [1, 5]},
        "leaf_estimation_iterations": {"randint": [1, 10]},
        "class_weights": [1, 5],
        "scale_pos_weight": {"loguniform": [1, 10]},
        "monotone_constraints": {"age": 1},
        "model_shrink_rate": {"uniform": [0.0, 0.1]},
        "thread_count": 2,
        "random_seed": 1,
        "random_state": 1,
    },
}

LOSSES = {"binary": "Logloss", "multiclass": "MultiClass", "regression": "RMSE"}
# Parameters of the trainer, which CatBoost does not have
OWN = ("patience", "report", "eval_metric")
ALIASES = {"random_state": "random_seed", "objective": "loss_function"}
# Parameters that the trainer has in another form or sets itself, and what to write instead.
REFUSED = {
    **dict.fromkeys(("num_boost_round", "n_estimators", "num_trees"), "write `iterations`"),
    **dict.fromkeys(("custom_metric", "custom_loss"), "write `eval_metric`"),
    **dict.fromkeys(("early_stopping_rounds", "od_type", "od_wait", "od_pval"), "write `patience`"),
    **dict.fromkeys(
        ("use_best_model", "best_model_min_trees"),
        "the trainer keeps the model of the best iteration",
    ),
    **dict.fromkeys(
        (
            "save_snapshot",
            "snapshot_file",
            "snapshot_interval",
            "train_dir",
            "allow_writing_files",
            "metric_period",
        ),
        "the trainer sets it",
    ),
}


def train_func(config: dict[str, Any]) -> None:
    """Train one model, and keep the model of the best iteration that is reported.

    Args:
        config: The trial's `params`: CatBoost's parameters, and the trainer's own (`OWN`).

    Raises:
        ValueError: The data has no label, a parameter is refused, a requested metric is unknown, or
            the training ended early.
    """
    cur = trial.current()
    requested = RequestedMetrics.of(
        config,
        cur,
        REPORTED,
        functools.partial(metric_name, str(cur.task), weighted=cur.weight is not None),
    )
    params = parameters(config, cur)
    data = {
        split: cur.cached(f"catboost.{split}", functools.partial(_rows, split, cur))
        for split in ("train", "valid")
    }
    with tempfile.TemporaryDirectory() as scratch:
        rounds = Rounds.of(config, params["iterations"], cur.max_t)
        training = Training(cur, params, requested, data, Path(scratch), rounds)
        training.restore()
        while not training.is_finished:
            training.fit()


def load(folder: str) -> Model:
    """Load the best model of a checkpoint that `train_func` wrote."""
    model = cb.CatBoost().load_model(str(Path(folder, "model.cbm")))
    return Model(model, **json.loads(Path(folder, "model.json").read_text()))


def parameters(config: dict[str, Any], cur: trial.Current) -> dict[str, Any]:
    """Return CatBoost's parameters: the defaults for the trial, overridden by `config`.

    Metrics are not included.

    Args:
        config: The trial's `params`.
        cur: The trial.

    Raises:
        ValueError: A parameter is refused.
    """
    for name in REFUSED.keys() & config.keys():
        raise ValueError(f"params.{name} is not a parameter of this trainer; {REFUSED[name]}")
    given = {
        ALIASES.get(name, name): value
        for name, value in whole_numbers(config, TRAINER["parameters"]).items()
        if value is not None
    }
    for name in OWN:
        given.pop(name, None)
    params: dict[str, Any] = {
        "iterations": cur.sweep_max_t or max_rounds(config, 1000),
        "loss_function": LOSSES[str(cur.task)],
        "thread_count": cur.threads,
        "random_seed": cur.seed,
        "logging_level": "Silent",
        "use_best_model": False,
        "allow_const_label": True,
    }
    if cur.classes is not None:
        params["class_names"] = list(range(len(cur.classes)))
    return params | given


def _rows(split: str, cur: trial.Current) -> tuple[cb.Pool, np.ndarray]:
    """Return this worker's rows of `train` or `valid` in CatBoost's format, and their labels."""
    rows = read_rows(split, cur)
    text = categorical(rows.features)
    pool = cb.Pool(
        with_text(rows.features, text),
        rows.label,
        cat_features=text,
        weight=rows.weight,
        group_id=rows.query,
        thread_count=cur.threads,
    )
    return pool, rows.label

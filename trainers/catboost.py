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
for the model of the best iteration (`Current.report_final`).

CatBoost returns a model only when `fit` ends. The trainer therefore ends `fit` at each checkpoint,
and continues from CatBoost's snapshot.
"""

import json
import tempfile
from pathlib import Path

import catboost as cb

from sweeps import trial

from . import Params, main_names, require_task, without
from ._catboost_model import Model
from ._catboost_rounds import CatBoostTraining
from ._rounds import max_rounds

LOSSES = {"binary": "Logloss", "multiclass": "MultiClass", "regression": "RMSE"}
# Parameters of the trainer, which CatBoost does not have
OWN = ("patience", "eval_metric")
# Parameters that the trainer sets itself
RESERVED = (
    "num_boost_round",
    "num_trees",
    "custom_metric",
    "custom_loss",
    "od_type",
    "od_wait",
    "od_pval",
    "use_best_model",
    "best_model_min_trees",
    "save_snapshot",
    "snapshot_file",
    "snapshot_interval",
    "train_dir",
    "allow_writing_files",
    "metric_period",
    # With one of these, later iterations change earlier trees
    "langevin",
    "posterior_sampling",
    "model_shrink_rate",
)


def train_func(config: Params) -> None:
    """Train one model, and keep the model of the best iteration that is reported.

    Args:
        config: The trial's `params`: CatBoost's parameters, and the trainer's own (`OWN`).

    Raises:
        ValueError: The data has no label, a parameter is refused, a requested metric is unknown, or
            the training ended early.
    """
    cur = trial.current()
    config = main_names("catboost", config, RESERVED)
    with tempfile.TemporaryDirectory() as scratch:
        training = CatBoostTraining(cur, config, parameters(config, cur), Path(scratch))
        training.restore()
        while not training.is_finished:
            training.fit()


def load(folder: str) -> Model:
    """Load the best model of a checkpoint that `train_func` wrote."""
    model = cb.CatBoost().load_model(str(Path(folder, "model.cbm")))
    return Model(model, **json.loads(Path(folder, "model.json").read_text()))


def parameters(config: Params, cur: trial.Current) -> Params:
    """Return CatBoost's parameters: the defaults for the trial, overridden by `config`.

    Metrics are not included.

    Args:
        config: The trial's `params`.
        cur: The trial.
    """
    params: Params = {
        "iterations": cur.sweep_max_t or max_rounds(config, 1000),
        "loss_function": LOSSES[require_task(cur.task)],
        "thread_count": cur.threads,
        "random_seed": cur.seed,
        "logging_level": "Silent",
        "use_best_model": False,
        "allow_const_label": True,
    }
    if cur.classes is not None:
        params["class_names"] = list(range(len(cur.classes)))
    return params | without(config, OWN)

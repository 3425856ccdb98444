"""A bare loop: XGBoost with native categories, up to 2,000 rounds and early stopping, tuned by
Optuna's TPE, then trained on all rows.
"""

from __future__ import annotations

import time
from typing import Any

import optuna
import pandas as pd
import xgboost as xgb

from benchmarks.tables.split import held_out
from benchmarks.tables.tools import native_columns
from benchmarks.tables.tools.job import Job, main

ROUNDS, PATIENCE = 2000, 50
# The last training has a quarter more rows than that of the best trial, and may be slower for other
# reasons.
LAST = 1.5


class Deadline(xgb.callback.TrainingCallback):
    """Ends a training at a time, so that the command ends in time on large tables."""

    def __init__(self, until: float):
        self.until = until

    def after_iteration(self, model: xgb.Booster, epoch: int, evals_log: dict[str, Any]) -> bool:
        """Return True to end the training."""
        return time.time() > self.until


def suggested(trial: optuna.Trial) -> dict[str, Any]:
    """Return the parameters of a trial."""
    return {
        "eta": trial.suggest_float("eta", 0.01, 0.3, log=True),
        "max_depth": trial.suggest_int("max_depth", 2, 10),
        "min_child_weight": trial.suggest_float("min_child_weight", 0.5, 20, log=True),
        "subsample": trial.suggest_float("subsample", 0.5, 1.0),
        "colsample_bytree": trial.suggest_float("colsample_bytree", 0.4, 1.0),
        "lambda": trial.suggest_float("lambda", 1e-3, 10, log=True),
        "alpha": trial.suggest_float("alpha", 1e-3, 10, log=True),
    }


def latest_end(began: float, deadline: float, best_seconds: float) -> float:
    """Return when a trial must end, so that time is left to train on all rows: its own
    configuration, or the best so far.
    """
    if_it_is_the_best = (deadline + LAST * began) / (1 + LAST)
    return min(if_it_is_the_best, deadline - LAST * best_seconds)


def train(job: Job) -> None:
    """Search until only the time of the last training is left, and train the best configuration on
    all rows.
    """
    rows = pd.read_csv(job.train)
    y, classes = native_columns.codes_of(rows.pop(job.label), job.task)
    columns = native_columns.columns_of(rows)
    x = native_columns.prepared(rows, columns)
    fixed = {**native_columns.objective_of(job.task, len(classes)), "seed": job.seed}
    valid = held_out(y if classes else [0] * len(y), job.seed)
    fitted = xgb.QuantileDMatrix(x[~valid], y[~valid], enable_categorical=True)
    watched = xgb.QuantileDMatrix(x[valid], y[valid], enable_categorical=True, ref=fitted)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=job.seed))
    best_seconds = 0.0
    while not study.trials or time.time() + LAST * best_seconds < job.deadline:
        began = time.time()
        trial = study.ask()
        booster = xgb.train(
            {**fixed, **suggested(trial)},
            fitted,
            num_boost_round=ROUNDS,
            evals=[(watched, "valid")],
            verbose_eval=False,
            # In this order: early stopping notes the best round, and the deadline then ends the
            # training.
            callbacks=[
                xgb.callback.EarlyStopping(rounds=PATIENCE),
                Deadline(latest_end(began, job.deadline, best_seconds)),
            ],
        )
        trial.set_user_attr("rounds", booster.best_iteration + 1)
        study.tell(trial, booster.best_score)
        if study.best_trial.number == trial.number:
            best_seconds = time.time() - began
    best = study.best_trial
    everything = xgb.QuantileDMatrix(x, y, enable_categorical=True)
    booster = xgb.train({**fixed, **best.params}, everything, best.user_attrs["rounds"])
    native_columns.save(job.folder, booster, columns, classes)


def predict(job: Job) -> None:
    """Predict with the saved model."""
    rows = pd.read_csv(job.test)
    native_columns.predictions(job.folder, rows).to_csv(job.predictions, index=False)


if __name__ == "__main__":
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    main(train, predict)

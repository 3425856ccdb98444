"""Cost of logging to MLflow, which runs in a process beside the driver: the taxi sweep with MLflow
on and off.

The sweep has 12 trials with 100 rounds each on 360,000 rows. XGBoost uses two threads and therefore
both cores, so MLflow takes its time from the training. Each round reports six metrics, and all of
them are logged. The database exists before the measurement starts, as for the second sweep in a
root folder. *Off* is `trackers: []`. *The search* is the time from the start of the first trial to
the end of the last trial.

    TLC_FILES=... python -m benchmarks.mlflow_cost --repeats 1 --trials 2
"""

from __future__ import annotations

import sys
from typing import Any

from benchmarks import taxi
from benchmarks.common import Goal, Measure, Median, Side, Task, Workload, ratio
from benchmarks.ours import sweep
from benchmarks.running import script


def ours(task: Task, logged: bool) -> dict[str, Any]:
    space = f"""\
trainer: xgboost
{taxi.DATA}
objective: {{metric: valid-logloss, goal: minimize}}
search: {{algorithm: tpe, seed: 0}}
limits: {{max_trials: {task.trials}, max_concurrent_trials: 1}}
trackers: [{"mlflow" if logged else ""}]
space:
  preprocessor: ["taxi:features"]
  scaling: {{resources_per_worker: {{CPU: {taxi.THREADS}}}}}
  params: {{{taxi.TUNED}, num_boost_round: 100, max_depth: 6}}
"""
    taxi.beside(task.folder)
    runs = task.folder / "runs"
    runs.mkdir()
    if logged:
        from mlflow.tracking import MlflowClient

        MlflowClient(f"sqlite:///{runs / 'mlflow.db'}").search_experiments()
    return sweep(task, space).numbers


def goals(median: Median) -> list[Goal]:
    measured = []
    for key, what in (("search", "the search"), ("trial", "a trial in steady state")):
        share = ratio(median("on", key), median("off", key))
        measured.append(
            Goal(
                f"what MLflow adds to {what}", None if share is None else share - 1, 0.03, unit="%"
            )
        )
    return measured


WORKLOAD = Workload(
    name="mlflow_cost",
    title="MLflow: on and off",
    text=(__doc__ or "").partition("\n\n    TLC_FILES")[0],
    sides=(
        Side("on", "MLflow on", lambda task: ours(task, True), 12),
        Side("off", "MLflow off", lambda task: ours(task, False), 12),
    ),
    measures=(
        Measure("search", "the search"),
        Measure("trial", "a trial"),
        Measure("whole", "whole"),
    ),
    goals=goals,
    reference="off",
    absent=taxi.absent,
)

if __name__ == "__main__":
    sys.exit(script(WORKLOAD))

"""Value of fitting preprocessors once: 32 trials on 360,000 taxi trips, 4 preprocessors × 8 trials,
XGBoost with 200 rounds.

Trials run one at a time, with two threads. Every side does the same work on the same rows. It
converts raw trips to numbers. It applies StandardScaler, QuantileTransformer or PowerTransformer to
five columns, or TargetEncoder to the zones. Then it calls `xgboost.train` once, with depth 6, and
measures the logloss on valid after each round. `eta` and `reg_lambda` are tuned. Valid has the
latest months. The bare loops use Optuna, take the preprocessors in turn and save nothing. The first
fits a scikit-learn pipeline for each trial. The second also passes `Pipeline(memory=)`. The third
is the limit: it gets eight matrices that were made before the measurement. sweeps reads and fits,
starts its workers, and records the study and MLflow. *The search* is the time from the start of the
first trial to the end of the last trial. For sweeps it includes the fits and the start of workers;
for the bare loops, the fits. *Whole* also includes reading the data and, for sweeps, the export.
*Fitting* is the part of the bare loops' time that pipelines take.

*`trainer: xgboost`* is the built-in trainer. It measures logloss, error and AUC on train and valid
in each round, which is more work. It is in the table only for its fits and its share of the time.
The data is read from TLC_FILES, as in search_spaces/taxi_big_tip.yaml.

    TLC_FILES=... python -m benchmarks.taxi_prep --repeats 1 --trials 4
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from benchmarks import peers, taxi
from benchmarks.common import Goal, Measure, Median, Side, Task, Workload, less, ratio
from benchmarks.ours import sweep
from benchmarks.report_text import shown
from benchmarks.running import script

ROUNDS = 200
LOOP = '{loop: "benchmarks.loops:taxi_our_loop", backend: none}'


def ours(task: Task, trainer: str, constants: str) -> dict[str, Any]:
    space = f"""\
trainer: {trainer}
{taxi.DATA}
objective: {{metric: valid-logloss, goal: minimize}}
search: {{algorithm: tpe, seed: 0}}
limits: {{max_trials: {task.trials}, max_concurrent_trials: 1}}
space:
  preprocessor: {taxi.CHAINS}
  scaling: {{resources_per_worker: {{CPU: {taxi.THREADS}}}}}
  params: {{{taxi.TUNED}, {constants}}}
"""
    taxi.beside(task.folder)
    done = sweep(task, space)
    return {**done.numbers, "each": done.numbers["search"] / task.trials, "fits": done.result.fits}


def bare(task: Task, memory: Path | None) -> dict[str, Any]:
    began, fitting = time.time(), 0.0
    train, valid, y, y_valid = taxi.split(taxi.load())

    def objective(trial: Any) -> float:
        nonlocal fitting
        fit_began = time.time()
        pipeline = taxi.pipeline(trial.number % 4, memory)
        prepared = pipeline.fit_transform(train, y), pipeline.transform(valid), y, y_valid
        fitting += time.time() - fit_began
        return taxi.value(taxi.suggested(trial), ROUNDS, prepared)

    measured = peers.optuna_loop(task, objective)
    fits = task.trials if memory is None else min(4, task.trials)
    return {
        **measured,
        "whole": time.time() - began,
        "each": measured["search"] / task.trials,
        "fitting": fitting,
        "fits": fits,
    }


def handed(task: Task) -> dict[str, Any]:
    from benchmarks.loops import taxi_matrix, taxi_trial

    began = time.time()
    train, valid, y, y_valid = taxi.split(taxi.load())
    matrices = []
    for number in range(min(4, task.trials)):
        pipeline = taxi.pipeline(number, None)
        prepared = (
            taxi_matrix(pipeline.fit_transform(train, y), y, taxi.THREADS),
            taxi_matrix(pipeline.transform(valid), y_valid, taxi.THREADS),
        )
        matrices.append(prepared)
    measured = peers.optuna_loop(
        task,
        lambda trial: taxi_trial(
            taxi.suggested(trial), ROUNDS, taxi.THREADS, *matrices[trial.number % 4]
        ),
    )
    return {
        **measured,
        "whole": time.time() - began,
        "each": measured["search"] / task.trials,
        "fits": min(4, task.trials),
    }


def goals(median: Median) -> list[Goal]:
    search = {side: median(side, "search") for side in ("ours", "handed", "refit", "memory")}
    fits = median("ours", "fits")
    return [
        Goal("fits more or fewer than 4", None if fits is None else abs(fits - 4), 0),
        Goal(
            "the search, over the bare loop handed the matrices",
            ratio(search["ours"], search["handed"]),
            1.05,
        ),
        Goal(
            "the search, over the loop that fits for each trial",
            ratio(search["ours"], search["refit"]),
            1.0,
        ),
        Goal(
            "the search, over the loop with `Pipeline(memory=)`",
            ratio(search["ours"], search["memory"]),
            1.0,
        ),
        Goal(
            "a trial in steady state, over the bare loop handed the matrices",
            ratio(median("ours", "trial"), median("handed", "trial")),
            1.05,
        ),
    ]


def notes(median: Median) -> list[str]:
    lines = []
    for side, name in (
        ("refit", "The loop that fits for each trial"),
        ("memory", "With `Pipeline(memory=)` the loop"),
    ):
        search, fitting, mine = (
            median(side, "search"),
            median(side, "fitting"),
            median("ours", "search"),
        )
        if search and fitting and mine is not None:
            share, saved = ratio(fitting, search), less(search, mine)
            lines.append(
                f"{name} spends {shown(fitting, 's')} in its pipelines, {shown(share, '%')} of "
                "its search; "
                f"ours is {shown(saved, 's')} shorter, {shown(ratio(saved, search), '%')} of it."
            )
    return lines


WORKLOAD = Workload(
    name="taxi_prep",
    title="Preprocessors as dimensions: 4 × 8 taxi trials",
    text=(__doc__ or "").partition("\n\n    TLC_FILES")[0],
    sides=(
        Side("ours", "sweeps, same loop", lambda task: ours(task, LOOP, f"rounds: {ROUNDS}"), 32),
        Side(
            "refit",
            "bare Optuna loop, a pipeline fitted for each trial",
            lambda task: bare(task, None),
            32,
        ),
        Side(
            "memory",
            "the same with `Pipeline(memory=)`",
            lambda task: bare(task, task.folder / "memory"),
            32,
        ),
        Side("handed", "bare Optuna loop handed the matrices", handed, 32),
        Side(
            "trainer",
            "sweeps, `trainer: xgboost`",
            lambda task: ours(task, "xgboost", f"num_boost_round: {ROUNDS}, max_depth: 6"),
            8,
        ),
    ),
    measures=(
        Measure("search", "the search"),
        Measure("whole", "whole"),
        Measure("trial", "a trial, steady"),
        Measure("fitting", "fitting"),
        Measure("fits", "fits", ""),
    ),
    goals=goals,
    notes=notes,
    absent=taxi.absent,
    timeout=900,
)

if __name__ == "__main__":
    sys.exit(script(WORKLOAD))

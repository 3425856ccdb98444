"""64 trials of XGBoost on breast cancer, 50 rounds, one worker with one thread, TPE: overhead of a
small trial.

The work is the same call of `xgboost.train` on every side: 426 rows of train, 143 rows of valid,
the logloss on valid after each round, and `max_depth` 4. `eta`, `reg_lambda` and `subsample` are
tuned. The limit is a bare Optuna loop that saves nothing and builds its matrices once. The other
tools get the data as an argument, report once at the end, and write no checkpoint. *Same loop* is
that loop in sweeps, which records it in the study and in MLflow. *`trainer: xgboost`* is the
built-in trainer. It does more: it reports logloss, error and AUC on train and valid in every round,
and writes the best model as a checkpoint. Trials run one at a time, or two at once where the table
says so. The duration of a training depends on its parameters, 20 to 50 ms here, and every sampler
suggests other parameters. After each run, its configurations are therefore trained again, alone and
in turn (*its training*). The rest of a trial is *beside it*. Train V1 and V2 are slow, so they run
only a few trials.

    python -m benchmarks.xgb_small --repeats 1 --trials 8
    python -m benchmarks.xgb_small --profile [--side ours-loop]
"""

from __future__ import annotations

import sys
import time
from typing import Any

from benchmarks import peers
from benchmarks.common import Goal, Measure, Median, Side, Task, Workload, less, ratio
from benchmarks.running import script

METRIC = "valid-logloss"
SPACE = """\
    trainer: {trainer}
    data: {{train: "benchmarks.loops:cancer", label: target, valid: {{column: part, value: valid}}}}
    objective: {{metric: valid-logloss, goal: minimize}}
    search: {{algorithm: tpe, seed: 0}}
    limits: {{max_trials: {trials}, max_concurrent_trials: {slots}}}
    space:
      params:
        eta: {{loguniform: [1e-2, 0.3]}}
        reg_lambda: {{loguniform: [1e-2, 10.0]}}
        subsample: {{uniform: [0.5, 1.0]}}
{params}"""
TRAINER = "{num_boost_round: 50, max_depth: 4}"
LOOP = '{loop: "benchmarks.loops:xgb_our_loop", backend: none}'


TUNED = ("eta", "reg_lambda", "subsample")


def worked(measured: dict[str, Any], tried: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the measures of a run, with `work` and `beside`.

    `work` is the time to train the run's configurations alone in this process. `beside` is the rest
    of the time for each trial. Both leave out the first eighth of the trials, as `trial` does.
    """
    from benchmarks.loops import toy, xgb_matrices, xgb_trial

    train, valid = xgb_matrices(toy("breast_cancer"))
    configs = [{name: config[name] for name in TUNED} for config in tried]
    xgb_trial(configs[0], train, valid)
    spent = []
    for config in configs[max(1, len(configs) // 8) :]:
        began = time.perf_counter()
        xgb_trial(config, train, valid)
        spent.append(time.perf_counter() - began)
    work = sum(spent) / len(spent)
    return {**measured, "work": work, "beside": measured["trial"] - work}


def bare(task: Task) -> dict[str, Any]:
    from benchmarks.loops import toy, xgb_matrices, xgb_trial

    train, valid = xgb_matrices(toy("breast_cancer"))

    def objective(trial: Any) -> float:
        config = {
            "eta": trial.suggest_float("eta", 1e-2, 0.3, log=True),
            "reg_lambda": trial.suggest_float("reg_lambda", 1e-2, 10.0, log=True),
            "subsample": trial.suggest_float("subsample", 0.5, 1.0),
        }
        return xgb_trial(config, train, valid)

    tried: list[dict[str, Any]] = []
    return worked(peers.optuna_loop(task, objective, tried), tried)


def tune_space() -> dict[str, Any]:
    from ray import tune

    return {
        "eta": tune.loguniform(1e-2, 0.3),
        "reg_lambda": tune.loguniform(1e-2, 10.0),
        "subsample": tune.uniform(0.5, 1.0),
    }


def tune_function(task: Task, slots: int, reuse: bool) -> dict[str, Any]:
    from ray import tune

    from benchmarks.loops import toy

    trainable = tune.with_parameters(peers.xgb_function, data=toy("breast_cancer"))
    tried: list[dict[str, Any]] = []
    return worked(
        peers.tune_run(
            task, trainable, tune_space(), METRIC, slots=slots, reuse=reuse, tried=tried
        ),
        tried,
    )


def train_v1(task: Task) -> dict[str, Any]:
    from benchmarks.loops import toy, xgb_train_loop

    tried: list[dict[str, Any]] = []
    measured = peers.tune_run(
        task,
        peers.train_v1(xgb_train_loop, toy("breast_cancer")),
        {"train_loop_config": tune_space()},
        METRIC,
        tried=tried,
    )
    return worked(measured, [config["train_loop_config"] for config in tried])


def train_v2(task: Task) -> dict[str, Any]:
    from benchmarks.loops import toy, xgb_train_loop

    tried: list[dict[str, Any]] = []
    trainable = peers.in_tune("xgboost", xgb_train_loop, 1, toy("breast_cancer"))
    return worked(peers.tune_run(task, trainable, tune_space(), METRIC, tried=tried), tried)


def ours(task: Task, own_trainer: bool, slots: int) -> dict[str, Any]:
    from benchmarks.profiling import swept

    trainer, loop = (
        ("xgboost", "sweeps.trainers.xgboost:train_func")
        if own_trainer
        else (LOOP, "benchmarks.loops:xgb_our_loop")
    )
    constants = {"num_boost_round": 50, "max_depth": 4} if own_trainer else {}

    def space(trainer: str, constants: dict[str, Any]) -> str:
        params = "".join(f"        {k}: {v}\n" for k, v in constants.items())
        return SPACE.format(trainer=trainer, trials=task.trials, slots=slots, params=params)

    tried: list[dict[str, Any]] = []
    return worked(swept(task, space, trainer, loop, constants, tried), tried)


def goals(median: Median) -> list[Goal]:
    mine = median("ours", "trial")
    tuned = median("train-v2-tuned", "trial")
    limits = []
    for side, what in (("ours-loop", "same loop"), ("ours", "`trainer: xgboost`")):
        over = less(median(side, "beside"), median("bare", "beside"))
        limits.append(Goal(f"overhead over the bare loop, a trial, {what}", over, 0.030, unit="ms"))
    return [
        *limits,
        Goal(
            "faster than Tune's default, ×", ratio(median("tune", "trial"), mine), 30, at_most=False
        ),
        Goal(
            "faster than Train V2 in Tune, ×",
            ratio(median("train-v2", "trial"), mine),
            200,
            at_most=False,
        ),
        Goal("faster than Train V2 in Tune, tuned, ×", ratio(tuned, mine), 1, at_most=False),
        Goal(
            "less than Tune with `reuse_actors` beside the training, same loop, ×",
            ratio(median("tune-reuse", "beside"), median("ours-loop", "beside")),
            1,
            False,
        ),
    ]


def notes(median: Median) -> list[str]:
    return ["The last two goals are ours: to win against the tuned peer."]


TRIALS = 64
WORKLOAD = Workload(
    name="xgb_small",
    title="Small trials: XGBoost on breast cancer",
    text=(__doc__ or "").partition("\n\n    python")[0],
    sides=(
        Side("ours", "sweeps, `trainer: xgboost`", lambda task: ours(task, True, 1), TRIALS),
        Side("ours-loop", "sweeps, same loop", lambda task: ours(task, False, 1), TRIALS),
        Side("bare", "bare Optuna loop, nothing kept", bare, TRIALS),
        Side(
            "tune-reuse",
            "Tune, function trial, `reuse_actors`",
            lambda task: tune_function(task, 1, True),
            TRIALS,
        ),
        Side("tune", "Tune, function trial", lambda task: tune_function(task, 1, False), 16),
        Side("train-v1", "Train V1 under `Tuner`", train_v1, 6, peers.TRAIN_V1),
        Side("train-v2", "Train V2 in Tune", train_v2, 4),
        Side(
            "train-v2-tuned",
            "Train V2 in Tune, health check every 0.05 s",
            train_v2,
            5,
            peers.TUNED_TRAIN,
        ),
        Side(
            "ours-2",
            "two at once: sweeps, `trainer: xgboost`",
            lambda task: ours(task, True, 2),
            TRIALS,
        ),
        Side(
            "ours-loop-2",
            "two at once: sweeps, same loop",
            lambda task: ours(task, False, 2),
            TRIALS,
        ),
        Side(
            "tune-reuse-2",
            "two at once: Tune, `reuse_actors`",
            lambda task: tune_function(task, 2, True),
            TRIALS,
        ),
        Side("tune-2", "two at once: Tune", lambda task: tune_function(task, 2, False), 16),
    ),
    measures=(
        Measure("trial", "a trial", "ms"),
        Measure("work", "its training", "ms"),
        Measure("beside", "beside it", "ms"),
    ),
    goals=goals,
    notes=notes,
    timeout=600,
)

if __name__ == "__main__":
    sys.exit(script(WORKLOAD))

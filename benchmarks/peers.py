"""The other tools: Optuna alone, Ray Tune, and Ray Train in Ray Tune.

Each tool is used as its documentation shows, with settings that are tuned for speed as far as the
documentation describes them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from benchmarks.common import Task, steady
from benchmarks.running import local_ray

SEED = 0


def optuna_loop(
    task: Task, objective: Callable[[Any], float], tried: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    """Run a bare loop of Optuna that saves nothing.

    Args:
        task: The number of trials is read from here.
        objective: Function that runs a trial.
        tried: List to which the parameters of each trial are appended, in order.

    Returns:
        `trial`, the time for each trial, see `steady`. `search`, the time from the start of the
        first trial to the end of the last trial.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=SEED))
    began = time.time()
    study.optimize(objective, n_trials=task.trials)
    ends = [t.datetime_complete.timestamp() for t in study.trials if t.datetime_complete]
    if tried is not None:
        tried += [t.params for t in study.trials]
    return {"trial": steady(ends), "search": max(ends) - began, "best": study.best_value}


def tune_run(
    task: Task,
    trainable: Any,
    space: dict[str, Any],
    metric: str,
    *,
    slots: int = 1,
    reuse: bool = False,
    cpus: int = 2,
    tried: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """Run Ray Tune with OptunaSearch and without loggers (TUNE_DISABLE_AUTO_CALLBACK_LOGGERS).

    Args:
        task: The number of trials and the folder are read from here.
        trainable: The trainable that Tune runs.
        space: Tune's `param_space`.
        metric: Metric to minimize.
        slots: Number of trials that run at once.
        reuse: Tune's option `reuse_actors`.
        cpus: Number of CPUs of the Ray that is started.
        tried: List to which the configuration of each trial is appended, in the order in which the
            trials end.

    Returns:
        `trial`, the time for each trial, see `steady`. `whole`, the duration of `Tuner.fit`.

    Raises:
        RuntimeError: A trial failed.
    """
    with local_ray(cpus):
        from ray import tune
        from ray.tune.search.optuna import OptunaSearch

        ends: list[float] = []

        class Ends(tune.Callback):
            def on_trial_complete(self, iteration, trials, trial, **info):
                ends.append(time.time())
                if tried is not None:
                    tried.append(trial.config)

        began = time.time()
        results = tune.Tuner(
            trainable,
            param_space=space,
            tune_config=tune.TuneConfig(
                metric=metric,
                mode="min",
                search_alg=OptunaSearch(seed=SEED),
                num_samples=task.trials,
                max_concurrent_trials=slots,
                reuse_actors=reuse,
            ),
            run_config=tune.RunConfig(
                name="peer", storage_path=str(task.folder), verbose=0, callbacks=[Ends()]
            ),
        ).fit()
        whole = time.time() - began
        if results.num_errors:
            raise RuntimeError(f"{results.num_errors} trials failed: {results.errors[0]}")
        best = results.get_best_result().metrics or {}
        return {"trial": steady(ends), "whole": whole, "best": best[metric]}


def xgb_function(config: dict[str, Any], data: Any = None) -> None:
    """Run `xgb_trial` as a function trial of Tune."""
    from ray import tune

    from benchmarks.loops import xgb_matrices, xgb_trial

    tune.report({"valid-logloss": xgb_trial(config, *xgb_matrices(data))})


def sleep_function(config: dict[str, Any]) -> None:
    """Sleep, as a function trial of Tune."""
    from ray import tune

    time.sleep(config["seconds"])
    tune.report({"x": config["x"]})


def in_tune(trainer: str, loop: Any, workers: int, data: Any) -> Any:
    """Return what Ray documents in place of `Tuner(Trainer)`: a Tune function trial that calls the
    `fit` of a Train V2 trainer.

    The trial requests only memory. With Tune's default of one CPU, two workers would find no free
    CPU on two cores.

    Args:
        trainer: `torch` or `xgboost`.
        loop: The `train_loop_per_worker`.
        workers: Number of workers of a trial; each has one CPU.
        data: Data that the loop gets.
    """
    from ray import tune

    return tune.with_resources(
        tune.with_parameters(_driver, trainer=trainer, loop=loop, workers=workers, data=data),
        {"memory": 16 * 2**20},
    )


def _driver(config: dict[str, Any], trainer: str, loop: Any, workers: int, data: Any) -> None:
    import ray.train
    from ray.tune.integration.ray_train import TuneReportCallback

    callback_driver: Any
    if trainer == "torch":
        from ray.train.torch import TorchTrainer as callback_driver
    else:
        from ray.train.xgboost import XGBoostTrainer as callback_driver
    trial = ray.tune.get_context()
    options: list[Any] = [TuneReportCallback()]
    callback_driver(
        loop,
        train_loop_config={**config, "data": data},
        scaling_config=ray.train.ScalingConfig(
            num_workers=workers, resources_per_worker={"CPU": 1}
        ),
        run_config=ray.train.RunConfig(
            name=f"train-{trial.get_trial_id()}",
            storage_path=trial.get_storage().storage_fs_path,
            callbacks=options,
        ),
    ).fit()
    let_the_last_report_through()


def let_the_last_report_through() -> None:
    """Keep the driver alive until its last report has arrived. Otherwise it may hang forever.

    This takes a tenth of a second.

    It happened in one of four trials with a health check every 0.05 s. Tune's thread takes a report
    from the callback's queue and puts it into a queue that holds one item. If the end of the driver
    was just put there, the thread waits forever (ray/train/_internal/session.py,
    `_get_result_from_queues`).
    """
    from ray.train._internal.session import get_session

    session: Any = get_session()
    queue = session._get_or_create_inter_actor_queue()
    while not queue.empty():
        time.sleep(0.01)
    time.sleep(0.1)


def train_v1(loop: Any, data: Any) -> Any:
    """Run `Tuner(XGBoostTrainer(...))`, as old tutorials do. RAY_TRAIN_V2_ENABLED must be 0."""
    from ray.train import ScalingConfig
    from ray.train.xgboost import XGBoostTrainer

    return XGBoostTrainer(
        loop,
        train_loop_config={"data": data},
        scaling_config=ScalingConfig(
            num_workers=1, resources_per_worker={"CPU": 1}, trainer_resources={"CPU": 0}
        ),
    )


TUNED_TRAIN = {"RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.05"}
TRAIN_V1 = {"RAY_TRAIN_V2_ENABLED": "0"}

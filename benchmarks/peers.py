"""The peers, as their documentation shows them and as well as it lets one tune them: Optuna alone, Ray Tune, Ray Train in Ray Tune."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from benchmarks.common import Task, steady
from benchmarks.running import local_ray

SEED = 0


def optuna_loop(task: Task, objective: Callable[[Any], float], tried: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """A bare loop of Optuna's, which keeps nothing.

    Args:
        task: how many trials.
        objective: of a trial.
        tried: gets the parameters of each trial, in order.

    Returns:
        `trial`, see `steady`; `search`, from the first trial's beginning to the last one's end.
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
    """A run of Ray Tune with OptunaSearch, its loggers off (by TUNE_DISABLE_AUTO_CALLBACK_LOGGERS).

    Args:
        task: how many trials, and where.
        trainable: what Tune runs.
        space: Tune's `param_space`.
        metric: to minimize.
        slots: trials at once.
        reuse: `reuse_actors`.
        cpus: of the Ray that is started.
        tried: gets the configuration of each trial, in the order in which they ended.

    Returns:
        `trial`, see `steady`; `whole`, of `Tuner.fit`.

    Raises:
        RuntimeError: a trial failed.
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
            run_config=tune.RunConfig(name="peer", storage_path=str(task.folder), verbose=0, callbacks=[Ends()]),
        ).fit()
        whole = time.time() - began
        if results.num_errors:
            raise RuntimeError(f"{results.num_errors} trials failed: {results.errors[0]}")
        best = results.get_best_result().metrics or {}
        return {"trial": steady(ends), "whole": whole, "best": best[metric]}


def xgb_function(config: dict[str, Any], data: Any = None) -> None:
    """Tune's function trial of the XGBoost work."""
    from ray import tune

    from benchmarks.loops import xgb_matrices, xgb_trial

    tune.report({"valid-logloss": xgb_trial(config, *xgb_matrices(data))})


def sleep_function(config: dict[str, Any]) -> None:
    """Tune's function trial that sleeps."""
    from ray import tune

    time.sleep(config["seconds"])
    tune.report({"x": config["x"]})


def in_tune(trainer: str, loop: Any, workers: int, data: Any) -> Any:
    """Ray's documented successor of `Tuner(Trainer)`: a Tune function trial that calls a Train V2 trainer's `fit`.

    It asks for memory alone: with the CPU of Tune's default, two workers would find none left on two cores.

    Args:
        trainer: `torch` or `xgboost`.
        loop: `train_loop_per_worker`.
        workers: of a trial, a CPU each.
        data: handed to the loop.
    """
    from ray import tune

    return tune.with_resources(
        tune.with_parameters(_driver, trainer=trainer, loop=loop, workers=workers, data=data), {"memory": 16 * 2**20}
    )


def _driver(config: dict[str, Any], trainer: str, loop: Any, workers: int, data: Any) -> None:
    import ray.train
    from ray.tune.integration.ray_train import TuneReportCallback

    made: Any
    if trainer == "torch":
        from ray.train.torch import TorchTrainer as made
    else:
        from ray.train.xgboost import XGBoostTrainer as made
    trial = ray.tune.get_context()
    told: list[Any] = [TuneReportCallback()]
    made(
        loop,
        train_loop_config={**config, "data": data},
        scaling_config=ray.train.ScalingConfig(num_workers=workers, resources_per_worker={"CPU": 1}),
        run_config=ray.train.RunConfig(
            name=f"train-{trial.get_trial_id()}", storage_path=trial.get_storage().storage_fs_path, callbacks=told
        ),
    ).fit()
    _let_the_last_report_through()


def _let_the_last_report_through() -> None:
    """Keep the driver from ending while its last report is on its way, or it may hang for ever; costs a tenth of a second.

    Seen in one of four trials whose health check is every 0.05 s: Tune's thread takes a report off the callback's queue and puts it
    into one that holds a single item, and waits for ever if the end of the driver has just got there (ray/train/_internal/session.py,
    `_get_result_from_queues`).
    """
    from ray.train._internal.session import get_session

    session: Any = get_session()
    queue = session._get_or_create_inter_actor_queue()
    while not queue.empty():
        time.sleep(0.01)
    time.sleep(0.1)


def train_v1(loop: Any, data: Any) -> Any:
    """The tutorials' way, `Tuner(XGBoostTrainer(...))`, which needs RAY_TRAIN_V2_ENABLED=0."""
    from ray.train import ScalingConfig
    from ray.train.xgboost import XGBoostTrainer

    return XGBoostTrainer(
        loop,
        train_loop_config={"data": data},
        scaling_config=ScalingConfig(num_workers=1, resources_per_worker={"CPU": 1}, trainer_resources={"CPU": 0}),
    )


TUNED_TRAIN = {"RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.05"}
TRAIN_V1 = {"RAY_TRAIN_V2_ENABLED": "0"}

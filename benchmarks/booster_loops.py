"""Bare loops of LightGBM and CatBoost, which run beside the trainers by name in one trial."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import ray.train

from benchmarks.loops import in_turn
from sweeps import trial
from sweeps.trainers._metrics import measure

Table = tuple[pd.DataFrame, np.ndarray]


def paired_lightgbm(config: dict[str, Any]) -> None:
    """Run the trainer `lightgbm` and `lgb.train` in one trial; see `in_turn`."""
    from sweeps.trainers import lightgbm

    times, params = _arguments(config)

    def bare() -> dict[str, float]:
        import lightgbm as lgb

        train, valid = _tables()
        workers = ray.train.get_context().get_world_size()
        fixed = {
            "objective": "binary",
            "metric": "binary_logloss",
            "num_threads": 2 // workers,
            "verbosity": -1,
            "seed": config["seed"],
        }
        # As the trainer sets them, so that both grow the same trees.
        fixed |= {
            "deterministic": True,
            "force_row_wise": True,
            "feature_pre_filter": False,
            "data_random_seed": 1,
        }
        if workers > 1:
            fixed |= {"tree_learner": "data", "pre_partition": True} | _network()

        def data_sets() -> tuple[Any, Any]:
            data = lgb.Dataset(*train, params=fixed, free_raw_data=False)
            return data, lgb.Dataset(*valid, params=fixed, reference=data, free_raw_data=False)

        data, valid_data = trial.current().cached("bare.datasets", data_sets)
        history: dict[str, Any] = {}
        recorded = [lgb.record_evaluation(history)]
        booster = lgb.train(
            fixed,
            data,
            config["num_boost_round"],
            valid_sets=[valid_data],
            valid_names=["valid"],
            callbacks=recorded,
        )
        best = int(np.argmin(history["valid"]["binary_logloss"])) + 1
        booster.free_network()
        return _scores(lambda features: booster.predict(features, num_iteration=best), train, valid)

    in_turn(times, lambda: lightgbm.train_func(params), bare)


def paired_catboost(config: dict[str, Any]) -> None:
    """Run the trainer `catboost` and `CatBoost.fit` in one trial; see `in_turn`."""
    from sweeps.trainers import catboost

    times, params = _arguments(config)
    params["random_seed"] = params.pop("seed")

    def bare() -> dict[str, float]:
        import catboost as cb

        train, valid = _tables()
        pools = [
            trial.current().cached(f"bare.pool{i}", lambda table=table: cb.Pool(*table))
            for i, table in enumerate((train, valid))
        ]
        fixed = {
            "loss_function": "Logloss",
            "thread_count": 2,
            "random_seed": config["seed"],
            "logging_level": "Silent",
        }
        fixed |= {"class_names": [0, 1], "use_best_model": False, "allow_writing_files": False}
        model = cb.CatBoost({**fixed, "iterations": config["iterations"], "depth": config["depth"]})
        model.fit(pools[0], eval_set=pools[1])
        best = int(np.argmin(model.get_evals_result()["validation"]["Logloss"])) + 1
        return _scores(
            lambda features: model.predict(features, "Probability", ntree_end=best)[:, 1],
            train,
            valid,
        )

    in_turn(times, lambda: catboost.train_func(params), bare)


def _arguments(config: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the path of the file with the times, and the trainer's parameters."""
    params = dict(config)
    return params.pop("times"), params


def _network() -> dict[str, Any]:
    """Return the parameters that connect the workers, as Ray's `LightGBMTrainer` gives them, but
    with the next port of each worker.

    In a trial that has run the trainer, the ports that Ray chose are still occupied for a while.
    """
    from ray.train.lightgbm import get_network_params

    given = get_network_params()
    addresses = [address.rpartition(":") for address in given["machines"].split(",")]
    machines = ",".join(f"{host}:{int(port) + 1}" for host, _, port in addresses)
    return given | {"machines": machines, "local_listen_port": given["local_listen_port"] + 1}


def _tables() -> tuple[Table, Table]:
    """Return the features and labels of train, of which this rank has a part, and of valid."""
    current = trial.current()

    def table(name: str) -> Table:
        frame = ray.train.get_dataset_shard(name).materialize().to_pandas()
        return frame.drop(columns=current.label), frame[current.label].to_numpy()

    return current.cached("bare.train", lambda: table("train")), current.cached(
        "bare.valid", lambda: table("valid")
    )


def _scores(predict: Any, train: Table, valid: Table) -> dict[str, float]:
    """Measure a model on this rank's rows of train, as the trainers do, and on valid."""
    return measure("binary", "train", train[1], predict(train[0])) | measure(
        "binary", "valid", valid[1], predict(valid[0])
    )

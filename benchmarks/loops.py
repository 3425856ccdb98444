"""XGBoost's work in the benchmarks, as functions that all sides call, and its training loops in
sweeps and in Ray Train.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.probe_loops import sum_of_ranks

Arrays = tuple[
    np.ndarray, np.ndarray, np.ndarray, np.ndarray
]  # train features, valid features, train labels, valid labels

# ---- breast cancer, XGBoost

XGB_ROUNDS = 50
XGB_FIXED = {
    "objective": "binary:logistic",
    "eval_metric": "logloss",
    "max_depth": 4,
    "nthread": 1,
    "seed": 0,
}


def toy(name: str) -> Arrays:
    """Return a data set of scikit-learn, split by stratified sampling: three quarters for train,
    one quarter for valid.
    """
    from sklearn import datasets
    from sklearn.model_selection import train_test_split

    x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    return tuple(
        train_test_split(x.astype(np.float64), y, test_size=0.25, stratify=y, random_state=0)
    )


def cancer() -> Any:
    """Return the breast cancer data as a DataFrame for sweeps.

    The column `part` contains train or valid.
    """
    import pandas as pd
    from sklearn import datasets

    names = datasets.load_breast_cancer().feature_names
    x, x_valid, y, y_valid = toy("breast_cancer")
    parts = [
        pd.DataFrame(a, columns=names).assign(target=b, part=part)
        for a, b, part in ((x, y, "train"), (x_valid, y_valid, "valid"))
    ]
    return pd.concat(parts, ignore_index=True)


def xgb_matrices(data: Arrays) -> tuple[Any, Any]:
    """Return train and valid as XGBoost matrices."""
    import xgboost as xgb

    return xgb.DMatrix(data[0], data[2], nthread=1), xgb.DMatrix(data[1], data[3], nthread=1)


def xgb_trial(config: dict[str, Any], train: Any, valid: Any) -> float:
    """Train 50 rounds, each with the logloss on valid, and return the last logloss."""
    import xgboost as xgb

    history: dict[str, Any] = {}
    xgb.train(
        {**XGB_FIXED, **config},
        train,
        XGB_ROUNDS,
        evals=[(valid, "valid")],
        evals_result=history,
        verbose_eval=False,
    )
    return float(history["valid"]["logloss"][-1])


def xgb_train_loop(config: dict[str, Any]) -> None:
    """Run `xgb_trial` in Ray Train. `config` contains the data."""
    import ray.train

    config = dict(config)
    value = xgb_trial(config, *xgb_matrices(config.pop("data")))
    ray.train.report({"valid-logloss": value})


def xgb_our_loop(config: dict[str, Any]) -> None:
    """Run `xgb_trial` in sweeps, with matrices from the trial's shards.

    The worker caches the matrices.
    """
    import ray.train

    from sweeps import trial

    current = trial.current()
    train, valid = _matrices(
        current, 1, lambda frame: frame.to_numpy()
    )  # NumPy arrays, as in the other tools
    ray.train.report({"valid-logloss": xgb_trial(config, train, valid)})


def _matrices(
    current: Any, threads: int, features: Callable[[Any], Any] = lambda frame: frame
) -> tuple[Any, Any]:
    """Return train and valid as XGBoost matrices, from the trial's shards.

    Later trials on the same data use the cached matrices.
    """
    import ray.train
    import xgboost as xgb

    def matrix(name: str) -> Any:
        frame = ray.train.get_dataset_shard(name).materialize().to_pandas()
        return xgb.DMatrix(
            features(frame.drop(columns=current.label)),
            frame[current.label].to_numpy(),
            nthread=threads,
        )

    return current.cached("train", lambda: matrix("train")), current.cached(
        "valid", lambda: matrix("valid")
    )


# ---- generated data: the built-in trainer and a bare loop

FIXED_PARAMETERS = {
    "objective": "binary:logistic",
    "eval_metric": "logloss",
    "max_depth": 6,
    "nthread": 2,
}


def random_table(rows: int) -> Any:
    """Generate a binary classification problem with 14 features.

    The column `part` contains train or valid. Valid has one row for nine train rows, and at least
    143 rows.
    """
    import pandas as pd

    rng, valid = np.random.default_rng(0), max(143, rows // 9)
    n = rows + valid
    columns = {f"real{i}": rng.normal(size=n) for i in range(8)}
    columns |= {f"count{i}": rng.poisson(3, n).astype(np.float64) for i in range(3)}
    columns |= {
        f"code{i}": rng.integers(0, size, n).astype(np.float64)
        for i, size in enumerate((20, 150, 260))
    }
    signal = (
        columns["real0"]
        - columns["real1"] * columns["real2"]
        + 0.3 * columns["count0"]
        + np.sin(columns["code0"])
    )
    y = (signal + rng.normal(size=n) > 1).astype(np.int64)
    return pd.DataFrame(columns).assign(y=y, part=np.where(np.arange(n) < rows, "train", "valid"))


def split_matrices(frame: Any) -> tuple[Any, Any]:
    """Return train and valid as XGBoost matrices, from a DataFrame of `random_table`."""
    import xgboost as xgb

    parts = [frame[frame["part"] == part].drop(columns="part") for part in ("train", "valid")]
    return tuple(xgb.DMatrix(part.drop(columns="y"), part["y"], nthread=2) for part in parts)


def bare_booster(config: dict[str, Any], rounds: int, train: Any, valid: Any) -> dict[str, float]:
    """Train and compute the logloss on valid after each round.

    Then evaluate the model of the best round as the built-in trainer does.

    Returns:
        The metrics of this model, such as `valid-auc`.
    """
    import xgboost as xgb

    history: dict[str, Any] = {}
    booster = xgb.train(
        {**FIXED_PARAMETERS, **config},
        train,
        rounds,
        evals=[(valid, "valid")],
        evals_result=history,
        verbose_eval=False,
    )
    best = int(np.argmin(history["valid"]["logloss"])) + 1
    model = booster if best == rounds else booster[:best]
    for metric in ("error", "auc"):
        model.set_param({"eval_metric": metric})
    line = model.eval_set([(train, "train"), (valid, "valid")])
    return {
        name: float(value)
        for name, _, value in (part.rpartition(":") for part in line.split("\t")[1:])
    }


def paired(config: dict[str, Any]) -> None:
    """Run the built-in XGBoost trainer and the bare loop in one trial; see `in_turn`."""
    import ray
    import ray.train

    from sweeps import trial
    from sweeps.trainers import xgboost

    config, current = dict(config), trial.current()
    times = config.pop("times")

    def bare() -> dict[str, float]:
        def matrix(name: str) -> Any:
            import xgboost as xgb

            frame = ray.train.get_dataset_shard(name).materialize().to_pandas()
            return xgb.DMatrix(frame.drop(columns=current.label), frame[current.label], nthread=2)

        train, valid = (
            current.cached(f"bare.{name}", lambda name=name: matrix(name))
            for name in ("train", "valid")
        )
        device = {"device": "cuda"} if ray.get_gpu_ids() else {}
        scores = bare_booster(
            {"seed": config["seed"]} | device, config["num_boost_round"], train, valid
        )
        return scores | {
            f"{split}-accuracy": 1 - scores[f"{split}-error"] for split in ("train", "valid")
        }

    in_turn(times, lambda: xgboost.train_func(config), bare)


def in_turn(times: str, trainer: Callable[[], None], bare: Callable[[], dict[str, float]]) -> None:
    """Run a built-in trainer and a bare loop in one trial, and append a line with the seconds of
    each to a file.

    Even trials run the trainer first, and odd trials run the bare loop first. The ranks of a trial
    start together, and rank 0 measures.

    Args:
        times: Path of the file.
        trainer: Function that runs the trainer.
        bare: Function that runs the bare loop, and returns the metrics of the model of the best
            step.

    Raises:
        RuntimeError: The two models differ, or `OMP_NUM_THREADS` is not 2. On several ranks, the
            metrics of the models may differ by rounding.
    """
    import ray.train

    from sweeps import trial

    if (
        os.environ.get("OMP_NUM_THREADS") != "2"
    ):  # With 1, XGBoost trains at half the speed, whatever `nthread` is.
        raise RuntimeError(f"OMP_NUM_THREADS is {os.environ.get('OMP_NUM_THREADS')}, but must be 2")
    seconds_by_loop: dict[str, float] = {}
    metrics: dict[str, float] = {}

    def run_trainer() -> None:
        began = time.perf_counter()
        trainer()
        seconds_by_loop["trainer"] = time.perf_counter() - began

    def run_bare() -> None:
        began = time.perf_counter()
        metrics.update(bare())
        seconds_by_loop["bare"] = time.perf_counter() - began

    current, context = trial.current(), ray.train.get_context()
    runs = (run_trainer, run_bare)
    for run in runs if int(current.trial) % 2 == 0 else runs[::-1]:
        if context.get_world_size() > 1:
            sum_of_ranks()
        run()
    tolerance = 0.0 if context.get_world_size() == 1 else 1e-3
    if not all(
        math.isclose(metrics[name], value, rel_tol=tolerance)
        for name, value in current.final.items()
    ):
        raise RuntimeError(f"not the same model: {metrics} and {current.final}")
    if context.get_world_rank() == 0:
        with open(times, "a") as file:
            file.write(json.dumps([seconds_by_loop["trainer"], seconds_by_loop["bare"]]) + "\n")


# ---- taxi

TAXI_FIXED = {
    "objective": "binary:logistic",
    "eval_metric": "logloss",
    "max_depth": 6,
    "tree_method": "hist",
    "seed": 0,
}


def taxi_matrix(frame: Any, target: Any, threads: int) -> Any:
    import xgboost as xgb

    return xgb.DMatrix(frame, target, nthread=threads)


def taxi_trial(config: dict[str, Any], rounds: int, threads: int, train: Any, valid: Any) -> float:
    """Train, compute the logloss on valid after each round, and return the last logloss."""
    import xgboost as xgb

    history: dict[str, Any] = {}
    params = {**TAXI_FIXED, **config, "nthread": threads}
    xgb.train(
        params, train, rounds, evals=[(valid, "valid")], evals_result=history, verbose_eval=False
    )
    return float(history["valid"]["logloss"][-1])


def taxi_our_loop(config: dict[str, Any]) -> None:
    """Run `taxi_trial` in sweeps, with matrices from the trial's shards.

    The worker caches the matrices.
    """
    import ray.train

    from sweeps import trial

    current, config = trial.current(), dict(config)
    rounds, threads = config.pop("rounds"), current.threads
    train, valid = _matrices(current, threads)
    ray.train.report({"valid-logloss": taxi_trial(config, rounds, threads, train, valid)})

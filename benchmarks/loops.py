"""The work of the benchmarks, as functions that all sides call, and the training loops that run
this work in sweeps and in Ray Train.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

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


def keras_network(input_shape: tuple[int, ...]) -> Any:
    """Return a compiled Keras model with two hidden layers for two classes."""
    import keras

    hidden = [keras.layers.Dense(64, "relu") for _ in range(2)]
    model = keras.Sequential(
        [keras.layers.Input(input_shape), *hidden, keras.layers.Dense(1, "sigmoid")]
    )
    model.compile("adam", "binary_crossentropy")
    return model


def bare_keras(seed: int, epochs: int, train: Any, valid: Any) -> dict[str, float]:
    """Train with `fit`, and compute the logloss on valid after each epoch.

    Then evaluate the model of the best epoch.

    Args:
        seed: The trial's seed. The loop seeds its draws as the trainer does, so that both train the
            same model.
        epochs: Number of epochs.
        train: Features and labels of train.
        valid: Features and labels of valid.

    Returns:
        The metrics of the model of the best epoch, such as `valid-auc`.
    """
    import keras
    import torch

    from sweeps.trainers._metrics import measure

    def state(*parts: int) -> int:
        return int(np.random.SeedSequence(parts).generate_state(1)[0] >> 1)

    def scores(split: str, names: list[str] | None = None) -> dict[str, float]:
        x, y = {"train": train, "valid": valid}[split]
        outputs = [
            model.predict_on_batch(x[start : start + 16_384]) for start in range(0, len(x), 16_384)
        ]
        return measure("binary", split, y, np.concatenate(outputs)[:, 0].astype(np.float64), names)

    def end(epoch: int, logs: Any) -> None:
        loss = scores("valid", ["valid-logloss"])["valid-logloss"]
        if loss < best[0]:
            best[:] = [loss, model.get_weights()]

    keras.utils.clear_session(free_memory=False)
    keras.utils.set_random_seed(state(seed))
    model, best = keras_network(train[0].shape[1:]), [np.inf, []]
    begin = lambda epoch, logs: torch.manual_seed(state(seed, epoch, 0))  # noqa: E731
    callback = keras.callbacks.LambdaCallback(on_epoch_begin=begin, on_epoch_end=end)
    model.fit(*train, batch_size=256, epochs=epochs, verbose=0, callbacks=[callback])
    model.set_weights(best[1])
    return scores("train") | scores("valid")


def paired_keras(config: dict[str, Any]) -> None:
    """Run the built-in Keras trainer and the bare loop in one trial; see `in_turn`."""
    import dataclasses

    import ray.train
    import torch

    from sweeps import trial
    from sweeps.trainers import keras

    options = {
        "model": "benchmarks.loops:keras_network",
        "framework": "torch",
        "standardize_target": True,
    }
    current = dataclasses.replace(trial.current(), options=options)
    trial.set_current(current)

    def table(name: str) -> tuple[np.ndarray, np.ndarray]:
        frame = ray.train.get_dataset_shard(name).materialize().to_pandas()
        return frame.drop(columns=current.label).to_numpy(np.float32), frame[
            current.label
        ].to_numpy()

    def bare() -> dict[str, float]:
        torch.set_num_threads(2)
        train, valid = (
            current.cached(f"bare.{name}", lambda name=name: table(name))
            for name in ("train", "valid")
        )
        return bare_keras(current.seed, config["epochs"], train, valid)

    in_turn(
        config["times"],
        lambda: keras.train_func({"epochs": config["epochs"], "batch_size": 256}),
        bare,
    )


# ---- digits, DDP

EPOCHS = 5
BATCH = 64


def ddp_trial(
    config: dict[str, Any],
    data: Arrays,
    rank: int,
    world: int,
    prepare: Callable[[Any], Any],
    report: Callable[[Any], Any],
) -> None:
    """Train with the DDP loop of Ray's documentation: two hidden layers of 64 units, five epochs,
    one report for each epoch.
    """
    import torch
    from torch import nn

    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows = len(data[0]) // world  # the same number on every rank
    x, y = (
        torch.as_tensor(data[0][rank::world][:rows] / 16, dtype=torch.float32),
        torch.as_tensor(data[2][rank::world][:rows]),
    )
    x_valid, y_valid = torch.as_tensor(data[1] / 16, dtype=torch.float32), torch.as_tensor(data[3])
    network = nn.Sequential(
        nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)
    )
    model = prepare(network)
    optimizer = torch.optim.Adam(
        model.parameters(), lr=config["lr"], weight_decay=config["weight_decay"]
    )
    loss_of = nn.CrossEntropyLoss()
    for _ in range(EPOCHS):
        order = torch.randperm(len(x))
        for inputs, wanted in zip(x[order].split(BATCH), y[order].split(BATCH), strict=True):
            optimizer.zero_grad()
            loss_of(model(inputs), wanted).backward()
            optimizer.step()
        with torch.inference_mode():
            report({"valid-mlogloss": float(loss_of(network(x_valid), y_valid))})


def _ddp_in_ray(config: dict[str, Any], data: Arrays) -> None:
    import ray.train
    import ray.train.torch

    context = ray.train.get_context()
    ddp_trial(
        config,
        data,
        context.get_world_rank(),
        context.get_world_size(),
        ray.train.torch.prepare_model,
        ray.train.report,
    )


def ddp_train_loop(config: dict[str, Any]) -> None:
    """Run `ddp_trial` in Ray Train. `config` contains the data."""
    _ddp_in_ray(config, config["data"])


def ddp_our_loop(config: dict[str, Any]) -> None:
    """Run `ddp_trial` in sweeps.

    Each worker caches all rows and trains on the rows of its rank, as in Ray Train.
    """
    from sweeps import trial

    _ddp_in_ray(config, trial.current().cached("digits", lambda: toy("digits")))


def ddp_bare(rank: int, world: int, folder: str, configs: list[dict[str, float]]) -> None:
    """Run `ddp_trial` without Ray, for all configurations in one process group.

    Rank 0 writes the time at which each trial ended.
    """
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=world
    )
    data, ends, nothing = toy("digits"), [], lambda metrics: None
    for config in configs:
        ddp_trial(config, data, rank, world, DistributedDataParallel, nothing)
        ends.append(time.time())
    if rank == 0:
        Path(folder, "ends.json").write_text(json.dumps(ends))
    dist.destroy_process_group()


# ---- sleep


def sleep(config: dict[str, Any]) -> None:
    """Sleep and report once, in sweeps or in Ray Train."""
    import ray.train

    time.sleep(config["seconds"])
    ray.train.report({"x": config["x"]})


# ---- gangs


def sleep_in_steps(config: dict[str, Any]) -> None:
    """Sleep four times, each time with a sum over all ranks, and report once.

    Each rank writes when and where it ran.
    """
    import ray
    import ray.train

    from sweeps import trial

    began, rank = time.time(), ray.train.get_context().get_world_rank()
    for _ in range(4):
        time.sleep(0.5)
        sum_of_ranks()
    name = trial.current().trial
    place = {
        "trial": name,
        "node": ray.get_runtime_context().get_node_id(),
        "pid": os.getpid(),
        "began": began,
        "ended": time.time(),
    }
    Path(config["folder"], f"rank-{name}-{rank}.json").write_text(json.dumps(place))
    ray.train.report({"x": 1.0})


def sum_of_ranks() -> float:
    """Return the number of ranks, summed over all of them."""
    import torch
    import torch.distributed as dist

    one = torch.ones(1)
    if dist.is_initialized():
        dist.all_reduce(one)
    return float(one)


def report_once(config: dict[str, Any]) -> None:
    """Report once."""
    import ray.train

    ray.train.report({"x": 1.0})


def report_often(config: dict[str, Any]) -> None:
    """Report 20 times, each time after a sum over all ranks, and write the times of the reports.

    Each rank writes its process id.
    """
    import ray.train

    rank = ray.train.get_context().get_world_rank()
    Path(config["folder"], f"at-{rank}-{os.getpid()}").touch()
    for _ in range(20):
        time.sleep(0.05)
        ray.train.report({"x": sum_of_ranks()})
        if rank == 0:
            with open(Path(config["folder"], "reports.txt"), "a") as file:
                file.write(f"{time.time()!r}\n")


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


# ---- loops that wait in the middle of a trial


def _hold(folder: Path, name: str, values: dict[str, Any]) -> None:
    """Write a file that says that the trial has reached this point, and wait until the file `go`
    appears, at most 300 s.
    """
    part = folder / f".{name}"
    part.write_text(json.dumps(values))
    part.rename(folder / f"ready-{name}")
    give_up = time.monotonic() + 300
    while not (folder / "go").exists() and time.monotonic() < give_up:
        time.sleep(0.02)


def _table() -> tuple[Any, Any]:
    import ray.train

    return tuple(
        ray.train.get_dataset_shard(name).materialize().to_pandas() for name in ("train", "valid")
    )


def latched_table(config: dict[str, Any]) -> None:
    """Read every value of the prepared table in sweeps, and wait while the table is in memory."""
    import ray.train

    from sweeps import trial

    tables = _table()
    size = sum(int(t.memory_usage(index=False, deep=True).sum()) for t in tables)
    total = float(sum(t[c].to_numpy().sum() for t in tables for c in t.columns))
    _hold(Path(config["latch"]), trial.current().trial, {"bytes": size, "read": total})
    ray.train.report({"valid-logloss": 0.5, "rows": len(tables[0])})


def latched_trainer(config: dict[str, Any]) -> None:
    """Run the built-in XGBoost trainer in sweeps, and wait before its third report.

    The matrices and some trees are then in memory.
    """
    import ray.train

    from sweeps import trial
    from sweeps.trainers import xgboost

    config, name, report, count = dict(config), trial.current().trial, ray.train.report, 0
    latch = Path(config.pop("latch"))

    def held(*args: Any, **kwargs: Any) -> None:
        nonlocal count
        count += 1
        if count == 3:
            _hold(latch, name, {})
        report(*args, **kwargs)

    _with(ray.train, "report", held, lambda: xgboost.train_func(config))


def first_step(config: dict[str, Any]) -> None:
    """Write the time of the first step to a file, and report once."""
    import ray.train

    Path(config["mark"]).write_text(repr(time.time()))
    ray.train.report({"x": 1.0})


def one_row() -> Any:
    """Return eight rows of data, for sweeps that do not need data."""
    import pandas as pd

    return pd.DataFrame({"x": np.arange(8.0), "y": [0, 1] * 4})


# ---- times of each trial's loop, for --profile


def timed(config: dict[str, Any]) -> None:
    """Run the loop that `config` names.

    Rank 0 appends a line with the trial and the times of its start and end to a file.
    """
    import ray.train

    from sweeps import trial
    from sweeps.core.plugins import references

    began, config = time.time(), dict(config)
    if mark := config.pop("mark", None):
        Path(mark).write_text(repr(began))
    into, loop = Path(config.pop("times")), references.resolve(config.pop("loop"))
    try:
        loop(config)
    finally:
        if ray.train.get_context().get_world_rank() == 0:
            with open(into, "a") as file:
                file.write(json.dumps([trial.current().trial, began, time.time()]) + "\n")


def _with(module: Any, name: str, value: Any, action: Callable[[], None]) -> None:
    """Call a function while an attribute of a module is replaced."""
    old = getattr(module, name)
    setattr(module, name, value)
    try:
        action()
    finally:
        setattr(module, name, old)

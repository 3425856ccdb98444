"""Measure the cost of gangs of warm workers, and the fixed cost of a sweep.

The script measures starts, changes of shape and a lost rank.

*One trial* and *two tiny trials* are commands, from their start to their end, in a folder in which
MLflow's database exists (to create the database takes MLflow 1.4 CPU-seconds, once for each folder
of sweeps). All other sweeps run in a Ray that runs already, and their time is from the start of the
first trial to the end of the last one. *32 trials* train XGBoost on digits, on one worker, on two,
and on one and two in turn; on *two nodes*, each node has one CPU. *40 trials* sleep four times 0.5
s on one or two workers, with a sum over all ranks after each sleep, on three nodes of two logical
CPUs; their share is the time of all ranks over the time of all CPUs. *A gang* is formed again from
workers that were in other gangs meanwhile. *A lost rank* is killed with SIGKILL, and the time ends
with the next report. The row of small trials is the overhead of `xgb_small`, and the row of
distributed trials is the time of `ddp_digits`.

    python -m benchmarks.shapes --repeats 1 --side lost-rank
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import ddp_digits, xgb_small
from benchmarks.common import Measure, Side, Task, Workload
from benchmarks.ours import times_of
from benchmarks.running import ROOT, local_ray, script
from benchmarks.shape_goals import BACKENDS, TRAINERS, goals, notes

TINY = """\
    trainer: {trainer}
    data: {{train: "sklearn:digits", label: target, valid: 0.25}}
    objective: {{metric: valid-mlogloss, goal: minimize}}
    limits: {{max_trials: {trials}}}
    space:
      preprocessor: [StandardScaler]
      scaling: {{num_workers: {workers}}}
      params: {params}
"""
FEW_STEPS = {
    "torch_tabular": "{depth: 1, width: 16, epochs: 2}",
    "xgboost": "{num_boost_round: 2, eta: {uniform: [0.1, 0.3]}}",
}
MANY = """\
    trainer: xgboost
    data: {{train: "sklearn:digits", label: target, valid: 0.25}}
    objective: {{metric: valid-mlogloss, goal: minimize}}
    search: {{algorithm: random, seed: 0}}
    limits: {{max_trials: {trials}}}
    space:
      scaling: {{num_workers: {workers}}}
      params: {{num_boost_round: 20, max_depth: 4, eta: {{uniform: [0.1, 0.3]}}}}
"""
LOOP = """\
    trainer: {{loop: "benchmarks.probe_loops:{loop}", backend: {backend}}}
    data: {{train: "benchmarks.probe_loops:one_row", label: y, valid: 0.5}}
    objective: {{metric: x, goal: minimize}}
    search: {{algorithm: random, seed: 0}}
    limits: {{max_trials: {trials}{limits}}}
    space:
      scaling: {{num_workers: {workers}}}
      params: {{folder: "{folder}"}}
"""
TWO_IN_TURN = "{grid: [1, 2]}"
NODES, PER_NODE = 3, 2


def space_file(task: Task, name: str, text: str) -> Path:
    """Write a space file and return its path."""
    file = task.folder / f"{name}.yaml"
    file.write_text(f"name: {name}\n" + textwrap.dedent(text))
    return file


def swept(task: Task, name: str, text: str, address: str | None = None) -> float:
    """Run a sweep, and return the seconds from the start of the first trial to the end of the last
    one.

    Raises:
        RuntimeError: A trial has not completed.
    """
    import sweeps

    result = sweeps.run(space_file(task, name, text), dir=task.folder / "runs", address=address)
    if result.trials["completed"] < task.trials:
        raise RuntimeError(f"{name}: {result.trials}; {result.notes}")
    begins, ends = times_of(result.dir, name)
    return max(ends) - min(begins)


@contextlib.contextmanager
def nodes(count: int, cpus: int) -> Iterator[str]:
    """Run a Ray cluster of several nodes on this machine, and return its address."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": cpus})
    try:
        for _ in range(count - 1):
            cluster.add_node(num_cpus=cpus)
        yield cluster.address
    finally:
        cluster.shutdown()


# ---- commands


def command(task: Task, trainer: str, workers: int) -> dict[str, Any]:
    """Run a tiny sweep as a command; return its seconds, and the parts before, during and after the
    trials.
    """
    from sweeps.tracking.mlflow import sqlite_tables

    runs = task.folder / "runs"
    runs.mkdir()
    sqlite_tables.create(f"sqlite:///{runs / 'mlflow.db'}")
    text = TINY.format(
        trainer=trainer, trials=task.trials, workers=workers, params=FEW_STEPS[trainer]
    )
    file = space_file(task, "tiny", text)
    began = time.time()
    done = subprocess.run(
        [sys.executable, "-m", "sweeps", "run", str(file), "--dir", str(runs), "--json"],
        cwd=ROOT,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=180,
    )
    whole = time.time() - began
    if done.returncode:
        raise RuntimeError(f"sweeps run failed: {done.stderr[-2000:]}")
    begins, ends = times_of(Path(json.loads(done.stdout)["dir"]), "tiny")
    return {
        "seconds": whole,
        "before": min(begins) - began,
        "during": max(ends) - min(begins),
        "after": began + whole - max(ends),
    }


# ---- changes of shape


def in_turn(task: Task, address: str | None = None) -> dict[str, Any]:
    """Run trials on one worker, on two, and on one and two in turn; return the time of the last
    over the mean of the others.
    """
    seconds = {
        name: swept(task, name, MANY.format(trials=task.trials, workers=workers), address)
        for name, workers in (("one", "1"), ("two", "2"), ("turns", TWO_IN_TURN))
    }
    return {
        "ratio": seconds["turns"] / ((seconds["one"] + seconds["two"]) / 2),
        "seconds": seconds["turns"],
        **seconds,
    }


def in_turn_here(task: Task) -> dict[str, Any]:
    with local_ray():
        return in_turn(task)


def in_turn_on_nodes(task: Task) -> dict[str, Any]:
    with nodes(2, 1) as address:
        return in_turn(task, address)


def utilization(task: Task) -> dict[str, Any]:
    """Run trials that sleep on three nodes; return the used share of the CPUs, the processes, and
    the gangs that were split needlessly.
    """
    workers = "{choice: [1, 2]}"
    text = LOOP.format(
        loop="sleep_in_steps",
        backend="torch",
        trials=task.trials,
        limits="",
        workers=workers,
        folder=task.folder,
    )
    with nodes(NODES, PER_NODE) as address:
        seconds = swept(task, "nodes", text, address)
    ranks = [
        json.loads(line)
        for file in task.folder.glob("rank-*.json")
        for line in file.read_text().splitlines()
    ]
    first, last = min(r["began"] for r in ranks), max(r["ended"] for r in ranks)
    used = sum(r["ended"] - r["began"] for r in ranks)
    gangs: dict[str, list[dict[str, Any]]] = {}
    for rank in ranks:
        gangs.setdefault(rank["trial"], []).append(rank)
    split = [gang for gang in gangs.values() if len({r["node"] for r in gang}) > 1]
    return {
        "ratio": used / (NODES * PER_NODE * (last - first)),
        "seconds": seconds,
        "processes": len({(r["node"], r["pid"]) for r in ranks}),
        "split": len(split),
        "needless": sum(had_room(gang, ranks) for gang in split),
    }


def had_room(gang: list[dict[str, Any]], ranks: list[dict[str, Any]]) -> bool:
    """Return whether one node had room for all workers of a gang during the half second before the
    gang began.
    """
    began, names = min(r["began"] for r in gang), {r["node"] for r in ranks}
    others = [
        r
        for r in ranks
        if r["trial"] != gang[0]["trial"] and r["began"] < began and r["ended"] > began - 0.5
    ]
    return any(PER_NODE - sum(r["node"] == name for r in others) >= len(gang) for name in names)


# ---- gangs


def formed_again(task: Task, backend: str) -> dict[str, Any]:
    """Run trials on two workers and on one in turn; return the median time to connect a gang of
    workers that were connected before.
    """
    import ray

    from sweeps.execution import pool

    log = task.folder / "pool.txt"
    with local_ray():
        remote = ray.remote(num_cpus=0, max_concurrency=10_000)  # type: ignore[call-overload]
        pool.Pool = remote(logged_pool(str(log)))
        text = LOOP.format(
            loop="report_once",
            backend=backend,
            trials=task.trials,
            limits=", max_concurrent_trials: 1",
            workers=TWO_IN_TURN,
            folder=log,
        )
        swept(task, "gangs", text)
    seen: set[str] = set()
    again = []
    for line in log.read_text().splitlines():
        if match := re.search(r"connected (.*) in (\d+) ms", line):
            if match[1] in seen:
                again.append(float(match[2]) / 1000)
            seen.add(match[1])
    return {"ms": statistics.median(again), "most": max(again)}


def logged_pool(file: str) -> type:
    """Return the pool's class, with a log file of the gangs that the pool connects."""
    from sweeps.execution.pool import _Pool

    class LoggedPool(_Pool):
        def __init__(self, *args: Any, **kwargs: Any):
            import logging

            logger = logging.getLogger("sweeps.execution.gangs.worker_pool")
            logger.setLevel(logging.INFO)
            logger.addHandler(logging.FileHandler(file))
            super().__init__(*args, **kwargs)

    return LoggedPool


def lost_rank(task: Task) -> dict[str, Any]:
    """Kill rank 1 of a gang of two in the middle of a trial; return the seconds until the next
    report, and the number of new processes.
    """
    killed: list[tuple[float, set[int]]] = []

    def pids() -> set[int]:
        return {int(file.name.split("-")[2]) for file in task.folder.glob("at-*-*")}

    def kill() -> None:
        while len(reports(task.folder)) < 10:
            time.sleep(0.02)
        (victim,) = task.folder.glob("at-1-*")
        killed.append((time.time(), pids()))
        os.kill(int(victim.name.split("-")[2]), signal.SIGKILL)

    threading.Thread(target=kill, daemon=True).start()
    with local_ray():
        text = LOOP.format(
            loop="report_often",
            backend="torch",
            trials=task.trials,
            limits=", max_failures: 1",
            workers=2,
            folder=task.folder,
        )
        swept(task, "lost", text)
    at, before = killed[0]
    again = min(
        when for when in reports(task.folder) if when > at + 0.25
    )  # Rank 0 may report once more before it waits for rank 1.
    return {"seconds": again - at, "processes": len(pids() - before)}


def reports(folder: Path) -> list[float]:
    """Return the times at which rank 0 has reported."""
    file = folder / "reports.txt"
    return [float(line) for line in file.read_text().splitlines()] if file.exists() else []


# ---- the workload


WORKLOAD = Workload(
    name="shapes",
    title="Gangs of warm workers",
    text=(__doc__ or "").partition("\n\n    python")[0],
    sides=(
        *(
            Side(
                f"one-trial-{key}-{workers}",
                f"one trial, {key}, {workers} worker{'s' * (workers > 1)}",
                lambda task, trainer=trainer, workers=workers: command(task, trainer, workers),
                1,
            )
            for key, trainer in TRAINERS.items()
            for workers in (1, 2)
        ),
        Side("two-tiny", "two tiny trials", lambda task: command(task, "xgboost", 1), 2),
        Side("in-turn", "32 trials on 1 and 2 workers in turn", in_turn_here, 32),
        Side("in-turn-nodes", "the same on two nodes", in_turn_on_nodes, 32),
        Side("three-nodes", "40 trials on three nodes", utilization, 40),
        *(
            Side(
                f"again-{name}",
                f"a gang formed again, {name}",
                lambda task, name=name: formed_again(task, name),
                16,
            )
            for name in BACKENDS
        ),
        Side("lost-rank", "a lost rank", lost_rank, 1),
        Side(
            "ddp",
            "distributed trials, `trainer: torch_tabular`",
            lambda task: ddp_digits.ours(task, True),
            24,
        ),
        Side("bare", "small trials: bare Optuna loop", xgb_small.bare, xgb_small.TRIALS),
        Side(
            "small-loop",
            "small trials: same loop",
            lambda task: xgb_small.ours(task, False, 1),
            xgb_small.TRIALS,
        ),
        Side(
            "small",
            "small trials: `trainer: xgboost`",
            lambda task: xgb_small.ours(task, True, 1),
            xgb_small.TRIALS,
        ),
    ),
    measures=(
        Measure("seconds", "seconds"),
        Measure("ratio", "ratio or share", ""),
        Measure("ms", "to connect", "ms"),
        Measure("trial", "a trial", "ms"),
        Measure("beside", "beside the training", "ms"),
        Measure("processes", "processes", ""),
    ),
    goals=goals,
    notes=notes,
    reference="",
    timeout=300,
)

if __name__ == "__main__":
    sys.exit(script(WORKLOAD))

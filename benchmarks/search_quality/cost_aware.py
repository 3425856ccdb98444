"""Compare `gp` with and without the option `cost` in spaces in which the number of workers is a
dimension.

`python -m benchmarks.search_quality.cost_aware` appends replays to
reports/search_quality_cost_aware.jsonl. With `--report`, it prints a table of those of `--tasks`.

A task is a task of LCBench with one more dimension, `num_workers`: 1, 2 or 4. The value does not
depend on it, because the global batch stays the same. The seconds of an epoch on one worker are
those that LCBench recorded. On n workers, they are multiplied by what the same network and batch
costs on n workers in `gangs.json` (see `record_gangs`), over what they cost on one worker there.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import math
import time
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.interpolate import RegularGridInterpolator

from benchmarks.search_quality import ours
from benchmarks.search_quality.axes import Config, draw, ordered
from benchmarks.search_quality.record_gangs import BATCHES, FILE, LAYERS, UNITS, WORKERS
from benchmarks.search_quality.replay import replay
from benchmarks.search_quality.tasks import Task, task

RESULTS = Path(__file__).parents[2] / "reports" / "search_quality_cost_aware.jsonl"
BUDGETS = tuple(range(1, 41))
MARKS = (10, 25, 40)
TIMED = (10, 25)  # The time to the value at 40 is not known, because replays end at 40.
SIZES = ("batch_size", "max_units")
TASKS = ("lcbench_3945", "lcbench_126026", "lcbench_146212", "lcbench_167184", "lcbench_168330")
# A worker has one CPU. The GPU seconds of workers with one GPU each are equal to the CPU seconds.
METHODS = {"without": "gp", "cost": "gp, options: {cost: cpu_seconds}"}


@cache
def overhead() -> RegularGridInterpolator:
    """Return a function of (number of workers, batch size, units, layers): the logarithm of the
    cost on these workers, over one worker.
    """
    rows = {tuple(row[:4]): math.log(row[4]) for row in json.loads(FILE.read_text())["rows"]}
    table = np.empty([len(axis) for axis in (WORKERS, BATCHES, UNITS, LAYERS)])
    for at in np.ndindex(*table.shape):
        workers, *network = (
            axis[i] for axis, i in zip((WORKERS, BATCHES, UNITS, LAYERS), at, strict=True)
        )
        table[at] = rows[workers, *network] - rows[1, *network]
    return RegularGridInterpolator((WORKERS, np.log(BATCHES), np.log(UNITS), LAYERS), table)


def with_workers(name: str) -> Task:
    """Return a task of LCBench with the dimension `num_workers`.

    The cost of a step is in seconds of all workers together.

    If the name ends with `@large`, all networks scale as well as the largest one in `gangs.json`.
    """
    base, _, large = name.partition("@")
    made = task(base)
    axes = {**made.axes, "num_workers": ordered(*WORKERS)}
    networks = [(math.log(ends[0]), math.log(ends[-1])) for ends in (BATCHES, UNITS)]

    def cost(config: Config) -> np.ndarray:
        if large:
            network = (math.log(BATCHES[-1]), math.log(UNITS[-1]), LAYERS[-1])
        else:
            network = (
                *(
                    np.clip(math.log(config[n]), *ends)
                    for n, ends in zip(SIZES, networks, strict=True)
                ),
                config["num_layers"],
            )
        factor = math.exp(overhead()((config["num_workers"], *network)).item())
        return made.cost_of(config) * factor

    rng = np.random.RandomState(0)
    typical = float(np.median([cost(draw(axes, rng)).sum() for _ in range(501)]))
    return dataclasses.replace(made, axes=axes, cost=cost, typical_cost=typical)


class Paying(ours.Ours):
    """Searcher that records the costs of trials in the study, as a sweep does."""

    def __init__(self, task: Task, seed: int, algorithm: str):
        super().__init__(task, seed, algorithm)
        self.workers: dict[int, int] = {}
        self.spent: dict[int, tuple[int, float]] = {}

    def begin(self) -> tuple[int, dict[str, Any]]:
        number, config = super().begin()
        scaling = {"num_workers": config["num_workers"], "resources_per_worker": {"CPU": 1.0}}
        self.trials[number].set_user_attr("begun", {"scaling": scaling})
        self.workers[number] = config["num_workers"]
        return number, config

    def pay(self, trial: int, seconds: float) -> None:
        """Record a step. `seconds` are those of all workers together."""
        steps, before = self.spent.get(trial, (0, 0.0))
        self.spent[trial] = steps + 1, before + seconds / self.workers[trial]
        self.trials[trial].set_user_attr(
            "told.0", {"reports": [], "steps": steps + 1, "seconds": self.spent[trial][1]}
        )


def run(
    names: Sequence[str],
    methods: Mapping[str, str],
    seeds: Sequence[int],
    minutes: float,
    out: Path,
) -> None:
    """Replay what is not recorded yet, until the time is over."""
    until = time.time() + 60 * minutes
    done = {(row["method"], row["task"], row["seed"]) for row in read(out)}
    for seed, name, method in itertools.product(seeds, names, methods):
        if (method, name, seed) in done or time.time() > until:
            continue
        searcher = Paying(with_workers(name), seed, methods[method])
        began = time.process_time()
        regret = replay(with_workers(name), searcher, BUDGETS, by_cost=True)
        share = {
            n: round(float(np.mean([w == n for w in searcher.workers.values()])), 3)
            for n in WORKERS
        }
        row = {
            "method": method,
            "task": name,
            "seed": seed,
            "regret": [round(r, 5) for r in regret],
            "trials": len(searcher.workers),
        }
        with open(out, "a") as file:
            file.write(
                json.dumps(
                    {**row, "workers": share, "cpu_seconds": round(time.process_time() - began, 2)}
                )
                + "\n"
            )


def read(file: Path) -> list[dict[str, Any]]:
    """Return the recorded replays."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def time_ratio(one: Sequence[float], other: Sequence[float], mark: int) -> float:
    """Return how many times as long a replay takes to reach the regret that another one has after
    `mark` budgets.

    Each time is the first budget with this regret. If the regret is never reached, the time is the
    last budget.
    """
    goal = one[mark - 1]
    first, second = (
        next((i + 1 for i, r in enumerate(curve) if r <= goal), len(curve))
        for curve in (one, other)
    )
    return second / first


def saved(without: Sequence[float], with_cost: Sequence[float], mark: int) -> float:
    """Return the share of the GPU time that a replay with the option needs for the same regret.

    The share is the geometric mean of both directions: the time to the regret of the replay without
    the option, and to the regret of the replay with it. In one direction alone, the replay that
    sets the goal would look faster than an equal one.
    """
    return math.sqrt(time_ratio(without, with_cost, mark) / time_ratio(with_cost, without, mark))


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the table of the report: mean regrets, and the GPU time until the same value as
    without the option.
    """
    by = {(row["method"], row["task"], row["seed"]): row for row in rows}
    columns = [
        "task",
        "pairs",
        "method",
        *map(str, MARKS),
        *(f"time to the same value, {mark}" for mark in TIMED),
        "1, 2, 4 workers",
    ]
    lines = [columns, ["---"] * len(columns)]
    for method in dict.fromkeys(row["method"] for row in rows):
        keys = [key for m, *key in by if m == method and ("without", *key) in by]
        for name in [*dict.fromkeys(name for name, _ in keys), "all"]:
            pairs = [
                (by["without", *key], by[method, *key]) for key in keys if name in (key[0], "all")
            ]
            regrets = [
                f"{np.mean([one['regret'][mark - 1] for _, one in pairs]):.4f}" for mark in MARKS
            ]
            times = (
                [""] * len(TIMED)
                if method == "without"
                else [
                    _mean_with_interval(
                        np.log([saved(a["regret"], b["regret"], mark) for a, b in pairs])
                    )
                    for mark in TIMED
                ]
            )
            shares = ", ".join(
                f"{np.mean([one['workers'][str(n)] for _, one in pairs]):.0%}" for n in WORKERS
            )
            lines.append([name, str(len(pairs)), method, *regrets, *times, shares])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _mean_with_interval(logs: np.ndarray) -> str:
    """Return the geometric mean and its 95% interval as text.

    There is no interval with fewer than three values.
    """
    if len(logs) < 3:
        return f"{math.exp(logs.mean()):.2f}"
    half = 1.96 * logs.std(ddof=1) / len(logs) ** 0.5
    return (
        f"{math.exp(logs.mean()):.2f} ({math.exp(logs.mean() - half):.2f} – "
        f"{math.exp(logs.mean() + half):.2f})"
    )


def main() -> None:
    """Run the replays or print the table."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.search_quality.cost_aware", description=__doc__
    )
    parser.add_argument("--tasks", default=",".join(TASKS), help="separated by ,")
    parser.add_argument("--methods", default=",".join(METHODS), help="separated by ,")
    parser.add_argument("--seeds", default="0-9")
    parser.add_argument("--minutes", type=float, default=9)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument(
        "--report", action="store_true", help="print the table of the recorded replays"
    )
    asked = parser.parse_args()
    if asked.report:
        print(table([row for row in read(asked.out) if row["task"] in asked.tasks.split(",")]))
        return
    first, _, last = asked.seeds.partition("-")
    methods = {name: METHODS[name] for name in asked.methods.split(",")}
    run(
        asked.tasks.split(","),
        methods,
        range(int(first), int(last or first) + 1),
        asked.minutes,
        asked.out,
    )


if __name__ == "__main__":
    main()

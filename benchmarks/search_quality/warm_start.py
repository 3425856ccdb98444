"""Effect of earlier sweeps (`search.from`) on the quality of the search: `python -m
benchmarks.search_quality.warm_start --help`.

Each pair has a task, and an earlier task on which a sweep of the same algorithm ran before. In
related pairs, the earlier task is similar: the same function with other optima and other values, or
a recorded table of the same model on other data. In unrelated pairs, the earlier task has the same
dimensions and nothing else in common. The replays with and without the earlier sweep have the same
seeds.

`... run` adds replays to reports/search_quality_warm_start.jsonl; it may be interrupted at any
time. `... report` writes the tables.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from optuna.trial import TrialState

from benchmarks.search_quality import tasks
from benchmarks.search_quality.axes import Axis, place
from benchmarks.search_quality.ours import Ours
from benchmarks.search_quality.replay import replay
from benchmarks.search_quality.report import section
from benchmarks.search_quality.tasks import Config, Task
from sweeps.search.earlier_trials import EarlierSweep, EarlierTrial
from sweeps.search.samplers.cell_sampler import CellSampler

RESULTS = Path(__file__).parents[2] / "reports" / "search_quality_warm_start.jsonl"
BUDGETS = (2, 5, 10, 25)
# Length of the earlier sweep, in trials of full length; first seed of earlier sweeps; number of
# seeds that share an earlier sweep.
EARLIER_BUDGET, EARLIER_SEED, SHARED = 25, 1000, 2


def task(name: str) -> Task:
    """Return a task.

    The dimensions of tables are numbered, because the trainer in the space file knows the names of
    its parameters.
    """
    original = tasks.task(name)
    if name in tasks.FUNCTIONS:
        return original
    names = {f"a{i}": dimension for i, dimension in enumerate(original.axes)}

    def curve(config: Config) -> np.ndarray:
        return original.curve({names[dimension]: value for dimension, value in config.items()})

    return dataclasses.replace(
        original, axes={new: original.axes[old] for new, old in names.items()}, curve=curve
    )


def at(axis: Axis, place: float) -> Any:
    """Return the value at a place from 0 to 1 between the ends of a dimension; see `axes.place`."""
    place = min(max(place, 0.0), 1.0)
    value = (
        axis.low * (axis.high / axis.low) ** place
        if axis.log
        else axis.low + place * (axis.high - axis.low)
    )
    if axis.kind == "float":
        return min(max(value, axis.low), axis.high)
    return axis.options[round(value)] if axis.kind == "ordered" else round(value)


def moved(name: str, by: float, scale: float) -> Task:
    """Return a function whose optimum is moved by a fraction of each continuous dimension, and
    whose values are scaled.
    """
    original = task(name)

    def curve(config: Config) -> np.ndarray:
        changed = dict(config)
        for i, (dimension, axis) in enumerate(original.axes.items()):
            if axis.kind == "float":
                low, high = (
                    (np.log(axis.low), np.log(axis.high)) if axis.log else (axis.low, axis.high)
                )
                place = (np.log(config[dimension]) if axis.log else config[dimension]) - low
                value = low + place + (by if i % 2 else -by) * (high - low)
                changed[dimension] = float(np.exp(value) if axis.log else value)
        return 3.0 + scale * original.curve(changed)

    return dataclasses.replace(original, name=f"{name}, moved", curve=curve)


def mirrored(name: str) -> Task:
    """Return a task in which every number is replaced by its mirror image in the range, and options
    are in another order.
    """
    original = task(name)

    def curve(config: Config) -> np.ndarray:
        return original.curve(
            {n: at(axis, 1.0 - place(axis, config[n])) for n, axis in original.axes.items()}
        )

    return dataclasses.replace(original, name=f"{name}, mirrored", curve=curve)


def renamed(name: str, target: str) -> Task:
    """Return a task whose dimensions have the names and the ranges of another task's dimensions.

    The n-th dimension is the n-th one of the original task: the place between the ends stays the
    same. A dimension of the original task that the other task lacks is in the middle.
    """
    original, dimensions = task(name), task(target).axes
    names = dict(zip(original.axes, dimensions, strict=False))

    def curve(config: Config) -> np.ndarray:
        places = {own: place(dimensions[other], config[other]) for own, other in names.items()}
        return original.curve(
            {own: at(axis, places.get(own, 0.5)) for own, axis in original.axes.items()}
        )

    return dataclasses.replace(original, name=f"{name} as {target}", axes=dimensions, curve=curve)


def shuffled(name: str) -> Task:
    """Return a table in which the values of each dimension are in a random order."""
    original, rng = task(name), np.random.RandomState(1)
    orders = {
        dimension: rng.permutation(int(axis.high) + 1) for dimension, axis in original.axes.items()
    }

    def curve(config: Config) -> np.ndarray:
        return original.curve(
            {dimension: int(orders[dimension][value]) for dimension, value in config.items()}
        )

    return dataclasses.replace(original, name=f"{name}, shuffled", curve=curve)


# Pairs of a task and the function that returns the earlier task. `search.from` was tuned on the
# pairs of the six functions.
TUNED: Mapping[str, Mapping[str, Callable[[], Task]]] = {
    "related": {
        "branin": lambda: moved("branin", 0.05, 2.0),
        "hartmann6": lambda: moved("hartmann6", 0.05, 0.5),
        "rosenbrock4": lambda: moved("rosenbrock4", 0.05, 2.0),
        "ackley5": lambda: moved("ackley5", 0.05, 0.5),
        "cells": lambda: moved("cells", 0.1, 2.0),
        "crossing": lambda: moved("crossing", 0.1, 0.5),
    },
    "unrelated": {
        "branin": lambda: mirrored("branin"),
        "hartmann6": lambda: mirrored("hartmann6"),
        "rosenbrock4": lambda: renamed("crossing", "rosenbrock4"),
        "ackley5": lambda: mirrored("ackley5"),
        "cells": lambda: mirrored("cells"),
        "crossing": lambda: renamed("rosenbrock4", "crossing"),
    },
}
HELD_OUT: Mapping[str, Mapping[str, Callable[[], Task]]] = {
    "related": {
        "xgb_cancer": lambda: task("xgb_digits"),
        "xgb_california": lambda: task("xgb_cancer"),
        "mlp_california": lambda: task("mlp_digits"),
        "mlp_digits": lambda: task("mlp_california"),
        "lcbench_146212": lambda: task("lcbench_168330"),
        "lcbench_168335": lambda: task("lcbench_167184"),
        "smooth_11": lambda: moved("smooth_11", 0.1, 2.0),
        "smooth_16": lambda: moved("smooth_16", 0.1, 0.5),
        "mixed_13": lambda: moved("mixed_13", 0.1, 0.5),
        "rough_12": lambda: moved("rough_12", 0.1, 2.0),
    },
    "unrelated": {
        "xgb_cancer": lambda: shuffled("xgb_digits"),
        "xgb_california": lambda: renamed("mlp_digits", "xgb_california"),
        "mlp_california": lambda: shuffled("mlp_digits"),
        "mlp_digits": lambda: renamed("xgb_california", "mlp_digits"),
        "lcbench_146212": lambda: mirrored("lcbench_168330"),
        "lcbench_168335": lambda: renamed("smooth_11", "lcbench_168335"),
        "smooth_11": lambda: renamed("smooth_14", "smooth_11"),
        "smooth_16": lambda: renamed("mixed_13", "smooth_16"),
        "mixed_13": lambda: renamed("lcbench_3945", "mixed_13"),
        "rough_12": lambda: renamed("smooth_14", "rough_12"),
    },
}
KINDS = {kind: {**HELD_OUT[kind], **TUNED[kind]} for kind in HELD_OUT}


class Warm(Ours):
    """Searcher that learns from an earlier sweep, as a sweep with `search.from` does."""

    def __init__(self, target: Task, seed: int, algorithm: str, earlier: EarlierSweep):
        super().__init__(target, seed, algorithm)
        self.sampler = self.study.sampler = CellSampler(self.space, [earlier])
        self._points = list(self.sampler.starting_points)

    def begin(self) -> tuple[int, dict[str, Any]]:
        if self._points:
            self.study.enqueue_trial(self._points.pop(0))
        return super().begin()


@cache
def earlier_sweep(kind: str, name: str, algorithm: str, seed: int) -> EarlierSweep:
    """Run the earlier sweep of a pair, and return its trials."""
    source = KINDS[kind][name]()
    searcher = Ours(source, EARLIER_SEED + seed, algorithm)
    replay(source, searcher, (EARLIER_BUDGET,))
    trials = []
    for t in searcher.study.get_trials(deepcopy=False):
        if t.intermediate_values:
            values = tuple(t.values) if t.state is TrialState.COMPLETE else None
            trials.append(EarlierTrial(t.params, t.intermediate_values, values))
    return EarlierSweep(source.name, "", tuple(trials))


def run(
    kinds: list[str],
    names: list[str],
    algorithm: str,
    seeds: range,
    minutes: float,
    out: Path,
    label: str,
) -> None:
    """Run the replays that are not recorded yet, seed by seed, until the time is over."""
    until = time.time() + 60 * minutes
    done = {(r["kind"], r["method"], r["task"], r["seed"]) for r in read(out)}
    for seed in seeds:
        for kind in [*kinds, "without"]:
            for name in names:
                method = algorithm if kind == "without" else f"{algorithm}{label}"
                if (kind, method, name, seed) in done:
                    continue
                if time.time() > until:
                    return
                earlier = (
                    None
                    if kind == "without"
                    else earlier_sweep(kind, name, algorithm, seed // SHARED)
                )
                began = time.time()
                searcher = (
                    Ours(task(name), seed, algorithm)
                    if earlier is None
                    else Warm(task(name), seed, algorithm, earlier)
                )
                regret = [round(r, 5) for r in replay(task(name), searcher, BUDGETS)]
                row = {
                    "kind": kind,
                    "method": method,
                    "task": name,
                    "seed": seed,
                    "budgets": BUDGETS,
                    "regret": regret,
                }
                with open(out, "a") as f:
                    f.write(json.dumps({**row, "seconds": round(time.time() - began, 2)}) + "\n")


def read(file: Path) -> list[dict]:
    """Return the recorded replays."""
    return (
        [json.loads(line) for line in file.read_text().splitlines() if line.endswith("}")]
        if file.exists()
        else []
    )


def pairs(rows: list[dict], kind: str, method: str, name: str) -> np.ndarray:
    """Return the regrets of a task with and without the earlier sweep, as an array (replays, 2,
    budgets).
    """
    known = {
        (r["kind"], r["method"], r["task"], r["seed"]): r["regret"]
        for r in rows
        if r["task"] == name
    }
    algorithm = method.split(" ")[0]
    both = [
        (regret, known.get(("without", algorithm, t, s)))
        for (k, m, t, s), regret in known.items()
        if (k, m) == (kind, method)
    ]
    return np.array([pair for pair in both if pair[1] is not None]).reshape(-1, 2, len(BUDGETS))


def table(rows: list[dict], kind: str, method: str, names: Iterable[str]) -> str:
    """Return a Markdown table with the mean regrets with / without the earlier sweep."""
    lines = [
        "| task | earlier task | " + " | ".join(f"{b} full budgets" for b in BUDGETS) + " | seeds |"
    ]
    lines += ["|---|---|" + "---|" * (len(BUDGETS) + 1)]
    of_tasks = {name: gaps for name in names if len(gaps := pairs(rows, kind, method, name))}
    for name, gaps in of_tasks.items():
        cells = " | ".join(f"{a:.3f} / {b:.3f}" for a, b in gaps.mean(axis=0).T)
        lines.append(f"| {name} | {KINDS[kind][name]().name} | {cells} | {len(gaps)} |")
    gaps = np.concatenate([*of_tasks.values()])
    mean = gaps.mean(axis=0)
    lines.append(
        "| all | | " + " | ".join(f"{a:.3f} / {b:.3f}" for a, b in mean.T) + f" | {len(gaps)} |"
    )
    ratios = (
        f"{a / b:.2f} ({low:.2f} – {high:.2f})"
        for (a, b), (low, high) in zip(mean.T, interval([*of_tasks.values()]).T, strict=True)
    )
    lines.append("| ratio | | " + " | ".join(ratios) + " | |")
    return "\n".join(lines) + "\n"


def interval(groups: Sequence[np.ndarray]) -> np.ndarray:
    """Return the 95% bootstrap interval of the ratio of the mean regrets: (2, budgets).

    The replays of each task are drawn anew.

    Args:
        groups: Arrays (replays, 2, budgets) of the tasks.
    """
    rng = np.random.RandomState(0)
    drawn = [
        np.concatenate([group[rng.randint(len(group), size=len(group))] for group in groups]).mean(
            axis=0
        )
        for _ in range(2000)
    ]
    ratios: np.ndarray = np.quantile(
        [with_it / without for with_it, without in drawn], (0.025, 0.975), axis=0
    )
    return ratios


GROUPS = {"not used for tuning": HELD_OUT["related"], "used for tuning": TUNED["related"]}


def report(rows: list[dict]) -> str:
    """Return all tables as Markdown."""
    parts = []
    methods = dict.fromkeys((r["kind"], r["method"]) for r in rows if r["kind"] != "without")
    for group, names in GROUPS.items():
        for kind, method in methods:
            if any(len(pairs(rows, kind, method, name)) for name in names):
                title = (
                    f"{kind.capitalize()} pairs that were {group}, `{method}`, regret with / "
                    "without the earlier sweep:"
                )
                parts.append(f"{title}\n\n{table(rows, kind, method, names)}")
    return "\n".join(parts)


def main() -> None:
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.search_quality.warm_start", description=__doc__
    )
    parser.add_argument("verb", choices=["run", "report", "show"])
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--tasks", default=",".join(HELD_OUT["related"]), help="separated by ,")
    parser.add_argument("--algorithm", default="gp")
    parser.add_argument("--seeds", default="0-7")
    parser.add_argument("--minutes", type=float, default=7)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument(
        "--label", default="", help="text after the algorithm's name, for a variant"
    )
    asked = parser.parse_args()
    if asked.verb == "report":
        section(
            RESULTS.with_name("search_quality.md"),
            "<!-- warm start -->",
            "<!-- end of the warm start -->",
            report(read(asked.out)),
        )
    elif asked.verb == "show":
        print(report(read(asked.out)))
    else:
        first, _, last = asked.seeds.partition("-")
        seeds = range(int(first), int(last or first) + 1)
        run(
            asked.kinds.split(","),
            asked.tasks.split(","),
            asked.algorithm,
            seeds,
            asked.minutes,
            asked.out,
            asked.label,
        )


if __name__ == "__main__":
    main()

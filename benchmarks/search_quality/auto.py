"""Measure what the choice of `search.algorithm: auto` rests on: `python -m
benchmarks.search_quality.auto --help`.

Which algorithm is better with many trials, with several objectives, and in the same wall time if a
trial costs less than a suggestion? All tasks are tasks for development.

`... run` adds replays to reports/search_quality_auto.jsonl; it may be interrupted at any time. `...
report` writes the tables.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import optuna

from benchmarks.search_quality.__main__ import METHODS, NONE
from benchmarks.search_quality.axes import Axis, Config, draw, place
from benchmarks.search_quality.ours import Ours
from benchmarks.search_quality.replay import WORKERS, Searcher, replay
from benchmarks.search_quality.report import read, section
from benchmarks.search_quality.tasks import STEPS, Task, task

RESULTS = Path(__file__).parents[2] / "reports" / "search_quality_auto.jsonl"

# Replays of many trials. The budgets of a replay are the last one, halved again and again, with
# five more between each two.
TASKS = ("rough_0", "mixed_1", "smooth_1", "hartmann6", "conditional_1", "failing_0")
LAST = {
    "sweeps gp": 200,
    "sweeps tpe": 200,
    "sweeps random": 200,
    "ray asha, tpe per rung": 200,
    "ray asha, random": 200,
}
LAST |= {"sweeps gp, none": 1000, "sweeps tpe, none": 1000, "sweeps random, none": 1000}

# A wall time is computed from a replay: training of a step, and for each trial a suggestion and the
# other work of sweeps (reports/LOG.md).
TRIAL_SECONDS = 0.02
WALL_TIMES = (
    (0, 10),
    (0, 20),
    (0.003, 20),
    (0.01, 20),
    (0.03, 20),
    (0.1, 40),
    (0.3, 60),
    (1, 120),
)  # seconds of a step, of the sweep
IN_TIME = ("sweeps gp", "sweeps tpe", "sweeps random", "sweeps random, none")

# Replays of several objectives.
PROBLEMS = (
    "smooth_0 2",
    "conditional_0 2",
    "rough_0 2",
    "dtlz2 2",
    "smooth_0 3",
    "conditional_0 3",
    "rough_0 3",
    "dtlz2 3",
)
SAMPLERS = {
    "gp": "gp",
    "tpe": "tpe",
    "Optuna's TPE": '"optuna.samplers:TPESampler"',
    "nsga2": "nsga2",
}
TRIALS = (20, 60, 200, 600)


# ---- many trials


class Counted:
    """A searcher whose trials and suggestions are counted.

    Attributes:
        started: The number of trials that were started before each report.
        seconds: CPU time of each suggestion.
    """

    def __init__(self, searcher: Searcher):
        self.searcher = searcher
        self.started: list[int] = []
        self.seconds: list[float] = []
        self.end = searcher.end

    def begin(self) -> tuple[int, dict[str, Any]] | None:
        began = time.process_time()
        trial = self.searcher.begin()
        self.seconds += [] if trial is None else [time.process_time() - began]
        return trial

    def report(self, trial: int, step: int, value: float) -> bool:
        self.started.append(len(self.seconds))
        return self.searcher.report(trial, step, value)

    def fail(self, trial: int) -> None:
        self.started.append(len(self.seconds))
        self.searcher.fail(trial)


def replay_many(method: str, name: str, seed: int) -> dict[str, Any]:
    """Replay a task up to the method's last budget.

    Return the regret and the number of started trials at each budget.
    """
    one = task(name, seed)
    budgets = [LAST[method] * 2 ** (-i / 6) for i in range(60, -1, -1)]
    counted = Counted(METHODS[method](one, seed))
    regret = replay(one, counted, tuple(budgets))
    trials = [
        counted.started[min(math.ceil(budget * one.steps), len(counted.started)) - 1]
        for budget in budgets
    ]
    return {
        "budgets": [round(b, 3) for b in budgets],
        "regret": [round(r, 4) for r in regret],
        "trials": trials,
        "suggestion": round(statistics.mean(counted.seconds), 5),
        "steps": one.steps,
    }


def many_trials(rows: Sequence[dict], methods: Sequence[str], marks: Sequence[int]) -> str:
    """Return a Markdown table of the regret at some budgets and of the number of started trials,
    with one line for each task.
    """
    lines = ["| task | " + " | ".join(map(title, methods)) + " |", "|---|" + "---|" * len(methods)]
    for name in TASKS:
        cells = []
        for method in methods:
            chosen = [r for r in rows if r["task"] == name and r["method"] == method]
            regrets = (
                [
                    statistics.mean(r["regret"][r["budgets"].index(mark)] for r in chosen)
                    for mark in marks
                ]
                if chosen
                else []
            )
            trials = f" ({statistics.mean(r['trials'][-1] for r in chosen):,.0f})" if chosen else ""
            cells.append(", ".join(f"{regret:.3f}" for regret in regrets) + trials)
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def title(method: str) -> str:
    """Return a method as the head of a column."""
    name = method.removeprefix("sweeps ").removesuffix(", none")
    shown = f"`{name}`" if method.startswith("sweeps ") else name
    return shown + (", no scheduler" if method.endswith(", none") else "")


def regret_in_time(row: dict, step: float, seconds: float) -> tuple[float, bool]:
    """Return the regret of a replay after a wall time, and whether the replay is that long.

    Args:
        row: Replay of `replay_many`.
        step: Seconds of a step of training.
        seconds: Wall time of the sweep. Suggestions and other work are done one at a time, and
            training on all workers at once.
    """
    regret = 1.0
    for budget, trials, value in zip(row["budgets"], row["trials"], row["regret"], strict=True):
        if (
            trials * (TRIAL_SECONDS + row["suggestion"]) + budget * row["steps"] * step / WORKERS
            > seconds
        ):
            return regret, True
        regret = min(1.0, value)
    return regret, False


def wall_times(rows: Sequence[dict]) -> str:
    """Return a Markdown table of the mean regret after a wall time, with one line for each duration
    of a step.
    """
    methods = [m for m in IN_TIME if any(r["method"] == m for r in rows)]
    lines = [
        "| seconds of a step | wall time | " + " | ".join(map(title, methods)) + " |",
        "|---|---|" + "---|" * len(methods),
    ]
    for step, seconds in WALL_TIMES:
        cells = []
        for method in methods:
            regrets = [regret_in_time(r, step, seconds) for r in rows if r["method"] == method]
            cells.append(
                f"{statistics.mean(r for r, _ in regrets):.3f}"
                + ("" if all(long for _, long in regrets) else "*")
            )
        lines.append(f"| {step:g} | {seconds} s | " + " | ".join(cells) + " |")
    return "\n".join(lines)


# ---- several objectives


def problem(name: str) -> tuple[Task, Callable[[Config], list[float]]]:
    """Return a task and the function of its objectives, for a name such as `rough_0 2`: a task and
    a number of objectives.

    The objectives of a generated task are the last value, the logarithm of the seconds, and the
    squared distance from a corner. `dtlz2` is DTLZ2 (Deb et al., 2002) with three dimensions more
    than objectives.
    """
    base, _, number = name.partition(" ")
    size = int(number)
    if base == "dtlz2":
        axes = {f"x{i}": Axis("float", 0.0, 1.0) for i in range(size + 3)}
        return Task(name, axes, lambda config: np.zeros(STEPS), 0.0, 1.0), lambda config: dtlz2(
            [config[x] for x in axes], size
        )
    one = task(base)

    def objectives(config: Config) -> list[float]:
        places = [place(one.axes[n], v) for n, v in config.items() if one.axes[n].kind != "choice"]
        return [
            float(one.curve(config)[-1]),
            math.log(float(one.cost_of(config).sum())),
            sum(p**2 for p in places) / len(places),
        ][:size]

    return one, objectives


def dtlz2(x: Sequence[float], size: int) -> list[float]:
    """Return the objectives of DTLZ2 (Deb et al., 2002): the first numbers give a direction, and
    the others a distance of at least 1.
    """
    far = 1 + sum((v - 0.5) ** 2 for v in x[size - 1 :])
    angles = [v * math.pi / 2 for v in x[: size - 1]]
    points = []
    for i in range(size):
        value = far * math.prod(math.cos(a) for a in angles[: size - 1 - i])
        points.append(value * (math.sin(angles[size - 1 - i]) if i else 1))
    return points


def replay_objectives(sampler: str, name: str, seed: int) -> dict[str, Any]:
    """Replay a problem with 4 workers and without a scheduler.

    Return the hypervolume after each number of trials in `TRIALS`.

    The reference point is the third quartile of each objective among 3,000 random configurations.
    """
    one, objectives = problem(name)
    rng = np.random.RandomState(7)
    reference = np.quantile([objectives(draw(one.axes, rng)) for _ in range(3000)], 0.75, axis=0)
    ours = Ours(one, seed, SAMPLERS[sampler], NONE, objectives=len(reference))
    running: list[tuple[int, Config]] = []
    values: list[list[float]] = []
    volumes = []
    while len(values) < TRIALS[-1]:
        while len(running) < WORKERS:
            running.append(ours.begin())
        trial, config = running.pop(0)
        values.append(objectives(config))
        ours.report(trial, one.steps, values[-1][0])
        ours.end(trial, *values[-1][1:])
        if len(values) in TRIALS:
            inside = np.minimum(values, reference)
            volumes.append(
                round(float(optuna._hypervolume.compute_hypervolume(inside, reference)), 6)
            )
    return {"hypervolume": volumes}


def several_objectives(rows: Sequence[dict], size: int) -> str:
    """Return a Markdown table of the hypervolumes after some numbers of trials, as shares of the
    largest of any replay of the problem.
    """
    lines = [
        f"| {size} objectives | "
        + " | ".join(title(f"sweeps {s}" if s in ("gp", "tpe", "nsga2") else s) for s in SAMPLERS)
        + " |"
    ]
    lines.append("|---|" + "---|" * len(SAMPLERS))
    for name in (p for p in PROBLEMS if p.endswith(f" {size}")):
        of_problem = [r for r in rows if r["task"] == name]
        largest = max((r["hypervolume"][-1] for r in of_problem), default=1.0)
        cells = []
        for sampler in SAMPLERS:
            volumes = (
                np.array([r["hypervolume"] for r in of_problem if r["method"] == sampler]) / largest
            )
            half = (
                f" ± {1.96 * volumes[:, -1].std(ddof=1) / len(volumes) ** 0.5:.2f}"
                if len(volumes) > 1
                else ""
            )
            cells.append(
                ", ".join(f"{share:.2f}" for share in volumes.mean(axis=0)) + half
                if len(volumes)
                else ""
            )
        lines.append(f"| {name.partition(' ')[0]} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


# ---- commands


def run(minutes: float, out: Path = RESULTS) -> None:
    """Run the replays that are not recorded yet, until the time is over."""
    until = time.time() + 60 * minutes
    done = {(r["method"], r["task"], r["seed"]) for r in read(out)}
    cases = [
        (replay_objectives, method, name, seed)
        for seed in range(5)
        for name in PROBLEMS
        for method in SAMPLERS
    ]
    cases += [
        (replay_many, method, name, seed) for seed in range(2) for name in TASKS for method in LAST
    ]
    for case, method, name, seed in cases:
        if (method, name, seed) in done:
            continue
        if time.time() > until:
            return
        row = {"method": method, "task": name, "seed": seed, **case(method, name, seed)}
        with open(out, "a") as f:
            f.write(json.dumps(row) + "\n")


def report(rows: Sequence[dict]) -> str:
    """Return all tables as Markdown."""
    asha = [m for m in LAST if not m.endswith(", none")]
    parts = [
        (
            "**Many trials, under ASHA.** A cell has the regret at 50, 100 and 200 full budgets, "
            "and "
            "the number of started trials:"
        ),
        many_trials(rows, [m for m in asha if m != "sweeps random"], (50, 100, 200)),
        (
            "**Many trials, without a scheduler.** A cell has the regret at 125, 250, 500 and "
            "1,000 "
            "full budgets, and the started trials:"
        ),
        many_trials(rows, [m for m in LAST if m not in asha], (125, 250, 500, 1000)),
        (
            "**Trials that cost less than a suggestion.** A cell has the mean regret after a wall "
            "time:"
        ),
        wall_times(rows),
        (
            "**Several objectives.** A cell has the hypervolume after 20, 60, 200 and 600 trials, "
            "as "
            "a share of the largest:"
        ),
        several_objectives(rows, 2),
        several_objectives(rows, 3),
    ]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Run the replays or write the tables."""
    warnings.simplefilter("ignore")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.search_quality.auto", description=__doc__
    )
    parser.add_argument("verb", choices=["run", "report"])
    parser.add_argument("--minutes", type=float, default=7)
    asked = parser.parse_args()
    if asked.verb == "report":
        section(
            RESULTS.with_name("search_quality.md"),
            "<!-- auto -->",
            "<!-- end of auto -->",
            report(read(RESULTS)),
        )
    else:
        run(asked.minutes)


if __name__ == "__main__":
    main()

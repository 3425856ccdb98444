"""Commands of the benchmark of search quality.

`python -m benchmarks.search_quality run --minutes 7` adds replays to reports/search_quality.jsonl.
It may be interrupted at any time. `--half held` replays the tasks that are looked at once, before a
report. `... bound` adds replays of `tpe` with and without the bound on its kernels. `... report`
writes reports/search_quality.md from these replays. `... cost` measures the time of a suggestion.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna

from benchmarks.search_quality import bound, report
from benchmarks.search_quality.cost import measure
from benchmarks.search_quality.ours import Ours
from benchmarks.search_quality.peers import Optuna, Random, Ray, RungStudies, SyneTune
from benchmarks.search_quality.replay import BUDGETS, replay
from benchmarks.search_quality.split import HALVES
from benchmarks.search_quality.tasks import STEPS, task

RESULTS = Path(__file__).parents[2] / "reports" / "search_quality.jsonl"
BY_COST = RESULTS.with_name("search_quality_cost.jsonl")
BOUND = RESULTS.with_name("search_quality_bound.jsonl")

NONE = f"{{name: none, max_t: {STEPS}}}"
PROMOTION = f"{{name: asha, max_t: {STEPS}, type: promotion}}"

METHODS: dict[str, Callable[[Any, int], Any]] = {
    "random": Random,
    "optuna tpe, median": lambda t, s: Optuna(t, s, optuna.pruners.MedianPruner()),
    "optuna tpe, hyperband": lambda t, s: Optuna(
        t, s, optuna.pruners.HyperbandPruner(1, t.steps, 3)
    ),
    "ray asha, random": lambda t, s: Ray(t, s, "random"),
    "ray asha, optunasearch": lambda t, s: Ray(t, s, "optuna"),
    "ray asha, tpe per rung": RungStudies,
    "pasha": lambda t, s: SyneTune(t, s, "pasha"),
    "mobster": lambda t, s: SyneTune(t, s, "mobster"),
    "dyhpo": lambda t, s: SyneTune(t, s, "dyhpo"),
    "sweeps random": lambda t, s: Ours(t, s, "random"),
    "sweeps auto": lambda t, s: Ours(
        t, s, "auto", max_trials=500
    ),  # The limit is what `auto` reads; a replay may start more trials.
    "sweeps tpe": lambda t, s: Ours(t, s, "tpe"),
    "sweeps gp": lambda t, s: Ours(t, s, "gp"),
    "sweeps tpe, hyperband": lambda t, s: Ours(t, s, "tpe", f"{{name: hyperband, max_t: {STEPS}}}"),
    "sweeps gp, hyperband": lambda t, s: Ours(t, s, "gp", f"{{name: hyperband, max_t: {STEPS}}}"),
    "sweeps tpe, none": lambda t, s: Ours(t, s, "tpe", NONE),
    "sweeps gp, none": lambda t, s: Ours(t, s, "gp", NONE),
    "sweeps random, none": lambda t, s: Ours(t, s, "random", NONE),
    "sweeps random, promotion": lambda t, s: Ours(t, s, "random", PROMOTION),
    "sweeps tpe, promotion": lambda t, s: Ours(t, s, "tpe", PROMOTION),
    "sweeps gp, promotion": lambda t, s: Ours(t, s, "gp", PROMOTION),
    "sweeps qmc": lambda t, s: Ours(t, s, "qmc"),
}


def run(
    methods: list[str],
    tasks: list[str],
    seeds: range,
    minutes: float,
    budgets: tuple[float, ...],
    out: Path = RESULTS,
    by_cost: bool = False,
) -> None:
    """Run the replays that are not recorded yet, seed by seed, until the time is over.

    With `by_cost`, tasks without costs are left out.
    """
    until = time.time() + 60 * minutes
    done = {(r["method"], r["task"], r["seed"]): len(r["regret"]) for r in report.read(out)}
    for seed in seeds:
        for method in methods:
            for name in tasks:
                if done.get((method, name, seed), 0) >= len(budgets):
                    continue
                if time.time() > until:
                    return
                began, one = time.time(), task(name, seed)
                if by_cost and one.cost is None:
                    continue
                searcher = METHODS[method](one, seed)
                try:
                    regret = replay(one, searcher, budgets, by_cost=by_cost)
                finally:
                    getattr(searcher, "close", lambda: None)()
                row = {
                    "method": method,
                    "task": name,
                    "seed": seed,
                    "budgets": budgets,
                    "regret": [round(r, 5) for r in regret],
                }
                with open(out, "a") as f:
                    f.write(json.dumps({**row, "seconds": round(time.time() - began, 2)}) + "\n")


def main() -> None:
    warnings.simplefilter("ignore")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.search_quality", description=__doc__
    )
    parser.add_argument("verb", choices=["run", "bound", "report", "cost"])
    parser.add_argument("--methods", default=";".join(METHODS), help="separated by ;")
    parser.add_argument(
        "--half",
        choices=[*HALVES],
        default="dev",
        help="the tasks for development, or those that are looked at once",
    )
    parser.add_argument("--tasks", help="separated by , (default: all of the half)")
    parser.add_argument(
        "--by-cost",
        action="store_true",
        help="budgets are seconds, and replays go to reports/search_quality_cost.jsonl",
    )
    parser.add_argument("--seeds", default="0-29")
    parser.add_argument("--minutes", type=float, default=7)
    parser.add_argument("--budgets", default=",".join(map(str, BUDGETS)))
    asked = parser.parse_args()
    if asked.verb == "report":
        report.write(RESULTS)
        report.write_costs(BY_COST, RESULTS.with_suffix(".md"))
        bound.write(BOUND, RESULTS.with_suffix(".md"))
    elif asked.verb == "cost":
        measure()
    first, _, last = asked.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    if asked.verb == "bound":
        bound.run(asked.minutes, seeds, BOUND)
    elif asked.verb == "run":
        budgets = tuple(float(b) for b in asked.budgets.split(","))
        tasks = asked.tasks.split(",") if asked.tasks else list(HALVES[asked.half])
        run(
            asked.methods.split(";"),
            tasks,
            seeds,
            asked.minutes,
            budgets,
            BY_COST if asked.by_cost else RESULTS,
            asked.by_cost,
        )


if __name__ == "__main__":
    main()

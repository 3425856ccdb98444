"""Compare schedulers that pause trials with ASHA that stops them: `python -m
benchmarks.search_quality.pausing --help`.

`promotion` is ASHA that pauses a trial at a rung and continues it when it is among the best of the
rung.
All replays of a seed start with the same configurations.

`... run` adds replays to reports/search_quality_pausing.jsonl; it may be interrupted at any time.
`... report` writes the tables.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import optuna

from benchmarks.search_quality.__main__ import run
from benchmarks.search_quality.report import read, section
from benchmarks.search_quality.tasks import names

RESULTS = Path(__file__).parents[2] / "reports" / "search_quality_pausing.jsonl"
BUDGETS = (10.0, 25.0, 50.0)
ALGORITHMS = ("random", "gp")
SCHEDULERS = {"stopping": "", "promotion": ", promotion"}


def regrets(rows: Sequence[dict], algorithm: str) -> tuple[np.ndarray, list[tuple[str, int]]]:
    """Return the regrets of an algorithm as an array (schedulers, replays, budgets), and the task
    and the seed of each replay.

    Only a task and seed that all schedulers have replayed count.
    """
    known = {(r["method"], r["task"], r["seed"]): r["regret"] for r in rows}
    methods = [f"sweeps {algorithm}{suffix}" for suffix in SCHEDULERS.values()]
    keys = [
        (t, s)
        for m, t, s in known
        if m == methods[0] and all((other, t, s) in known for other in methods)
    ]
    return np.array([[known[method, *key] for key in keys] for method in methods]).reshape(
        len(methods), -1, len(BUDGETS)
    ), keys


def table(rows: Sequence[dict], algorithm: str) -> str:
    """Return a Markdown table with the mean regret of each scheduler, and its difference from
    stopping on the same task and seed.
    """
    regret_rows, keys = regrets(rows, algorithm)
    if len(keys) < 2:
        return ""
    tasks = np.array([task for task, _ in keys])
    header = [f"`{algorithm}`", *(f"{budget:g} full budgets" for budget in BUDGETS), "replays"]
    lines = [header, ["---"] * len(header)]
    for name, regret in zip(SCHEDULERS, regret_rows, strict=True):
        means, more = over_tasks(regret, tasks)[0], over_tasks(regret - regret_rows[0], tasks)
        cells = [f"{mean:.3f}" for mean in means]
        if name != "stopping":
            cells = [
                f"{cell} ({mean:+.3f} ± {half:.3f})"
                for cell, mean, half in zip(cells, *more, strict=True)
            ]
        lines.append([name, *cells, str(len(keys))])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def by_task(rows: Sequence[dict], algorithm: str, budget: float) -> str:
    """Return a Markdown table for one budget, with one line for each task."""
    regret, keys = regrets(rows, algorithm)
    lines = [
        f"| `{algorithm}` | " + " | ".join(SCHEDULERS) + " | seeds |",
        "|---|" + "---|" * (len(SCHEDULERS) + 1),
    ]
    for name in dict.fromkeys(task for task, _ in keys):
        of_task = [i for i, (task, _) in enumerate(keys) if task == name]
        means = regret[:, of_task, BUDGETS.index(budget)].mean(axis=1)
        lines.append(
            f"| {name} | " + " | ".join(f"{mean:.3f}" for mean in means) + f" | {len(of_task)} |"
        )
    return "\n".join(lines)


def over_tasks(values: np.ndarray, tasks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean over tasks at each budget, and half of its 95% interval over seeds.

    Args:
        values: Array (replays, budgets).
        tasks: Name of the task of each replay.
    """
    groups = [values[tasks == task] for task in np.unique(tasks)]
    variance = sum(group.var(axis=0, ddof=1) / len(group) for group in groups) / len(groups) ** 2
    return np.mean([group.mean(axis=0) for group in groups], axis=0), 1.96 * variance**0.5


def report(rows: Sequence[dict]) -> str:
    """Return all tables as Markdown."""
    parts = []
    for algorithm in ALGORITHMS:
        if text := table(rows, algorithm):
            parts += [text, f"At 25 full budgets, by task:\n\n{by_task(rows, algorithm, 25.0)}"]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Run the replays or write the tables."""
    warnings.simplefilter("ignore")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.search_quality.pausing", description=__doc__
    )
    parser.add_argument("verb", choices=["run", "report", "show"])
    parser.add_argument("--algorithms", default=",".join(ALGORITHMS), help="separated by ,")
    parser.add_argument("--tasks", default=",".join(names()), help="separated by ,")
    parser.add_argument("--seeds", default="0-7")
    parser.add_argument("--minutes", type=float, default=7)
    parser.add_argument("--out", type=Path, default=RESULTS)
    asked = parser.parse_args()
    if asked.verb == "report":
        section(
            RESULTS.with_name("search_quality.md"),
            "<!-- pausing -->",
            "<!-- end of pausing -->",
            report(read(asked.out)),
        )
    elif asked.verb == "show":
        print(report(read(asked.out)))
    else:
        first, _, last = asked.seeds.partition("-")
        methods = [
            f"sweeps {algorithm}{suffix}"
            for algorithm in asked.algorithms.split(",")
            for suffix in SCHEDULERS.values()
        ]
        run(
            methods,
            asked.tasks.split(","),
            range(int(first), int(last or first) + 1),
            asked.minutes,
            BUDGETS,
            asked.out,
        )


if __name__ == "__main__":
    main()

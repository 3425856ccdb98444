"""Write the tables of reports/search_quality.md from the replays."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.search_quality.generated import FAMILIES
from benchmarks.search_quality.replay import BUDGETS
from benchmarks.search_quality.split import HALVES

BEGIN, END = "<!-- table -->", "<!-- end of the table -->"


def read(file: Path) -> list[dict]:
    """Return the recorded replays.

    If a method, task and seed occurs several times, the last replay is used.
    """
    if not file.exists():
        return []
    rows = [json.loads(line) for line in file.read_text().splitlines() if line.endswith("}")]
    return list({(r["method"], r["task"], r["seed"]): r for r in rows}.values())


def means(
    rows: list[dict], method: str, budget: int, tasks: list[str]
) -> tuple[float, float, int] | None:
    """Return the mean regret over the tasks, half of its 95% interval, and the smallest number of
    seeds of a task.

    Return None if a task has no replay. The interval covers the randomness of seeds: it is computed
    from the sum of the variances of the tasks' means.
    """
    values = defaultdict(list)
    for r in rows:
        if r["method"] == method and budget in r["budgets"]:
            values[r["task"]].append(r["regret"][r["budgets"].index(budget)])
    if any(not values[t] for t in tasks):
        return None
    mean = float(np.mean([np.mean(values[t]) for t in tasks]))
    fewest = min(len(values[t]) for t in tasks)
    if fewest < 2:
        return mean, float("nan"), fewest
    variance = sum(np.var(values[t], ddof=1) / len(values[t]) for t in tasks) / len(tasks) ** 2
    return mean, float(1.96 * variance**0.5), fewest


def seconds(rows: list[dict], method: str, tasks: list[str]) -> float | None:
    """Return the median number of seconds of a replay with all budgets."""
    took = [
        r["seconds"]
        for r in rows
        if r["method"] == method and r["task"] in tasks and BUDGETS[-1] in r["budgets"]
    ]
    return statistics.median(took) if took else None


def cell(mean: tuple[float, float, int] | None, seeds: int) -> str:
    """Format a mean and half of its interval.

    If there are fewer seeds than for the method's other cells, add their number.
    """
    if mean is None:
        return ""
    spread = f" ± {mean[1]:.3f}" if mean[2] > 1 else ""
    return f"{mean[0]:.3f}{spread}" + (f" (of {mean[2]})" if mean[2] < seeds else "")


def table(rows: list[dict], tasks: list[str]) -> str:
    """Return a Markdown table with one line for each method that has replays of all tasks, and one
    column for each budget.
    """
    methods = list(dict.fromkeys(r["method"] for r in rows))
    lines = [
        "| searcher | " + " | ".join(f"{b} full budgets" for b in BUDGETS) + " | seeds | seconds |",
        "|---|" + "---|" * (len(BUDGETS) + 2),
    ]
    for method in methods:
        columns = [means(rows, method, b, tasks) for b in BUDGETS]
        seeds = max((m[2] for m in columns if m), default=0)
        shown = [cell(m, seeds) for m in columns]
        if any(shown):
            took = seconds(rows, method, tasks)
            lines.append(
                f"| {method} | "
                + " | ".join(shown)
                + f" | {seeds} | {'' if took is None else f'{took:.3g}'} |"
            )
    return "\n".join(lines)


def by_task(rows: list[dict], tasks: list[str], methods: list[str], budget: int) -> str:
    """Return a Markdown table for one budget, with one line for each task and one column for each
    method.
    """
    lines = ["| task | " + " | ".join(methods) + " |", "|---|" + "---|" * len(methods)]
    for t in tasks:
        cells = [means(rows, m, budget, [t]) for m in methods]
        lines.append(
            f"| {t} | " + " | ".join("" if m is None else f"{m[0]:.3f}" for m in cells) + " |"
        )
    return "\n".join(lines)


GROUPS: dict[str, Callable[[str], bool]] = {
    "All tasks": lambda name: True,
    "Functions and recorded tables": lambda name: (
        not name.startswith(("lcbench_", *(f"{family}_" for family in FAMILIES)))
    ),
    "Tasks with noise": lambda name: name.endswith("+noise"),
    "Tasks with conditions": lambda name: name.startswith("conditional"),
    "Tasks with failing trials": lambda name: name.startswith("failing"),
}
TITLES = {"dev": "Tasks for development", "held": "Tasks that were looked at once"}


def half_report(rows: list[dict], half: str) -> str:
    """Return the tables of one half of the split: groups of tasks, then each task at two budgets.

    Return "" if there are no replays.

    A group of tasks has a table if a method has replays of all its tasks.
    """
    tasks = [t for t in HALVES[half] if any(r["task"] == t for r in rows)]
    methods = list(dict.fromkeys(r["method"] for r in rows))
    parts = [f"### {TITLES[half]}"] if tasks else []
    for group, belongs in GROUPS.items():
        some = [t for t in tasks if belongs(t)]
        if any(
            means(rows, method, budget, some) for method in methods for budget in BUDGETS if some
        ):
            parts += [f"{group} ({len(some)}):", table(rows, some)]
    for budget in (25, 50):
        if shown := [m for m in methods if means(rows, m, budget, tasks)] if tasks else []:
            parts += [f"At {budget} full budgets, by task:", by_task(rows, tasks, shown, budget)]
    return "\n\n".join(parts)


def write(file: Path) -> None:
    """Write the tables of both halves to the report that belongs to the results."""
    rows = read(file)
    section(
        file.with_suffix(".md"),
        BEGIN,
        END,
        "\n\n".join(filter(None, (half_report(rows, half) for half in HALVES))) + "\n",
    )


def write_costs(file: Path, page: Path) -> None:
    """Write the tables of the replays whose budgets are seconds."""
    rows, parts = read(file), []
    for half, names in HALVES.items():
        if tasks := [t for t in names if any(r["task"] == t for r in rows)]:
            parts += [f"{TITLES[half]}, budgets in seconds ({len(tasks)}):", table(rows, tasks)]
    if parts:
        section(page, "<!-- costs -->", "<!-- end of the costs -->", "\n\n".join(parts) + "\n")


def section(page: Path, begin: str, end: str, new_text: str) -> None:
    """Replace the text between two marks of a page.

    If the page has no such marks, add them at the end.
    """
    text = page.read_text() if page.exists() else ""
    text = text if begin in text else f"{text}{begin}\n{end}\n"
    page.write_text(
        text[: text.index(begin)] + f"{begin}\n\n{new_text}\n" + text[text.index(end) :]
    )

"""Write the tables of reports/search_quality.md from the replays."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from pathlib import Path

import numpy as np

from benchmarks.search_quality.replay import BUDGETS, WORKERS
from benchmarks.search_quality.tasks import STEPS

BEGIN, END = "<!-- table -->", "<!-- end of the table -->"


def read(file: Path) -> list[dict]:
    """Return the recorded replays. If a method, task and seed occurs several times, the last replay is used."""
    if not file.exists():
        return []
    rows = [json.loads(line) for line in file.read_text().splitlines() if line.endswith("}")]
    return list({(r["method"], r["task"], r["seed"]): r for r in rows}.values())


def means(rows: list[dict], method: str, budget: int, tasks: list[str]) -> tuple[float, float, int] | None:
    """Return the mean regret over the tasks, half of its 95% interval, and the smallest number of seeds of a task.

    Return None if a task has no replay. The interval covers the randomness of seeds: it is computed from the sum of the variances of the
    tasks' means.
    """
    found = defaultdict(list)
    for r in rows:
        if r["method"] == method and budget in r["budgets"]:
            found[r["task"]].append(r["regret"][r["budgets"].index(budget)])
    if any(not found[t] for t in tasks):
        return None
    mean = float(np.mean([np.mean(found[t]) for t in tasks]))
    fewest = min(len(found[t]) for t in tasks)
    if fewest < 2:
        return mean, float("nan"), fewest
    variance = sum(np.var(found[t], ddof=1) / len(found[t]) for t in tasks) / len(tasks) ** 2
    return mean, float(1.96 * variance**0.5), fewest


def speed(rows: list[dict], method: str) -> float | None:
    """Return how many times faster than real time the median replay with all budgets ran, if a step of training takes one second."""
    took = [r["seconds"] for r in rows if r["method"] == method and BUDGETS[-1] in r["budgets"]]
    return BUDGETS[-1] * STEPS / WORKERS / max(statistics.median(took), 0.005) if took else None


def cell(mean: tuple[float, float, int] | None, seeds: int) -> str:
    """Format a mean and half of its interval. If there are fewer seeds than for the method's other cells, add their number."""
    if mean is None:
        return ""
    spread = f" ± {mean[1]:.3f}" if mean[2] > 1 else ""
    return f"{mean[0]:.3f}{spread}" + (f" (of {mean[2]})" if mean[2] < seeds else "")


def table(rows: list[dict], tasks: list[str]) -> str:
    """Return a Markdown table with one line for each method and one column for each budget."""
    methods = list(dict.fromkeys(r["method"] for r in rows))
    lines = [
        "| searcher | " + " | ".join(f"{b} full budgets" for b in BUDGETS) + " | seeds | × real time |",
        "|---|" + "---|" * (len(BUDGETS) + 2),
    ]
    for method in methods:
        told = [means(rows, method, b, tasks) for b in BUDGETS]
        seeds = max((m[2] for m in told if m), default=0)
        shown = [cell(m, seeds) for m in told]
        if any(shown):
            fast = speed(rows, method)
            pace = "" if fast is None else f"{float(f'{fast:.2g}'):,.0f}"
            lines.append(f"| {method} | " + " | ".join(shown) + f" | {seeds} | {pace} |")
    return "\n".join(lines)


def by_task(rows: list[dict], tasks: list[str], methods: list[str], budget: int) -> str:
    """Return a Markdown table for one budget, with one line for each task and one column for each method."""
    lines = ["| task | " + " | ".join(methods) + " |", "|---|" + "---|" * len(methods)]
    for t in tasks:
        told = [means(rows, m, budget, [t]) for m in methods]
        lines.append(f"| {t} | " + " | ".join("" if m is None else f"{m[0]:.3f}" for m in told) + " |")
    return "\n".join(lines)


def write(file: Path) -> None:
    """Write the tables to the report that belongs to the results."""
    rows = read(file)
    tasks = list(dict.fromkeys(r["task"] for r in rows))
    common = [m for m in dict.fromkeys(r["method"] for r in rows) if means(rows, m, 25, tasks)]
    made = f"{table(rows, tasks)}\n\nAt 25 full budgets, by task:\n\n{by_task(rows, tasks, common, 25)}\n"
    wide = [m for m in common if means(rows, m, 100, tasks)]
    made += f"\nAt 100, by task:\n\n{by_task(rows, tasks, wide, 100)}\n"
    section(file.with_suffix(".md"), BEGIN, END, made)


def section(page: Path, begin: str, end: str, made: str) -> None:
    """Replace the text between two marks of a page. If the page has no such marks, add them at the end."""
    text = page.read_text() if page.exists() else ""
    text = text if begin in text else f"{text}{begin}\n{end}\n"
    page.write_text(text[: text.index(begin)] + f"{begin}\n\n{made}\n" + text[text.index(end) :])

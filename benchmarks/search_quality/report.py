"""The table of reports/search_quality.md, from what was replayed."""

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
    """The replays on record; a later one of the same method, task and seed takes the place of an earlier one."""
    if not file.exists():
        return []
    rows = [json.loads(line) for line in file.read_text().splitlines() if line.endswith("}")]
    return list({(r["method"], r["task"], r["seed"]): r for r in rows}.values())


def means(rows: list[dict], method: str, budget: int, tasks: list[str]) -> tuple[float, float, int] | None:
    """The mean regret over tasks, half of its 95% interval, and the fewest seeds of a task; None where a task has no replay.

    The interval is that of the seeds: the variance of each task's mean, summed.
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
    """How many times real time it was replayed at, were a step of training a second; the median of the replays of all budgets."""
    took = [r["seconds"] for r in rows if r["method"] == method and BUDGETS[-1] in r["budgets"]]
    return BUDGETS[-1] * STEPS / WORKERS / max(statistics.median(took), 0.005) if took else None


def cell(mean: tuple[float, float, int] | None, seeds: int) -> str:
    """A mean, half its interval, and how many seeds it is of where they are fewer than the method's others have."""
    if mean is None:
        return ""
    spread = f" ± {mean[1]:.3f}" if mean[2] > 1 else ""
    return f"{mean[0]:.3f}{spread}" + (f" (of {mean[2]})" if mean[2] < seeds else "")


def table(rows: list[dict], tasks: list[str]) -> str:
    """In Markdown: a method a line, a budget a column."""
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
    """A task a line, a method a column, at one budget."""
    lines = ["| task | " + " | ".join(methods) + " |", "|---|" + "---|" * len(methods)]
    for t in tasks:
        told = [means(rows, m, budget, [t]) for m in methods]
        lines.append(f"| {t} | " + " | ".join("" if m is None else f"{m[0]:.3f}" for m in told) + " |")
    return "\n".join(lines)


def write(file: Path) -> None:
    """Put the tables into the report beside the results."""
    rows = read(file)
    tasks = list(dict.fromkeys(r["task"] for r in rows))
    common = [m for m in dict.fromkeys(r["method"] for r in rows) if means(rows, m, 25, tasks)]
    made = f"{table(rows, tasks)}\n\nAt 25 full budgets, by task:\n\n{by_task(rows, tasks, common, 25)}\n"
    wide = [m for m in common if means(rows, m, 100, tasks)]
    made += f"\nAt 100, by task:\n\n{by_task(rows, tasks, wide, 100)}\n"
    section(file.with_suffix(".md"), BEGIN, END, made)


def section(page: Path, begin: str, end: str, made: str) -> None:
    """Put what was made between two marks of a page, which are put at its end if they are not there."""
    text = page.read_text() if page.exists() else ""
    text = text if begin in text else f"{text}{begin}\n{end}\n"
    page.write_text(text[: text.index(begin)] + f"{begin}\n\n{made}\n" + text[text.index(end) :])

"""The report of a benchmark as Markdown, from its samples. Pure functions, no I/O."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from benchmarks.common import Goal, Sample, Workload, WorkloadRecord, median_of, ratio, values_of


def shown(value: float | None, unit: str = "") -> str:
    """Format a number with its unit, with three digits; see `Measure` for the units."""
    if value is None or math.isnan(value):
        return "–"
    scale = {"ms": 1e3, "MB": 1 / 2**20, "%": 1e2}.get(unit, 1.0)
    rounded = float(f"{value * scale:.3g}") if abs(value * scale) < 1000 else value * scale
    digits = (
        0 if abs(rounded) >= 100 else 1 if abs(rounded) >= 10 else 2 if abs(rounded) >= 1 else 3
    )
    text = f"{rounded:,.{digits}f}"
    return text + ("%" if unit == "%" else f" {unit}" if unit else "")


def met(goal: Goal) -> bool | None:
    """Return whether a goal is met; None if the value was not measured."""
    if goal.value is None:
        return None
    return goal.value <= goal.bound if goal.at_most else goal.value >= goal.bound


def outcome(goal: Goal) -> str:
    """Return `met` with the distance to the bound, or the amount by which the goal is missed."""
    if goal.value is None:
        return "not measured"
    off, share = abs(goal.value - goal.bound), goal.value / goal.bound if goal.bound else math.nan
    times = "" if math.isnan(share) else f"; {shown(share)} × the bound"
    return (
        f"met, {shown(off, goal.unit)} to spare{times}"
        if met(goal)
        else f"**missed by {shown(off, goal.unit)}**{times}"
    )


def table(workload: Workload, samples: Sequence[Sample]) -> list[str]:
    """Return the lines of a workload's table: one row for each side, one column for each measure.

    A cell has the median, and the lowest and the highest value.
    """
    median, first = median_of(samples), workload.measures[0].key
    base = median(workload.reference, first)
    with_ratio = (
        sum(median(side.name, first) is not None for side in workload.sides) > 1
        and base is not None
    )
    titles = [
        "side",
        "trials a run",
        *(m.title for m in workload.measures),
        *(["ratio"] if with_ratio else []),
    ]
    lines = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    for side in workload.sides:
        mine = [s for s in samples if s.side == side.name]
        if not mine:
            continue
        cells = [side.label, str(mine[0].trials)]
        for measure in workload.measures:
            values = values_of(mine, side.name, measure.key)
            spread = (
                f" ({shown(min(values), measure.unit)} – {shown(max(values), measure.unit)})"
                if len(values) > 1
                else ""
            )
            cells.append(
                (shown(statistics.median(values), measure.unit) if values else "–") + spread
            )
        if with_ratio:
            cells.append(f"{shown(ratio(median(side.name, first), base))} ×")
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def goal_lines(goals: Sequence[Goal]) -> list[str]:
    """Return the lines of the table of goals."""
    lines = ["| goal | measured | |", "|---|---|---|"]
    for goal in goals:
        bound = f"{'≤' if goal.at_most else '≥'} {shown(goal.bound, goal.unit)}"
        lines.append(f"| {goal.text} {bound} | {shown(goal.value, goal.unit)} | {outcome(goal)} |")
    return lines if goals else []


def section(
    workload: Workload, recorded: WorkloadRecord, machine: Mapping[str, str] = {}
) -> list[str]:
    """Return the lines of a workload's section: the description, the table, the goals and the
    notes.

    Facts about the machine are shown only if they differ from `machine`.
    """
    median = median_of(recorded.samples)
    repeats = max(
        (
            len(values_of(recorded.samples, side.name, workload.measures[0].key))
            for side in workload.sides
        ),
        default=0,
    )
    times = (
        f"; {repeats} repeat{'s' * (repeats != 1)}, {shown(recorded.seconds / 60)} minutes"
        if recorded.samples
        else ""
    )
    times += f"; load average before it {shown(recorded.load)}" if recorded.samples else ""
    lines = [
        f"## {workload.title}",
        "",
        workload.text.strip(),
        "",
        f"    {recorded.command}",
        "",
        f"{recorded.date}{times}.",
    ]
    if other := {k: v for k, v in recorded.machine.items() if machine.get(k) != v}:
        lines += [
            "On another machine, or other versions: "
            + "; ".join(f"{k} {v}" for k, v in other.items())
            + "."
        ]
    lines.append("")
    if recorded.samples:
        lines += [*table(workload, recorded.samples), "", *goal_lines(workload.goals(median)), ""]
        if notes := list(workload.notes(median)):
            lines += [*(f"- {note}" for note in notes), ""]
    if recorded.problems:
        lines += [*(f"- **{problem}**" for problem in recorded.problems), ""]
    return lines


def report(workloads: Sequence[Workload], records: Mapping[str, WorkloadRecord]) -> str:
    """Return the whole report.

    Args:
        workloads: All workloads in the order of the report.
        found: Records by the name of the workload. A workload without a record is left out.
    """
    newest = max(records.values(), key=lambda r: r.date, default=None)
    machine = newest.machine if newest else {}
    lines = [
        "# Benchmarks",
        "",
        "<!-- Written by `make bench` from reports/benchmarks.json; do not edit. -->",
        "",
    ]
    lines += [
        (
            "Each workload does the same work in sweeps and in other tools, its *sides*. Each run "
            "of "
            "a side is a separate process. The sides"
        ),
        (
            "run in turn within a repeat. A cell has the median (lowest – highest) over the "
            "repeats. "
            "**A trial** is the time for each trial in"
        ),
        (
            "steady state: the time between the ends of trials, without the first eighth of the "
            "trials and at least without the first. The"
        ),
        (
            "start of a side is therefore not included. The numbers of threads are fixed: "
            "`OMP_NUM_THREADS=1`, and the sections name"
        ),
        (
            "XGBoost's `nthread` and torch's threads. Seeds are fixed, and Tune's loggers are "
            "off. "
            "*Ratio* is a side's first"
        ),
        "number, divided by the first number of the side that says 1.00 ×.",
        "",
    ]
    if machine:
        lines += [
            "| machine | |",
            "|---|---|",
            *(f"| {name} | {value} |" for name, value in machine.items()),
            "",
        ]
    goal_rows = [
        (w, met(g))
        for w in workloads
        if w.name in records and records[w.name].samples
        for g in w.goals(median_of(records[w.name].samples))
    ]
    if goal_rows:
        lines += ["| workload | goals met |", "|---|---|"]
        for w in dict.fromkeys(w.name for w, _ in goal_rows):
            own = [m for workload, m in goal_rows if workload.name == w]
            title = next(x.title for x in workloads if x.name == w)
            lines.append(f"| {title} | {sum(m is True for m in own)} of {len(own)} |")
        lines.append("")
    for workload in workloads:
        if workload.name in records:
            lines += section(workload, records[workload.name], machine)
    return "\n".join(lines).rstrip() + "\n"

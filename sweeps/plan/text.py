"""The Plan as a person reads it: aligned text, 80 columns wide unless it is told otherwise."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Collection, Sequence
from typing import Any

from sweeps.plan.summary import Plan
from sweeps.search.schedulers.rules import scheduler_of
from sweeps.space import Dimension

# So many cells, and so many shapes, have a line each; of more there is a summary.
LINES = 12
# So many lines for the options of a dimension, and so many columns at least.
OPTIONS, VALUES = 4, 24
# The limits that end a sweep before its last trial.
ENDING = ("timeout", "max_gpu_hours", "target", "patience", "max_failures_in_a_row")
# Columns of the names on the left.
LEFT = 12


def render(plan: Plan, width: int = 80, machine: str = "this machine") -> str:
    """The plan in lines of at most `width` characters.

    Args:
        plan: what to show.
        width: of the terminal.
        machine: whose resources it was made for, in a word or two.
    """
    room = max(width, 60) - LEFT
    there = ", ".join(f"{amount:g} {name}" for name, amount in plan.resources.items()) or "nothing"
    parts = {
        "dimensions": _dimensions(plan, room),
        "search": _wrapped([_search(plan)], room),
        "trials": _wrapped([_trials(plan)], room),
        "cells": _cells(plan, room),
        "shapes": _shapes(plan, room),
        "at once": _wrapped([_at_once(plan)], room),
        "gangs": _wrapped([_gangs(plan)], room),
        "data": _wrapped(_data(plan), room),
        "fits": _wrapped([_fits(plan)], room),
        "steps": _wrapped(_steps(plan), room),
        "disk": _wrapped(_disk(plan), room),
        "trackers": _wrapped([", ".join(tracker.name for tracker in plan.space.trackers) or "none"], room),
    }
    lines = [f"{plan.space.name} on {there} ({machine})", ""]
    for name, told in parts.items():
        if name in ("cells", "shapes") and len(told) > 1:
            told = [*([] if lines[-1] == "" else [None]), *told, None]  # a table stands alone
        elif name == "dimensions":
            told = [*told, None]
        said = False
        for text in told:
            lines.append("" if text is None else (("" if said else name).ljust(LEFT) + text).rstrip())
            said = said or text is not None
    return "\n".join(lines)


def _wrapped(paragraphs: Sequence[str], width: int) -> list[Any]:
    return [line for text in paragraphs for line in textwrap.wrap(text, width, break_on_hyphens=False)]


def _table(rows: Sequence[Sequence[str]], right: Collection[int] = (), width: float = math.inf) -> list[Any]:
    """Rows in columns two spaces apart, those in `right` aligned to the right; the widest column gives way until all fit."""
    sizes = [max(map(len, column)) for column in zip(*rows, strict=True)]
    while sum(sizes) + 2 * (len(sizes) - 1) > width and max(sizes) > 8:
        sizes[sizes.index(max(sizes))] -= 1
    lines = []
    for row in rows:
        cells = (_cut(text, size) for text, size in zip(row, sizes, strict=True))
        padded = [c.rjust(s) if i in right else c.ljust(s) for i, (c, s) in enumerate(zip(cells, sizes, strict=True))]
        lines.append("  ".join(padded).rstrip())
    return lines


def _cut(text: str, size: int) -> str:
    """The text without its middle, where it is too long."""
    if len(text) <= size:
        return text
    tail = (size - 1) * 2 // 3
    return text[: size - 1 - tail] + "…" + text[len(text) - tail :]


def _dimensions(plan: Plan, width: int) -> list[Any]:
    dims = plan.space.dimensions
    if not dims:
        return ["none: trials differ by their seeds alone"]
    left = _table([(d.name, d.kind) for d in dims], width=width - VALUES - 2)
    start = max(map(len, left)) + 2
    told = []
    for line, dim in zip(left, dims, strict=True):
        values = _wrapped([_values(dim)], width - start)
        if len(values) > OPTIONS:
            values = [*values[: OPTIONS - 1], f"… {len(dim.options)} in all"]
        told += [(line if i == 0 else "").ljust(start) + text for i, text in enumerate(values)]
    return told


def _values(dim: Dimension) -> str:
    if dim.options:
        return ", ".join(_said(option.key) for option in dim.options)
    text = f"mean {dim.mean:g}, sd {dim.sd:g}" if dim.lower is None else f"{dim.lower:g} to {dim.highest:g}"
    return text + (f", by {dim.q:g}" if dim.q not in (None, 1) else "")


def _said(key: Any) -> str:
    """An option's key as YAML writes it."""
    return "null" if key is None else str(key).lower() if isinstance(key, bool) else str(key)


def _search(plan: Plan) -> str:
    reason = plan.space.algorithm_reason
    return plan.space.search.algorithm + (f", chosen by sweeps: {reason}" if reason else "")


def _trials(plan: Plan) -> str:
    told = f"{plan.trials}"
    if cells := plan.cells:
        least, most = min(plan.counts), max(plan.counts)
        told += f" in {len(cells)} cell{'s' * (len(cells) > 1)}"
        grids = {name: len({cell.get(name) for cell, _ in cells}) for name in cells[0][0]}
        if len(cells) > LINES and math.prod(grids.values()) == len(cells):
            told += f" ({' × '.join(f'{number} {name}' for name, number in zip(_short(list(grids)), grids.values(), strict=True))})"
        told += f", {least if least == most else f'{least} or {most}'} each"
        if not plan.even:
            told += " or about: a grid inside a choice is visited only where that option is chosen"
    limits, repeats = plan.space.limits, plan.space.repeats.count
    if repeats > 1:
        least, most = (plan.trials + number for number in plan.repeats)
        told += f"; each that comes to its end is trained {repeats} times: {least if least == most else f'{least} to {most}'} trials in all"
    if given := plan.space.search.initial_points:
        run = sum(point.values is None for point in given)
        told += f"; the first {run} are initial points" if run else ""
    may = [f"limits.{name}" for name in ENDING if getattr(limits, name) is not None]
    return told + (f"; {' or '.join(may)} may end it before" if may else "")


def _cells(plan: Plan, width: int) -> list[Any]:
    cells = plan.cells
    if not cells or len(cells) > LINES:
        return []
    names = list(dict.fromkeys(name for cell, _ in cells for name in cell))
    rows = [[*(_said(cell[name]) if name in cell else "-" for name in names), str(count)] for cell, count in cells]
    return _table([[*_short(names), "trials"], *rows], right=[len(names)], width=width)


def _short(names: Sequence[str]) -> list[str]:
    """Dotted names by their last parts, as many as tell them apart."""
    short = []
    for name in names:
        parts = name.split(".")
        tails = (".".join(parts[-n:]) for n in range(1, len(parts) + 1))
        short.append(next(t for t in tails if t == name or sum(f".{other}".endswith(f".{t}") for other in names) == 1))
    return short


def _shapes(plan: Plan, width: int) -> list[Any]:
    digits = len(str(max(plan.side_by_side)))
    rows = []
    for e, beside in zip(plan.shapes, plan.side_by_side, strict=True):
        number = f"{e.most}" if e.least == e.most else f"{e.least} to {e.most}"
        rows.append([str(e.shape), f"{number} trial{'s' * (e.most != 1)}", f"{beside:>{digits}} side by side"])
    told = _table(rows if len(rows) <= LINES else [*rows[: LINES - 2], rows[-1]], right=[1], width=width)
    return told if len(rows) <= LINES else [*told[:-1], f"… {len(rows) - LINES + 1} more", told[-1]]


def _at_once(plan: Plan) -> str:
    limit, number = plan.space.limits.max_concurrent_trials, f"{plan.at_once} trial{'s' * (plan.at_once > 1)}"
    if plan.at_once == plan.trials:
        return "all trials"
    if limit is None:
        return f"{number}: as many as fit" + (" of the smallest shape" if len(plan.shapes) > 1 else "")
    waits = f"; {plan.room} fit, the rest waits" if plan.at_once > plan.room else ""
    return f"{number} (limits.max_concurrent_trials){waits}"


def _gangs(plan: Plan) -> str:
    gangs = plan.gangs
    if gangs.started is None:
        return "not known: idle ones of all shapes do not fit, and one makes room for another"
    if gangs.beside:
        return f"{gangs.started} at most, kept warm from trial to trial"
    return f"about {gangs.started} started: idle ones of all shapes do not fit, and one makes room for another"


def _data(plan: Plan) -> list[str]:
    """The variants of the data, if there is more than one."""
    if plan.variants is None:
        return ["a variant for each trial: data.rows is any number"]
    sources = len({spec.source for spec in plan.space.variants})
    read = f", of {sources} sources; all are held in memory" if sources > 1 else ""
    return [] if plan.variants == 1 else [f"{plan.variants} variants{read}"]


def _fits(plan: Plan) -> str:
    fits = plan.fits
    if fits.most == 0:
        return "none: no preprocessing"
    if fits.least == fits.most:
        return "1 preprocessor, fitted once" if fits.most == 1 else f"{fits.most} preprocessors, each fitted once{_each(plan)}"
    why = f": a trial may have its own, as {fits.continuous} is any number" if fits.continuous else ""
    return f"{fits.least} to {fits.most} preprocessors, each fitted once{_each(plan)}{why}"


def _each(plan: Plan) -> str:
    return "" if plan.variants == 1 else ", counted on each variant of the data"


def _steps(plan: Plan) -> list[str]:
    steps, name = plan.steps, plan.space.scheduler.name
    if steps is None:
        return ["until each loop ends: there is no scheduler.max_t"]
    if not steps.rungs:
        return [f"{steps.most:,} at most: every trial goes on to step {steps.max_t}, or to the end of its loop"]
    compared = ", ".join(map(str, steps.rungs))
    where = f"every step from {compared} on" if steps.every else compared
    brackets = getattr(scheduler_of(plan.space.scheduler), "grace_periods", ())
    begun = f"; its brackets begin at {', '.join(map(str, brackets))}" if len(brackets) > 1 else ""
    return [
        f"{steps.least:,} at least, {steps.most:,} at most; about {_round(steps.typical):,} simulated with random values",
        f"{name} compares trials at {where} and ends them at {steps.max_t}{begun}",
    ]


def _round(number: int) -> int:
    """Two digits of it."""
    tens = 10 ** max(0, len(str(number)) - 2)
    return round(number / tens) * tens


def _disk(plan: Plan) -> list[str]:
    disk = plan.disk
    trials = plan.trials + plan.repeats[1]
    latest = max(plan.space.checkpoints.per_trial - 1, 1)
    kept = f"the {'latest' if latest == 1 else f'{latest} latest'} and the best of {trials} trial{'s' * (trials > 1)}"
    if disk.total is None or disk.each is None:
        told = [f"at most {disk.checkpoints} checkpoints, {kept}; of what size, the first will show"]
    else:
        assumed = f" ({disk.assumed})" if disk.assumed else ""
        told = [f"at most {size(disk.total)} of checkpoints, {kept}; one is up to {size(disk.each)}{assumed}"]
    test = "the test split; " if plan.space.data.test is not None else ""
    told.append(f"beside them {test}in MLflow some 0.3 KB a step and metric")
    if disk.free is not None:
        told.append(f"WARNING: only {size(disk.free)} are free" if disk.short else f"{size(disk.free)} are free")
    return told


def size(number: float) -> str:
    """Bytes in two or three digits: `512 bytes`, `940 KB`, `1.2 GB`."""
    if number < 1000:
        return f"{number:.0f} byte{'s' * (round(number) != 1)}"
    for unit in ("KB", "MB", "GB", "TB"):
        number /= 1000
        if number < 999.5 or unit == "TB":
            break
    return f"{number:.1f} {unit}" if number < 9.95 else f"{number:,.0f} {unit}"

"""A comparison of sweeps as tables for the terminal.

Pure functions, no I/O.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sweeps.sweep_report.comparison import Comparison, Row

UNITS = {"trials": "trials", "seconds": "s", "cpu_seconds": "CPU s", "gpu_seconds": "GPU s"}
ABSENT = "-"


@dataclass(frozen=True)
class Table:
    """A table of texts.

    Attributes:
        title: Title above the table.
        head: Name of each column.
        rows: Cells of each row.
        note: A sentence about the table; "" if there is none.
    """

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


def tables(comparison: Comparison) -> Iterator[Table]:
    """Yield the tables of a comparison. A table without rows has a note that says why."""
    labels = comparison.labels
    yield Table(
        "Results",
        ("", *labels),
        tuple(_cells(row) for row in comparison.results),
        _verdict(comparison),
    )
    regret = tuple(
        (f"{amount} {_unit(budget, amount)}", *map(_short, values))
        for budget, rows in comparison.regret.items()
        for amount, values in rows
    )
    note = "the distance between the best value so far and the best value of all comparable sweeps"
    yield Table(
        "Regret",
        ("after", *labels),
        regret,
        note if regret else "unknown, because no sweep has a single best trial",
    )
    total = comparison.equal_settings + len(comparison.settings)
    equal = f"{len(comparison.settings)} of {total} settings differ"
    yield Table(
        "Spaces", ("setting", *labels), tuple(_cells(row) for row in comparison.settings), equal
    )
    importance = tuple(
        (name, *(ABSENT if v is None else f"{v:.2f}" for v in values))
        for name, values in comparison.importance
    )
    yield Table(
        "Importance",
        ("dimension", *labels),
        importance,
        "by Optuna's PED-ANOVA" if importance else "unknown for every sweep",
    )
    same = f"{len(comparison.equal_values)} other values are equal"
    yield Table(
        "Best configurations",
        ("value", *labels),
        tuple(_cells(row) for row in comparison.configurations),
        same,
    )


def _verdict(comparison: Comparison) -> str:
    """Return a sentence that names the best sweep of each group.

    Return "" if no two sweeps can be compared.
    """
    labels, parts = comparison.labels, []
    for group, winners in comparison.winners.items():
        names = ", ".join(labels[at] for at in winners)
        of = "" if len(comparison.groups) == 1 else f" of {', '.join(labels[at] for at in group)}"
        if len(winners) == 1:
            parts.append(f"{names} has the best value{of}")
        elif winners:
            parts.append(f"{names} have the same best value{of}")
    return "; ".join(parts)


def _unit(budget: str, amount: int) -> str:
    return "trial" if budget == "trials" and amount == 1 else UNITS[budget]


def _cells(row: Row) -> tuple[str, ...]:
    return (row[0], *map(text_of, row[1]))


def text_of(value: Any) -> str:
    """Return a value as the text of a cell.

    A float has six significant digits, and a missing value is `-`.
    """
    if value is None:
        return ABSENT
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _short(value: float | None) -> str:
    return ABSENT if value is None or not math.isfinite(value) else f"{value:.3g}"

"""Format a comparison of sweeps for the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from sweeps.core.files.stores import is_address
from sweeps.core.text.new_rows_text import difference_text
from sweeps.core.text.shell_text import relative_path

from .terminal_text import format_table

if TYPE_CHECKING:
    from sweeps.sweep_report.compared_sweep import Row
    from sweeps.sweep_report.comparison import Comparison

UNITS = {"trials": "trials", "seconds": "s", "cpu_seconds": "CPU s", "gpu_seconds": "GPU s"}
ABSENT = "-"


def format_comparison(comparison: Comparison, width: int) -> str:
    """Format a comparison of sweeps.

    Args:
        comparison: The comparison.
        width: Width of the terminal.
    """
    places = [
        s.place if is_address(s.place) else relative_path(Path(s.place)) for s in comparison.sweeps
    ]
    lines = [f"{label}  {place}" for label, place in zip(comparison.labels, places, strict=True)]
    lines += [f"note: {note}" for note in comparison.notes]
    lines += [
        difference_text(comparison.labels[first], comparison.labels[second], asdict(difference))
        for (first, second), difference in comparison.differences.items()
    ]
    regret = _regret_rows(comparison)
    about_regret = (
        "the distance between the best value so far and the best value of all comparable sweeps"
        if regret
        else "unknown, because no sweep has a single best trial"
    )
    importance = [
        (name, tuple(ABSENT if v is None else f"{v:.2f}" for v in values))
        for name, values in comparison.importance
    ]
    about_importance = "by Optuna's PED-ANOVA" if importance else "unknown for every sweep"
    differing = len(comparison.settings)
    about_settings = f"{differing} of {differing + comparison.equal_settings} settings differ"
    about_values = f"{len(comparison.equal_values)} other values are equal"
    tables: list[tuple[str, Sequence[Row], str]] = [
        ("RESULTS", comparison.results, best_sweeps(comparison)),
        ("REGRET AFTER" if regret else "REGRET", regret, about_regret),
        ("SPACES", comparison.settings, about_settings),
        ("IMPORTANCE", importance, about_importance),
        ("BEST CONFIGURATIONS", comparison.configurations, about_values),
    ]
    for title, rows, note in tables:
        lines.append("")
        if not rows:
            lines.append(f"{title}: {note}")
            continue
        cells = [
            [name, *(ABSENT if value is None else value for value in values)]
            for name, values in rows
        ]
        lines.append(format_table([title, *comparison.labels], cells, width))
        if note:
            lines.append(f"({note})")
    return "\n".join(lines)


def _regret_rows(comparison: Comparison) -> list[Row]:
    """Return a row for each amount of a budget, such as `10 trials`."""
    rows: list[Row] = []
    for budget, amounts in comparison.regret.items():
        for amount, values in amounts:
            unit = "trial" if budget == "trials" and amount == 1 else UNITS[budget]
            texts = [
                ABSENT if value is None or not math.isfinite(value) else f"{value:.3g}"
                for value in values
            ]
            rows.append((f"{amount} {unit}", tuple(texts)))
    return rows


def best_sweeps(comparison: Comparison) -> str:
    """Return a sentence that names the best sweep of each group.

    Return "" if no two sweeps can be compared.
    """
    labels = comparison.labels
    parts = []
    for group, winners in comparison.winners.items():
        names = ", ".join(labels[position] for position in winners)
        text = "has the best value" if len(winners) == 1 else "have the same best value"
        if len(comparison.groups) > 1:
            text += f" of {', '.join(labels[position] for position in group)}"
        if winners:
            parts.append(f"{names} {text}")
    return "; ".join(parts)

"""Format a comparison of sweeps for the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sweeps.core.command_hints import relative_path
from sweeps.core.stores import is_address
from sweeps.terminal.text import format_table

if TYPE_CHECKING:
    from sweeps.sweep_report.comparison import Comparison


def format_comparison(comparison: Comparison, width: int) -> str:
    """Format a comparison of sweeps.

    Args:
        comparison: The comparison.
        width: Width of the terminal.
    """
    from sweeps.sweep_report.comparison_tables import tables

    places = [
        s.place if is_address(s.place) else relative_path(Path(s.place)) for s in comparison.sweeps
    ]
    lines = [f"{label}  {place}" for label, place in zip(comparison.labels, places, strict=True)]
    lines += [f"note: {note}" for note in comparison.notes]
    for shown in tables(comparison):
        lines.append("")
        if shown.rows:
            corner = f"{shown.title} after" if shown.head[0] == "after" else shown.title
            head = (corner.upper(), *shown.head[1:])
            lines.append(format_table(head, shown.rows, width))
            lines += [f"({shown.note})"] if shown.note else []
        else:
            lines.append(f"{shown.title.upper()}: {shown.note}")
    return "\n".join(lines)

"""Small HTML tables for notebooks. All texts are escaped.

The notebook's own style sheet gives the colors, in light and in dark mode.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

LEFT, RIGHT = "text-align: left", "text-align: right"
# Longest text in a cell.
LONGEST = 80


def escaped(text: object) -> str:
    """Return a text for HTML. A long text is cut, and the mouse shows the whole text."""
    full = str(text)
    if len(full) <= LONGEST:
        return html.escape(full)
    return f'<span title="{html.escape(full)}">{html.escape(full[: LONGEST - 1])}…</span>'


def table(head: Sequence[str], rows: Iterable[Sequence[object]], right: Iterable[str] = ()) -> str:
    """Return a table.

    Args:
        head: Name of each column.
        rows: Cells of each row.
        right: Names of the columns that are aligned to the right.
    """
    aligned = set(right)
    styles = [RIGHT if name in aligned else LEFT for name in head]
    body = "".join(_row("td", row, styles) for row in rows)
    return f"<table><thead>{_row('th', head, styles)}</thead><tbody>{body}</tbody></table>"


def _row(tag: str, cells: Sequence[object], styles: Sequence[str]) -> str:
    return (
        "<tr>"
        + "".join(
            f'<{tag} style="{style}">{escaped(cell)}</{tag}>'
            for cell, style in zip(cells, styles, strict=True)
        )
        + "</tr>"
    )


def facts(pairs: Iterable[tuple[str, object]]) -> str:
    """Return a table with a name and a value in each row. Floats have six significant digits."""
    rows = "".join(
        f'<tr><th style="{LEFT}">{escaped(name)}</th><td '
        f'style="{LEFT}">{html.escape(_text(value))}</td></tr>'
        for name, value in pairs
    )
    return f"<table><tbody>{rows}</tbody></table>"


def _text(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)

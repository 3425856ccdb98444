"""Lay out the live view: format a status as lines of Rich text that fit the terminal.

The layout is stable: a trial keeps its line while it runs, and the number of lines of a section
never decreases. All colors are readable on light and dark backgrounds. Colors only repeat
information that the text also contains.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from rich.text import Text

from sweeps.controller.status import STATES, Pairs, ResourceUse, SweepStatus, TrialRow, shape_text
from sweeps.core.durations import format_clock

LABEL = 8
STYLES = {"RUNNING": "cyan", "COMPLETE": "green", "FAIL": "bold red"}
# Columns of the table and their widths. If the terminal is narrow, columns are dropped, beginning
# with the last.
COLUMNS = {"trial": 6, "step": 19, "time": 7, "value": 11, "workers": 9, "best": 11}
ORDER = ("trial", "step", "value", "best", "workers", "time")
NARROW = 64  # In a terminal with fewer columns, the step column is smaller, so that the value fits.
CONFIGURATION_FROM = 30
METRIC = 13  # Longer metric names are cut.


class View:
    """Formatter for the statuses of a sweep, one after the other.

    The formatter remembers which line each trial has.
    """

    def __init__(self) -> None:
        self._rows: list[str | None] = []
        self._heights: dict[str, int] = {}
        self._longest: dict[str, int] = {}
        self._width = 0

    def lines(self, s: SweepStatus, width: int, height: int) -> list[Text]:
        """Format a status as at most `height` lines of at most `width` columns."""
        if width != self._width:
            self._width, self._heights = width, {}
        top = [_ends(Text(s.name, "bold"), Text(format_clock(s.seconds)), width)]
        top += self._part("trials", _trials(s, width - LABEL))
        top += self._part("best", _best(s, width - LABEL))
        if s.failure is not None:
            top += self._part(
                "failed", [Text.assemble((s.failure[0], "red"), " ", clean(s.failure[1]))]
            )
        if not s.from_outside:
            top += self._part("in use", flow(_use(s), width - LABEL, 2))
        if not s.from_outside or s.stage or s.paused:
            top += self._part(
                "left",
                flow(_left(s), width - LABEL, 3, gap=" "),
                "now" if s.stage or s.reason or s.paused else "left",
            )
        table = self._table(s, width, height - len(top) - 1)
        lines = [*top, Text(""), *table] if table else top
        for line in lines:
            line.truncate(width, overflow="ellipsis")
        return lines[:height]

    def _part(self, name: str, body: list[Text], label: str | None = None) -> list[Text]:
        """Return a labeled section of the view.

        While the terminal's width is the same, the section never gets shorter.
        """
        size, label = max(self._heights.get(name, 0), len(body)), label or name
        self._heights[name] = size
        body = body + [Text("")] * (size - len(body))
        return [
            Text.assemble((label if i == 0 else "").ljust(LABEL), text)
            for i, text in enumerate(body)
        ]

    def _table(self, s: SweepStatus, width: int, height: int) -> list[Text]:
        rows = {row.trial: row for row in s.rows}
        room = height - 1
        if room < 1 or not (rows or self._rows):
            return []
        if len(rows) > room:
            room -= 1  # One line shows the number of hidden trials.
        self._rows = place(self._rows, list(rows), max(1, room))
        self._longest["value"] = min(METRIC, len(s.metric))
        for row in s.rows:
            for name, text in (("trial", row.trial), ("workers", shape_text(row.shape))):
                self._longest[name] = max(self._longest.get(name, 0), len(text))
        columns = columns_of(width, self._longest)
        best = s.best.trial if s.best else None
        table = [_head(columns, clean(s.metric)) if rows else Text("")]
        table += [
            _row(rows[t], columns, width, t == best) if t is not None else Text("")
            for t in self._rows
        ]
        shown = set(self._rows)
        hidden = Counter(row.stage for row in s.rows if row.trial not in shown)
        if hidden:
            stages = ", ".join(f"{n} {stage}" for stage, n in hidden.most_common())
            table.append(Text(f"… and {hidden.total()} more: {stages}", "dim"))
        size = self._heights["table"] = min(height, max(self._heights.get("table", 0), len(table)))
        return table[:height] + [Text("")] * (size - len(table))


def place(before: Sequence[str | None], running: Sequence[str], room: int) -> list[str | None]:
    """Assign running trials to lines.

    A trial keeps its line while it runs, and new trials get free lines.

    Args:
        before: Id of the trial on each line so far; None for a free line.
        running: Ids of all running trials, the oldest first.
        room: Number of lines.

    Returns:
        Id of the trial on each line; None for a free line.
    """
    alive = set(running)
    lines = [t if t in alive else None for t in before[:room]]
    there = set(lines)
    others = [t for t in running if t not in there]
    for i, t in enumerate(lines):
        if t is None and others:
            lines[i] = others.pop(0)
    return lines + others[: room - len(lines)]


def flow(pieces: Sequence[Text], width: int, most: int, gap: str = "  ") -> list[Text]:
    """Arrange pieces side by side on at most `most` lines. The last line is cut if needed."""
    lines: list[Text] = []
    for piece in pieces:
        if lines and (
            lines[-1].cell_len + len(gap) + piece.cell_len <= width or len(lines) == most
        ):
            lines[-1] = Text.assemble(lines[-1], gap, piece)
        else:
            lines.append(piece)
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines


def columns_of(width: int, longest: Mapping[str, int]) -> dict[str, int]:
    """Choose the columns of the trial table that fit into the terminal.

    Return the width of each column by its name, from left to right.

    Args:
        width: Width of the terminal.
        longest: Length of the longest text so far, by name of the column. Only columns of variable
            width are included.
    """
    sizes = {name: max(size, longest.get(name, 0)) for name, size in COLUMNS.items()}
    if width < NARROW:
        sizes |= {"step": 11, "value": 9}
    elif (over := sum(sizes.values()) + 2 * (len(sizes) - 1) - width) > 0:
        sizes["workers"] = max(COLUMNS["workers"], sizes["workers"] - over)
    kept: dict[str, int] = {}
    for name, size in sizes.items():
        if sum(kept.values()) + 2 * len(kept) + size > width:
            break
        kept[name] = size
    columns = {name: kept[name] for name in ORDER if name in kept}
    left = width - sum(columns.values()) - 2 * len(columns)
    if len(columns) == len(ORDER) and left >= CONFIGURATION_FROM:
        columns["configuration"] = left
    return columns


def bar(part: float, width: int) -> Text:
    """Draw a progress bar.

    Args:
        part: Fraction that is finished, between 0 and 1.
        width: Width in columns.
    """
    halves = round(2 * width * min(1.0, max(0.0, part)))
    done = "━" * (halves // 2) + "╸" * (halves % 2)
    return Text.assemble((done, "cyan"), ("─" * (width - len(done)), "dim"))


def number(value: float | None, digits: int = 5) -> str:
    """Format a value of the objective with up to `digits` significant digits. Return "" for None."""
    return "" if value is None else f"{value:.{digits}g}"


def pairs(configuration: Pairs, unnamed: str = "") -> list[Text]:
    """Format (name, value) pairs as `name=value`.

    If the name equals the argument `unnamed`, only the value is shown.
    """
    return [
        Text.assemble((f"{clean(name)}=" * (name != unnamed), "dim"), clean(value))
        for name, value in configuration
    ]


def clean(text: str) -> str:
    """Return a text as one line, without characters that move the cursor."""
    return "".join(c if c.isprintable() else " " for c in text)


def _ends(left: Text, right: Text, width: int) -> Text:
    left = left.copy()
    left.truncate(max(1, width - right.cell_len - 2), overflow="ellipsis")
    return Text.assemble(left, " " * (width - left.cell_len - right.cell_len), right)


def _trials(s: SweepStatus, width: int) -> list[Text]:
    counts = [
        Text(f"{number} {STATES[state]}", STYLES.get(state, "") if number else "dim")
        for state, number in s.counts.items()
    ]
    of = Text(f"{s.ended}/{s.total}", "bold")
    digits = len(str(s.total))
    most = (
        2 * digits
        + 3
        + sum(digits + len(STATES[state]) + 3 for state in {**s.counts, "WAITING": 0})
    )  # The bar's length must not change.
    length = width - most if width - most >= 10 else width - of.cell_len - 2
    return flow([bar(s.ended / max(1, s.total), min(max(length, 4), 60)), of, *counts], width, 4)


def _best(s: SweepStatus, width: int) -> list[Text]:
    if s.best is None:
        return [
            Text(
                f"{s.front} trial{'s' * (s.front != 1)} on the Pareto front"
                if s.front
                else "no value yet",
                "" if s.front else "dim",
            )
        ]
    where = Text(f"trial {s.best.trial}, step {s.best.step}")
    value = Text.assemble((number(s.best.value, 6), "bold green"), f" {clean(s.metric)}")
    return [*flow([value, where], width, 2), *flow(pairs(s.best.configuration), width, 3)]


def _use(s: SweepStatus) -> list[Text]:
    if not s.use:
        return [Text("-", "dim")]
    fitted = [Text(f"{s.fits} preprocessor{'s' * (s.fits != 1)} fitted", "dim")] if s.fits else []
    return [*map(_one_use, s.use), *fitted]


def _one_use(use: ResourceUse) -> Text:
    warm = f" ({use.warm:g} warm)" if use.warm else ""
    return Text.assemble(
        f"{use.name} ",
        (f"{use.busy:g}", "cyan" if use.busy else "dim"),
        f"/{use.total:g}",
        (warm, "dim"),
    )


def _left(s: SweepStatus) -> list[Text]:
    if s.stage is not None:
        return [Text(s.stage)]
    if s.reason is not None:
        return [Text(f"stopping: {s.reason}", "bold magenta")]
    if s.paused:
        return [Text("paused: running trials continue, and no new trial starts", "bold magenta")]
    if s.left is None:
        return [Text("unknown" if s.ended < s.total else "-", "dim")]
    about = "at most" if s.left.at_most else "about"
    return [
        Text(f"{about} {format_clock(s.left.seconds)} "),
        *(Text(word, "dim") for word in s.left.how.split()),
    ]


def _head(columns: dict[str, int], metric: str) -> Text:
    names = {"value": metric if len(metric) <= columns.get("value", 0) else "latest"}
    cells = [
        _cell(Text(names.get(name, name)), size, name in ("value", "best", "time"))
        for name, size in columns.items()
    ]
    head = Text("  ").join(cells)
    head.stylize("dim")
    return head


def _row(row: TrialRow, columns: dict[str, int], width: int, is_best: bool) -> Text:
    digits = 3 if width < NARROW else 5
    cells = {
        "trial": Text(row.trial, "bold green" if is_best else ""),
        "step": _step(row, columns["step"]) if "step" in columns else Text(),
        "value": Text(number(row.value, digits)),
        "best": Text(number(row.best)),
        "workers": Text(shape_text(row.shape)),
        "time": Text(format_clock(row.seconds)),
        "configuration": (
            flow(pairs(row.configuration, "preprocessor"), columns.get("configuration", 0), 1)
            or [Text()]
        )[0],
    }
    return Text("  ").join(
        _cell(cells[name], size, name in ("value", "best", "time"))
        for name, size in columns.items()
    )


def _step(row: TrialRow, width: int) -> Text:
    """Show the progress of a trial, or its stage if it is not training."""
    if row.stage != "training":
        return Text(row.stage, "magenta" if row.stage.startswith("waiting") else "cyan")
    steps = f"{row.step}/{row.max_t}" if row.max_t else f"{row.step}" if row.step else "training"
    if row.attempt > 1:
        return Text.assemble(steps, (f" (attempt {row.attempt})", "magenta"))
    if row.max_t and width >= COLUMNS["step"]:
        room = 2 * len(str(row.max_t)) + 1
        return Text.assemble(
            bar(row.step / row.max_t, max(4, width - room - 1)), " ", steps.rjust(room)
        )
    return Text(steps)


def _cell(text: Text, size: int, right: bool) -> Text:
    text.truncate(size, overflow="ellipsis")
    space = " " * (size - text.cell_len)
    return Text.assemble(space, text) if right else Text.assemble(text, space)

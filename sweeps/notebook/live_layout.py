"""Lay out the live view: show a status with Rich, in a terminal or below a cell of a notebook.

All colors are readable on light and dark backgrounds. Colors only repeat information that the
text also contains.
"""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from sweeps.controller.status import STATE_WORDS, Pairs, SweepStatus, TrialRow, shape_text
from sweeps.core.text.durations import format_clock
from sweeps.core.text.shell_text import printable

STYLES = {"RUNNING": "cyan", "COMPLETE": "green", "FAIL": "bold red"}
# Padding of a cell in characters: top, right, bottom, left
GAP = (0, 2, 0, 0)


def layout(s: SweepStatus) -> Group:
    """Return the live view of a status."""
    title = Table.grid(expand=True, padding=GAP)
    title.add_column(no_wrap=True)
    title.add_column(justify="right", no_wrap=True)
    title.add_row(Text(printable(s.name), "bold"), format_clock(s.seconds))
    facts = Table.grid(padding=GAP)
    facts.add_column(min_width=6)
    for label, fact in _facts(s):
        facts.add_row(label, fact)
    running: list[RenderableType] = ["", _running(s)] if s.rows else []
    return Group(title, facts, *running)


def _facts(s: SweepStatus) -> Iterator[tuple[str, RenderableType]]:
    """Yield the facts about the whole sweep, as (label, fact)."""
    yield "trials", _trials(s)
    yield "best", _best(s)
    if s.failure is not None:
        yield "failed", Text.assemble((s.failure[0], "red"), " ", printable(s.failure[1]))
    if s.use:
        fitted = f"{s.fits} preprocessor{'s' * (s.fits != 1)} fitted" if s.fits else ""
        uses = []
        for use in s.use:
            warm = f" ({use.warm:g} warm)" if use.warm else ""
            uses.append(f"{use.name} {use.busy:g}/{use.total:g}{warm}")
        yield "in use", Text.assemble("  ".join(uses), "  ", (fitted, "dim"))
    yield _outlook(s)


def _trials(s: SweepStatus) -> Table:
    counts = [
        (f"{number} {STATE_WORDS[state]}  ", STYLES.get(state, "") if number else "dim")
        for state, number in s.counts.items()
    ]
    shown = Table.grid(padding=GAP)
    shown.add_row(
        _bar(s.ended, s.total, width=30),
        Text(f"{s.ended}/{s.total}", "bold"),
        Text.assemble(*counts),
    )
    return shown


def _bar(done: int, total: int, width: int) -> ProgressBar:
    return ProgressBar(
        total=max(1, total),
        completed=done,
        width=width,
        style="dim",
        complete_style="cyan",
        finished_style="cyan",
    )


def _best(s: SweepStatus) -> Text:
    if s.front:
        return Text(f"{s.front} trial{'s' * (s.front != 1)} on the Pareto front")
    if s.best is None:
        return Text("no value yet", "dim")
    return Text.assemble(
        (f"{s.best.value:.6g}", "bold green"),
        f" {printable(s.metric)}  trial {s.best.trial}, step {s.best.step}  ",
        _pairs(s.best.configuration),
    )


def _outlook(s: SweepStatus) -> tuple[str, Text]:
    """Return what the sweep does while no trials run, or how much time is left: (label, fact)."""
    if s.stage is not None:
        return "now", Text(s.stage)
    if s.reason is not None:
        return "now", Text(f"stopping: {s.reason}", "bold magenta")
    if s.paused:
        text = "paused: running trials continue, and no new trial starts"
        return "now", Text(text, "bold magenta")
    if s.left is None:
        return "left", Text("unknown" if s.ended < s.total else "-", "dim")
    about = "at most" if s.left.at_most else "about"
    return "left", Text(f"{about} {format_clock(s.left.seconds)}")


def _running(s: SweepStatus) -> Table:
    table = Table(box=None, padding=GAP, pad_edge=False, header_style="dim")
    right = {printable(s.metric), "best", "time"}
    for head in ("trial", "step", "", printable(s.metric), "best", "workers", "time"):
        # In a narrow terminal, the columns on the right are cut off.
        table.add_column(
            head, justify="right" if head in right else "left", min_width=len(head), no_wrap=True
        )
    table.add_column("configuration", overflow="ellipsis")
    best = s.best.trial if s.best else None
    for row in s.rows:
        training = row.stage == "training"
        table.add_row(
            Text(row.trial, "bold green" if row.trial == best else ""),
            _step(row),
            _bar(row.step, row.max_t, width=10) if training and row.max_t else "",
            _number(row.value),
            _number(row.best),
            shape_text(row.shape),
            format_clock(row.seconds),
            _pairs(row.configuration),
        )
    return table


def _step(row: TrialRow) -> Text:
    """Return the step of a trial, or its stage if it is not training."""
    if row.stage != "training":
        return Text(row.stage, "magenta" if row.stage.startswith("waiting") else "cyan")
    steps = f"{row.step}/{row.max_t}" if row.max_t else str(row.step)
    attempt = f" (attempt {row.attempt})" if row.attempt > 1 else ""
    return Text.assemble(steps, (attempt, "magenta"))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.5g}"


def _pairs(configuration: Pairs) -> Text:
    """Return the values of a configuration in one line."""
    text = Text()
    for name, value in configuration:
        text.append(f"{printable(name)}=", "dim").append(f"{printable(value)}  ")
    text.rstrip()
    text.no_wrap = True
    return text

"""The layout of the live view.

`python -m tests.terminal.test_live_layout` draws its picture in `docs/`.
"""

from __future__ import annotations

import dataclasses
import html
import io
import re
from collections import Counter
from typing import Any

import pytest
from rich.console import Console
from rich.terminal_theme import SVG_EXPORT_THEME

from sweeps.controller.eta import TimeLeft
from sweeps.controller.status import BestTrial, Pairs, ResourceUse, SweepStatus, TrialRow
from sweeps.core.resources import Shape
from sweeps.notebook.live_layout import layout
from tests.commands import REPO

PICTURE = REPO / "docs" / "live.svg"
ONE, TWO = Shape(1, (("CPU", 1.0),)), Shape(2, (("CPU", 1.0),))


def given_to(scaler: str, eta: str, depth: str) -> Pairs:
    return (("preprocessor", scaler), ("eta", eta), ("max_depth", depth))


def row(trial: str, step: int, value: float | None, **changes: Any) -> TrialRow:
    shown = TrialRow(trial, "training", step, 50, value, value, ONE, seconds=4.1)
    return dataclasses.replace(shown, **changes)


STANDING = SweepStatus(
    name="quickstart-20261120-164626",
    metric="valid-logloss",
    states=Counter(RUNNING=4, COMPLETE=6, PRUNED=21, FAIL=1),
    total=64,
    best=BestTrial(
        "0019",
        0.0413607,
        49,
        (("workers", "1 × 1 CPU"), *given_to("MinMaxScaler", "0.2407", "8")),
    ),
    failure=("0012", "a worker process died in 3 attempts"),
    rows=(
        row("0029", 31, 0.052918, configuration=given_to("StandardScaler", "0.1907", "6")),
        row("0030", 7, 0.34418, attempt=2, configuration=given_to("MinMaxScaler", "0.0223", "3")),
        row("0031", 0, None, stage="starting workers", shape=TWO),
        row("0032", 0, None, stage="waiting for workers", shape=TWO),
    ),
    use=(ResourceUse("CPU", 6, 5, 1),),
    fits=2,
    seconds=92.4,
    left=TimeLeft(89.0),
)


def console(width: int, **how: Any) -> Console:
    return Console(width=width, file=io.StringIO(), highlight=False, **how)


def shown(status: SweepStatus, width: int = 110) -> str:
    terminal = console(width)
    with terminal.capture() as captured:
        terminal.print(layout(status))
    return captured.get()


@pytest.mark.parametrize("width", [20, 40, 80, 160])
def test_no_line_is_longer_than_the_terminal(width: int) -> None:
    assert all(len(line) <= width for line in shown(STANDING, width).splitlines())


def test_the_view_has_all_facts_about_the_sweep() -> None:
    text = shown(STANDING)
    for word in (
        "1:32",
        "28/64  3 running  1 waiting  6 completed  21 pruned  1 failed",
        "0.0413607 valid-logloss  trial 0019, step 49  workers=1 × 1 CPU",
        "0012 a worker process died in 3 attempts",
        "CPU 5/6 (1 warm)  2 preprocessors fitted",
        "about 1:29",
        "31/50",
        "7/50 (attempt 2)",
        "starting workers",
        "waiting for workers",
        "0.052918",
        "2 × 1 CPU",
        "preprocessor=StandardScaler",
    ):
        assert word in text, word


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"stage": "exporting the winner"}, "now     exporting the winner"),
        ({"reason": "limits.timeout"}, "now     stopping: limits.timeout"),
        ({"paused": True}, "now     paused: running trials continue, and no new trial starts"),
        ({"left": TimeLeft(60.0, at_most=True)}, "left    at most 1:00"),
        ({"left": None}, "left    unknown"),
        ({"best": None}, "best    no value yet"),
        ({"best": None, "front": 2}, "best    2 trials on the Pareto front"),
    ],
)
def test_the_state_of_the_sweep_is_named(change: Any, line: str) -> None:
    text = shown(dataclasses.replace(STANDING, **change))
    assert line in [shown.rstrip() for shown in text.splitlines()]


def test_a_name_cannot_move_the_cursor() -> None:
    odd = dataclasses.replace(STANDING, name="a\x1b[2Jb", metric="[red]m")
    assert "\x1b" not in shown(odd) and "[red]m" in shown(odd)


def picture() -> str:
    """Return the view of a sweep as an SVG of a terminal."""
    terminal = console(110, record=True, force_terminal=True, color_system="standard")
    terminal.print(layout(STANDING))
    svg = terminal.export_svg(title="sweeps run", theme=SVG_EXPORT_THEME, unique_id="live")
    # A page may not load a font from elsewhere.
    return re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL)


def test_the_picture_shows_the_current_view() -> None:
    def words(svg: str) -> list[str]:
        return html.unescape(" ".join(re.findall(r"<text[^>]*>([^<]*)</text>", svg))).split()

    assert words(PICTURE.read_text()) == words(picture()), (
        "renew it: python -m tests.terminal.test_live_layout"
    )


if __name__ == "__main__":
    PICTURE.write_text(picture())

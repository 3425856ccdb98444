"""The layout of the live view, drawn from snapshots.

`python -m tests.terminal.test_live_layout` writes its pictures into `docs/`.
"""

from __future__ import annotations

import dataclasses
import html
import io
import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.terminal_theme import TerminalTheme

from sweeps.controller.eta import TimeLeft
from sweeps.controller.status import BestTrial, Pairs, ResourceUse, SweepStatus, TrialRow
from sweeps.core.resources import Shape
from sweeps.terminal.live_layout import View, flow, pairs, place
from tests.commands import REPO

# Colors of terminals in wide use, dark and light: background, foreground, the eight, the eight
# bright ones.
THEMES = {
    "dark": (
        "0d1117 c9d1d9",
        "484f58 ff7b72 3fb950 d29922 58a6ff bc8cff 39c5cf b1bac4",
        "6e7681 ffa198 56d364 e3b341 79c0ff d2a8ff 56d4dd f0f6fc",
    ),
    "light": (
        "ffffff 24292f",
        "24292f cf222e 116329 4d2d00 0969da 8250df 1b7c83 6e7781",
        "57606a a40e26 1a7f37 633c01 218bff a475f9 3192aa 8c959f",
    ),
}
PICTURE = 100
ONE, TWO = Shape(1, (("CPU", 1.0),)), Shape(2, (("CPU", 1.0),))


def given_to(scaler: str, eta: str, subsample: str, depth: str) -> Pairs:
    return (("preprocessor", scaler), ("eta", eta), ("subsample", subsample), ("max_depth", depth))


STANDING = SweepStatus(
    name="quickstart-20261120-164626",
    metric="valid-logloss",
    states=Counter(RUNNING=4, COMPLETE=6, PRUNED=21, FAIL=1),
    total=64,
    best=BestTrial(
        "0019",
        0.0413607,
        49,
        (("workers", "1 × 1 CPU"), *given_to("MinMaxScaler", "0.2407", "0.5521", "8")),
    ),
    failure=(
        "0012",
        "a worker process died in 3 attempts, and `limits.max_failures` allows only 2",
    ),
    rows=(
        TrialRow(
            "0029",
            "training",
            31,
            50,
            0.052918,
            0.051774,
            TWO,
            4.1,
            1,
            given_to("StandardScaler", "0.1907", "0.6313", "6"),
        ),
        TrialRow(
            "0030",
            "training",
            7,
            50,
            0.34418,
            0.34418,
            ONE,
            2.3,
            2,
            given_to("MinMaxScaler", "0.02231", "0.9102", "3"),
        ),
        TrialRow(
            "0031",
            "starting workers",
            0,
            50,
            None,
            None,
            TWO,
            1.8,
            1,
            given_to("MinMaxScaler", "0.1141", "0.7746", "5"),
        ),
        TrialRow(
            "0032",
            "waiting for workers",
            0,
            50,
            None,
            None,
            TWO,
            0.4,
            1,
            given_to("StandardScaler", "0.2604", "0.5099", "7"),
        ),
    ),
    use=(ResourceUse("CPU", 6, 5, 1),),
    fits=2,
    seconds=92.4,
    left=TimeLeft(89.0, "36 trials left, one every 2.4 s (mean of the last 16)"),
)


def text_of(lines) -> list[str]:
    return [line.plain for line in lines]


@pytest.mark.parametrize("height", [4, 12, 24, 60])
@pytest.mark.parametrize("width", [20, 40, 80, 100, 160])
def test_no_line_is_longer_than_the_terminal_and_there_are_no_more_than_it_holds(width, height):
    lines = View().lines(STANDING, width, height)
    assert max(line.cell_len for line in lines) <= width and len(lines) <= height
    assert text_of(lines)[0].startswith("quickstart-20261120"[: width - 8])


@pytest.mark.parametrize("width", [39, 79, 159])
def test_the_report_has_the_importances(width):
    text = "\n".join(text_of(View().lines(STANDING, width, 40)))
    for word in (
        "1:32",
        "28/64",
        "3 running",
        "1 waiting",
        "6 completed",
        "21 pruned",
        "1 failed",
        "0.0413607 valid-logloss",
        "trial 0019, step 49",
    ):
        assert word in text
    for word in (
        "workers=1 × 1 CPU",
        "preprocessor=MinMaxScaler",
        "eta=0.2407",
        "0012 a worker",
        "CPU 5/6 (1 warm)",
        "about 1:29",
    ):
        assert word in text
    assert re.search(
        r"36\s+trials\s+left,\s+one\s+every\s+2.4\s+s\s+\(mean\s+of\s+the\s+last\s+16\)", text
    )
    for trial, step, time in (
        ("0029", "31/50", "0:04"),
        ("0030", "7/50", "0:02"),
        ("0031", "starting w", "0:01"),
        ("0032", "waiting f", "0:00"),
    ):
        assert re.search(rf"^{trial} .*{step}.* {time}\b", text, re.MULTILINE), trial


def test_a_wide_terminal_shows_the_configuration_of_each_trial():
    assert (
        "StandardScaler  eta=0.1907  subsample=0.6313  max_depth=6"
        in text_of(View().lines(STANDING, 159, 40))[-4]
    )
    assert "0.052918     0.051774  2 × 1 CPU" in text_of(View().lines(STANDING, 79, 40))[-4]


def test_rows_that_do_not_fit_are_counted():
    rows = tuple(dataclasses.replace(STANDING.rows[i % 4], trial=f"{i:04d}") for i in range(20))
    lines = text_of(View().lines(dataclasses.replace(STANDING, rows=rows), 80, 20))
    assert len(lines) == 20 and re.fullmatch(r"… and 1\d more: .*\d training, .*", lines[-1])
    shown = [line for line in lines if re.match(r"\d{4} ", line)]
    assert len(shown) + int(lines[-1].split()[2]) == 20


def test_lines_and_sections_keep_their_places():
    view = View()
    full = text_of(view.lines(STANDING, 80, 40))
    fewer = dataclasses.replace(STANDING, rows=STANDING.rows[1:], best=None, left=None)
    lines = text_of(view.lines(fewer, 80, 40))
    assert len(lines) == len(full)
    assert [i for i, line in enumerate(lines) if line.startswith("0031")] == [
        i for i, line in enumerate(full) if line.startswith("0031")
    ]
    assert text_of(
        view.lines(dataclasses.replace(STANDING, rows=(), states=Counter(COMPLETE=64)), 80, 40)
    )[1].index("64/64") == full[1].index("28/64")


def test_stages_other_than_trials_are_shown():
    lines = text_of(
        View().lines(SweepStatus(name="x", total=4, stage="starting Ray", seconds=3.0), 80, 24)
    )
    assert "starting Ray" in lines[-1] and lines[1].split()[-8:] == [
        "0",
        "running",
        "0",
        "completed",
        "0",
        "pruned",
        "0",
        "failed",
    ]
    assert "stopping: limits.timeout" in "\n".join(
        text_of(View().lines(dataclasses.replace(STANDING, reason="limits.timeout"), 80, 24))
    )
    bound = dataclasses.replace(STANDING, left=TimeLeft(60.0, "limits.timeout", at_most=True))
    assert "at most 1:00  limits.timeout" in "\n".join(text_of(View().lines(bound, 80, 24)))


def test_no_text_of_the_user_moves_the_cursor():
    odd = dataclasses.replace(
        STANDING,
        metric="a\tb\x1b[2J",
        failure=("0001", "\x1b[31mred\r\x07"),
        best=BestTrial("0001", 1.0, 1, (("x", "a\nb"),)),
    )
    for text in text_of(View().lines(odd, 80, 24)):
        assert text.isprintable()


def test_all_colors_are_readable_on_light_and_dark_backgrounds():
    used = {str(span.style) for line in View().lines(STANDING, 100, 40) for span in line.spans}
    used |= {str(line.style) for line in View().lines(STANDING, 100, 40)}
    words = {word for style in used for word in style.split()}
    assert words <= {"bold", "dim", "none", "cyan", "green", "red", "magenta"}


@given(st.lists(st.lists(st.integers(0, 30), unique=True), max_size=12), st.integers(1, 8))
def test_a_trial_keeps_its_line(frames, room):
    lines: list[str | None] = []
    for numbers in frames:
        running = [f"{n:04d}" for n in sorted(numbers)]
        before, lines = lines, place(lines, running, room)
        shown = [t for t in lines if t is not None]
        assert len(lines) <= room and len(shown) == len(set(shown)) == min(room, len(running)), (
            "as many as there is room for, each once"
        )
        assert all(lines[i] == t for i, t in enumerate(before) if t in running)


@given(
    st.lists(
        st.text(st.characters(categories=("L", "N", "S")), min_size=1, max_size=30), max_size=12
    ),
    st.integers(1, 40),
    st.integers(1, 4),
)
def test_pieces_flow_into_the_available_lines(names, width, most):
    lines = flow(pairs(tuple((name, "1") for name in names)), width, most)
    assert len(lines) <= most and all(line.cell_len <= width for line in lines)


# ---- the pictures


def picture(theme: str) -> str:
    """Return the view of a sweep as an SVG of a terminal."""
    colors = [[tuple(bytes.fromhex(c)) for c in part.split()] for part in THEMES[theme]]
    console = Console(
        record=True,
        width=PICTURE,
        file=io.StringIO(),
        force_terminal=True,
        color_system="standard",
        highlight=False,
    )
    for line in View().lines(STANDING, PICTURE - 1, 40):
        console.print(line, soft_wrap=True)
    svg = console.export_svg(
        title="sweeps run",
        theme=TerminalTheme(*colors[0], colors[1], colors[2]),
        unique_id=f"live-{theme}",
    )
    return re.sub(
        r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL
    )  # a font from elsewhere, which a page may not load


def words_of(svg: str) -> list[str]:
    return html.unescape(" ".join(re.findall(r"<text[^>]*>([^<]*)</text>", svg))).split()


@pytest.mark.parametrize("theme", THEMES)
def test_the_pictures_show_the_current_view(theme):
    file = REPO / "docs" / f"live-{theme}.svg"
    assert words_of(file.read_text()) == words_of(picture(theme)), (
        "renew them: python -m tests.terminal.test_live_layout"
    )
    assert file.stat().st_size < 60_000 and "url(http" not in file.read_text()


if __name__ == "__main__":
    for name in THEMES:
        (REPO / "docs").mkdir(exist_ok=True)
        (REPO / "docs" / f"live-{name}.svg").write_text(picture(name))
        print(f"docs/live-{name}.svg")

"""The view of a running sweep: frames on a terminal, otherwise lines; nothing with `--quiet`."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
from collections import Counter
from typing import Any

import pytest

from sweeps.controller.eta import TimeLeft
from sweeps.controller.status import BestTrial, SweepStatus, status_line
from sweeps.terminal import live
from sweeps.terminal.live import STOPPING, Progress
from tests.commands import REPO
from tests.terminal.test_live_layout import STANDING
from tests.waiting import wait_until


class Terminal:
    """A pseudo-terminal that a program writes to, and what it has shown."""

    def __init__(self, columns: int = 100, lines: int = 30) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.stream = os.fdopen(slave, "w")
        self.raw = b""
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while part := os.read(self.master, 65536):
                self.raw += part

    @property
    def text(self) -> str:
        """What was written, without colors and movements of the cursor."""
        return re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", self.raw.decode(errors="ignore"))

    def shows(self, text: str) -> bool:
        return text in self.text


def test_a_line_shows_trials_best_value_and_time() -> None:
    states = Counter({"COMPLETE": 4, "PRUNED": 10, "FAIL": 1, "RUNNING": 2})
    s = SweepStatus(states, 64, BestTrial("0009", 0.0413607, 49), 3700.0, TimeLeft(61.0))
    assert (
        status_line(s)
        == "15/64 trials · 2 running · 10 pruned · 1 failed · best 0.0413607 (trial 0009) · "
        "1:01:40, about 1:01 left"
    )
    waits = dataclasses.replace(STANDING.rows[0], stage="waiting for workers")
    assert (
        status_line(SweepStatus(Counter(RUNNING=3), 4, seconds=5.0, rows=(waits,)))
        == "0/4 trials · 2 running · 1 waiting · 0 pruned · 0:05"
    )
    assert (
        status_line(SweepStatus(total=8, seconds=5.0)) == "0/8 trials · 0 running · 0 pruned · 0:05"
    )
    assert status_line(
        SweepStatus(total=8, seconds=5.0, left=TimeLeft(55.0, at_most=True))
    ).endswith("0:05, at most 0:55 left")
    assert status_line(SweepStatus(total=8, seconds=5.0, stage="starting Ray")).endswith(
        "· starting Ray · 0:05"
    )


def test_without_a_terminal_a_line_is_printed_regularly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "LINE_EVERY", 0.5)
    out = io.StringIO()
    show = Progress(False, out)
    show(SweepStatus(Counter(RUNNING=2), 8, seconds=60.6))
    wait_until(lambda: out.getvalue().count("\n") >= 3, 10, "lines, though nothing is heard")
    show.close()
    clocks = [shown[-4:] for shown in out.getvalue().splitlines()]
    assert clocks[0] == "1:01" and clocks[-1] > clocks[0] and "\x1b" not in out.getvalue()
    assert all(shown.startswith("0/8 trials · 2 running") for shown in out.getvalue().splitlines())
    said = out.getvalue()
    assert show.view is None and out.getvalue() == said


def test_a_terminal_that_cannot_move_its_cursor_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    show = Progress(False, Terminal().stream)
    show(STANDING)
    assert not show.terminal


@pytest.mark.parametrize("silent", [True, False])
def test_ctrl_c_is_confirmed_once(silent: bool) -> None:
    out = io.StringIO()
    show = Progress(silent, out)
    for _ in range(2):
        show(SweepStatus(total=8, seconds=5.0, reason="interrupted"))
    show.close()
    assert out.getvalue() == STOPPING + "\n"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(live, "FRAME_EVERY", 0.02)
    return Terminal()


def test_frames_are_drawn_while_the_clock_advances_and_erased_in_the_end(
    terminal: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", terminal.stream)
    show = Progress(False, terminal.stream)
    show(STANDING)
    wait_until(lambda: terminal.shows("trial 0019, step 49"), 5, "a frame")
    wait_until(lambda: terminal.shows("1:33"), 5, "the clock to go on without a new snapshot")
    assert terminal.raw.rfind(b"\x1b[?25h") > terminal.raw.rfind(b"\x1b[?25l"), "a cursor"
    show.close()
    wait_until(lambda: terminal.raw.endswith(b"\x1b[1A\x1b[2K"), 5, "the frame to be wiped")


def test_a_line_of_the_view_stays_if_stdout_is_not_the_terminal(
    terminal: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    show = Progress(False, terminal.stream)
    show(STANDING)
    show.close()
    wait_until(lambda: terminal.shows(status_line(STANDING)), 5, "the line")


def test_other_output_stays_above_the_frame(terminal: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal.stream)
    show = Progress(False)
    show(STANDING)
    print("a warning of", "Ray", file=sys.stderr)
    show(dataclasses.replace(STANDING, reason="interrupted"))
    wait_until(lambda: terminal.shows("a warning of Ray"), 5, "the warning above a frame")
    wait_until(lambda: terminal.shows(STOPPING), 5, "the answer to Ctrl-C")
    show.close()
    assert sys.stderr is terminal.stream


def test_a_closed_terminal_ends_the_view_but_not_the_sweep(terminal: Any) -> None:
    show = Progress(False, terminal.stream)
    show(STANDING)
    wait_until(lambda: terminal.shows("trial 0019"), 5, "a frame")
    terminal.stream.close()
    show(STANDING)
    show.close()


def test_rich_is_not_imported_without_a_terminal() -> None:
    code = (
        "import sys, io; from sweeps.terminal.live import Progress; from sweeps.controller.status "
        "import SweepStatus\n"
        "Progress(False, io.StringIO())(SweepStatus(total=1)); print({'rich', 'ray'} "
        "& set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPO)
    assert done.stdout == "set()\n", done.stderr


def test_r13_a_silent_trial_is_named_once_with_its_stack() -> None:
    said = "rank 1 has not reported for 301 s; the stack of its training loop:\n  File loop.py"
    row = dataclasses.replace(STANDING.rows[0], stage="silent", notice=said)
    stream = io.StringIO()
    show = Progress(silent=False, stream=stream)
    for rows in ((row,), (row,), (dataclasses.replace(row, stage="training", notice=""),), (row,)):
        show(dataclasses.replace(STANDING, rows=rows))
    show.close()
    assert stream.getvalue().count(f"trial {row.trial}: {said}") == 2

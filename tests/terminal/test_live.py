"""The view of a running sweep: frames on a terminal, lines without one, and nothing with `--quiet`."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import io
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections import Counter
from types import SimpleNamespace

import pytest

from sweeps.controller.eta import TimeLeft
from sweeps.controller.status import BestTrial, SweepStatus, status_line
from sweeps.terminal import live
from sweeps.terminal.live import STOPPING, Progress
from tests.commands import REPO, space_of
from tests.terminal.test_live_layout import STANDING
from tests.waiting import wait_until


class Terminal:
    """A pseudo-terminal that a program writes to, and the lines on its screen."""

    def __init__(self, columns: int = 80, lines: int = 24):
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
    def screen(self) -> list[str]:
        """Return the lines on the screen.

        Understands what the view writes: lines, colors, cursor up, and erasing the rest of a line.
        """
        screen, row, column = [""], 0, 0
        for code, count, end, char in re.findall(
            r"(\x1b\[)([\d;]*)([A-Za-z])|(.)", self.raw.decode(errors="ignore"), re.DOTALL
        ):
            if code and end == "A":
                row = max(0, row - int(count or 1))
            elif code and end == "K":
                screen[row] = screen[row][:column]
            elif code:
                assert end == "m", f"the view writes {code + count + end!r}"
            elif char == "\r":
                column = 0
            elif char == "\n":
                row += 1
                screen += [""] * (row + 1 - len(screen))
            else:
                screen[row] = screen[row][:column].ljust(column) + char + screen[row][column + 1 :]
                column += 1
        return screen

    def shows(self, text: str) -> bool:
        return any(text in shown for shown in self.screen)


def test_a_line_shows_trials_best_value_and_time():
    states = Counter({"COMPLETE": 4, "PRUNED": 10, "FAIL": 1, "RUNNING": 2})
    s = SweepStatus(states, 64, BestTrial("0009", 0.0413607, 49), 3700.0, TimeLeft(61.0, "somehow"))
    assert (
        status_line(s)
        == "15/64 trials · 2 running · 10 pruned · 1 failed · best 0.0413607 (trial 0009) · "
        "1:01:40, about 1:01 left"
    )
    waits = SimpleNamespace(stage="waiting for workers")
    assert (
        status_line(SweepStatus(Counter(RUNNING=3), 4, seconds=5.0, rows=(waits,)))
        == "0/4 trials · 2 running · 1 waiting · 0 pruned · 0:05"
    )
    assert (
        status_line(SweepStatus(total=8, seconds=5.0)) == "0/8 trials · 0 running · 0 pruned · 0:05"
    )
    assert status_line(
        SweepStatus(total=8, seconds=5.0, left=TimeLeft(55.0, "limits.timeout", True))
    ).endswith("0:05, at most 0:55 left")
    assert status_line(SweepStatus(total=8, seconds=5.0, stage="starting Ray")).endswith(
        "· starting Ray · 0:05"
    )


def test_without_a_terminal_a_line_is_printed_regularly(monkeypatch):
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


def test_a_terminal_that_cannot_move_its_cursor_gets_lines(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    show = Progress(False, Terminal().stream)
    show(STANDING)
    assert not show.terminal


@pytest.mark.parametrize("silent", [True, False])
def test_ctrl_c_is_confirmed_once(silent):
    out = io.StringIO()
    show = Progress(silent, out)
    for _ in range(2):
        show(SweepStatus(total=8, seconds=5.0, reason="interrupted"))
    show.close()
    assert out.getvalue() == STOPPING + "\n"


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(live, "FRAME_EVERY", 0.02)
    return Terminal()


def test_frames_are_drawn_over_one_another_while_the_clock_advances(terminal, monkeypatch):
    show = Progress(False, terminal.stream)
    show(STANDING)
    wait_until(lambda: terminal.shows("trial 0019, step 49"), 5, "a frame")
    wait_until(
        lambda: terminal.screen[0].endswith("1:33"), 5, "the clock to go on without a new snapshot"
    )
    height = len(terminal.screen)
    assert height < 24 and sum("quickstart" in shown for shown in terminal.screen) == 1
    show(dataclasses.replace(STANDING, rows=()))
    wait_until(lambda: not terminal.shows("0029"), 5, "the rows to go")
    assert len(terminal.screen) == height
    monkeypatch.setattr(sys, "stdout", terminal.stream)
    show.close()
    wait_until(
        lambda: not any(terminal.screen), 5, "the frame to be wiped: the end is printed there"
    )


def test_a_line_of_the_view_stays_if_stdout_is_not_the_terminal(terminal, monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    show = Progress(False, terminal.stream)
    show(STANDING)
    show.close()
    wait_until(
        lambda: [shown for shown in terminal.screen if shown] == [status_line(STANDING)],
        5,
        "the line",
    )


def test_other_output_stays_above_the_frame(terminal, monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal.stream)
    show = Progress(False)
    show(STANDING)
    kept = sys.stderr
    print("a warning of", "Ray", file=sys.stderr)
    sys.stderr.write("half a ")
    wait_until(
        lambda: terminal.screen[0] == "a warning of Ray" and terminal.shows("trial 0019"),
        5,
        "the warning above a frame",
    )
    sys.stderr.write("line\n")
    show(dataclasses.replace(STANDING, reason="interrupted"))
    wait_until(
        lambda: terminal.screen[1:3] == ["half a line", STOPPING],
        5,
        "the line and the answer to Ctrl-C",
    )
    wait_until(lambda: sum("quickstart" in shown for shown in terminal.screen) == 1, 5, "one frame")
    monkeypatch.setattr(sys, "stdout", terminal.stream)
    show.close()
    assert sys.stderr is terminal.stream
    print("later", file=kept)
    wait_until(
        lambda: [shown for shown in terminal.screen if shown][3:] == ["later"],
        5,
        "what is written later, as it is",
    )


def test_a_closed_terminal_ends_the_view_but_not_the_sweep(terminal):
    show = Progress(False, terminal.stream)
    show(STANDING)
    wait_until(lambda: terminal.shows("trial 0019"), 5, "a frame")
    terminal.stream.close()
    show(STANDING)
    show.close()


def test_no_color_is_printed_with_no_color_set(terminal, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    show = Progress(False, terminal.stream)
    show(STANDING)
    wait_until(lambda: terminal.shows("trial 0019"), 5, "a frame")
    assert not re.search(rb"\x1b\[[\d;]*3[0-7]", terminal.raw) and b"\x1b[1m" in terminal.raw
    show.close()


def test_rich_is_not_imported_without_a_terminal():
    code = (
        "import sys, io; from sweeps.terminal.live import Progress; from sweeps.controller.status "
        "import SweepStatus\n"
        "Progress(False, io.StringIO())(SweepStatus(total=1)); print({'rich', 'ray', 'pydantic'} "
        "& set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPO)
    assert done.stdout == "set()\n", done.stderr


@pytest.mark.long
@pytest.mark.timeout(240)
def test_a_sweep_on_a_terminal_shows_the_view_and_leaves_stdout_clean(tmp_path):
    terminal = Terminal(100, 30)
    file = space_of(
        tmp_path,
        "held",
        limits="max_trials: 3, max_concurrent_trials: 1",
        x="{grid: [0.1, 0.2, 0.3]}",
    )
    env = {**os.environ, "PYTHONPATH": str(REPO), "TERM": "xterm-256color"}
    args = [sys.executable, "-m", "sweeps.cli", "run", str(file), "--dir", str(tmp_path / "runs")]
    process = subprocess.Popen(
        args,
        stdout=subprocess.PIPE,
        stderr=terminal.stream,
        text=True,
        env=env,
        start_new_session=True,
    )
    try:
        wait_until(lambda: list(tmp_path.glob("*-0000.two")), 120, "the first trial to hold")
        wait_until(lambda: terminal.shows("0000    2 "), 20, "its second report in the view")
        shown = "\n".join(terminal.screen)
        assert "0/3   1 running" in shown.replace("0/3  1", "0/3   1") and re.search(
            r"best    [\d.]+ loss  trial 000\d, step 2", shown
        )
        assert re.search(r"in use  CPU 1/\d+", shown) and "1 × 1 CPU" in shown and "x=" in shown
        (tmp_path / "go").touch()
        out, _ = process.communicate(timeout=120)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(20)
    assert process.returncode == 0, terminal.screen
    assert out.startswith("own-") and "best trial" in out and "\x1b" not in out
    data, left = [shown for shown in terminal.screen if shown]
    assert data.startswith("data: 150 rows, 4 features"), data
    assert left.startswith("3/3 trials · 0 running"), left


def test_r13_a_silent_trial_is_named_once_with_its_stack():
    said = "rank 1 has not reported for 301 s; the stack of its training loop:\n  File loop.py"
    row = dataclasses.replace(STANDING.rows[0], stage="silent", notice=said)
    stream = io.StringIO()
    show = Progress(silent=False, stream=stream)
    for rows in ((row,), (row,), (dataclasses.replace(row, stage="training", notice=""),), (row,)):
        show(dataclasses.replace(STANDING, rows=rows))
    show.close()
    assert stream.getvalue().count(f"trial {row.trial}: {said}") == 2

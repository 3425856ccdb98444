"""Commands from another process: what the sender sends, how long it waits, and what it says."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sweeps
from sweeps.controller.commands import Answer, Command, CommandQueue, Enqueue, Pause, Resume, Stop
from sweeps.core.errors import InputError, SweepsError
from sweeps.core.files.folder_lock import FolderLock
from sweeps.core.files.sweep_folder import COMMANDS
from sweeps.search.search_loop import SearchLoop
from sweeps.space.python.saved_space import save_space
from sweeps.stored import control
from sweeps.stored.control import DriverEnded, SweepControl
from tests.commands import invoke
from tests.waiting import wait_until

NAME = "made-20260102-120000"


class Process:
    """A process that answers, and ends, at given times.

    The times are in the seconds of a clock that only `sleep` moves.
    """

    def __init__(self, answers: float | None, ends: float | None) -> None:
        self.answers, self.ends, self.now = answers, ends, 0.0

    def is_driven(self, folder: Path) -> bool:
        return self.ends is None or self.now < self.ends

    def read_answer(self, file: Path) -> Answer | None:
        return Answer("done") if self.answers is not None and self.now >= self.answers else None

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def wait(self, timeout: float) -> Answer:
        with mock.patch.multiple(
            control, is_driven=self.is_driven, commands=self, time=self, INTERVAL=1.0
        ):
            return control.wait_for_answer(Path(), Path(), timeout)


TIMES = st.none() | st.integers(0, 20)


@given(answers=TIMES, ends=TIMES, timeout=st.integers(0, 20))
def test_sender_waits_for_answer_end_of_process_or_timeout(
    answers: Any, ends: Any, timeout: Any
) -> None:
    process = Process(answers, ends)
    if answers is not None and (ends is None or answers <= ends) and answers <= timeout:
        assert process.wait(timeout) == Answer("done")
        assert process.now == answers
    elif ends is not None and ends <= timeout:
        with pytest.raises(DriverEnded):
            process.wait(timeout)
        assert process.now == ends
    else:
        with pytest.raises(TimeoutError):
            process.wait(timeout)
        assert process.now == timeout


@pytest.fixture
def folder(make_space: Any, tmp_path: Path) -> Path:
    """The folder of a sweep with one trial that runs. No process runs the sweep."""
    space, folder = make_space("params: {eta: {uniform: [0, 1]}}"), tmp_path / "runs" / NAME
    folder.mkdir(parents=True)
    save_space(folder, space, time.time())
    SearchLoop.open(folder, space).ask()
    return folder


class Driver:
    """A process, here a thread, that runs a sweep: it holds the lock, and answers commands."""

    def __init__(self, folder: Path, answer: Callable[[Command], Answer | None]) -> None:
        self.received: list[Command] = []
        self._lock, self._queue, self._answer = FolderLock(folder), CommandQueue(folder), answer
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _handle(self, command: Command, name: str) -> Answer | None:
        answer = self._answer(command)
        if command not in self.received:
            self.received.append(command)
        return answer

    def _run(self) -> None:
        while not self._stopping.wait(0.01):
            self._queue.poll(self._handle)
            if Stop() in self.received:
                break
        self._lock.release()

    def __enter__(self) -> Driver:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stopping.set()
        self._thread.join()


def test_each_command_prints_the_answer(folder: Any) -> None:
    answers = {
        "pause": Answer("paused; no new trial starts"),
        "enqueue": Answer("trial 0001 is the next trial to start", "0001"),
    }
    answers |= {"stop": Answer("trial 0000 is stopped, before its first step", "0000")}
    root = ("--dir", folder.parent)
    with Driver(folder, lambda command: answers[command.command]) as driver:
        assert invoke("pause", "made", *root).output == f"{NAME}: paused; no new trial starts\n"
        assert (
            invoke("stop", NAME, "0", *root).output
            == f"{NAME}: trial 0000 is stopped, before its first step\n"
        )
        printed = json.loads(
            invoke(
                "enqueue",
                folder,
                "--params",
                "eta=0.1, kind=a",
                "--params",
                "m={b: [1, 2]}",
                "--json",
            ).output
        )
        opened = sweeps.open(folder)
        opened.pause()
        opened.stop(0)
        assert opened.enqueue({"eta": np.float32(0.5)}) == "0001"
    assert printed == {
        "sweep": NAME,
        "command": "enqueue",
        "trial": "0001",
        "text": "trial 0001 is the next trial to start",
    }
    assert driver.received == [
        Pause(),
        Stop("0000"),
        Enqueue({"eta": 0.1, "kind": "a", "m": {"b": [1, 2]}}),
        Enqueue({"eta": 0.5}),
    ]
    assert not list((folder / COMMANDS).iterdir())


def test_an_unknown_trial_is_refused_at_once_and_named_as_it_was_typed(folder: Any) -> None:
    with Driver(folder, lambda command: None) as driver:  # a driver that never answers
        for trial in ("abc", "999", "-1"):
            done = invoke("stop", folder, "--", trial)
            assert (done.exit_code, done.output) == (2, f"trial: no trial `{trial}`; valid: 0000\n")
    assert driver.received == []


def test_wrong_command_exits_with_2_and_refused_one_with_1(folder: Any) -> None:
    wrong = Answer(
        problems=("params.eta: must be a number, got x", "the space has no dimension `y`"),
        invalid=True,
    )
    with Driver(
        folder,
        lambda command: (
            wrong if isinstance(command, Enqueue) else Answer(problems=("all trials have started",))
        ),
    ):
        done = invoke("enqueue", folder, "--params", "eta=x,y=1")
        assert (done.exit_code, done.output) == (
            2,
            (
                "--params: params.eta: must be a number, got x\n"
                "--params: the space has no dimension `y`\n"
            ),
        )
        done = invoke("pause", folder)
        assert (done.exit_code, done.output) == (1, f"{NAME}: all trials have started\n")
        with pytest.raises(InputError, match=r"^params: params\.eta"):
            sweeps.open(folder).enqueue({"eta": "x"})
    with pytest.raises(InputError, match="params: must map names of dimensions"):
        SweepControl.of(folder).enqueue({"eta": object()})


def test_a_sweep_is_stopped_when_its_process_has_ended(folder: Any) -> None:
    with Driver(folder, lambda command: Answer("stopping; 1 trial is interrupted")):
        assert invoke("stop", folder).output == f"{NAME}: stopped; 1 interrupted\n"
    done = invoke("stop", folder)
    assert done.exit_code == 1
    assert done.output.startswith(
        f"{NAME}: no process runs this sweep (killed), so it takes no commands; `"
    )
    assert done.output.endswith(f"resume {folder}` continues it\n")


@pytest.mark.parametrize(
    "args",
    [("pause",), ("stop",), ("stop", "0000"), ("enqueue", "--params", "eta=0.1")],
    ids=" ".join,
)
def test_a_sweep_that_has_ended_takes_no_commands(folder: Any, args: Any) -> None:
    done = invoke(args[0], folder, *args[1:])
    assert (
        done.exit_code == 1
        and done.output.count("\n") == 1
        and "no process runs this sweep (killed)" in done.output
    )
    assert not (folder / COMMANDS).exists()


def test_a_process_that_does_not_answer_keeps_the_command(folder: Any) -> None:
    with Driver(folder, lambda command: None):
        done = invoke("pause", folder, "--timeout", "0.05")
        assert (
            done.exit_code == 1
            and "has not answered within 0.05 s; the process has the command" in done.output
        )
        done = invoke("stop", folder, "0000", "--timeout", "0.05")
        assert done.exit_code == 1
        assert len(list((folder / COMMANDS).iterdir())) == 2


def test_a_command_is_taken_back_if_the_process_ends_before_it_answers(folder: Any) -> None:
    lock = FolderLock(folder)
    failures: list[SweepsError] = []

    def pause() -> None:
        try:
            SweepControl.of(folder).pause()
        except SweepsError as e:
            failures.append(e)

    thread = threading.Thread(target=pause)
    thread.start()
    queue = folder / COMMANDS
    wait_until(
        lambda: queue.is_dir() and any(not name.startswith(".") for name in os.listdir(queue)),
        10,
        "the command",
    )
    lock.release()
    thread.join()
    assert "ended before it carried out the command" in str(failures[0]) and not list(
        queue.iterdir()
    )


def test_resume_continues_a_paused_sweep_whose_process_lives(folder: Any, make_space: Any) -> None:
    loop = SearchLoop.open(folder, make_space("params: {eta: {uniform: [0, 1]}}"))
    loop.store.record_sweep_pause(True)
    with Driver(folder, lambda command: Answer("running again; 39 trials left to start")) as driver:
        assert f"{NAME}: paused; 1 running of 40" in invoke("show", folder).output
        assert (
            json.loads(invoke("ls", "--dir", folder.parent, "--json").output)[0]["state"]
            == "paused"
        )
        assert (
            invoke("resume", folder).output == f"{NAME}: running again; 39 trials left to start\n"
        )
        assert sweeps.open(folder).resume() is None
        done = invoke("resume", folder, "--add-trials", "3")
        assert done.exit_code == 1 and "is running this sweep" in done.output
        loop.store.record_sweep_pause(False)
        done = invoke("resume", folder)
        assert done.exit_code == 1 and "is running this sweep" in done.output
    assert driver.received == [Resume()]


@pytest.mark.parametrize("kind", ["file", "link"])
def test_the_sender_says_why_a_command_cannot_be_written(
    folder: Any, tmp_path: Path, kind: str
) -> None:
    lock = FolderLock(folder)
    if kind == "file":
        (folder / COMMANDS).write_text("")
    else:
        (folder / COMMANDS).symlink_to(tmp_path)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(InputError, match="the command cannot be written"):
        SweepControl.of(folder).pause()
    lock.release()
    assert sorted(tmp_path.iterdir()) == before


def test_only_the_user_who_runs_a_sweep_can_send_commands(
    folder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: other)
    with FolderLock(folder):
        done = invoke("pause", folder)
    assert (
        done.exit_code == 1
        and "runs this sweep, and only this user can send commands to it" in done.output
    )

"""The contract of the commands to a running sweep: their files, their order and their answers.

Commands go through the sweep's folder on disk, also if the sweep is in a store.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.controller import commands
from sweeps.controller.commands import (
    Answer,
    Command,
    CommandError,
    CommandQueue,
    Enqueue,
    Pause,
    Resume,
    Stop,
    as_text,
    parse,
    parse_answer,
    read_answer,
    send,
)
from sweeps.core.files.sweep_folder import COMMANDS as FOLDER

COMMANDS: list[Command] = [
    Stop(),
    Stop("0007"),
    Pause(),
    Resume(),
    Enqueue({"params.eta": 0.1, "params.depth": 3}),
]
NAME = f"{time.time_ns() + 10**12:020d}-1.json"


def received(queue: CommandQueue) -> list[Command]:
    handled: list[Command] = []

    def handle(command: Command, name: str) -> Answer:
        handled.append(command)
        return Answer("done")

    queue.poll(handle)
    for answer in queue.answers():
        if answer.is_file():
            answer.unlink()
    return handled


def test_commands_arrive_once_in_the_order_of_sending(tmp_path: Path) -> None:
    queue = CommandQueue(tmp_path)
    assert received(queue) == [], "there is no folder yet"
    files = [send(tmp_path, command) for command in COMMANDS]
    assert all(file.exists() for file in files)
    assert received(queue) == COMMANDS
    assert received(queue) == [] and not list((tmp_path / FOLDER).iterdir()), (
        "handled commands are deleted"
    )


def test_a_file_is_deleted_only_after_its_command_was_handled(tmp_path: Path) -> None:
    file = send(tmp_path, Enqueue({}))
    queue, existed = CommandQueue(tmp_path), []

    def handle(command: Command, name: str) -> Answer:
        existed.append(file.exists() and name == file.stem)
        return Answer("trial 0003 is the next trial to start", "0003")

    assert read_answer(file) is None
    queue.poll(handle)
    assert existed == [True] and not file.exists()
    assert read_answer(file) == Answer("trial 0003 is the next trial to start", "0003")
    assert read_answer(file) is None and not queue.answers(), "an answer is read once"


def test_an_interrupted_write_sends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object) -> None:
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", fail)
        with pytest.raises(OSError, match="no space"):
            send(tmp_path, Stop())
    assert received(CommandQueue(tmp_path)) == []
    assert not list((tmp_path / FOLDER).glob("*.json"))
    send(tmp_path, Pause())
    assert received(CommandQueue(tmp_path)) == [Pause()]


def test_an_unfinished_command_stays_in_the_queue(tmp_path: Path) -> None:
    file = send(tmp_path, Stop("0007"))
    queue = CommandQueue(tmp_path)
    answers = iter([None, None, Answer("trial 0007 is stopped")])
    for _ in range(2):
        queue.poll(lambda command, name: next(answers))
        assert file.exists()
        assert read_answer(file) is None
    queue.poll(lambda command, name: next(answers))
    assert not file.exists()
    assert read_answer(file) == Answer("trial 0007 is stopped")


def test_a_command_whose_answer_cannot_be_written_is_carried_out_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object) -> None:
        raise OSError(errno.ENOSPC, "no space")

    send(tmp_path, Pause())
    queue = CommandQueue(tmp_path)
    monkeypatch.setattr(commands, "write_text", fail)
    assert received(queue) == [Pause()]
    assert received(queue) == []
    assert not list((tmp_path / FOLDER).iterdir())


def test_a_new_process_deletes_the_answers_that_nobody_reads(tmp_path: Path) -> None:
    queue = CommandQueue(tmp_path)
    send(tmp_path, Pause())
    queue.poll(lambda command, name: Answer("done"))
    assert len(queue.answers()) == 1
    CommandQueue(tmp_path).discard_stale()
    assert not list((tmp_path / FOLDER).iterdir())


def test_only_enqueued_configurations_outlive_the_process(tmp_path: Path) -> None:
    files = [send(tmp_path, command) for command in COMMANDS]
    CommandQueue(tmp_path).discard_stale()
    answers = [read_answer(file) for file in files]
    assert all(
        answer is not None and "sent to an earlier process" in answer.problems[0]
        for answer in answers[:-1]
    )
    assert answers[-1] is None
    assert received(CommandQueue(tmp_path)) == [COMMANDS[-1]]
    assert not list((tmp_path / FOLDER).iterdir())


def test_undeletable_commands_to_earlier_process_are_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "discard", lambda file: None)
    stale = [send(tmp_path, command) for command in COMMANDS]
    (tmp_path / FOLDER / NAME).write_text('{"command": "stop"}')  # Its clock was ahead.
    queue = CommandQueue(tmp_path)
    queue.discard_stale()
    assert all(file.exists() for file in stale)
    send(tmp_path, Pause())
    assert received(queue) == [COMMANDS[-1], Pause()]
    assert received(queue) == [], "a command is carried out once"


def test_a_command_that_cannot_be_carried_out_is_reported_and_deleted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(command: Command, name: str) -> Answer:
        raise CommandError("there is no trial 0099", "the trials are 0000 to 0003", invalid=True)

    file = send(tmp_path, Stop("0099"))
    with caplog.at_level(logging.WARNING):
        CommandQueue(tmp_path).poll(refuse)
    assert "there is no trial 0099" in caplog.text and not file.exists()
    assert read_answer(file) == Answer(
        problems=("there is no trial 0099", "the trials are 0000 to 0003"), invalid=True
    )


def plant(folder: Any, kind: str) -> str:
    """Put a file into the queue that the controller must not obey, and return its name."""
    queue = folder / FOLDER
    queue.mkdir()
    if kind == "no name of a command":
        (queue / "stop.json").write_text('{"command": "stop"}')
        return "stop.json"
    if kind == "link":
        (folder / "elsewhere.json").write_text('{"command": "stop"}')
        (queue / NAME).symlink_to(folder / "elsewhere.json")
    elif kind == "pipe":
        os.mkfifo(queue / NAME)
    elif kind == "folder":
        (queue / NAME).mkdir()
    elif kind == "too large":
        (queue / NAME).write_text('{"command": "stop"}' + " " * (1 << 16))
    elif kind == "no text":
        (queue / NAME).write_bytes(b"\xff\xfe")
    else:
        (queue / NAME).write_text(kind)
    return NAME


BAD = [
    "no name of a command",
    "link",
    "pipe",
    "folder",
    "too large",
    "no text",
    "{",
    "[]",
    "{}",
    '{"command": "quit"}',
]
BAD += [
    '{"command": "stop", "trial": 7}',
    '{"command": "pause", "for": 3}',
    '{"command": "enqueue"}',
    "[" * 10_000,
]


@pytest.mark.parametrize("kind", BAD, ids=lambda kind: kind[:30])
def test_a_damaged_or_foreign_file_is_left_alone_and_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: Any
) -> None:
    name, queue = plant(tmp_path, kind), CommandQueue(tmp_path)
    with caplog.at_level(logging.WARNING):
        assert received(queue) == [] and received(queue) == []
    assert len(caplog.records) == 1 and name in caplog.text
    assert os.path.lexists(tmp_path / FOLDER / name)
    send(tmp_path, Pause())
    assert received(queue) == [Pause()], "later commands are read all the same"


def test_a_file_of_another_user_is_not_obeyed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(tmp_path, Stop())
    own = os.getuid()
    with caplog.at_level(logging.WARNING):
        queue = CommandQueue(tmp_path)
        monkeypatch.setattr(os, "getuid", lambda: own + 1)
        assert received(queue) == [] and received(queue) == []
    assert len(caplog.records) == 1 and "belong to the user who runs the sweep" in caplog.text


def test_a_queue_that_is_a_link_is_not_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    elsewhere, folder = tmp_path / "elsewhere", tmp_path / "sweep"
    elsewhere.mkdir()
    folder.mkdir()
    file = send(elsewhere, Stop())
    (folder / FOLDER).symlink_to(elsewhere / FOLDER)
    with caplog.at_level(logging.WARNING):
        assert received(CommandQueue(folder)) == []
    assert "ignored" in caplog.text and file.exists()


@given(st.text())
def test_any_text_is_a_command_or_an_error(text: Any) -> None:
    for read in (parse, parse_answer):
        with pytest.raises(CommandError):
            read(text)


@given(
    st.builds(
        Answer, st.text(), st.none() | st.text(), st.lists(st.text()).map(tuple), st.booleans()
    )
)
def test_an_answer_survives_its_file(answer: Any) -> None:
    assert parse_answer(as_text(answer)) == answer


def test_an_answer_that_is_a_link_is_not_read(tmp_path: Path) -> None:
    file = send(tmp_path, Pause())
    (tmp_path / "elsewhere").write_text(as_text(Answer("done")))
    file.with_suffix(".answer").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CommandError, match="cannot be read"):
        read_answer(file)

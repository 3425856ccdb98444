"""What a dead driver left behind is found by what it noted, and nothing else is touched."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil
import pytest

from sweeps import leftovers
from tests.waiting import wait_until

HOLD = "import sys, time; f = open(sys.argv[1], 'w') if len(sys.argv) > 1 else None; print('up', flush=True); time.sleep(60)"


@pytest.fixture
def start():
    started = []

    def start(*args: object) -> subprocess.Popen:
        process = subprocess.Popen([sys.executable, "-c", HOLD, *map(str, args)], stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None and process.stdout.readline() == "up\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_the_processes_of_a_dead_sweep_are_ended_and_no_other(tmp_path, start):
    session, folder = tmp_path / "session_1", tmp_path / "sweep"
    session.mkdir(), folder.mkdir()
    noted, worker, other = start(), start(session / "worker.out"), start(tmp_path / "session_12")
    leftovers.note(folder, str(session), [noted.pid])
    assert leftovers.end(folder) == 2
    wait_until(lambda: noted.poll() is not None and worker.poll() is not None, 10, "both to end")
    assert other.poll() is None and not session.exists() and not (folder / leftovers.RAY).exists()
    assert leftovers.end(folder) == 0


def test_a_process_that_has_the_number_of_a_dead_one_is_let_be(tmp_path, start):
    process = start()
    began = psutil.Process(process.pid).create_time()
    leftovers.write(tmp_path / leftovers.RAY, f'{{"session": "/tmp/session_none", "pids": {{"{process.pid}": {began - 100}}}}}')
    assert leftovers.end(tmp_path) == 0 and process.poll() is None


def test_this_process_is_never_ended(tmp_path):
    session = tmp_path / "session_1"
    session.mkdir()
    with open(session / "log", "w"):
        leftovers.note(tmp_path, str(session), [])
        assert leftovers.end(tmp_path) == 0
    assert os.getpid()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"session": 1}'])
def test_a_note_that_cannot_be_read_is_no_note(tmp_path, text):
    (tmp_path / leftovers.RAY).write_text(text)
    assert leftovers.end(tmp_path) == 0


def test_half_written_files_and_checkpoints_that_nobody_needs_go(tmp_path):
    kept = ["trials/0000/checkpoint_000004/a", "trials/0000/logs/rank-0.log", "trials/0001/checkpoint_000002/a", "prepared/facts.pkl"]
    gone = ["trials/0000/checkpoint_000003/a", ".bundle-x/a", "prepared/.facts.part", "exports/.0001.part/a", "tune/a", "gangs/a"]
    for name in (*kept, *gone):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    leftovers.tidy(tmp_path, {"0000": {"checkpoint_000004"}, "0009": set()})
    assert all((tmp_path / name).exists() for name in kept)
    assert not [name for name in gone if (tmp_path / name).exists()]

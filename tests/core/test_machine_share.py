"""Sweeps on one machine see each other, and a new one takes what the others leave."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.core.errors import InputError
from sweeps.core.host.machine_share import (
    EVERYTHING,
    Registration,
    Share,
    divide,
    register,
)
from tests.commands import REPO

GPUS = ("0", "1", "2")


def other(cpus: int, *gpus: str) -> Registration:
    return Registration("digits-20261125-101500", "/runs/digits-20261125-101500", 4711, cpus, gpus)


def test_a_wanted_number_of_gpus_takes_free_ones_first() -> None:
    assert divide(8, GPUS, [other(4, "0")], Share(2, 1)) == Share(2, 1, ("1",))
    assert divide(8, GPUS, [other(4, "0", "1")], Share(2, 2)) == Share(2, 2, ("2", "0"))
    assert divide(8, GPUS, [], Share(gpus=0)) == Share(8, 0, ())


def test_if_nothing_is_left_one_line_says_what_to_do() -> None:
    with pytest.raises(InputError) as caught:
        divide(2, (), [other(2)], EVERYTHING)
    assert str(caught.value) == (
        "this machine: no CPU is left for this sweep: another sweep runs on this machine, "
        "digits-20261125-101500 in "
        "/runs/digits-20261125-101500 (process 4711), and uses 2 of 2 CPUs; wait until another "
        "sweep ends, or give "
        "--cpus N to share the CPUs"
    )
    assert divide(2, (), [other(2)], Share(1)) == Share(1, 0, ()), "a wanted number may be in use"


def test_more_than_the_machine_has_is_refused() -> None:
    with pytest.raises(
        InputError, match=r"^--cpus: is 9, but this machine has 8 CPUs; give at most 8$"
    ):
        divide(8, (), [], Share(9))
    with pytest.raises(
        InputError, match=r"^--gpus: is 1, but this machine has 0 GPUs; give at most 0$"
    ):
        divide(8, (), [], Share(1, 1))


@given(
    st.integers(1, 64),
    st.integers(0, 8),
    st.lists(st.tuples(st.integers(1, 64), st.integers(0, 8)), max_size=4),
)
def test_sweeps_without_options_never_use_a_cpu_or_a_gpu_twice(
    cpus: Any, gpus: Any, asked: Any
) -> None:
    ids = tuple(map(str, range(gpus)))
    running: list[Registration] = []
    for more_cpus, more_gpus in [*asked, (None, None)]:
        wanted = Share(
            more_cpus and min(more_cpus, cpus), None if more_gpus is None else min(more_gpus, gpus)
        )
        free = cpus - sum(r.cpus for r in running)
        try:
            share = divide(cpus, ids, running, wanted)
        except InputError:
            assert wanted.cpus is None and free < 1
            continue
        assert share.cpus is not None and share.gpu_ids is not None
        if wanted.cpus is None:
            assert share.cpus == free and not set(share.gpu_ids) & {
                gpu for r in running for gpu in r.gpus
            }
        assert len(set(share.gpu_ids)) == share.gpus <= gpus
        running.append(other(share.cpus, *share.gpu_ids))


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of registrations, which does not exist yet."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"running-sweeps-{os.getuid()}"


def test_a_registration_is_seen_until_its_block_ends(temporary: Any) -> None:
    with register("one", Path("/runs/one"), 4, GPUS, Share(1, 1)) as (first, others):
        assert first == Share(1, 1, ("0",)) and others == []
        with register("two", Path("/runs/two"), 4, GPUS, EVERYTHING) as (second, others):
            assert second == Share(3, 2, ("1", "2")) and others == [
                Registration("one", "/runs/one", os.getpid(), 1, ("0",))
            ]
    with register("three", Path("/runs/three"), 4, GPUS, EVERYTHING) as (third, others):
        assert third.cpus == 4 and others == []


def test_the_registration_of_a_killed_process_does_not_count(temporary: Any) -> None:
    script = """
from pathlib import Path
from sweeps.core.host.machine_share import Share, register
with register("dies", Path("/runs/dies"), 4, (), Share(3)) as (share, others):
    print("registered", flush=True)
    input()
"""
    env = {**os.environ, "PYTHONPATH": str(REPO), "TMPDIR": str(temporary.parent)}
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=env,
    )
    assert process.stdout is not None and process.stdout.readline() == "registered\n"
    with register("lives", Path("/runs/lives"), 4, (), EVERYTHING) as (share, others):
        assert share.cpus == 1 and [o.pid for o in others] == [process.pid]
    process.kill()
    process.communicate()
    assert len(list(temporary.glob("*.json"))) == 1, "the process left its file"
    with register("lives", Path("/runs/lives"), 4, (), EVERYTHING) as (share, others):
        assert share.cpus == 4 and others == []
    assert not list(temporary.glob("*.json"))


@contextlib.contextmanager
def locked(file: Path) -> Iterator[None]:
    """Lock a file as the process of another sweep does while it runs."""
    with file.open("w") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        json.dumps({"sweep": "x", "folder": "y", "pid": 1, "cpus": "many", "gpus": []}),
    ],
)
def test_a_registration_that_cannot_be_read_is_ignored(temporary: Any, text: Any) -> None:
    temporary.mkdir(mode=0o700)
    with locked(temporary / "other.json"):
        (temporary / "other.json").write_text(text)
        with register("one", Path("/runs/one"), 4, (), EVERYTHING) as (share, others):
            assert share.cpus == 4 and others == []


def test_a_folder_that_others_can_write_is_never_read(temporary: Any) -> None:
    temporary.mkdir()
    temporary.chmod(0o777)
    with locked(temporary / "strange.json"):
        (temporary / "strange.json").write_text(
            json.dumps({"sweep": "x", "folder": "y", "pid": 1, "cpus": 4, "gpus": []})
        )
        with register("one", Path("/runs/one"), 4, (), EVERYTHING) as (share, others):
            assert share.cpus == 4 and others == []
    assert [file.name for file in temporary.iterdir()] == ["strange.json"], (
        "nothing is written or deleted there"
    )


def test_a_link_in_place_of_the_folder_is_never_followed(temporary: Any, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    temporary.symlink_to(tmp_path / "elsewhere")
    with register("one", Path("/runs/one"), 4, (), EVERYTHING) as (share, _):
        assert share.cpus == 4
    assert not list((tmp_path / "elsewhere").iterdir())

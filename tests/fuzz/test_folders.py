"""A sweep's folder of which any file holds anything: each reader does its work or says in a line
what is wrong, and writes nowhere else.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import sweeps
from sweeps import cli
from sweeps.checkpoints.garbage_collection import collect_garbage
from sweeps.core.errors import SweepsError
from sweeps.core.files import provenance
from sweeps.core.files.folder_lock import FolderLock
from sweeps.core.files.origin import read_origin
from sweeps.core.files.result_file import read_result, refuse_invalid_result
from sweeps.core.files.sweep_folder import JOURNAL, ORIGIN, PROVENANCE, RAY, RESULT, STAGES
from sweeps.core.host import crash_cleanup
from sweeps.search.search_loop import SearchLoop
from sweeps.space.python.saved_space import bundle_of, resumed_space, saved_space
from sweeps.space.sections.search_models import Checkpoints
from sweeps.stored.repair import repair
from sweeps.terminal import result_text
from tests.fuzz.damaging import DEEP, damaged_journal, damaged_json, touching_nothing_outside
from tests.fuzz.harness import EXAMPLES, HANG, fuzzed

CASES = max(1, EXAMPLES // 6)  # each is some ten commands
FUZZ = settings(fuzzed, max_examples=CASES)
long = pytest.mark.timeout(max(60, 4 * CASES))


@pytest.fixture
def folder(finished_sweep: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A sweep's folder with all that a driver leaves in it."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    pid = {
        "pids": {"99999999": 1.0},
        "session": "/tmp/ray/session_2026-11-23_13-49-44_000000_99999999",
    }
    (finished_sweep / RAY).write_text(json.dumps(pid))
    (finished_sweep / STAGES).write_text(json.dumps({"0000": "waiting for workers"}))
    return finished_sweep


def command(*args: Any) -> str:
    """What a command says, which is no traceback."""
    began = time.monotonic()
    done = CliRunner().invoke(cli.main, list(map(str, args)))
    assert time.monotonic() - began < HANG
    assert done.exception is None or isinstance(done.exception, SystemExit), repr(done.exception)
    return done.output


def read(folder: Path) -> None:
    """All that reads a sweep's folder and needs no Ray."""
    assert folder.name in command("ls", "--dir", folder.parent)
    assert folder.name in command("ls", "--dir", folder.parent, "--json")
    for args in (
        ["--json"],
        ["--all"],
        ["--trial", "best"],
        ["--trial", "0"],
        ["--trial", "3", "--json"],
    ):
        command("show", folder, *args)
    command("show", folder, "--csv")
    command("logs", folder, "0")
    if (opened := tried(lambda: sweeps.open(folder))) is None:
        return  # another format, which every command refuses
    for look in (
        lambda: opened.trials,
        lambda: opened.best,
        lambda: opened.study,
        lambda: opened.curves(),
        lambda: bundle_of(folder),
    ):
        tried(look)
    tried(lambda: collect_garbage(folder, Checkpoints(1, None, None), dry_run=True))
    tried(lambda: taken_over(folder))
    (
        provenance.read_entries(folder),
        provenance.last_git_state(folder),
        crash_cleanup.end_leftover_ray(folder),
    )


def taken_over(folder: Path) -> None:
    """What `resume` reads before it starts Ray."""
    origin = read_origin(folder)
    refuse_invalid_result(folder)
    space = resumed_space(folder, (), 1)
    loop = SearchLoop.open(folder, space)
    assert (
        loop.to_run >= 0
        and (origin.get("began") or 1.0) > 0
        and loop.store.checkpoints() is not None
    )
    if (result := read_result(folder)) is not None:
        result_text.format_result(result)


def tried(read: Any) -> Any:
    began = time.monotonic()
    try:
        return read()
    except SweepsError as e:
        assert (
            all("\n" not in problem.text for problem in getattr(e, "problems", ()))
            and len(str(e)) < 2000
        ), str(e)
        return None
    finally:
        assert time.monotonic() - began < HANG


def copy(folder: Path, name: str = "copy-20261123-134944") -> Path:
    """The same folder anew."""
    relocate = folder.parent.parent / "copies" / name
    shutil.rmtree(relocate.parent, ignore_errors=True)
    shutil.copytree(folder, relocate, ignore=shutil.ignore_patterns("code", "*.html"))
    return relocate


@FUZZ
@given(data=st.data())
@long
def test_r8_fuzz_any_journal_is_read_or_refused_and_repaired(folder: Any, data: Any) -> None:
    sweep = copy(folder)
    (sweep / JOURNAL).write_bytes(damaged_journal((folder / JOURNAL).read_bytes(), data))
    with touching_nothing_outside(sweep):
        read(sweep)
        repair(sweep)
    assert not repair(sweep).problems, "there is nothing left to repair"
    space, _ = saved_space(sweep)
    shown = json.loads(command("show", sweep, "--json"))
    known = {t["trial"]: t for t in json.loads(command("show", folder, "--json"))["all"]}
    assert (
        len({t["trial"] for t in shown["all"]}) == len(shown["all"])
        and {t["trial"] for t in shown["all"]} <= known.keys()
    )
    loop = SearchLoop.open(sweep, space)
    assert sorted(loop.store.results()) == [
        int(t["trial"]) for t in shown["all"]
    ] and loop.to_run >= 4 - len(known)


FILES = [
    ORIGIN,
    RESULT,
    PROVENANCE,
    RAY,
    STAGES,
    "bundle/manifest.json",
    "trials/0002/checkpoint_000004/sweeps.json",
]


@pytest.mark.parametrize("name", FILES)
@FUZZ
@given(data=st.data())
@long
def test_fuzz_any_json_file_is_read_or_refused(folder: Any, name: Any, data: Any) -> None:
    sweep = copy(folder)
    if name in FILES[-2:]:  # what a repair looks at
        (sweep / JOURNAL).write_bytes(b"")
    (sweep / name).write_bytes(damaged_json((folder / name).read_bytes(), data))
    with touching_nothing_outside(sweep):
        lock = FolderLock(sweep) if name == STAGES else None
        try:
            read(sweep)
        finally:
            if lock is not None:
                lock.release()
        tried(lambda: repair(sweep))


MALFORMED = {
    "a result whose best is no trial": (RESULT, '{"best": "0002"}'),
    "a list": (RESULT, "[1]"),
    "nested": (RESULT, DEEP),
    "an origin that is a list": (ORIGIN, "[]"),
    "a format that is nested": (ORIGIN, '{"format": [[{"a": [1]}]]}'),
    "an origin of numbers": (ORIGIN, '{"format": 2, "base": 1, "cwd": 2, "overrides": 3}'),
    "an origin with a time beyond all years": (
        ORIGIN,
        '{"format": 2, "base": "/", "cwd": "/", "overrides": [], "began": 1e300}',
    ),
    "a database by number": (
        ORIGIN,
        '{"format": 2, "base": "/", "cwd": "/", "overrides": [], "storage": 5}',
    ),
    "a database without a study": (
        ORIGIN,
        '{"format": 2, "base": "/", "cwd": "/", "overrides": [], "storage": "postgresql://h/d"}',
    ),
    "provenance that is a number": (PROVENANCE, "5"),
    "provenance of texts": (PROVENANCE, '["x"]'),
    "a nested session": (RAY, DEEP),
    "no session": (RAY, '{"session": 5, "pids": {"x": 1}}'),
    "stages in a list": (STAGES, '["waiting"]'),
    "an empty stage": (STAGES, '{"0000": "", "0003": 5}'),
}


@pytest.mark.parametrize(("name", "text"), MALFORMED.values(), ids=MALFORMED)
def test_files_that_were_a_traceback_are_read_or_refused(folder: Any, name: Any, text: Any) -> None:
    (folder / name).write_text(text)
    with touching_nothing_outside(folder):
        read(folder)


@pytest.mark.parametrize("name", [ORIGIN, RESULT, JOURNAL, "lock", STAGES, PROVENANCE, RAY])
@pytest.mark.parametrize("kind", ["pipe", "folder", "dangling link", "link out of the folder"])
def test_pipes_and_links_are_neither_awaited_nor_followed(
    folder: Any, tmp_path: Path, name: Any, kind: str
) -> None:
    outside = tmp_path / "outside"
    outside.write_text("{}")
    (folder / name).unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(folder / name)
    elif kind == "folder":
        (folder / name).mkdir()
    else:
        (folder / name).symlink_to(outside if kind.startswith("link") else tmp_path / "absent")
    with touching_nothing_outside(folder):
        if name == ORIGIN:
            command("ls", "--dir", folder.parent), command("show", folder)
        else:
            read(folder)
        tried(lambda: repair(folder))
    assert outside.read_text() == "{}" and not (tmp_path / "absent").exists()

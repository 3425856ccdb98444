"""`sweeps repair`: what it keeps, what it rebuilds, what it refuses; and that every command names
what is damaged until then.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

import sweeps
from sweeps.core.errors import DamagedStudy, InputError, SweepLocked
from sweeps.core.files.folder_lock import FolderLock
from sweeps.core.files.sweep_folder import JOURNAL, ORIGIN, RESULT
from sweeps.stored.repair import repair
from sweeps.study import storage
from tests.commands import invoke
from tests.controller.test_sweep_lookup import recorded_sweep

BAD = 11  # the line that is damaged, from 1 on


@pytest.fixture
def damaged(finished_sweep: Path) -> Path:
    """A finished sweep whose journal has a bad line."""
    lines = (finished_sweep / JOURNAL).read_bytes().splitlines(keepends=True)
    lines[BAD - 1] = b'{"op_code":8,"worker\n'
    (finished_sweep / JOURNAL).write_bytes(b"".join(lines))
    return finished_sweep


def files_of(folder: Path) -> dict[Path, bytes]:
    return {
        path: path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in ("lock", "sweep.log")
    }


def states(folder: Path) -> dict[str, str]:
    return {
        t["trial"]: t["state"] for t in json.loads(invoke("show", folder, "--json").stdout)["all"]
    }


READERS = {
    "show": ("show",),
    "export": ("export", "--trial", "0000", "--trust"),
    "rerun": ("rerun", "0000"),
    "logs": ("logs", "0000"),
}


@pytest.mark.parametrize("verb", READERS)
def test_every_reader_names_the_line_and_the_next_step(damaged: Any, verb: Any) -> None:
    name, *more = READERS[verb]
    before = files_of(damaged)
    done = invoke(name, damaged, *more)
    assert done.exit_code == 2 and done.stdout == "" and done.stderr.count("\n") == 1, done.output
    assert done.stderr.startswith(
        f"{damaged / JOURNAL}:{BAD}: "
    ) and "sweeps repair" in done.stderr.replace(sys.prefix, "")
    assert files_of(damaged) == before


@pytest.mark.parametrize("look", ["trials", "study"])
def test_a_sweep_opened_from_python_names_the_line(damaged: Any, look: str) -> None:
    opened = sweeps.open(damaged)
    with pytest.raises(DamagedStudy, match=f"{JOURNAL}:{BAD}: "):
        getattr(opened, look)


def test_ls_names_the_line_and_lists_all_sweeps(tmp_path: Path) -> None:
    folder, other = recorded_sweep(tmp_path, "made-1"), recorded_sweep(tmp_path, "made-2")
    lines = (folder / JOURNAL).read_bytes().splitlines(keepends=True)
    (folder / JOURNAL).write_bytes(b"".join([*lines[:9], b"[]\n", *lines[9:]]))
    done = invoke("ls", "--dir", tmp_path)
    assert done.exit_code == 0 and folder.name in done.stdout and "0.25 (0000)" in done.stdout
    assert done.stderr.startswith(f"{folder / JOURNAL}:10: ") and other.name not in done.stderr
    sweeps_by_name = {
        sweep["sweep"]: sweep
        for sweep in json.loads(invoke("ls", "--dir", tmp_path, "--json").stdout)
    }
    assert (
        sweeps_by_name.keys() == {folder.name, other.name}
        and "problems" not in sweeps_by_name[other.name]
    )
    assert f"{JOURNAL}:10: " in sweeps_by_name[folder.name]["problems"][0]


@pytest.mark.parametrize("left", [None, 0, 5], ids=["no journal", "an empty one", "no trial"])
def test_a_study_with_less_than_the_result_says_is_refused(
    finished_sweep: Any, left: int | None
) -> None:
    data = (finished_sweep / JOURNAL).read_bytes()
    (finished_sweep / JOURNAL).unlink()
    if left is not None:
        (finished_sweep / JOURNAL).write_bytes(b"".join(data.splitlines(keepends=True)[:left]))
    before = files_of(finished_sweep)
    for args in (("show",), ("resume", "--trust"), ("export", "--trust"), ("gc",)):
        done = invoke(args[0], finished_sweep, *args[1:])
        assert done.exit_code == 2 and done.stderr.count("\n") == 1, done.output
        assert "0 ended trials" in done.stderr and RESULT in done.stderr
        assert "repair" in done.stderr
    assert files_of(finished_sweep) == before, "nothing runs again, and nothing is made"
    repaired = repair(finished_sweep)
    assert repaired.trials == {
        "ended": [],
        "unfinished": [],
        "lost": ["0000", "0001", "0002", "0003"],
    }
    assert not (finished_sweep / RESULT).exists()
    assert (finished_sweep / f"{RESULT}.damaged-1").is_file()
    kept = finished_sweep / "trials" / "0002.damaged-1"
    assert [*kept.glob("checkpoint_*")], "the checkpoints of lost trials are kept"
    assert not repair(finished_sweep).problems


def test_a_study_in_a_database_is_refused_with_another_next_step(
    finished_sweep: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = json.loads((finished_sweep / ORIGIN).read_text()) | {
        "storage": "postgresql://me@h/d",
        "study": "old-1",
    }
    (finished_sweep / ORIGIN).write_text(json.dumps(origin))

    class Empty:
        def get_all_studies(self) -> Any:
            return []

    monkeypatch.setattr(storage, "connect", lambda url: Empty())
    for args in (("show", finished_sweep), ("export", finished_sweep, "--trust")):
        done = invoke(*args)
        assert (
            done.exit_code == 2
            and "0 ended trials" in done.stderr
            and "postgresql://me@h/d" in done.stderr
            and "backup" in done.stderr
        )
    with pytest.raises(InputError, match="postgresql://me@h/d"):
        repair(finished_sweep)


def test_repair_keeps_whole_trials_and_moves_other_folders_aside(damaged: Any) -> None:
    before = files_of(damaged)
    done = invoke("repair", damaged)
    assert done.exit_code == 0 and f"{JOURNAL}:{BAD}: " in done.stdout, done.output
    assert "study.journal.damaged-1" in done.stdout and "lost" in done.stdout
    assert (damaged / "study.journal.damaged-1").read_bytes() == before[damaged / JOURNAL]
    kept = {
        f"000{n}": state for n, state in enumerate(("COMPLETE", "PRUNED", "COMPLETE", "PRUNED"))
    }
    (lost,) = kept.keys() - states(damaged).keys()
    del kept[lost]
    assert states(damaged) == kept
    assert not (damaged / "trials" / lost).exists()
    assert (damaged / "trials" / f"{lost}.damaged-1" / "logs").is_dir()
    assert not (damaged / RESULT).exists(), "which says that all have ended"
    after = files_of(damaged)
    assert json.loads(invoke("repair", damaged, "--json").stdout) == {
        "dir": str(damaged),
        "repaired": False,
        "why": [],
        "kept": [],
    }
    assert files_of(damaged) == after, "a second repair changes nothing"
    (damaged / JOURNAL).write_bytes(b"x\n" + (damaged / JOURNAL).read_bytes())
    answer = json.loads(invoke("repair", damaged.name, "--dir", damaged.parent, "--json").stdout)
    assert answer["repaired"] and answer["kept"] == [str(damaged / "study.journal.damaged-2")]
    assert answer["ended"] == sorted(kept) and answer["lost"] == [lost]


def test_a_trial_whose_end_only_optuna_lost_has_ended(finished_sweep: Any) -> None:
    lines = (finished_sweep / JOURNAL).read_bytes().splitlines(keepends=True)
    end = next(n for n, line in enumerate(lines) if b'"op_code":6' in line and b'_id":1,' in line)
    (finished_sweep / JOURNAL).write_bytes(b"".join([*lines[:end], *lines[end + 1 :]]))
    done = repair(finished_sweep)
    assert not done.trials.get("unfinished") and not done.trials.get("lost")
    assert states(finished_sweep)["0001"] in ("COMPLETE", "PRUNED")
    assert (finished_sweep / "trials" / "0001").is_dir()


def test_a_sweep_that_runs_is_not_repaired(damaged: Any) -> None:
    before, lock = files_of(damaged), FolderLock(damaged)
    try:
        with pytest.raises(SweepLocked):
            repair(damaged)
    finally:
        lock.release()
    assert files_of(damaged) == before


@pytest.mark.parametrize("name", [JOURNAL, "trials", "lock"])
def test_a_repair_follows_no_link_out_of_the_folder(
    damaged: Any, tmp_path: Path, name: Any
) -> None:
    outside = tmp_path / "outside"
    if (damaged / name).exists():
        (damaged / name).rename(outside)
    else:
        outside.write_text("mine")
    (damaged / name).symlink_to(outside)
    before = {path: path.read_bytes() for path in (outside, *outside.rglob("*")) if path.is_file()}
    with pytest.raises(InputError) as e:
        repair(damaged)
    assert str(damaged) in str(e.value)
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_a_repair_moves_a_result_of_another_kind_out_of_the_way(
    damaged: Any, tmp_path: Path, kind: str
) -> None:
    result, outside = damaged / RESULT, tmp_path / "outside"
    result.rename(outside)
    before = outside.read_bytes()
    if kind == "link":
        result.symlink_to(outside)
    elif kind == "pipe":
        os.mkfifo(result)
    else:
        result.mkdir()
    repaired = repair(damaged)
    assert f"{RESULT}: is a {kind}, but must be a file" in "\n".join(repaired.problems)
    assert not os.path.lexists(result) and not repair(damaged).problems
    assert outside.read_bytes() == before


def test_a_folder_of_another_user_is_not_repaired(
    damaged: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: os.stat(damaged).st_uid + 1)
    before = files_of(damaged)
    with pytest.raises(InputError, match="another user"):
        repair(damaged)
    assert files_of(damaged) == before


DEFINITIONS = (
    "def train(config): pass\nclass Tracker: pass\nclass Scheduler: pass\nclass Sampler: pass\n"
)


def test_verbs_that_only_look_and_repair_run_no_code_of_the_folder(
    finished_sweep: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "crafted.py").write_text(
        f"import pathlib\npathlib.Path({str(tmp_path / 'ran')!r}).touch()\n" + DEFINITIONS
    )
    origin = json.loads((finished_sweep / ORIGIN).read_text()) | {
        "base": str(tmp_path),
        "cwd": str(tmp_path),
    }
    (finished_sweep / ORIGIN).write_text(json.dumps(origin))
    text = (finished_sweep / "space.yaml").read_text()
    for ours, theirs in (
        (
            "trainer: xgboost",
            'trainer: {loop: "crafted:train", backend: none}\ntrackers: ["crafted:Tracker"]',
        ),
        (
            "{name: asha, max_t: 4, grace_period: 1, reduction_factor: 2}",
            '{name: "crafted:Scheduler", max_t: 4}',
        ),
        ("algorithm: tpe", 'algorithm: "crafted:Sampler"'),
    ):
        assert ours in text
        text = text.replace(ours, theirs)
    (finished_sweep / "space.yaml").write_text(text)
    for verb in (("show",), ("show", "--trial", "0002"), ("logs", "0002"), ("gc", "--top", 1)):
        assert invoke(verb[0], finished_sweep, *verb[1:]).exit_code == 0
    assert invoke("ls", "--dir", finished_sweep.parent).exit_code == 0
    (finished_sweep / JOURNAL).write_bytes(b"")
    assert repair(finished_sweep).trials["lost"] == ["0000", "0001", "0002", "0003"]
    assert not (tmp_path / "ran").exists() and "crafted" not in sys.modules


def test_a_result_that_is_none_is_put_aside(finished_sweep: Any) -> None:
    (finished_sweep / RESULT).write_text('{"trials": []}')
    done = invoke("resume", finished_sweep, "--trust")
    assert (
        done.exit_code == 2
        and done.stderr.startswith(f"{finished_sweep / RESULT}: ")
        and done.stderr.count("\n") == 1
    )
    assert invoke("show", finished_sweep).stderr.startswith(f"{finished_sweep / RESULT}: ")
    assert (
        repair(finished_sweep).kept == (finished_sweep / f"{RESULT}.damaged-1",)
        and not repair(finished_sweep).problems
    )
    assert states(finished_sweep)["0002"] == "COMPLETE"


@pytest.mark.faults
@pytest.mark.timeout(400)
@pytest.mark.parametrize("journal", ["a bad line", pytest.param("empty", marks=pytest.mark.long)])
def test_repaired_sweep_resumes_and_exports_each_trial_once(
    clean_ray: Any, checked_in_this_process: Any, finished_sweep: Any, tmp_path: Path, journal: str
) -> None:
    lines = (finished_sweep / JOURNAL).read_bytes().splitlines(keepends=True)
    changed = [*lines[:8], b"\0\0\0\n", *lines[9:]] if journal == "a bad line" else []
    (finished_sweep / JOURNAL).write_bytes(b"".join(changed))
    assert invoke("resume", finished_sweep, "--trust").exit_code == 2
    assert invoke("repair", finished_sweep).exit_code == 0
    done = invoke("resume", finished_sweep, "--trust", "--json")
    assert done.exit_code == 0 and "Traceback" not in done.stderr, done.stderr
    after = json.loads(invoke("show", finished_sweep, "--json").stdout)
    assert [t["trial"] for t in after["all"]] == ["0000", "0001", "0002", "0003"]
    assert after["state"] == "finished"
    assert all(t["state"] in ("COMPLETE", "PRUNED") for t in after["all"])
    done = invoke("export", finished_sweep, "--trial", "0002", "--trust", "-o", tmp_path / "new")
    assert done.exit_code == 0 and (tmp_path / "new" / "manifest.json").is_file(), done.stderr

"""`sweeps repair`: what it keeps, what it rebuilds, what it refuses; and that every command names
what is damaged until then.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

import sweeps
from sweeps.controller.repair import repair
from sweeps.core.errors import DamagedStudy, InputError, SweepLocked
from sweeps.core.folder_lock import FolderLock
from sweeps.core.sweep_folder import JOURNAL, ORIGIN, RESULT
from sweeps.study import record, storage
from tests.commands import invoke
from tests.controller.test_sweep_lookup import made

BAD = 12  # the line that is damaged, from 1 on


@pytest.fixture
def damaged(finished_sweep) -> Path:
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
    "show a trial": ("show", "--trial", "best"),
    "export": ("export", "--trial", "0000", "--trust"),
    "rerun": ("rerun", "0000"),
    "gc": ("gc",),
    "logs": ("logs", "0000"),
}


@pytest.mark.parametrize("verb", READERS)
def test_r8_every_reader_names_the_line_and_the_next_step(damaged, verb):
    name, *more = READERS[verb]
    before = files_of(damaged)
    done = invoke(name, damaged, *more)
    assert done.exit_code == 2 and done.stdout == "" and done.stderr.count("\n") == 1, done.output
    assert done.stderr.startswith(
        f"{damaged / JOURNAL}:{BAD}: "
    ) and "sweeps repair" in done.stderr.replace(sys.prefix, "")
    assert files_of(damaged) == before


@pytest.mark.parametrize("look", ["trials", "best", "study", "curves"])
def test_r8_a_sweep_opened_from_python_names_the_line(damaged, look):
    opened = sweeps.open(damaged)
    with pytest.raises(DamagedStudy, match=f"{JOURNAL}:{BAD}: "):
        opened.curves() if look == "curves" else getattr(opened, look)


def test_r8_ls_names_the_line_and_lists_all_sweeps(tmp_path):
    folder, other = made(tmp_path, "made-1"), made(tmp_path, "made-2")
    lines = (folder / JOURNAL).read_bytes().splitlines(keepends=True)
    (folder / JOURNAL).write_bytes(b"".join([*lines[:9], b"[]\n", *lines[9:]]))
    done = invoke("ls", "--dir", tmp_path)
    assert done.exit_code == 0 and folder.name in done.stdout and "0.25 (0000)" in done.stdout
    assert done.stderr.startswith(f"{folder / JOURNAL}:10: ") and other.name not in done.stderr
    told = {
        sweep["sweep"]: sweep
        for sweep in json.loads(invoke("ls", "--dir", tmp_path, "--json").stdout)
    }
    assert told.keys() == {folder.name, other.name} and "problems" not in told[other.name]
    assert f"{JOURNAL}:10: " in told[folder.name]["problems"][0]


@pytest.mark.parametrize(
    "left", [None, 0, 5, 18], ids=["no journal", "an empty one", "no trial", "a short one"]
)
def test_r9_a_study_with_less_than_the_result_says_is_refused(finished_sweep, left):
    data = (finished_sweep / JOURNAL).read_bytes()
    (finished_sweep / JOURNAL).unlink()
    if left is not None:
        (finished_sweep / JOURNAL).write_bytes(b"".join(data.splitlines(keepends=True)[:left]))
    before = files_of(finished_sweep)
    for args in (
        ("show", finished_sweep),
        ("resume", finished_sweep, "--trust"),
        ("export", finished_sweep, "--trust"),
        ("gc", finished_sweep),
    ):
        done = invoke(*args)
        assert done.exit_code == 2 and done.stderr.count("\n") == 1, done.output
        assert (
            "0 ended trials" in done.stderr
            and "4" in done.stderr
            and RESULT in done.stderr
            and "repair" in done.stderr
        )
    assert files_of(finished_sweep) == before, "nothing runs again, and nothing is made"
    done = repair(finished_sweep)
    assert (
        done.rebuilt is not None
        and done.rebuilt.restored == ("0002",)
        and not (finished_sweep / RESULT).exists()
    )
    assert states(finished_sweep)["0002"] == "COMPLETE"
    shown = json.loads(invoke("show", finished_sweep, "--json").stdout)
    kept = json.loads((finished_sweep / f"{RESULT}.damaged-1").read_text())
    assert (
        shown["best"] == {"trial": "0002", "value": kept["best"]["value"]}
        and shown["state"] == "killed"
    )
    best = next(t for t in shown["all"] if t["trial"] == "0002")
    assert (
        best["params"] == kept["best"]["params"]
        and best["preprocessor"] == kept["best"]["preprocessor"]
    )
    study = record.read(finished_sweep)
    assert (
        study.data
        == json.loads((finished_sweep / "provenance.json").read_text())[0]["data_fingerprint"]
    )
    assert study.best.result.checkpoint is not None, "its model can be exported"
    assert not repair(finished_sweep).problems


def test_r9_a_study_in_a_database_is_refused_with_another_next_step(finished_sweep, monkeypatch):
    origin = json.loads((finished_sweep / ORIGIN).read_text()) | {
        "storage": "postgresql://me@h/d",
        "study": "old-1",
    }
    (finished_sweep / ORIGIN).write_text(json.dumps(origin))

    class Empty:
        def get_all_studies(self):
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


def test_r8_a_repair_keeps_what_was_damaged_and_says_what_became_of_it(damaged):
    before = files_of(damaged)
    done = invoke("repair", damaged)
    assert (
        done.exit_code == 0
        and f"{JOURNAL}:{BAD}: " in done.stdout
        and "study.journal.damaged-1" in done.stdout
    ), done.output
    assert (damaged / "study.journal.damaged-1").read_bytes() == before[damaged / JOURNAL]
    after = files_of(damaged)
    changed = {path.name for path in after if after[path] != before.get(path)}
    assert changed == {JOURNAL, "study.journal.damaged-1"} and before.keys() <= after.keys()
    assert states(damaged) == {
        "0000": "COMPLETE",
        "0001": "PRUNED",
        "0002": "COMPLETE",
        "0003": "PRUNED",
    }
    assert json.loads(invoke("repair", damaged, "--json").stdout) == {
        "dir": str(damaged),
        "repaired": False,
        "why": [],
        "kept": [],
    }
    assert files_of(damaged) == after, "a second repair changes nothing"
    (damaged / JOURNAL).write_bytes(b"x\n" + (damaged / JOURNAL).read_bytes())
    told = json.loads(invoke("repair", damaged.name, "--dir", damaged.parent, "--json").stdout)
    assert told["repaired"] and told["kept"] == [str(damaged / "study.journal.damaged-2")], (
        "none takes the place of another"
    )
    assert (
        told["lines"]["before"] == told["lines"]["kept"] + 1
        and told["ended"] == ["0000", "0001", "0002", "0003"]
        and not told["lost"]
    )


def test_r8_a_trial_whose_end_was_lost_goes_on(damaged):
    lines = (damaged / JOURNAL).read_bytes().splitlines(keepends=True)
    (damaged / JOURNAL).write_bytes(
        b"".join(
            line for line in lines if b'"op_code":6' not in line or b'"trial_id":1,' not in line
        )
    )
    done = repair(damaged)
    assert done.rebuilt.unfinished == ("0001",) and states(damaged)["0001"] == "RUNNING"
    assert not (damaged / RESULT).exists(), "which says that all have ended"


def test_r8_the_folder_of_a_trial_that_was_lost_is_put_aside(damaged):
    lines = (damaged / JOURNAL).read_bytes().splitlines(keepends=True)
    created = [i for i, line in enumerate(lines) if b'"op_code":4' in line][1]
    kept = [line for i, line in enumerate(lines) if i != created and b'"trial_id":1,' not in line]
    (damaged / JOURNAL).write_bytes(b"".join(kept))
    done = repair(damaged)
    assert done.rebuilt.lost == ("0001",) and set(states(damaged)) == {"0000", "0002", "0003"}
    assert (
        not (damaged / "trials" / "0001").exists()
        and (damaged / "trials" / "0001.damaged-1" / "logs").is_dir()
    )


def test_r8_a_sweep_that_runs_is_not_repaired(damaged):
    before, lock = files_of(damaged), FolderLock(damaged)
    try:
        with pytest.raises(SweepLocked):
            repair(damaged)
    finally:
        lock.release()
    assert files_of(damaged) == before


@pytest.mark.parametrize("name", [JOURNAL, "trials", "lock"])
def test_r8_a_repair_follows_no_link_out_of_the_folder(damaged, tmp_path, name):
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
def test_a_repair_moves_a_result_of_another_kind_out_of_the_way(damaged, tmp_path, kind):
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


def test_r8_a_folder_of_another_user_is_not_repaired(damaged, monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: os.stat(damaged).st_uid + 1)
    before = files_of(damaged)
    with pytest.raises(InputError, match="another user"):
        repair(damaged)
    assert files_of(damaged) == before


DEFINITIONS = (
    "def train(config): pass\nclass Tracker: pass\nclass Scheduler: pass\nclass Sampler: pass\n"
)


def test_r8_verbs_that_only_look_and_repair_run_no_code_of_the_folder(
    finished_sweep, tmp_path, monkeypatch
):
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
    assert repair(finished_sweep).rebuilt.restored == ("0002",)
    assert not (tmp_path / "ran").exists() and "crafted" not in sys.modules


def test_r8_a_result_that_is_none_is_put_aside(finished_sweep):
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
@pytest.mark.parametrize(
    "journal", ["a bad line", pytest.param("an end is lost", marks=pytest.mark.long), "empty"]
)
def test_r8_a_repaired_sweep_is_resumed_and_exported_and_each_trial_is_there_once(
    clean_ray, finished_sweep, tmp_path, journal
):
    before = json.loads(invoke("show", finished_sweep, "--json").stdout)
    lines = (finished_sweep / JOURNAL).read_bytes().splitlines(keepends=True)
    end = next(
        i for i, line in enumerate(lines) if b'"op_code":6' in line and b'"trial_id":0,' in line
    )
    changed = {
        "a bad line": [*lines[:8], b"\0\0\0\n", *lines[9:]],
        "an end is lost": [*lines[:end], *lines[end + 1 :]],
        "empty": [],
    }[journal]
    (finished_sweep / JOURNAL).write_bytes(b"".join(changed))
    assert invoke("resume", finished_sweep, "--trust").exit_code == 2
    assert invoke("repair", finished_sweep).exit_code == 0
    done = invoke("resume", finished_sweep, "--trust", "--json")
    assert done.exit_code == 0 and "Traceback" not in done.stderr, done.stderr
    after = json.loads(invoke("show", finished_sweep, "--json").stdout)
    assert [t["trial"] for t in after["all"]] == ["0000", "0001", "0002", "0003"] and after[
        "state"
    ] == "finished"
    assert all(t["state"] in ("COMPLETE", "PRUNED") for t in after["all"])
    assert after["best"] == before["best"] or (
        journal == "empty" and after["best"]["value"] <= before["best"]["value"]
    )
    done = invoke("export", finished_sweep, "--trial", "0002", "--trust", "-o", tmp_path / "new")
    assert done.exit_code == 0 and (tmp_path / "new" / "manifest.json").is_file(), done.stderr

"""A full disk ends a sweep at once with one line, whatever it was writing.

When there is room again, `resume` continues.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sweeps.study import record_reader
from tests.commands import command, invoke, space_of
from tests.faults.filling import fill, fill_before
from tests.waiting import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

ENDS_WITHIN = 5  # seconds; twice that here, as other tests run beside this one


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", folder], capture_output=True
    ).returncode:
        pytest.skip("only root can mount a small file system")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def ends(process: subprocess.Popen[str], start: float) -> str:
    """Wait for the end of a sweep whose disk is full; what it said."""
    out, err = process.communicate(timeout=60)
    took = time.monotonic() - start
    assert process.returncode == 1, err
    assert "Traceback" not in out + err and "Logging error" not in err
    assert (
        os.strerror(errno.ENOSPC) in err.splitlines()[-1]
        and "sweeps resume" in err.splitlines()[-1]
    )
    assert took < 2 * ENDS_WITHIN, f"it took {took:.1f} s"
    return err


def resumed(folder: Path, trials: int) -> None:
    """Resume, and check that every trial is recorded once and has ended."""
    done = invoke("resume", folder, "--json")
    assert done.exit_code == 0, done.stderr
    study = record_reader.read(folder)
    assert study is not None and json.loads(done.stdout)["trials"]["completed"] == trials == len(
        study.trials
    )
    assert not list(folder.glob(".room*"))


def test_r3_the_study_cannot_be_written(clean_ray: Any, disk: Any, tmp_path: Path) -> None:
    file = space_of(
        tmp_path,
        "held",
        limits="max_trials: 3, max_concurrent_trials: 1",
        x="{grid: [0.1, 0.2, 0.3]}",
    )
    database = f"sqlite:///{disk / 'runs' / 'mlflow.db'}"
    process = command("run", file, "--dir", disk / "runs", "--tracking-uri", database)
    wait_until(lambda: list(tmp_path.glob("*-0000.two")), 90, "the first trial to hold")
    filler = fill(disk)
    start = time.monotonic()
    (tmp_path / "go").touch()
    ends(process, start)
    filler.unlink()
    (folder,) = (disk / "runs").glob("own-*")
    resumed(folder, 3)


@pytest.mark.long
def test_r3_a_checkpoint_cannot_be_written(clean_ray: Any, disk: Any, tmp_path: Path) -> None:
    file = space_of(
        tmp_path,
        "heavy",
        limits="max_trials: 3, max_concurrent_trials: 1",
        x="{grid: [0.1, 0.2, 0.3]}",
    )
    process = command(
        "run", file, "--dir", disk / "runs", "--tracking-uri", f"sqlite:///{tmp_path / 'mlflow.db'}"
    )
    wait_until(lambda: list(tmp_path.glob("*-0000.two")), 90, "the first trial to hold")
    filler = fill(disk, leave=2 << 20)  # of the 4 MiB that each checkpoint takes
    start = time.monotonic()
    (tmp_path / "go").touch()
    ends(process, start)
    filler.unlink()
    (folder,) = (disk / "runs").glob("own-*")
    resumed(folder, 3)


@pytest.mark.parametrize(
    "target",
    [
        pytest.param("sweeps.bundle.export:export_trial", marks=pytest.mark.long),
        "sweeps.bundle.manifest:hash_files",
    ],
    ids=["begun", "almost done"],
)
def test_r3_the_winners_bundle_cannot_be_written(
    clean_ray: Any,
    checked_in_this_process: Any,
    disk: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    target: str,
) -> None:
    file = space_of(
        tmp_path, "plain", limits="max_trials: 2", extra=', load: "tests.user_loops:load"'
    )
    file.write_text(file.read_text().replace("label: target", "label: target, task: regression"))
    with monkeypatch.context() as patched:
        fill_before(target, disk, patched)
        done = invoke("run", file, "--dir", disk / "runs")
    assert done.exit_code == 1 and "Traceback" not in done.output, done.output
    last = done.stderr.splitlines()[-1]
    assert os.strerror(errno.ENOSPC) in last and "sweeps resume" in last
    (folder,) = (disk / "runs").glob("own-*")
    assert not (folder / "bundle").exists()
    (disk / "filler").unlink()
    resumed(folder, 2)
    assert (folder / "bundle" / "manifest.json").is_file() and not list(folder.glob(".bundle*"))

"""A full disk ends a sweep at once, in one line, whatever was being written; when there is room again, `resume` goes on."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sweeps.search import record
from tests.commands import command, space_of
from tests.waiting import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

ENDS_WITHIN = 5  # seconds; twice that here, as other tests run beside this one


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", folder], capture_output=True).returncode:
        pytest.skip("only root can mount a small file system")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def fill(disk: Path, leave: int = 0) -> Path:
    """Fill a disk but for so many bytes; the file that fills it."""
    filler = disk / "filler"
    with open(filler, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    if leave:
        os.truncate(filler, max(0, filler.stat().st_size - leave))
    return filler


def ends(process: subprocess.Popen, begun: float) -> str:
    """Wait for the end of a sweep whose disk is full; what it said."""
    out, err = process.communicate(timeout=60)
    took = time.monotonic() - begun
    assert process.returncode == 1, err
    assert "Traceback" not in out + err and "Logging error" not in err
    assert os.strerror(errno.ENOSPC) in err.splitlines()[-1] and "sweeps resume" in err.splitlines()[-1]
    assert took < 2 * ENDS_WITHIN, f"it took {took:.1f} s"
    return err


def resumed(folder: Path, trials: int) -> None:
    """Resume, and see that every trial is there once and has ended."""
    process = command("resume", folder, "--json")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    study = record.read(folder)
    assert study is not None and json.loads(out)["trials"]["completed"] == trials == len(study.trials)
    assert not list(folder.glob(".room*"))


def test_r3_the_study_cannot_be_written(disk, tmp_path):
    file = space_of(tmp_path, "held", limits="max_trials: 3, max_concurrent_trials: 1", x="{grid: [0.1, 0.2, 0.3]}")
    process = command("run", file, "--dir", disk / "runs")  # MLflow's database lies there as well
    wait_until(lambda: list(tmp_path.glob("*-0000.two")), 90, "the first trial to hold")
    filler = fill(disk)
    begun = time.monotonic()
    (tmp_path / "go").touch()
    ends(process, begun)
    filler.unlink()
    (folder,) = (disk / "runs").glob("own-*")
    resumed(folder, 3)


def test_r3_a_checkpoint_cannot_be_written(disk, tmp_path):
    file = space_of(tmp_path, "heavy", limits="max_trials: 3, max_concurrent_trials: 1", x="{grid: [0.1, 0.2, 0.3]}")
    process = command("run", file, "--dir", disk / "runs", "--tracking-uri", f"sqlite:///{tmp_path / 'mlflow.db'}")
    wait_until(lambda: list(tmp_path.glob("*-0000.two")), 90, "the first trial to hold")
    filler = fill(disk, leave=2 << 20)  # of the 4 MiB that each checkpoint takes
    begun = time.monotonic()
    (tmp_path / "go").touch()
    ends(process, begun)
    filler.unlink()
    (folder,) = (disk / "runs").glob("own-*")
    resumed(folder, 3)


def test_r3_what_is_prepared_cannot_be_written(disk, tmp_path):
    rows = np.random.default_rng(0).random((400_000, 10))
    pd.DataFrame(rows, columns=[f"c{i}" for i in range(10)]).assign(target=rows[:, 0]).to_parquet(tmp_path / "rows.parquet")
    file = space_of(tmp_path, "plain", limits="max_trials: 1")
    file.write_text(
        file.read_text().replace(
            '"sklearn:iris", label: target', f"{tmp_path / 'rows.parquet'}, label: target, test: 0.7, task: regression"
        )
    )
    process = command("run", file, "--dir", disk / "runs", "--tracking-uri", f"sqlite:///{tmp_path / 'mlflow.db'}")
    out, err = process.communicate(timeout=120)
    assert process.returncode in (1, 2) and "Traceback" not in out + err
    assert os.strerror(errno.ENOSPC) in err.splitlines()[-1]


def test_r3_no_folder_can_be_made(disk, tmp_path):
    fill(disk)
    process = command("run", space_of(tmp_path, "plain"), "--dir", disk / "runs")
    err = process.communicate(timeout=60)[1]
    assert process.returncode == 2 and "--dir" in err and "Traceback" not in err and os.strerror(errno.ENOSPC) in err
    assert not list(disk.glob("runs/own-*"))

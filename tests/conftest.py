"""Shared by all tests: one local Ray, and a check that a test left nothing of it behind."""

from __future__ import annotations

import contextlib
import os
import tarfile
import tempfile
from pathlib import Path

import hypothesis
import psutil
import pytest

from sweeps.tracking import MlflowTracker
from tests.commands import end_all
from tests.waiting import wait_until

# A busy machine takes longer than 200 ms for a case now and then; pytest has a limit for each test
hypothesis.settings.register_profile("sweeps", deadline=None)
hypothesis.settings.load_profile("sweeps")
os.environ.setdefault("RAY_DATA_DISABLE_PROGRESS_BARS", "1")
# Else Ray ends idle processes above the number of its CPUs, and each chain that is fitted starts them anew
os.environ.setdefault("RAY_num_workers_soft_limit", "8")
# The key that signs pickles: one of the tests' own, and not one in the home of whoever runs them
KEY = Path(tempfile.gettempdir()) / f"sweeps-tests-key-{os.getuid()}"
KEY.write_text("the tests' own key, which signs nothing else\n")
os.environ["SWEEPS_KEY_FILE"] = str(KEY)


@pytest.fixture(scope="session")
def _ray_ends():
    yield
    import ray

    ray.shutdown()


@pytest.fixture(scope="module")
def local_ray(_ray_ends):
    """One local Ray of two CPUs for all the tests that can share it; started anew if a test of another file shut it down."""
    import ray

    if not ray.is_initialized():
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    return ray


@pytest.fixture
def clean_ray(local_ray, monkeypatch, tmp_path_factory):
    """The shared Ray; after the test every CPU must be free again, and no placement group and no process of an actor of ours left.

    A sweep in this process that names no MLflow shares one database with others, and writes to it by a thread: a database of its own and
    a process for that, as commands have them, take some five seconds to start.
    """
    root = tmp_path_factory.getbasetemp() / "mlflow"
    root.mkdir(exist_ok=True)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{root / 'mlflow.db'}")
    monkeypatch.setattr("sweeps.tracking.TrackerProcess", lambda *arguments: MlflowTracker(*arguments[:-1]))
    yield local_ray
    wait_until(lambda: local_ray.available_resources().get("CPU", 0) == 2, 30, "CPUs to be free again")
    groups = local_ray.util.placement_group_table()
    assert not [g for g in groups.values() if g["state"] != "REMOVED"], groups
    wait_until(lambda: not _actors(), 30, "the processes of actors to end")


def _actors() -> list[str]:
    """The processes of this process's Ray that an actor of a sweep lives in."""
    ours = ("ray::_Pool", "ray::_Keeper", "ray::Solo", "ray::Runner", "ray::RayTrainWorker", "ray::TrainController")
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            found += [title for title in process.cmdline()[:1] if title.startswith(ours)]
    return found


@pytest.fixture
def old_sweep(tmp_path: Path) -> Path:
    """The folder of a sweep that version 3d17d2a wrote, elsewhere than where it was written; see tests/fixtures/README.md."""
    with tarfile.open(Path(__file__).parent / "fixtures" / "sweep-3d17d2a.tar.gz") as packed:
        packed.extractall(tmp_path / "root", filter="data")
    (folder,) = (tmp_path / "root").iterdir()
    return folder


@pytest.fixture(autouse=True)
def _no_command_is_left_running():
    yield
    end_all()

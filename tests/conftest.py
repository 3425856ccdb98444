"""Fixtures for all tests.

They start one local Ray for each test process, copy a sweep of an old version, and check that no
test leaves processes or files behind.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from sweeps.core.text import secrets
from sweeps.study.record_reader import read
from sweeps.tracking import MlflowTracker
from tests.commands import REPO, check_in_this_process, end_all, mlflow_database
from tests.processes import processes_of, wait_until_clean
from tests.waiting import wait_until

# A busy machine takes longer than 200 ms for a case now and then; pytest has a limit for each test
hypothesis.settings.register_profile("sweeps", deadline=None)
hypothesis.settings.register_profile(
    "no-shrinking", deadline=None, phases=set(hypothesis.Phase) - {hypothesis.Phase.shrink}
)
hypothesis.settings.load_profile("sweeps")
os.environ.setdefault("RAY_DATA_DISABLE_PROGRESS_BARS", "1")
# Else Ray ends idle processes above the number of its CPUs, and each chain that is fitted starts
# them anew
os.environ.setdefault("RAY_num_workers_soft_limit", "8")
# The key that signs pickles: one of the tests' own, and not one in the home of whoever runs them
KEY = Path(tempfile.gettempdir()) / f"sweeps-tests-key-{os.getuid()}"
KEY.write_text("the tests' own key, which signs nothing else\n")
os.environ["SWEEPS_KEY_FILE"] = str(KEY)


# The files that take longest, the longest first. pytest-xdist starts files in this order, so that
# no process idles at the end.
LONGEST = (
    *(
        "tests/frameworks/test_sweeps.py",
        "tests/frameworks/test_frameworks.py",
    ),
    *(
        "tests/test_stored_sweeps.py",
        "tests/test_streaming.py",
        "tests/data/streaming/test_stream_splits.py",
        "tests/test_tutorials.py",
    ),
    *(
        "tests/test_quickstart.py",
        "tests/controller/test_run.py",
        "tests/test_patience.py",
        "tests/test_row_fidelity.py",
        "tests/execution/test_ray_train_adapter.py",
        "tests/execution/test_loop_mlflow.py",
    ),
    *(
        "tests/test_searches.py",
        "tests/test_elastic.py",
        "tests/controller/test_trial_refit.py",
        "tests/bundle/test_bundle_export.py",
        "tests/trainers/test_two_ranks.py",
        "tests/trainers/test_torch_trainer.py",
        "tests/bundle/test_bundle_parity.py",
        "tests/test_hostile_entries.py",
        "tests/tracking/test_tracker_process.py",
    ),
    *(
        "tests/execution/test_reports.py",
        "tests/execution/test_retry.py",
        "tests/test_command.py",
        "tests/trainers/test_command_reports.py",
        "tests/trainers/test_command_ends.py",
        "tests/test_run_from_python.py",
        "tests/test_inside.py",
        "tests/test_finished_sweep.py",
        "tests/test_earlier_sweeps.py",
        "tests/test_secrets_of_a_sweep.py",
        "tests/test_control.py",
        "tests/serving/test_server.py",
        "tests/test_cross_validation.py",
    ),
    *(
        "tests/faults/test_surroundings.py",
        "tests/faults/test_lost_data.py",
        "tests/faults/test_crash.py",
        "tests/faults/test_lost_workers.py",
        "tests/faults/test_full_disk.py",
    ),
    "tests/browser/test_running_sweep.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the tests: the files that take longest come first, the others keep their order."""
    places = {str(REPO / file): place for place, file in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(str(item.path), len(places)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Print the errors of failed trials below a failed test: those of all sweeps in the test's
    temporary folder.
    """
    report = yield
    folder = getattr(item, "funcargs", {}).get("tmp_path")
    if report.failed and folder is not None:
        for journal in sorted(folder.rglob("study.journal")):
            with contextlib.suppress(Exception):  # The test may have damaged the study on purpose.
                record = read(journal.parent)
                errors = (
                    [f"trial {t.id}: {t.result.error}" for t in record.trials if t.result.error]
                    if record
                    else []
                )
                report.sections += (
                    [(f"failed trials of {journal.parent.name}", "\n".join(errors))]
                    if errors
                    else []
                )
    return report


@pytest.fixture(scope="session", autouse=True)
def _nothing_is_left(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[None]:
    """Fail the last test of this process if the tests have left a process or a temporary file of
    sweeps behind.

    The tests write temporary files to a folder of this process. Ray's temporary files stay in the
    default folder, because the path of a socket may have at most 107 characters.
    """
    base = tmp_path_factory.getbasetemp()  # before TMPDIR changes
    os.environ.setdefault("RAY_TMPDIR", tempfile.gettempdir())
    folder = Path(tempfile.mkdtemp(prefix="sweeps-tests-"))
    folder.chmod(0o755)  # PostgreSQL runs as another user
    before = os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    yield
    tempfile.tempdir = None
    if before is None:
        del os.environ["TMPDIR"]
    else:
        os.environ["TMPDIR"] = before
    killed = any(
        item.get_closest_marker(name)
        for item in request.session.items
        for name in ("faults", "long")
    )
    names = sorted(path.name for path in folder.iterdir() if path.name.startswith("sweeps-"))
    # This process removes the folder of passed functions when it ends.
    files = [] if killed else [name for name in names if not name.startswith("sweeps-functions-")]
    shutil.rmtree(folder, ignore_errors=True)
    try:
        wait_until(lambda: not processes_of(base), 20, "the processes of the tests to end")
    except AssertionError as e:
        raise AssertionError(f"{e}: {processes_of(base)}") from None
    assert not files, f"left in the temporary folder: {files}"


@pytest.fixture(scope="session")
def _ray_ends() -> Iterator[None]:
    yield
    import ray

    ray.shutdown()


@pytest.fixture(scope="module")
def local_ray(_ray_ends: None) -> Any:
    """Return `ray`, connected to a local Ray with two CPUs that all tests of this process share.

    If a test of another file has shut Ray down, Ray is started again. Processes of Ray that no test
    needs are not started.
    """
    import ray

    from sweeps.execution.cluster.local_ray import start_fewer_processes

    if not ray.is_initialized():
        with start_fewer_processes():
            ray.init(
                address="local",
                num_cpus=2,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
    return ray


@pytest.fixture(scope="session")
def _mlflow_of_sweeps(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the URI of the MLflow database that all sweeps of this process share."""
    return f"sqlite:///{shutil.copy(mlflow_database(), tmp_path_factory.mktemp('mlflow'))}"


@pytest.fixture
def clean_ray(
    local_ray: Any, monkeypatch: pytest.MonkeyPatch, _mlflow_of_sweeps: str
) -> Iterator[Any]:
    """Return `ray`, connected to the shared Ray.

    After the test, check that the test's CPUs, placement groups and actors are gone.

    With this fixture, a sweep in this process differs from a sweep that a command starts: it uses
    the shared Ray, and writes to one shared MLflow database from a thread. This saves seconds for
    each sweep. To test without these differences, run a command in a separate process
    (`tests.commands.command`).
    """
    monkeypatch.setenv("MLFLOW_TRACKING_URI", _mlflow_of_sweeps)
    monkeypatch.setattr(
        "sweeps.tracking.TrackerProcess", lambda destination, errors: MlflowTracker(destination)
    )
    monkeypatch.setattr("sweeps.bundle.check_process.started_early", contextlib.nullcontext)
    yield local_ray
    wait_until_clean(local_ray)


@pytest.fixture
def checked_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use this fixture in tests of other properties of bundles; see `check_in_this_process`."""
    check_in_this_process(monkeypatch)


@pytest.fixture
def finished_sweep(tmp_path: Path) -> Path:
    """Copy the folder of a finished sweep to a new path, and return the copy; see
    tests/fixtures/README.md.
    """
    with tarfile.open(Path(__file__).parent / "fixtures" / "sweep.tar.gz") as packed:
        packed.extractall(tmp_path / "root", filter="data")
    (folder,) = (tmp_path / "root").iterdir()
    return folder


@pytest.fixture(autouse=True)
def _no_secret_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the secrets that a test has used, because texts of other tests may contain them."""
    monkeypatch.setattr(secrets, "_known", ())


@pytest.fixture(autouse=True)
def _no_module_of_a_test_stays_imported(request: pytest.FixtureRequest) -> Iterator[None]:
    """Forget the modules in the test's folder, because another test may write one of that name."""
    before = set(sys.modules)
    yield
    folder = request.node.funcargs.get("tmp_path")
    for name in set(sys.modules) - before if folder else ():
        if Path(getattr(sys.modules[name], "__file__", None) or "").is_relative_to(folder):
            del sys.modules[name]


@pytest.fixture(autouse=True)
def _no_command_is_left_running() -> Iterator[None]:
    yield
    end_all()

"""A folder, a pipe, a link or an empty file in the place of any file of a sweep: every command
works without it, or says so in a line.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from fastapi.testclient import TestClient

import sweeps
from sweeps import cli
from sweeps.core.files.sweep_folder import SweepFolder
from sweeps.dashboard.dashboard_app import Dashboard, make_app
from sweeps.serving.access import Access
from sweeps.tracking import MlflowTracker
from tests.test_run_from_python import ROWS, notebook_cells

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(120)]

SECRET = "what only the owner may read"
KINDS = ["pipe", "link"]
SECONDS = 10  # after which a command hangs
BESIDE = "beside-20260102-120000"
# Files of these folders are used by few commands.
DEEP = ("bundle/", "exports/", "functions/", "prepared/", "tables/", "tensorboard/")


@pytest.fixture(scope="module")
def root(local_ray: Any, _mlflow_of_sweeps: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a root folder with a sweep that has all files that sweeps writes, and with a second
    sweep beside it.
    """
    root = tmp_path_factory.mktemp("runs")
    cells = notebook_cells(offset=1.0)
    space = {
        "name": "real",
        "trainer": {"loop": cells["train"], "load": cells["load"], "backend": "none"},
        "data": {"train": ROWS, "label": "y", "valid": 0.25, "test": 0.25},
        "objective": {"metric": "loss", "goal": "minimize"},
        "limits": {"max_trials": 1},
        "trackers": ["mlflow", "jsonl", "tensorboard"],
        "space": {
            "params": {"x": sweeps.uniform(0.1, 1)},
            "preprocessor": {"grid": ["StandardScaler"]},
        },
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", _mlflow_of_sweeps)
        patch.setattr("sweeps.tracking.TrackerProcess", lambda to, errors: MlflowTracker(to))
        patch.setattr("sweeps.bundle.check_process.started_early", contextlib.nullcontext)
        patch.setattr("sweeps.bundle.check_process.check", lambda bundle, timeout: None)
        sweep = SweepFolder(sweeps.run(space, dir=root).dir)
    shutil.copytree(sweep.bundle, sweep.exports / "0000")
    sweep.commands.mkdir(exist_ok=True)
    (sweep.commands / f"{1:020d}-1.json").write_text('{"command": "stop"}')
    (sweep.commands / f"{2:020d}-1.answer").write_text("{}")
    for file in (sweep.ray, sweep.stages, sweep.earlier_trials, sweep.path / "code.diff"):
        file.write_text("{}")
    shutil.copytree(sweep.path, root / BESIDE)
    return root


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Return a file outside the sweep's folder, which no command may read or change."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text(SECRET)
    return tmp_path / "outside" / "secret"


def sweep_of(root: Path) -> Path:
    return next(folder for folder in root.glob("real-*") if folder.is_dir())


def names_in(sweep: Path) -> list[str]:
    """Return the files and folders of a sweep, without the content of its copies in bundles."""
    names = sorted(str(path.relative_to(sweep)) for path in sweep.rglob("*"))
    return [name for name in names if "/_sweeps/" not in name]


@contextlib.contextmanager
def planted(place: Path, kind: str, outside: Path) -> Iterator[None]:
    """Put an entry of another kind in the place of a file, and put the file back at the end."""
    original = outside.parent.parent / "original"
    target = outside.parent if place.is_dir() else outside
    shutil.move(place, original)
    if kind == "folder":
        place.mkdir()
    elif kind == "pipe":
        os.mkfifo(place)
    elif kind == "empty file":
        place.touch()
    else:
        place.symlink_to(target if kind == "link" else outside.with_name("absent"))
    try:
        yield
    finally:
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        place.unlink(missing_ok=True)
        shutil.move(original, place)
    assert os.listdir(outside.parent) == ["secret"] and outside.read_text() == SECRET


@contextlib.contextmanager
def no_hang(what: object) -> Iterator[None]:
    """Fail if the block takes longer than `SECONDS`, for example because it waits for a pipe."""

    def fail(*_: object) -> None:
        raise AssertionError(f"{what} hangs")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def command(*args: object) -> str:
    """Run a command. It must succeed, or say in one line what is wrong. Return its output."""
    with no_hang(args):
        done = CliRunner().invoke(cli.main, [str(arg) for arg in args])
    assert done.exception is None or isinstance(done.exception, SystemExit), (args, done.exception)
    assert done.exit_code in (0, 1, 2), (args, done.output)
    if done.exit_code:
        assert done.stderr.count("\n") == 1, (args, done.stderr)
    assert SECRET not in done.output, args
    return done.output


def page(root: Path, *paths: str) -> list[str]:
    """Get data from the page. Every answer must come. Return the answers."""
    app = make_app(Dashboard(root, may_command=True), Access())
    client = TestClient(app, base_url="http://localhost:5050")
    answers = []
    for path in paths:
        with no_hang(path):
            answer = client.get(f"/api/sweeps{path}")
        assert answer.status_code in (200, 404) and SECRET not in answer.text, (path, answer.text)
        answers.append(answer.text)
    return answers


def first_event(root: Path) -> str:
    """Return the first event of the page's stream about all sweeps."""

    async def first() -> Any:
        stream = (await Dashboard(root, may_command=True).events()).body_iterator
        return await anext(aiter(stream))

    with no_hang("events"):
        return str(asyncio.run(first()))


def opened(sweep: Path) -> None:
    """Read a sweep in Python."""
    looks: list[Callable[[sweeps.Sweep], Any]] = [
        lambda sweep: sweep.trials,
        lambda sweep: sweep.best,
        lambda sweep: sweep.curves(),
        lambda sweep: sweep.importance(),
    ]
    for look in looks:
        with no_hang("sweeps.open"), contextlib.suppress(sweeps.SweepsError):
            look(sweeps.open(sweep))


def read(sweep: Path) -> None:
    """Read a sweep by every command that only reads, and show it on the page.

    The sweep beside it must not be affected.
    """
    root, here = sweep.parent, f"/{sweep.name}"
    listed = json.loads(command("ls", "--dir", root, "--json").splitlines()[-1])
    assert {each["sweep"]: each["state"] for each in listed}[BESIDE] == "finished"
    for args in ((), ("--trial", "0"), ("--csv",), ("--json",)):
        command("show", sweep, *args)
    command("logs", sweep, "0")
    command("compare", sweep, root / BESIDE)
    command("gc", sweep, "--dry-run")
    command("rerun", sweep, "9")
    opened(sweep)
    routes = ("/trials/0", "/figures/history")
    shown = page(root, "", here, *(here + route for route in routes))
    assert re.search(f'>{BESIDE}</a></td>\\s*<td><span class="state finished', shown[0])
    assert first_event(root).startswith("event: change")


def read_all(root: Path, kind: str, outside: Path) -> None:
    """Read a sweep once for each file and folder that an entry of another kind replaces."""
    sweep = sweep_of(root)
    for name in names_in(sweep):
        with planted(sweep / name, kind, outside):
            if not name.startswith(DEEP):
                read(sweep)
            if name not in ("origin.json", "space.yaml", "study.journal", "result.json"):
                page(root, f"/{sweep.name}")
                assert "1 completed" in command("show", sweep), name


@pytest.mark.parametrize("kind", ["pipe", pytest.param("link", marks=pytest.mark.extended)])
def test_commands_that_read_do_without_an_entry_of_another_kind(
    root: Any, outside: Any, kind: str
) -> None:
    read_all(root, kind, outside)


@pytest.mark.extended
@pytest.mark.parametrize("kind", ["folder", "dangling link", "empty file"])
def test_commands_that_read_do_without_a_file(root: Any, outside: Any, kind: str) -> None:
    read_all(root, kind, outside)


# Entries that `resume`, `export` and `gc` refuse if they are a link or a pipe. Bundles and
# checkpoints are checked when they are read.
UNCHECKED = ("bundle/", "exports/", "commands/", "trials/0000/checkpoint_000003/")


@pytest.mark.parametrize("kind", [*KINDS, "dangling link"])
def test_commands_that_write_refuse_an_entry_of_another_kind(
    root: Any, outside: Any, kind: Any
) -> None:
    sweep = sweep_of(root)
    for name in names_in(sweep):
        if name.startswith(UNCHECKED):
            continue
        with planted(sweep / name, kind, outside):
            for args in (("gc", sweep), ("resume", sweep), ("export", sweep, "--trial", "0")):
                assert sweep.name in command(*args), (name, args)


@pytest.mark.parametrize("kind", [*KINDS, "folder"])
def test_a_bundle_with_an_entry_of_another_kind_is_not_loaded(
    root: Any, outside: Any, kind: Any
) -> None:
    sweep = sweep_of(root)
    rows = outside.parent.parent / "rows.csv"
    ROWS.head(2).drop(columns="y").to_csv(rows, index=False)
    for name in names_in(sweep):
        if not name.startswith("bundle/") or (sweep / name).is_dir():
            continue
        with planted(sweep / name, kind, outside):
            assert str(sweep / "bundle") in command("predict", sweep, rows), name


@pytest.mark.parametrize("kind", [*KINDS, "folder"])
def test_an_earlier_sweep_with_an_entry_of_another_kind_is_refused(
    root: Any, outside: Any, kind: Any
) -> None:
    sweep, space = sweep_of(root), outside.parent.parent / "own.yaml"
    space.write_text(
        'trainer: {loop: "tests.user_loops:plain", backend: none}\n'
        "objective: {metric: loss, goal: minimize}\n"
        "limits: {max_trials: 1}\n"
        f"search: {{from: [{sweep.name}]}}\n"
        "space: {params: {x: {uniform: [0.1, 1.0]}}}\n"
    )
    for name in ("origin.json", "space.yaml", "study.journal"):
        with planted(sweep / name, kind, outside):
            with no_hang(name):
                done = CliRunner().invoke(cli.main, ["plan", str(space), "--dir", str(root)])
            assert done.exit_code == 2 and SECRET not in done.output, (name, done.output)


@pytest.mark.parametrize("kind", [*KINDS, "folder"])
def test_a_sweep_with_an_entry_of_another_kind_is_repaired(
    root: Any, outside: Any, kind: Any
) -> None:
    sweep = sweep_of(root)
    copy = outside.parent.parent / sweep.name
    for name in ("study.journal", "result.json", "trials", "commands", "lock", "bundle"):
        shutil.copytree(sweep, copy, ignore=shutil.ignore_patterns("_sweeps"))
        with planted(copy / name, kind, outside):
            command("repair", copy)
        shutil.rmtree(copy)

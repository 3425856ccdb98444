"""`run` and `resume`: a space file in, a searched space and an exported winner out."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sweeps import space as space_file
from sweeps.controller.session import SweepSession
from sweeps.core import logging_setup
from sweeps.core.command_hints import DEFAULT_ROOT
from sweeps.core.errors import InputError, Problem
from sweeps.core.origin import read_origin
from sweeps.core.result import SweepResult, refuse_invalid_result
from sweeps.core.secrets import without_password
from sweeps.core.sweep_folder import SweepFolder, create_sweep_folder, refuse_links
from sweeps.data.metric_checks import check_metric_functions
from sweeps.data.preflight import check_data, check_root, locate_problems
from sweeps.execution import cluster
from sweeps.plan import find_infeasible_shapes_here
from sweeps.search.optional_packages import missing
from sweeps.space.saved_space import save_space, taken_up
from sweeps.study import storage as storages
from sweeps.tracking.create import create_trackers


def run(
    file: str | os.PathLike[str],
    *,
    dir: str | os.PathLike[str] | None = None,
    overrides: tuple[str, ...] = (),
    address: str | None = None,
    tracking_uri: str | None = None,
    storage: str | None = None,
    on_progress: Callable[[Any], None] | None = None,
) -> SweepResult:
    """Run a sweep to its end.

    Args:
        file: the space file.
        dir: root of all sweeps; `sweeps-runs` in the working directory by default.
        overrides: `key.path=YAML value`, as `--set`.
        address: of a Ray cluster; a Ray of its own is started by default, unless this process is connected to one.
        tracking_uri: MLflow's; by default `MLFLOW_TRACKING_URI`, else SQLite in `dir`.
        storage: of the study, `postgresql://...`; by default a journal in the sweep's folder.
        on_progress: called with a `SweepStatus` a few times a second.

    Raises:
        InputError: the file or the data is wrong, or a shape can never fit; every problem at once where they can be known at once.
        SweepFailed: no trial came to a value; the message has the first error.
        BundleError: the winner answers differently outside the sweep.
    """
    began = round(time.time(), 3)  # MLflow, where the sweep is found again by it, counts milliseconds
    space = space_file.load(Path(file), tuple(overrides))
    for note in space.notes:
        logging.getLogger("sweeps").warning("note: %s", note)
    root, uri = Path(dir or DEFAULT_ROOT), _tracking(tracking_uri, space.has_mlflow)
    if storage is not None:
        storages.check(storage)
    check_root(root)
    check_data(space)
    if problems := check_metric_functions(space):
        raise locate_problems(space, problems)
    if problems := missing(space.search.algorithm):
        raise locate_problems(space, problems)
    if address:
        cluster.reach(address)
        cluster.prepare_authentication(address)
    elif "ray" not in sys.modules and (problems := find_infeasible_shapes_here(space)):
        raise InputError(problems)
    trackers = create_trackers(space)
    logging_setup.set_environment()
    import ray  # noqa: F401 - sets up its logging, which is then redirected

    new, root = not root.exists(), root.resolve()
    folder = create_sweep_folder(root, space.name, began)
    driver = SweepSession(space, root, folder, began, address, uri, on_progress, trackers=trackers)
    try:
        kept = {} if storage is None else storages.named(storage, folder.name)
        save_space(folder, space, began, address=address, tracking_uri=uri and without_password(uri), **kept)
        if storage is not None:
            storages.connect(storage)  # one that cannot be reached is said at once
        return driver.run()
    except InputError:  # found before anything was searched: nothing is left behind
        _clear(folder, root if new else None)
        raise
    except OSError as e:
        if SweepFolder(folder).origin.exists():
            raise
        _clear(folder, root if new else None)
        raise InputError(Problem("--dir", f"{root}: cannot be written to: {e.strerror}")) from e


def _clear(folder: Path, root: Path | None) -> None:
    """Take away the folder of a sweep, and the root that was made for it, unless another sweep has come to it since."""
    shutil.rmtree(folder, ignore_errors=True)
    if root is None:
        return
    with contextlib.suppress(OSError):
        if all(path.name.startswith(("mlflow.db", "mlartifacts")) for path in root.iterdir()):
            shutil.rmtree(root)


def resume(
    sweep: str | os.PathLike[str],
    file: str | os.PathLike[str] | None = None,
    *,
    overrides: tuple[str, ...] = (),
    add_trials: int = 0,
    address: str | None = None,
    tracking_uri: str | None = None,
    storage: str | None = None,
    trust: bool = False,
    on_progress: Callable[[Any], None] | None = None,
) -> SweepResult:
    """Go on with a sweep that was interrupted or whose driver has died, from its study and its checkpoints.

    Args:
        sweep: its folder.
        file: the space file, if its limits have changed; nothing else of it may.
        overrides: of `limits`, as `--set`.
        add_trials: so many more than there were to be.
        address, tracking_uri: as for `run`; by default those that the sweep was begun with.
        storage: the one that the sweep was begun with, if its password is to be told so.
        trust: read the pickles in the sweep's folder whoever wrote them. Reading them runs code.
        on_progress: as for `run`.

    Returns:
        What the sweep came to. Of one with nothing left to do, what it came to before, with a note that says so.

    Raises:
        InputError: no such sweep, or the space file or the data has changed.
        SweepLocked: another living process drives the sweep.
        SweepFailed, BundleError: as for `run`.
    """
    from sweeps.core.folder_lock import FolderLock
    from sweeps.data.prepared_store import refuse_untrusted

    folder = Path(sweep).resolve()
    origin = read_origin(folder)
    refuse_invalid_result(folder)
    if storage is not None and storages.remember(storage) != origin.get("storage"):
        began_in = origin.get("storage") or "the sweep's folder"
        raise InputError(Problem("--storage", f"{without_password(storage)} is not where this sweep's study is: {began_in}"))
    refuse_links(folder)
    refuse_untrusted(folder, trust)
    lock = FolderLock(folder)
    try:
        space, _ = taken_up(folder, Path(file) if file is not None else None, tuple(overrides), add_trials)
        driver = SweepSession(
            space,
            folder.parent,
            folder,
            origin.get("began") or time.time(),
            address or origin.get("address"),
            _tracking_again(tracking_uri, origin.get("tracking_uri"), space.has_mlflow),
            on_progress,
            trust,
            create_trackers(space),
        )
        logging_setup.set_environment()
        nothing_left = driver.take_up(changed=bool(file or overrides or add_trials))
        if nothing_left is not None:
            return nothing_left
        if driver.address and driver.over is None:
            cluster.reach(driver.address)
            cluster.prepare_authentication(driver.address)
        import ray  # noqa: F401 - sets up its logging, which is then redirected

        return driver.run(lock)
    finally:
        lock.release()


def _tracking(uri: str | None, has_mlflow: bool = True) -> str | None:
    """Return MLflow's URI from `--tracking-uri` or the environment, after a check; None for the default.

    Raises:
        InputError: MLflow has no store for the URI, or the space file does not list MLflow.
    """
    from sweeps.tracking.mlflow import uris

    if not has_mlflow:
        if uri:
            raise InputError(
                Problem("--tracking-uri", "is for MLflow, which `trackers` in the space file does not list; add `mlflow` there")
            )
        return None
    given = uri or os.environ.get("MLFLOW_TRACKING_URI")
    if given:
        uris.check_uri(given, "--tracking-uri" if uri else "MLFLOW_TRACKING_URI")
    return given or None


def _tracking_again(uri: str | None, saved: str | None, has_mlflow: bool = True) -> str | None:
    """Return MLflow's URI for a resumed sweep: `--tracking-uri`, else the URI of its first driver, whatever the environment says.

    Args:
        uri: The value of `--tracking-uri`.
        saved: The URI of the first driver without its password, which the environment may have; None for the default.
        has_mlflow: Whether the space file lists MLflow.
    """
    if uri:
        return _tracking(uri, has_mlflow)
    env = os.environ.get("MLFLOW_TRACKING_URI")
    return env if saved and env and without_password(env) == saved else saved

"""The Python API to start and to resume a sweep."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeps.controller.reservation import reserve
from sweeps.controller.status import SweepStatus
from sweeps.core.errors import InputError
from sweeps.core.files.folder_lock import FolderLock
from sweeps.core.files.origin import read_origin
from sweeps.core.files.result_file import refuse_invalid_result
from sweeps.core.files.stores import check_address, is_address, recorded_store, store_of
from sweeps.core.files.sweep_folder import SweepFolder, create_sweep_folder, refuse_other_entries
from sweeps.core.host import logging_setup
from sweeps.core.result import SweepResult
from sweeps.core.text.durations import format_clock
from sweeps.core.text.secrets import without_password
from sweeps.core.text.shell_text import DEFAULT_ROOT, relative_path
from sweeps.data.checks.metric_checks import check_metric_functions
from sweeps.data.checks.preflight import check_data, check_root, locate_problems
from sweeps.data.sources.passed_tables import named_tables, save_tables
from sweeps.execution.cluster.ray_cluster import address_in_job, check_reachable
from sweeps.notebook.output_cell import in_notebook
from sweeps.plan import find_infeasible_shapes_here
from sweeps.scaffold.table_space import Task, request_of, table_space
from sweeps.search.plugins import check_plugins
from sweeps.space import Space, load
from sweeps.space.python.saved_space import resumed_space, save_space, with_saved_tables
from sweeps.stored import stored_sweeps
from sweeps.stored.store_mirror import mirror_to_store
from sweeps.study import storage as storages
from sweeps.tracking.create import create_trackers

from .mlflow_summary import requested_uri, resumed_uri
from .sweep_run import SweepRun

if TYPE_CHECKING:
    from sweeps.search.earlier_trials import EarlierSweep

# The smallest value of `minutes`. The start of Ray and of the first workers alone takes longer.
LEAST_MINUTES = 0.25


def run(
    space: str | os.PathLike[str] | Mapping[str, Any] | Space | Any,
    *,
    label: str | None = None,
    task: Task | None = None,
    metric: str | None = None,
    trainer: str | None = None,
    read: str | None = None,
    data: Any = None,
    dir: str | os.PathLike[str] | None = None,
    overrides: tuple[str, ...] = (),
    address: str | None = None,
    tracking_uri: str | None = None,
    storage: str | None = None,
    cpus: int | None = None,
    gpus: int | None = None,
    minutes: float | None = None,
    on_progress: Callable[[SweepStatus], None] | None = None,
) -> SweepResult:
    """Search a space and export the best trial.

    Args:
        space: A space file; a dict with the same keys; or a `Space` that `sweeps.load` returned. A
            dict may have domains such as `sweeps.loguniform(1e-4, 1)`, tables under `data`, and
            functions or classes wherever a file has `module:attr`. With `label`: a table, which is
            a file of data or a frame. The space is then the one that `sweeps init` would write.
        label: Column to predict, if `space` is a table.
        task: Task of a table: "binary", "multiclass" or "regression". By default, it is inferred
            from the label.
        metric: Metric to optimize for a table, such as "auc". By default, "logloss" ("mlogloss" for
            several classes) or "rmse".
        trainer: Trainer for a table: "xgboost", "lightgbm" or "catboost". By default, all that are
            installed.
        read: Settings for reading the text file of a table: keys of `data.read` in YAML, such as
            '{separator: ";"}'.
        data: Table to use as `data.train`; or a dict with tables for `train`, `valid` and `test`. A
            table is a frame of pandas, Polars or Dask, an Arrow table, a Ray Dataset, or a dataset
            of Hugging Face. The table is copied to the sweep's folder.
        dir: Root folder of all sweeps; by default `sweeps-runs` in the working directory. With
            `s3://BUCKET/PREFIX`, checkpoints, reports and bundles are stored there, and
            `sweeps-runs` in the working directory has the files with which this process works.
        overrides: Changes to the space file, each in the form `key.path=YAML value`, as for the
            option `--set`.
        address: Address of a Ray cluster. By default, sweeps uses the Ray cluster that this process
            is connected to, or the cluster of the Ray job in which this process runs. If there is
            none, sweeps starts Ray on this machine.
        tracking_uri: MLflow tracking URI. By default, the value of the environment variable
            `MLFLOW_TRACKING_URI`. If the variable is not set, a SQLite file in `dir`.
        storage: URL of a database for the study, `postgresql://...`. By default, the study is a
            journal in the sweep's folder.
        cpus: Largest number of CPUs that the sweep uses at once, on this machine or on the cluster.
            By default, all CPUs that other sweeps on this machine leave free.
        gpus: Largest number of GPUs that the sweep uses at once. By default, all GPUs that other
            sweeps on this machine leave free.
        minutes: When this call must end, with the export and the final training. The earlier of
            this time and `limits.timeout` ends the search. By default, only `limits` count.
        on_progress: Called with a `SweepStatus` a few times a second. By default, a notebook shows
            a live view, and a script shows nothing.

    Returns:
        The result of the sweep.

    Raises:
        InputError: The space or the data is wrong, a trial needs more resources than Ray has, or
            other sweeps on this machine use all CPUs. The message lists all problems.
        SweepFailed: No trial has a value. The message contains the error of the first trial that
            failed.
        BundleError: The bundle's predictions differ from the predictions during training.
    """
    ends = _end_of(minutes)
    # MLflow stores whole milliseconds, and the sweep's run is found by this time.
    began = round(time.time(), 3)
    tables = {} if data is None else named_tables(data)
    table_request = request_of(space, label, task=task, metric=metric, trainer=trainer, read=read)
    if table_request is not None:
        space, tables_of_space = table_space(space, table_request)
        tables |= tables_of_space
    space = load(space, overrides, tables=tables)
    store_root = check_address(str(dir), "--dir") if is_address(dir) else None
    root = Path(DEFAULT_ROOT if store_root or not dir else dir)
    uri = requested_uri(tracking_uri, space.has_mlflow)
    address = address or address_in_job()
    notes = _show_notes(space.notes, on_progress)
    _check(space, root, storage, address=address, cpus=cpus)
    trackers = create_trackers(space)
    earlier = _earlier_sweeps(space, store_root or root)
    with _new_folder(root, space.name, began) as folder:
        if space.tables:
            save_tables(space.tables, SweepFolder(folder).tables)
            space = with_saved_tables(space, folder)
            check_data(space, math.inf)
        save_space(
            folder,
            space,
            began,
            **_prepare_storage(folder, earlier, store_root, storage),
            address=address,
            tracking_uri=None if uri is None else without_password(uri),
            cpus=cpus,
            gpus=gpus,
        )
        if table_request is not None:
            file = relative_path(SweepFolder(folder).space)
            notes += _show_notes((f"the space file is {file}",), on_progress)
        with FolderLock(folder), reserve(folder.name, folder, address, cpus, gpus) as share:
            sweep = SweepRun(
                space,
                folder,
                address=address,
                tracking_uri=uri,
                on_progress=on_progress,
                trackers=trackers,
                share=share,
                notes=notes,
                ends=ends,
            )
            return _run_and_log(sweep)


@contextlib.contextmanager
def _new_folder(root: Path, name: str, began: float) -> Iterator[Path]:
    """Make the folder of a new sweep.

    Remove the folder if the sweep is refused, because no trial has run then. Also remove a new root
    if nothing is left in it, except files of MLflow.
    """
    root = root.resolve()  # The user's code may change the working directory.
    is_new_root = not root.exists()
    folder = create_sweep_folder(root, name, began)
    try:
        yield folder
    except (InputError, OSError) as e:
        # With `origin.json`, the sweep can be resumed after an error of the disk. An `InputError`
        # refuses the sweep before its first trial, perhaps when Ray starts, after `origin.json`.
        if isinstance(e, OSError) and SweepFolder(folder).origin.exists():
            raise
        if (store := recorded_store(folder)) is not None:
            stored_sweeps.delete_store(store)
        shutil.rmtree(folder, ignore_errors=True)
        if is_new_root and all(
            path.name.startswith(("mlflow.db", "mlartifacts")) for path in root.glob("*")
        ):
            shutil.rmtree(root, ignore_errors=True)
        if isinstance(e, InputError):
            raise
        raise InputError(
            "--dir",
            f"sweeps cannot write to the folder {root}: {e.strerror}; name another folder",
        ) from e


def _prepare_storage(
    folder: Path, earlier: Sequence[EarlierSweep], store_root: str | None, storage: str | None
) -> dict[str, str | list[str]]:
    """Prepare the store and the database of a new sweep, and save the trials of earlier sweeps.

    Args:
        folder: The sweep's folder.
        earlier: The sweeps from which this one learns.
        store_root: Address of the folder in a store that has all sweeps; None without a store.
        storage: See `run`.

    Returns:
        The keys of `origin.json` that name the store, the earlier sweeps and the database.
    """
    keys: dict[str, str | list[str]] = {}
    if store_root is not None:
        keys["store"] = stored_sweeps.new_store(store_root, folder)
    if earlier:
        from sweeps.search.earlier_trials import save as save_earlier_trials

        save_earlier_trials(folder, earlier)
        keys["learned_from"] = [str(sweep) for sweep in earlier]
    if storage is not None:
        keys |= storages.new_settings(storage, folder.name)
        storages.connect(storage)  # An unreachable database is reported before Ray starts.
    return keys


def _end_of(minutes: float | None) -> float | None:
    """Return when a call with this number of minutes must end, by the monotonic clock in seconds.

    None if there is no limit.
    """
    if minutes is None:
        return None
    if not minutes >= LEAST_MINUTES:  # also if it is NaN
        text = "leaves no time for a search; give 0.5 or more, such as 5"
        raise InputError("--minutes", text)
    return time.monotonic() + 60 * minutes


def _earlier_sweeps(space: Space, root: str | Path) -> tuple[EarlierSweep, ...]:
    """Read the sweeps from which this one learns.

    Optuna takes long to import, so a command that is refused does not import it.
    """
    if not space.search.earlier:
        return ()
    from .earlier_sweeps import read_earlier_sweeps

    return read_earlier_sweeps(space, root)


def _show_notes(
    notes: tuple[str, ...], on_progress: Callable[[SweepStatus], None] | None
) -> tuple[str, ...]:
    """Log notes. In a notebook, the live view shows them instead, and they are returned."""
    notes = tuple(f"note: {note}" for note in notes)
    if on_progress is None and in_notebook():
        return notes
    for note in notes:
        logging.getLogger("sweeps").warning("%s", note)
    return ()


def _check(
    space: Space, root: Path, storage: str | None, *, address: str | None, cpus: int | None
) -> None:
    """Raise an InputError that lists the problems that can be found before Ray starts.

    If the script passed tables, the data is not checked, because the tables are not yet in the
    sweep's folder. See `run` for the arguments.
    """
    if storage is not None:
        storages.check(storage)
    if address:
        check_reachable(address)
    check_root(root)
    if not space.tables:
        check_data(space)
    problems = check_metric_functions(space) or check_plugins(space)
    if problems:
        raise locate_problems(space, problems)
    # Without `address` and a running Ray, the sweep runs on this machine.
    if not address and "ray" not in sys.modules:
        infeasible = find_infeasible_shapes_here(space, cpus)
        if infeasible:
            raise InputError(infeasible)


def _run_and_log(sweep: SweepRun) -> SweepResult:
    """Run a sweep. Log its folder before and its result afterwards, at the level INFO."""
    log = logging.getLogger("sweeps")
    log.info("%s: starting; folder %s", sweep.folder.name, sweep.folder)
    result = sweep.run()
    counts = ", ".join(
        f"{n} {state}" for state, n in result.trials.items() if n or state == "completed"
    )
    best = ""
    if result.best and result.best["value"] is not None:
        best = f"; best trial {result.best['trial']}: {result.best['value']:.6g}"
    log.info("%s: %s in %s%s", sweep.folder.name, counts, format_clock(result.seconds), best)
    return result


def resume(
    sweep: str | os.PathLike[str],
    *,
    overrides: tuple[str, ...] = (),
    add_trials: int = 0,
    address: str | None = None,
    tracking_uri: str | None = None,
    storage: str | None = None,
    cpus: int | None = None,
    gpus: int | None = None,
    minutes: float | None = None,
    trust: bool = False,
    on_progress: Callable[[SweepStatus], None] | None = None,
) -> SweepResult:
    """Continue a sweep that was interrupted or whose process died.

    Its study and its checkpoints are reused.

    Args:
        sweep: The sweep's folder, or its address, such as `s3://BUCKET/PREFIX/SWEEP`.
        overrides: Changes to `limits`, each in the form `limits.key=YAML value`, as for the option
            `--set`.
        add_trials: Number of trials to run in addition to the planned ones.
        address: Address of a Ray cluster. By default, the address with which the sweep started.
        tracking_uri: MLflow tracking URI. By default, the URI with which the sweep started.
        storage: URL of the study's database. It is needed only if the database requires a password,
            which the folder does not store.
        cpus: Largest number of CPUs that the sweep uses at once. By default, the number with which
            the sweep started.
        gpus: Largest number of GPUs that the sweep uses at once. By default, the number with which
            the sweep started.
        minutes: When this call must end; see `run`. By default, only `limits` count, also if the
            sweep started with `minutes`.
        trust: True to read pickles in the sweep's folder that this user's key has not signed.
            Reading a pickle runs the code inside it.
        on_progress: Called with a `SweepStatus` a few times a second. By default, a notebook shows
            a live view, and a script shows nothing.

    Returns:
        The result of the sweep. If no work is left, this is the earlier result with a note.

    Raises:
        InputError: The sweep does not exist, its data has changed, or an override
            changes another section than `limits`.
        SweepLocked: Another process runs the sweep.
        SweepFailed: No trial has a value.
        BundleError: The bundle's predictions differ from the predictions during training.
    """
    ends = _end_of(minutes)
    folder = stored_sweeps.fetch(sweep)
    origin = _check_folder(folder, storage, trust)
    with FolderLock(folder):
        space = resumed_space(folder, tuple(overrides), add_trials, trust)
        address = address or address_in_job() or origin.get("address")
        continued = SweepRun(
            space,
            folder,
            address=address,
            tracking_uri=resumed_uri(tracking_uri, origin.get("tracking_uri"), space.has_mlflow),
            on_progress=on_progress,
            trust=trust,
            trackers=create_trackers(space),
            ends=ends,
        )
        logging_setup.set_environment()  # The clean-up after the last process imports parts of Ray.
        earlier = continued.resume(changed=bool(overrides or add_trials or minutes))
        if earlier is not None:
            # The driver may have been killed before it had copied the last files to the store.
            with mirror_to_store(folder):
                return earlier
        with reserve(folder.name, folder, address, cpus, gpus) as share:
            continued.share = share
            return _run_and_log(continued)


def _check_folder(folder: Path, storage: str | None, trust: bool) -> dict[str, Any]:
    """Check the folder of a sweep that is resumed. Return the content of its `origin.json`."""
    origin = read_origin(folder)
    refuse_invalid_result(folder)
    if storage is not None:
        public_url = storages.remember_secrets(storage)
        if public_url != origin.get("storage"):
            place = origin.get("storage") or "the sweep's folder"
            raise InputError(
                "--storage",
                f"the study of this sweep is in {place}, not in {public_url}; leave the option out",
            )
    store_of(folder)  # Raises an error if the user has given the folder of a sweep in a store.
    refuse_other_entries(folder)
    return origin

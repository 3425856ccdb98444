"""Delete a sweep: its folder, its files in a store, its study in a database, and its MLflow runs."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from sweeps.controller import stored_sweeps
from sweeps.controller.store_mirror import refuse_running
from sweeps.core.command_hints import DEFAULT_ROOT
from sweeps.core.errors import InputError, StoreError
from sweeps.core.folder_lock import FolderLock
from sweeps.core.origin import read_origin, valid_origin_keys
from sweeps.core.result import read_result
from sweeps.core.secrets import without_password
from sweeps.core.stores import allow, is_address, open_store, recorded_store, store_of
from sweeps.core.sweep_folder import ORIGIN, SweepFolder, is_own
from sweeps.study import storage
from sweeps.study.record import OWNER
from sweeps.tracking.mlflow import uris
from sweeps.tracking.mlflow.deletion import SweepRuns, delete_runs, find_runs
from sweeps.tracking.mlflow.tracker import default_uri

# Parts of a sweep's folder whose sizes are shown, in this order. Everything else is shown as `other
# files`.
PARTS = (
    "trials",
    "bundle",
    "checkpoint",
    "exports",
    "prepared",
    "tables",
    "functions",
    "tensorboard",
)


@dataclass(frozen=True)
class Removal:
    """The files and the MLflow runs that the removal of a sweep deletes.

    Attributes:
        name: Name of the sweep.
        folder: The local folder; None if the sweep is only in a store.
        sizes: Size in bytes of each part of the folder.
        foreign: Names of files and folders in the sweep's folder that sweeps did not write. They
            stay.
        store: Address of the sweep in a store; None if it has none.
        store_files: Number of files in the store.
        store_bytes: Their size in bytes.
        study: URL and name of the study in a database; None if the study is a file in the folder,
            or stays.
        runs: The sweep's MLflow runs; None if they stay or there are none.
        artifact_bytes: Size of the runs' artifacts in bytes, as far as these are local files.
        notes: What stays, and why.
    """

    name: str
    folder: Path | None
    sizes: dict[str, int] = field(default_factory=dict)
    foreign: tuple[str, ...] = ()
    store: str | None = None
    store_files: int = 0
    store_bytes: int = 0
    study: tuple[str, str] | None = None
    runs: SweepRuns | None = None
    artifact_bytes: int = 0
    notes: tuple[str, ...] = ()


@contextlib.contextmanager
def prepared(
    sweep: str, root: str | Path, tracking_uri: str | None = None, keep_runs: bool = False
) -> Iterator[Removal]:
    """Find everything that belongs to a sweep, and keep other processes from running the sweep meanwhile. Nothing is deleted.

    Args:
        sweep: The sweep, in any form that `stored_sweeps.find` accepts.
        root: Root folder or address of all sweeps.
        tracking_uri: MLflow's tracking URI. A URI that only the sweep's folder names is not used,
            because the folder may come from a stranger. Without this argument, the URI may be
            `MLFLOW_TRACKING_URI` or the file `mlflow.db` in the root.
        keep_runs: True to leave the MLflow runs alone. MLflow is then not asked.

    Raises:
        InputError: There is no such sweep, or the folder names a store that the user has not named.
        SweepLocked: The sweep is running.
        SweepsError: MLflow does not answer.
        StoreError: The storage does not answer.
    """
    found = stored_sweeps.find(sweep, root)
    with contextlib.ExitStack() as stack:
        if isinstance(found, Path):
            store_of(found)  # refuses a store that the user has not named
            stack.enter_context(FolderLock(found))
            yield _of_folder(found, tracking_uri, keep_runs)
        else:
            yield _of_store(
                found,
                Path(DEFAULT_ROOT if is_address(root) else root).resolve(),
                tracking_uri,
                keep_runs,
                stack,
            )


def _of_folder(folder: Path, tracking_uri: str | None, keep_runs: bool) -> Removal:
    read_origin(folder)  # refuses a folder that is not a sweep's folder
    runs, notes = (None, []) if keep_runs else _mlflow(folder, folder.parent, tracking_uri)
    study, more = _own_study(folder, storage.owner(folder))
    return Removal(
        name=folder.name,
        folder=folder,
        sizes=_sizes(folder),
        foreign=tuple(sorted(path.name for path in folder.iterdir() if not is_own(path.name))),
        study=study,
        runs=runs,
        artifact_bytes=sum(_size(path) for path in runs.artifacts) if runs is not None else 0,
        notes=(*notes, *more),
    )


def _own_study(folder: Path, owner: str) -> tuple[tuple[str, str] | None, list[str]]:
    """Return the place of a sweep's study in a database, and notes about a study that stays.

    The folder may come from a stranger, and name the study of another sweep.

    Args:
        folder: The sweep's folder, or a copy of its files.
        owner: What `storage.owner` returned when the study was made, if the study is the sweep's.
    """
    if (place := storage.place_of(folder)) is None:
        return None, []
    shown = f"the study `{place[1]}` in {without_password(place[0])}"
    opened = storage.connect(place[0])
    for study in opened.get_all_studies():
        if study.study_name == place[1]:
            recorded = study.user_attrs.get(OWNER)
            if recorded == owner:
                return place, []
            return None, [f"{shown} stays, because it belongs to the sweep in {recorded}"]
    return None, []


def _of_store(
    address: str, root: Path, tracking_uri: str | None, keep_runs: bool, stack: contextlib.ExitStack
) -> Removal:
    allow(address)
    store = open_store(address)
    files = store.files()
    if ORIGIN not in files:
        raise InputError(
            address, f"has no sweep, because there is no {ORIGIN}; give s3://BUCKET/PREFIX/SWEEP"
        )
    local = root / address.rpartition("/")[2]
    if recorded_store(local) == address:
        stack.enter_context(FolderLock(local))
        removal = _of_folder(local, tracking_uri, keep_runs)
    else:
        scratch = Path(
            stack.enter_context(
                tempfile.TemporaryDirectory(prefix="sweeps-rm-", ignore_cleanup_errors=True)
            ),
            local.name,
        )
        scratch.mkdir()
        for name in stored_sweeps.SHOWN:
            if name in files:
                store.get(name, scratch / name)
        runs, notes = (None, []) if keep_runs else _mlflow(scratch, root, tracking_uri)
        study, more = _own_study(scratch, address)
        removal = Removal(local.name, None, study=study, runs=runs, notes=(*notes, *more))
    refuse_running(store)
    return Removal(
        **{
            **vars(removal),
            "store": address,
            "store_files": len(files),
            "store_bytes": sum(f.size for f in files.values()),
        }
    )


def _mlflow(
    folder: Path, root: Path, tracking_uri: str | None
) -> tuple[SweepRuns | None, list[str]]:
    """Return the MLflow runs of a sweep to delete, and notes about the runs that stay."""
    origin, recorded = valid_origin_keys(folder), (read_result(folder) or {}).get("mlflow")
    if recorded == {}:  # the space file does not list the tracker
        return None, []
    own = default_uri(root)
    named = (recorded or {}).get("tracking_uri") or origin.get("tracking_uri") or own
    uri = uris.add_password(tracking_uri) if tracking_uri else uris.allowed_uri(named, own)
    if uri is None:
        shown = without_password(named)
        return None, [
            f"the MLflow runs at {shown} stay; to delete them too, add --tracking-uri {shown}"
        ]
    experiment = (recorded or {}).get("experiment") or origin.get("name")
    if not experiment or origin.get("began") is None:
        return None, [
            (
                "the MLflow runs stay, because the sweep's folder does not say which runs are the "
                "sweep's"
            )
        ]
    runs = find_runs(uri, experiment, folder.name, origin["began"])
    if runs is None:
        return None, [f"MLflow at {without_password(uri)} has no runs of this sweep"]
    if (
        runs.of_another_folder
        and Path(str(runs.recorded_in)).resolve() != (root / folder.name).resolve()
    ):
        return None, [
            f"the MLflow runs stay, because they belong to the sweep in {runs.recorded_in}"
        ]
    return runs, list(runs.kept)


def _sizes(folder: Path) -> dict[str, int]:
    """Return the size of each part of a sweep's folder that is deleted."""
    sizes: dict[str, int] = {}
    for path in folder.iterdir():
        if is_own(path.name):
            part = path.name if path.name in PARTS else "other files"
            sizes[part] = sizes.get(part, 0) + _size(path)
    return {part: sizes[part] for part in (*PARTS, "other files") if part in sizes}


def _size(path: Path) -> int:
    """Return the size of a file, or of all files below a folder. Links are not followed."""
    if path.is_symlink() or not path.is_dir():
        return path.lstat().st_size if os.path.lexists(path) else 0
    total = 0
    for parent, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                total += Path(parent, name).lstat().st_size
    return total


def remove(removal: Removal) -> list[str]:
    """Delete a sweep.

    If this fails or is interrupted, the same command can be repeated: `origin.json` is deleted
    last.

    Returns:
        Notes for the user about what stays.

    Raises:
        SweepsError: MLflow does not answer.
        StoreError: The storage does not answer.
        InputError: The study's database does not answer, or a file cannot be deleted.
    """
    notes = list(removal.notes)
    if removal.runs is not None and (note := delete_runs(removal.runs)) is not None:
        notes.append(note)
    if removal.study is not None:
        _delete_study(*removal.study)
    if removal.store is not None:
        _delete_store(removal.store)
    if removal.folder is not None:
        _delete_folder(removal.folder)
        if removal.foreign:
            notes.append(
                f"{removal.folder} stays, because sweeps did not write {', '.join(removal.foreign)}"
            )
    return notes


def _delete_study(url: str, name: str) -> None:
    opened = storage.connect(url)
    for study in opened.get_all_studies():
        if study.study_name == name:
            opened.delete_study(study._study_id)


def _delete_store(address: str) -> None:
    store = open_store(address)
    for name in sorted({name.partition("/")[0] for name in store.files()} - {ORIGIN}):
        store.delete(name)
    store.delete(ORIGIN)
    with contextlib.suppress(StoreError, OSError):
        store.delete("")  # the marker of the folder, which some storages keep


def _delete_folder(folder: Path) -> None:
    """Delete everything in a sweep's folder that sweeps wrote.

    A link is deleted, and what the link leads to stays.
    """
    own = [path for path in folder.iterdir() if is_own(path.name)]
    origin = SweepFolder(folder).origin
    try:
        for path in sorted(own, key=lambda path: path == origin):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
    except OSError as e:
        raise InputError(
            str(e.filename or folder), f"cannot be deleted: {e.strerror}; repeat the command"
        ) from e
    with contextlib.suppress(OSError):  # files that sweeps did not write are left
        folder.rmdir()

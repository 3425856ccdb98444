"""Use a sweep by the address of its store: copy its files from the store to a local folder."""

import contextlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from sweeps.core.errors import InputError, StoreError
from sweeps.core.files.folder_lock import FolderLock, is_driven
from sweeps.core.files.origin import refuse_other_format
from sweeps.core.files.stores import (
    Store,
    allow,
    check_address,
    is_address,
    open_store,
    recorded_store,
)
from sweeps.core.files.sweep_folder import (
    JOURNAL,
    MANIFEST,
    ORIGIN,
    PROVENANCE,
    RESULT,
    SPACE,
    STAMP,
    SweepFolder,
    is_sweep,
    refuse_other_entries,
)
from sweeps.core.text.shell_text import DEFAULT_ROOT

from . import sweep_lookup
from .store_driver import read_driver
from .store_mirror import copy_order, find_files, is_copied, refuse_running, store_is_behind

# The files that `show` and `compare` read, beside the manifests of exports.
FILES_TO_SHOW = (SPACE, ORIGIN, JOURNAL, RESULT, PROVENANCE)
EXPORT_MANIFEST = re.compile(rf"exports/[^/]+/{MANIFEST}")


def fetch(sweep: str | os.PathLike[str], root: str | os.PathLike[str] = DEFAULT_ROOT) -> Path:
    """Return the local folder of a sweep.

    If the sweep has an address, its files are copied from its store first.

    Args:
        sweep: The sweep's folder, or the address of a sweep in a store.
        root: Root folder or address of all sweeps. A sweep of a store gets a folder in this root;
            in `sweeps-runs` if the root is an address.

    Raises:
        InputError: The address has no sweep, or the local folder of this name belongs to another
            sweep.
        SweepLocked: A process on another machine runs the sweep.
        StoreError: The storage does not answer.
    """
    if not is_address(sweep):
        return Path(sweep).resolve()
    store = _open(str(sweep))
    folder = local_folder(store.address, root)
    if is_sweep(folder):
        if is_driven(folder):
            return folder
        refuse_other_entries(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        prefix=f".{folder.name}-", dir=folder.parent, ignore_cleanup_errors=True
    ) as scratch:
        refuse_running(store)
        names = [name for name in _names(store) if is_copied(name)]
        # A driver on this machine may have been killed before it had copied the end of its study.
        if not (SweepFolder(folder).journal.is_file() and store_is_behind(store, folder)):
            _download(store, names, Path(scratch))
            _replace(folder, Path(scratch), names)
    return folder


def local_folder(sweep: Path | str, root: str | os.PathLike[str]) -> Path:
    """Return the folder in which a process of this machine runs a sweep.

    Args:
        sweep: The sweep's folder, or its address in a store.
        root: Root folder or address of all sweeps.

    Raises:
        InputError: The folder belongs to another sweep.
    """
    if isinstance(sweep, Path):
        return sweep
    folder = Path(DEFAULT_ROOT if is_address(root) else root).resolve() / sweep.rpartition("/")[2]
    if is_sweep(folder) and (recorded := recorded_store(folder)) != sweep:
        where = recorded or "a sweep on this disk"
        raise InputError(
            str(folder), f"belongs to {where}, not to {sweep}; use another working directory"
        )
    return folder


def fetch_named(sweep: str, root: str | Path) -> Path:
    """Return the local folder of a sweep, which the user names in any form that `find` accepts.

    See `fetch`.
    """
    return fetch(find(sweep, root), root)


@contextlib.contextmanager
def open_copy(sweep: str, root: str | Path) -> Iterator[tuple[Path, bool]]:
    """Yield a folder with the files of a sweep that `show` reads.

    Also yield whether the folder is a temporary copy of a sweep in a store.

    Args:
        sweep: The sweep, in any form that `find` accepts.
        root: Root folder or address of all sweeps.
    """
    place = find(sweep, root)
    if not isinstance(place, str):
        yield place, False
        return
    store = _open(place)
    local = local_folder(place, root)
    if is_driven(local):
        yield local, False
        return
    names = _names(store)
    with (
        tempfile.TemporaryDirectory(prefix="sweeps-show-", ignore_cleanup_errors=True) as scratch,
        contextlib.ExitStack() as stack,
    ):
        folder = Path(scratch, local.name)
        folder.mkdir()
        names = [name for name in names if name in FILES_TO_SHOW or EXPORT_MANIFEST.fullmatch(name)]
        _download(store, names, folder)
        driver = read_driver(store)
        if driver is not None and driver.silence(time.time()) is not None:
            stack.enter_context(FolderLock(folder))  # so that the sweep is shown as running
        yield folder, True


def find(sweep: str, root: str | Path) -> Path | str:
    """Return the folder of a sweep, or its address if the sweep is in a store.

    Args:
        sweep: The address of a sweep; or a folder, a name, the beginning of a name, or `latest`.
        root: Root folder of all sweeps, or the address that `sweeps run --dir` got.

    Raises:
        InputError: No sweep matches, or several sweeps match.
        StoreError: The storage does not answer.
    """
    if is_address(sweep):
        return check_address(sweep, "sweep")
    if not is_address(root):
        return sweep_lookup.find(sweep, Path(root))
    address = check_address(str(root), "--dir")
    names = set()
    for file in open_store(address).files():
        name, _, file_name = file.partition("/")
        if file_name == ORIGIN:
            names.add(name)

    def date_and_time(name: str) -> str:
        stamp = re.search(STAMP, name)
        return stamp[0] if stamp else ""

    match = sweep_lookup.choose_name(sweep, sorted(names), date_and_time, root=address, text=sweep)
    if match is None:
        raise InputError(sweep, f"no sweep in {address} matches")
    return f"{address}/{match}"


def new_store(address: str, folder: Path) -> str:
    """Return the address of a new sweep's store, and allow this process to use it.

    Args:
        address: The address of all sweeps, which the user gave as `--dir`.
        folder: The sweep's local folder.

    Raises:
        InputError: The storage does not answer or refuses requests, or a sweep of this name is
            there.
    """
    store = f"{address}/{folder.name}"
    try:
        taken = open_store(store, patient=False).files()
    except StoreError as e:
        raise InputError("--dir", str(e)) from e
    if taken:
        raise InputError("--dir", f"{store} has files already; try again in a second")
    allow(store)
    return store


def delete_store(store: str) -> None:
    """Delete all files of a sweep in the storage. If the storage does not answer, do nothing."""
    with contextlib.suppress(StoreError):
        open_store(store, patient=False).delete("")


def save_exports(folder: Path, exports: Iterable[Path]) -> None:
    """Copy exports in a sweep's folder to the sweep's store.

    Exports in other folders, and sweeps without a store, are left alone.

    Args:
        folder: The sweep's folder.
        exports: Folders of exports, and files of the report.

    Raises:
        StoreError: The storage does not answer.
    """
    if (address := recorded_store(folder)) is None:
        return
    store = open_store(address)
    for export in exports:
        if export.is_relative_to(folder):
            paths = [export, *export.rglob("*")]
            files = [path.relative_to(folder).as_posix() for path in paths if path.is_file()]
            for name in copy_order(files):
                store.put(folder / name, name)


def _open(sweep: str) -> Store:
    """Open the store of a sweep by its address, and allow this process to use it."""
    address = check_address(sweep, "sweep")
    allow(address)
    return open_store(address)


def _names(store: Store) -> list[str]:
    """Return the names of all files of a sweep's store.

    Raises:
        InputError: The store has no sweep, or a name leads out of the folder.
    """
    names = list(store.files())
    if ORIGIN not in names:
        raise InputError(
            store.address,
            f"has no sweep, because there is no {ORIGIN}; give s3://BUCKET/PREFIX/SWEEP",
        )
    for name in names:
        if {"..", ""} & set(name.split("/")):
            text = "has a name that leads out of the sweep's folder; delete this object"
            raise InputError(f"{store.address}/{name}", text)
    return names


def _download(store: Store, names: Iterable[str], folder: Path) -> None:
    """Copy files of a sweep to a folder, and check that they are those of this sweep."""
    for name in names:
        store.get(name, folder / name)
    refuse_other_format(folder)
    if (recorded := recorded_store(folder)) != store.address:
        raise InputError(
            store.address,
            f"names the store {recorded}; if the sweep was moved, correct `store` in its {ORIGIN}",
        )


def _replace(folder: Path, new: Path, names: list[str]) -> None:
    """Replace the files of a local folder by those in `new`.

    Files that are never copied to a store, such as logs, stay.
    """
    for name in find_files(folder).keys() - set(names):
        (folder / name).unlink()
    for name in copy_order(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.move(new / name, folder / name)

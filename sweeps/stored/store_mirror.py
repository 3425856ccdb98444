"""Copy the files of a sweep's folder to the sweep's store while the sweep runs.

Workers and the pool write, read and delete the checkpoints in the store. This module copies
everything else: the study, the space file, the prepared data, the report, the bundle and the
result. If the storage does not answer, the sweep continues, and the files follow later.

The study in the store is a few seconds old. It must not name a checkpoint that the store no longer
has. So checkpoints are deleted only after a study that does not name them is in the store.
"""

import contextlib
import json
import logging
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from sweeps.controller.ports import PoolHandle
from sweeps.core.errors import InputError, StoreError, SweepLocked, SweepsError
from sweeps.core.files.atomic_files import write_bytes
from sweeps.core.files.stores import DRIVER, Store, open_store, store_of
from sweeps.core.files.sweep_folder import (
    COMMANDS,
    JOURNAL,
    LOCK,
    MANIFEST,
    ORIGIN,
    RAY,
    RESULT,
    SCRATCH,
    STAGES,
    SweepFolder,
)

from .store_driver import DEAD_AFTER, Driver, read_driver, read_stored

log = logging.getLogger(__name__)

# Files and folders of a sweep's folder that are not copied. `trials` has logs, which workers copy.
NOT_COPIED = frozenset({LOCK, RAY, STAGES, "trials", COMMANDS, *SCRATCH})
# Seconds between two rounds, in each of which the changed files are copied.
INTERVAL = 5.0
# Seconds to wait for an answer of the pool.
POOL_ANSWERS = 30.0
# (size, time of the last change in nanoseconds) of each file, by its name relative to the sweep's
# folder.
Files = dict[str, tuple[int, int]]


def is_copied(name: str) -> bool:
    """Return whether a file of a sweep's folder is copied to the store.

    Args:
        name: Name of the file relative to the folder.
    """
    parts = name.split("/")
    return (
        parts[0] not in NOT_COPIED
        and not any(part.startswith(".") for part in parts)
        and name != DRIVER
    )


def find_files(folder: Path) -> Files:
    """Return the files of a sweep's folder that are copied. Links are left out."""
    files: Files = {}
    for parent, folders, names in os.walk(folder):
        relative = Path(parent).relative_to(folder)
        folders[:] = [name for name in folders if is_copied((relative / name).as_posix())]
        for name in names:
            relative_name = (relative / name).as_posix()
            if not is_copied(relative_name):
                continue
            path = Path(parent, name)
            with contextlib.suppress(OSError):  # the file may have been deleted meanwhile
                if path.is_file() and not path.is_symlink():
                    stat = path.stat()
                    files[relative_name] = (stat.st_size, stat.st_mtime_ns)
    return files


def copy_order(names: Iterable[str]) -> list[str]:
    """Return names in the order in which files are copied.

    A file that says that others are complete comes after these others.

    >>> names = ["result.json", "origin.json", "study.journal", "bundle/manifest.json"]
    >>> copy_order([*names, "report.html"])
    ['report.html', 'bundle/manifest.json', 'origin.json', 'study.journal', 'result.json']
    """
    last_files = {ORIGIN: 2, JOURNAL: 3, RESULT: 4}

    def position(name: str) -> tuple[int, str]:
        # The manifest of an export says that its other files are complete.
        group = 1 if name.endswith(f"/{MANIFEST}") else 0
        return last_files.get(name, group), name

    return sorted(names, key=position)


def changed_files(
    before: Mapping[str, tuple[int, int]], now: Files, result_before: tuple[int, int] | None
) -> tuple[list[str], list[str]]:
    """Return the names of the files to copy, in order, and of the files to delete in the store.

    The study is not among the files to copy: it changes all the time, and is copied separately.

    Args:
        before: The files that the store has.
        now: The files of the sweep's folder.
        result_before: `result.json` as it was before the study was read. A newer `result.json` must
            wait, because it may count trials that are missing in this study.
    """
    waiting = {JOURNAL}
    if now.get(RESULT) != result_before:
        waiting.add(RESULT)
    changed = [name for name, state in now.items() if before.get(name) != state]
    return copy_order(set(changed) - waiting), sorted(set(before) - set(now))


class StoreMirror:
    """Copies the files of one sweep to its store in a thread.

    A second thread renews `driver.json`, because a large file takes minutes.

    Args:
        folder: The sweep's folder.
        store: Address of the sweep's store.

    Attributes:
        problem: Note for the user if the store does not have all files at the end; None if it has.
        taken_over: True if another process has continued the sweep, so that this process must stop.
        pool: Handle of the pool, which deletes checkpoints that are no longer needed. None before
            the pool starts, and after it has ended.
    """

    def __init__(self, folder: Path, store: str):
        self.folder = folder
        self.address = store
        self.problem: str | None = None
        self.taken_over = False
        self.pool: PoolHandle | None = None
        self._copied: Files = {}  # the files that the store has
        self._journal_size = -1  # size in bytes of the study in the store; -1 before the first copy
        self._is_driver = False  # whether this process has written `driver.json`
        self._failing = False  # whether the last round of copies failed
        self._lock = threading.RLock()  # held while files are copied
        self._driver_lock = threading.Lock()  # held while `driver.json` is written
        self._stopping = threading.Event()  # ends the thread that copies files
        self._ended = threading.Event()  # ends the thread that renews `driver.json`
        self._copies = threading.Thread(target=self._run, daemon=True)
        self._renewals = threading.Thread(target=self._renew_driver, daemon=True)

    def start(self) -> None:
        """Copy all files, and continue to copy changed files in the background.

        Raises:
            StoreError: The storage does not answer, or refuses the files.
        """
        self._copy_all(open_store(self.address))
        self._copies.start()
        self._renewals.start()

    def save_study(self) -> None:
        """Copy the study to the store now, if it is a file.

        Raises:
            StoreError: The storage does not answer, or another process has continued the sweep.
        """
        with self._lock:
            store = open_store(self.address)
            self._save_driver(store)
            self._save_journal(store, self._read_journal())

    def detach(self) -> None:
        """Have the pool delete unnecessary checkpoints, and do not call the pool again."""
        with self._lock:
            with contextlib.suppress(StoreError):
                self._copy_all(open_store(self.address, patient=False))
            self.pool = None

    def close(self, patient: bool) -> None:
        """Copy the changed files for the last time.

        Args:
            patient: True to try again for a minute if the storage does not answer.
        """
        self._stopping.set()
        if self._copies.ident is not None:
            self._copies.join()
        store = open_store(self.address, patient=patient)
        try:
            self._copy_all(store)
            self._end_renewals()
            self._save_driver(store, ended=True)
        except StoreError as e:
            advice = (
                f"the newest files are only in {self.folder}; to copy them, resume the sweep on "
                "this machine"
            )
            self.problem = f"{e}; {'this process has stopped' if self.taken_over else advice}"
            log.warning("%s", self.problem)
        finally:
            self._end_renewals()

    def _run(self) -> None:
        """Copy changed files again and again. Report an outage of the storage once."""
        while not self._stopping.wait(INTERVAL):
            try:
                self._copy_all(open_store(self.address, patient=False))
                if self._failing:
                    log.warning("%s answers again", self.address)
                self._failing = False
            except StoreError as e:
                if not self._failing:
                    log.warning(
                        "%s; the sweep continues, and sweeps copies its files when the storage "
                        "answers",
                        e,
                    )
                self._failing = True
            except Exception:
                log.exception("the files of the sweep could not be copied to %s", self.address)

    def _renew_driver(self) -> None:
        """Renew `driver.json` again and again."""
        while not self._ended.wait(INTERVAL):
            with contextlib.suppress(StoreError, OSError):  # The round of copies reports the error.
                self._save_driver(open_store(self.address, patient=False))

    def _end_renewals(self) -> None:
        """Wait until the thread that renews `driver.json` has ended, if it was started."""
        self._ended.set()
        if self._renewals.ident is not None:
            self._renewals.join()

    def _copy_all(self, store: Store) -> None:
        """Copy the changed files, and delete files of the store that the folder no longer has.

        Afterwards, the pool deletes the checkpoints that the copied study does not need.
        """
        with self._lock:
            unneeded = self._unneeded_checkpoints()  # before the study is read
            self._save_driver(store)
            result_before = find_files(self.folder).get(RESULT)
            journal = self._read_journal()
            now = find_files(self.folder)
            changed, deleted = changed_files(self._copied, now, result_before)
            for name in changed:
                if name == RESULT:  # the study comes before the result
                    self._save_journal(store, journal)
                with contextlib.suppress(FileNotFoundError):  # Deleted meanwhile.
                    store.put(self.folder / name, name)
                self._copied[name] = now[name]
            self._save_journal(store, journal)
            for name in deleted:
                store.delete(name)
                del self._copied[name]
            if unneeded and self.pool is not None:
                self.pool.delete_unneeded.remote(unneeded)

    def _refuse_other_driver(self, store: Store) -> None:
        """Raise a StoreError if another process runs the sweep, or has run it meanwhile.

        Only the time since this process wrote `driver.json` counts. This happens after this process
        was silent for a minute, for example because its machine slept. The other process may have
        ended.
        """
        driver = read_driver(store)
        if driver is None or driver.is_here:
            return
        if self._is_driver or driver.silence(time.time()) is not None:
            self.taken_over = True
            raise StoreError(f"{self.address}: {driver} has taken over this sweep")

    def _unneeded_checkpoints(self) -> tuple[str, ...]:
        """Return the checkpoints that the pool may delete once a newer study is in the store."""
        if self.pool is None:
            return ()
        import ray

        try:
            checkpoints: tuple[str, ...] = ray.get(
                self.pool.unneeded.remote(), timeout=POOL_ANSWERS
            )
        except ray.exceptions.RayError:
            # The pool has died. The driver's main thread notices this, too.
            return ()
        return checkpoints

    def _read_journal(self) -> bytes:
        """Return the whole lines of the study's file; b"" if the study is in a database."""
        try:
            data = (self.folder / JOURNAL).read_bytes()
        except FileNotFoundError:
            return b""
        return data[: data.rfind(b"\n") + 1]

    def _save_journal(self, store: Store, lines: bytes) -> None:
        """Write the study to the store if it has grown since the last time."""
        if len(lines) > max(self._journal_size, 0):
            self._put(store, JOURNAL, lines)
            self._journal_size = len(lines)

    def _put(self, store: Store, name: str, content: bytes) -> None:
        """Write a file of the store that is not a copy of a file in the sweep's folder."""
        file = self.folder / f".store-{name}.part"
        write_bytes(file, content)
        store.put(file, name)
        file.unlink()

    def _save_driver(self, store: Store, ended: bool = False) -> None:
        """Write `driver.json`.

        Raises:
            StoreError: The storage does not answer, or another process has continued the sweep.
        """
        with self._driver_lock:
            self._refuse_other_driver(store)
            self._put(store, DRIVER, json.dumps(asdict(Driver.here(ended))).encode())
            self._is_driver = True


@contextlib.contextmanager
def mirror_to_store(folder: Path) -> Iterator[StoreMirror | None]:
    """Within the `with` block, copy the files of a sweep to its store.

    Yield None if the sweep has no store.

    Raises:
        InputError: The storage does not answer at the start, or refuses the files.
        SweepsError: Another process has continued the sweep.
    """
    if (address := store_of(folder)) is None:
        yield None
        return
    mirror = StoreMirror(folder, address)
    try:
        mirror.start()
    except StoreError as e:
        raise InputError("store", str(e)) from e
    patient = True
    try:
        yield mirror
    except StoreError:
        patient = False
        raise
    finally:
        mirror.close(patient)
        if mirror.taken_over:
            raise SweepsError(str(mirror.problem))


def refuse_running(store: Store) -> None:
    """Raise an error if another process runs the sweep in a store.

    Raises:
        SweepLocked: A process has renewed `driver.json` less than a minute ago. A dead process of
            this machine does not count.
    """
    driver = read_driver(store)
    silent = None if driver is None else driver.silence(time.time())
    if silent is None:
        return
    wait = f"wait until it ends; if its machine is lost, try again in {DEAD_AFTER:.0f} s"
    raise SweepLocked(
        f"{store.address}: {driver} was running this sweep {silent:.0f} s ago; {wait}"
    )


def store_is_behind(store: Store, folder: Path) -> bool:
    """Return whether the study in a store is at most as new as the study in a local folder.

    Return True if the store has no study.
    """
    try:
        stored = read_stored(store, JOURNAL)
    except FileNotFoundError:
        return True
    local = SweepFolder(folder).journal
    return local.is_file() and local.read_bytes().startswith(stored)

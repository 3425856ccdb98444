"""Optuna's journal on a file: what a crash leaves of it, what is wrong with a damaged one, and when it is forced to the disk."""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.storages.journal._file import BaseJournalFileLock

from sweeps.core.command_hints import repair_command
from sweeps.core.errors import DamagedStudy, Problem
from sweeps.study.journal_rules import NOTHING, Rules, parsed, readable


class _NoLock(BaseJournalFileLock):
    """The sweep's folder is locked as a whole; a lock file of Optuna's would only be left behind by a crash."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        pass


class Reading(JournalFileBackend):
    """Optuna's journal file as a sweep's driver writes it, to be read, also while it grows.

    The first reading of the whole file sees that every record can stand where it does; what comes later is this process's own, or comes
    from a driver that lives. A last record that was not written whole counts as not there.

    Args:
        path: the file.
    """

    def __init__(self, path: Path):
        super().__init__(str(path.resolve()), lock_obj=_NoLock())
        self.path = path
        self.line = 0  # that was read last, from 1 on

    def read_logs(self, log_number_from: int) -> Generator[dict[str, Any], None, None]:
        """The records from this one on.

        Raises:
            DamagedStudy: a record is damaged, or cannot stand where it does.
        """
        rules, offsets = Rules() if log_number_from == 0 else None, self._log_number_offset
        with open(self._file_path, "rb") as f:
            end = os.stat(self._file_path).st_size  # what is written meanwhile comes the next time
            at = f.seek(offsets.get(log_number_from, 0))
            number, torn = (log_number_from if log_number_from in offsets else 0), False
            for line in f:
                at += len(line)
                if at > end or not line.endswith(b"\n"):
                    return
                if torn:
                    raise self._damaged(number + 1, "is no JSON")
                if (record := parsed(line)) is NOTHING:  # of the last line that is no fault: a crash can leave a hole in it
                    torn = True
                    continue
                number += 1
                offsets[number] = at
                if number <= log_number_from:
                    continue
                self.line = number
                if rules is not None and (why := rules.fault(record)) is not None:
                    raise self._damaged(number, why)
                yield record

    def _damaged(self, number: int, why: str) -> DamagedStudy:
        return damaged(self.path, number, why)

    def storage(self) -> JournalStorage:
        """Optuna's storage.

        Raises:
            DamagedStudy: a record is damaged, or cannot stand where it does.
        """
        try:
            return JournalStorage(self)
        except (DamagedStudy, OSError):
            raise
        except Exception as e:  # in place of a record that Optuna takes and we do not know to be wrong
            raise self._damaged(self.line, f"is a record that Optuna cannot load: {type(e).__name__}: {e}") from e


class Journal(Reading):
    """Optuna's journal file, forced to the disk once a decision rather than once a record: of the latter a trial has some ten.

    A record is in the operating system's hands as soon as it is written, so that no death of a process loses it.

    Args:
        path: the file; what was not written whole of it is cut off.
    """

    _written = False

    def __init__(self, path: Path):
        cut_torn_tail(path)
        super().__init__(path)

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        left = memoryview("".join(json.dumps(record, separators=(",", ":")) + "\n" for record in logs).encode())
        with open(self._file_path, "ab", buffering=0) as f:
            whole = f.tell()
            try:
                while left:
                    left = left[f.write(left) :]
            except BaseException:  # a full disk, which may have room again for the next record
                f.truncate(whole)
                raise
        self._written = True

    def sync(self) -> None:
        """Outlive a machine that stops."""
        if self._written:
            with open(self._file_path, "ab") as f:
                os.fsync(f.fileno())
            self._written = False


def damaged(journal: Path, number: int, why: str) -> DamagedStudy:
    """Return the error of a journal whose line of this number, from 1 on, is damaged in this way."""
    with open(journal, "rb") as f:
        after = sum(readable(line) is not None for i, line in enumerate(f, 1) if i > number)
    before = "1 record" if number == 2 else f"{number - 1} records"
    text = f"{why}; {before} before it and {after} after it can be read; `{repair_command(journal.parent)}` rebuilds the study from these"
    return DamagedStudy(Problem(f"{journal}:{number}", text))


def whole_lines(data: bytes) -> list[bytes]:
    """The lines of a journal without the tail that a crash tore; see `torn_from`."""
    return [line + b"\n" for line in data[: torn_from(data)].split(b"\n")[:-1]]


def torn_from(data: bytes) -> int:
    """Where the tail of a journal begins that a crash tore; its length if there is none.

    That is what stands behind the last line feed. The line before it can be torn, too: by a hole that the file system filled with zeros.
    """
    whole = data.rfind(b"\n") + 1
    start = data.rfind(b"\n", 0, max(0, whole - 1)) + 1
    return start if whole and parsed(data[start:whole]) is NOTHING else whole


def cut_torn_tail(journal: Path) -> int:
    """Cut off a last record that was not written whole; returns the bytes cut.

    Optuna loads such a journal, but glues its next record to the fragment, and then cannot load it any more.
    """
    if not journal.exists():
        return 0
    data = journal.read_bytes()
    whole = torn_from(data)
    if whole < len(data):
        with open(journal, "r+b") as f:
            f.truncate(whole)
            f.flush()
            os.fsync(f.fileno())
    return len(data) - whole

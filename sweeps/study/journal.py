"""Read and write the Optuna journal file of a sweep.

`JournalReader` validates the records and ignores a last record that a crash left incomplete. `Journal` also writes records, and calls
`fsync` only in `sync`. Errors about a damaged journal name the damaged line.
"""

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
from sweeps.study.journal_records import NOTHING, RECORD, is_valid, parse_line
from sweeps.study.journal_rules import Rules


class _NoLock(BaseJournalFileLock):
    """Lock that does nothing. `FolderLock` already locks the whole sweep folder, and a crash would leave Optuna's lock file behind."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        pass


class JournalReader(JournalFileBackend):
    """Optuna journal file for reading. A driver may append to the file at the same time.

    The first read validates the content and the order of all records. Later reads do not validate the new records, because this process
    or a running driver has just written them. An incomplete last record is ignored.

    Args:
        path: Path of the journal file.

    Attributes:
        path: The argument.
        line: Number of the last line that was read, starting with 1.
    """

    def __init__(self, path: Path):
        super().__init__(str(path.resolve()), lock_obj=_NoLock())
        self.path = path
        self.line = 0

    def read_logs(self, log_number_from: int) -> Generator[dict[str, Any], None, None]:
        """Yield the records from a record number on.

        Args:
            log_number_from: Number of records to skip.

        Raises:
            DamagedStudy: A record is damaged, or is not allowed after the records before it.
        """
        rules, offsets = Rules() if log_number_from == 0 else None, self._log_number_offset
        with open(self._file_path, "rb") as f:
            end = os.stat(self._file_path).st_size  # the next call reads records that are written from now on
            at = f.seek(offsets.get(log_number_from, 0))
            number, torn = (log_number_from if log_number_from in offsets else 0), False
            for line in f:
                at += len(line)
                if at > end or not line.endswith(b"\n"):
                    return
                if torn:
                    raise damaged(self.path, number + 1, "is not JSON")
                if (record := parse_line(line)) is NOTHING:  # an error unless this is the last line, which a crash can damage
                    torn = True
                    continue
                number += 1
                offsets[number] = at
                if number <= log_number_from:
                    continue
                self.line = number
                if rules is not None and (problem := rules.fault(record)) is not None:
                    raise damaged(self.path, number, problem)
                yield record

    def storage(self) -> JournalStorage:
        """Return an Optuna storage that reads the journal.

        Raises:
            DamagedStudy: A record is damaged, or is not allowed after the records before it.
        """
        try:
            return JournalStorage(self)
        except (DamagedStudy, OSError):
            raise
        except Exception as e:  # our rules accept the record, but Optuna cannot load it
            raise damaged(self.path, self.line, f"is a record that Optuna cannot load: {type(e).__name__}: {e}") from e


class Journal(JournalReader):
    """Optuna journal file for reading and writing.

    Optuna's own backend calls `fsync` after every append, and a trial has about ten records. This class calls `fsync` only in `sync`,
    once for each decision. Every record is passed to the operating system at once, so the death of a process loses no record.

    Args:
        path: Path of the journal file. An incomplete last record is cut off.
    """

    _written = False

    def __init__(self, path: Path):
        cut_torn_tail(path)
        super().__init__(path)

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Append records to the journal, all of them or none."""
        remaining = memoryview("".join(json.dumps(record, separators=(",", ":")) + "\n" for record in logs).encode())
        with open(self._file_path, "ab", buffering=0) as f:
            size = f.tell()
            try:
                while remaining:
                    remaining = remaining[f.write(remaining) :]
            except BaseException:  # for example a full disk; remove the partial record, so that a later append can succeed
                f.truncate(size)
                raise
        self._written = True

    def sync(self) -> None:
        """Flush all records to the disk, so that they survive a crash of the machine."""
        if self._written:
            with open(self._file_path, "ab") as f:
                os.fsync(f.fileno())
            self._written = False


def damaged(journal: Path, number: int, problem: str) -> DamagedStudy:
    """Return the error for a damaged line of a journal.

    Args:
        journal: Path of the journal file.
        number: Number of the damaged line, starting with 1.
        problem: The problem with the line.

    Returns:
        The error. Its text also counts the readable lines and names the repair command.
    """
    with open(journal, "rb") as f:
        after = sum(is_valid(RECORD, parse_line(line)) for i, line in enumerate(f, 1) if i > number)
    before = "1 record" if number == 2 else f"{number - 1} records"
    command = repair_command(journal.parent)
    text = f"{problem}; {before} before it and {after} after it can be read; `{command}` rebuilds the study from these"
    return DamagedStudy(Problem(f"{journal}:{number}", text))


def whole_lines(data: bytes) -> list[bytes]:
    """Return the complete lines of a journal, each with its line feed. An incomplete end is left out; see `torn_from`."""
    return [line + b"\n" for line in data[: torn_from(data)].split(b"\n")[:-1]]


def torn_from(data: bytes) -> int:
    """Return the offset at which the incomplete end of a journal begins; the length of `data` if the journal is complete.

    The incomplete end is everything after the last line feed. If the last whole line is not JSON, this line belongs to the incomplete end
    too. After a crash, the file system may have filled a hole in the line with zeros.

    Args:
        data: Content of the journal file.
    """
    end = data.rfind(b"\n") + 1
    start = data.rfind(b"\n", 0, max(0, end - 1)) + 1
    return start if end and parse_line(data[start:end]) is NOTHING else end


def cut_torn_tail(journal: Path) -> int:
    """Cut off an incomplete last record, and return the number of bytes that were cut.

    Optuna can load a journal with an incomplete last record. But Optuna then appends the next record to the fragment, and cannot load
    the combined line.

    Args:
        journal: Path of the journal file, which may be missing.
    """
    if not journal.exists():
        return 0
    data = journal.read_bytes()
    end = torn_from(data)
    if end < len(data):
        with open(journal, "r+b") as f:
            f.truncate(end)
            f.flush()
            os.fsync(f.fileno())
    return len(data) - end

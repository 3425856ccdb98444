"""Read and write the Optuna journal file of a sweep.

`JournalReader` validates the records and ignores a last record that a crash left incomplete.
`Journal` also writes records. It calls `fsync` only in its method `sync`. Errors about a damaged
journal give the number of the damaged line.
"""

import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.storages.journal._file import BaseJournalFileLock
from optuna.storages.journal._storage import JournalOperation

from sweeps.core.errors import DamagedStudy, InputError, Problem
from sweeps.core.files.regular_files import open_regular, read_bytes, unreadable
from sweeps.core.text.command_hints import repair_command

from .journal_records import NOTHING, parse_line
from .journal_rules import Rules


class _NoLock(BaseJournalFileLock):
    """Lock that does nothing.

    `FolderLock` already locks the whole sweep folder, and a crash would leave Optuna's lock file
    behind.
    """

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        pass


class JournalReader(JournalFileBackend):
    """Optuna journal file for reading. A driver may append to the file at the same time.

    The first read validates the content and the order of all records. Later reads do not validate
    the new records, because this process or a running driver has just written them. An incomplete
    last record is ignored.

    Args:
        path: Path of the journal file.

    Attributes:
        path: The path as it was given.
        line: Number of the last line that was read. The first line has number 1; 0 means that no
            line was read.
        trials: Number of trials in the records that were read.
    """

    def __init__(self, path: Path):
        super().__init__(str(path.absolute()), lock_obj=_NoLock())
        self.path = path
        self.line = 0
        self.trials = 0

    def read_logs(self, log_number_from: int) -> Generator[dict[str, Any], None, None]:
        """Yield the records of the journal, without the first `log_number_from` ones.

        Optuna calls this method.

        Args:
            log_number_from: Number of records to skip at the beginning.

        Raises:
            DamagedStudy: A record is damaged, or is not allowed after the records before it.
        """
        rules = Rules() if log_number_from == 0 else None
        offsets = self._log_number_offset  # Optuna's: offset of a record in the file, by its number
        with open(self._file_path, "rb", opener=open_regular) as f:
            # Records that are written from now on are read by the next call.
            file_size = os.fstat(f.fileno()).st_size
            offset = f.seek(offsets.get(log_number_from, 0))
            number = log_number_from if log_number_from in offsets else 0
            is_torn = False
            for line in f:
                offset += len(line)
                if offset > file_size or not line.endswith(b"\n"):
                    return
                if is_torn:
                    raise damaged(self.path, number + 1, "is not JSON")
                record = parse_line(line)
                if record is NOTHING:
                    # A crash can damage the last line. Another line after this one is an error.
                    is_torn = True
                    continue
                number += 1
                offsets.clear()  # Only the latest offset is needed.
                offsets[number] = offset
                if number <= log_number_from:
                    continue
                self.line = number
                if rules is not None and (problem := rules.apply(record)) is not None:
                    raise damaged(self.path, number, problem)
                self.trials += record["op_code"] == JournalOperation.CREATE_TRIAL
                yield record

    def storage(self) -> JournalStorage:
        """Return an Optuna storage that reads the journal.

        Raises:
            DamagedStudy: A record is damaged, or is not allowed after the records before it.
            UnreadableFile: The journal is not a regular file, or cannot be read.
        """
        try:
            return JournalStorage(self)
        except InputError:
            raise
        except OSError as e:
            raise unreadable(self.path, e) from e
        except Exception as e:  # our rules accept the record, but Optuna cannot load it
            raise damaged(
                self.path,
                self.line,
                f"is a record that Optuna cannot load: {type(e).__name__}: {e}",
            ) from e


class Journal(JournalReader):
    """Optuna journal file for reading and writing.

    Optuna's own backend calls `fsync` after every append, and a trial has about ten records. This
    class calls `fsync` only in `sync`, which the driver calls once for each decision. Every record
    is passed to the operating system at once, so no record is lost if the process dies.

    Args:
        path: Path of the journal file. If the last record in the file is incomplete, the
            constructor removes it from the file.
    """

    _written = False

    def __init__(self, path: Path):
        cut_torn_tail(path)
        super().__init__(path)

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Append records to the journal.

        Optuna writes one record at a time. The record of a new trial also gets the trial's number,
        so that a lost record can be noticed. If writing fails, the file stays as it was before.
        """
        for record in logs:
            if record.get("op_code") == JournalOperation.CREATE_TRIAL:
                record["trial_id"] = self.trials
        lines = [json.dumps(record, separators=(",", ":")) + "\n" for record in logs]
        remaining = memoryview("".join(lines).encode())
        with open(self._file_path, "ab", buffering=0, opener=open_regular) as f:
            size = f.tell()
            try:
                while remaining:  # An unbuffered file may write only a part of the bytes.
                    remaining = remaining[f.write(remaining) :]
            except BaseException:
                # For example, the disk is full. Without the partial record, a later append can
                # succeed.
                f.truncate(size)
                raise
        self._written = True

    def sync(self) -> None:
        """Flush all records to the disk, so that they survive a crash of the machine."""
        if self._written:
            with open(self._file_path, "ab", opener=open_regular) as f:
                os.fsync(f.fileno())
            self._written = False


def damaged(journal: Path, number: int, problem: str) -> DamagedStudy:
    """Return the exception for a damaged line of a journal.

    Args:
        journal: Path of the journal file.
        number: Number of the damaged line, where the first line has number 1.
        problem: Description of the problem with the line.

    Returns:
        The exception. Its message also gives the command that repairs the study.
    """
    text = f"{problem}; `{repair_command(journal.parent)}` keeps the whole trials of the study"
    return DamagedStudy(Problem(f"{journal}:{number}", text))


def torn_tail_start(data: bytes) -> int:
    """Return the offset at which the incomplete end of a journal begins.

    If there is no incomplete end, return the length of `data`.

    The incomplete end is everything after the last line feed. If the last line with a line feed is
    not JSON, this line also belongs to the incomplete end: after a crash, the file system may have
    filled a part of the line with zeros.

    Args:
        data: Content of the journal file.
    """
    lines_end = data.rfind(b"\n") + 1
    last_line = data.rfind(b"\n", 0, max(0, lines_end - 1)) + 1  # offset of the last whole line
    if lines_end and parse_line(data[last_line:lines_end]) is NOTHING:
        return last_line
    return lines_end


def cut_torn_tail(journal: Path) -> int:
    """Remove an incomplete last record from a journal file, and return the number of its bytes.

    Optuna can load a journal with an incomplete last record. But Optuna then appends the next
    record to the incomplete one, and cannot load the combined line.

    Args:
        journal: Path of the journal file. The file may be missing.
    """
    if not journal.exists():
        return 0
    data = read_bytes(journal)
    end = torn_tail_start(data)
    if end < len(data):
        with open(journal, "r+b", opener=open_regular) as f:
            f.truncate(end)
            f.flush()
            os.fsync(f.fileno())
    return len(data) - end

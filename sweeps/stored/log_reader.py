"""Read the logs of a trial's workers, for `sweeps logs`."""

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

from sweeps.core.errors import InputError
from sweeps.core.files.folder_lock import is_driven
from sweeps.core.files.regular_files import FILE, kind_of, open_regular
from sweeps.core.files.sweep_folder import SweepFolder
from sweeps.study import record_reader

from .sweep_lookup import trial_of

# Seconds between two reads of a log with `--follow`.
POLL_INTERVAL = 0.3


def read_logs(folder: Path, trial_id: str, rank: int | None, follow: bool) -> Iterator[str]:
    """Yield the lines of a trial's logs, rank by rank.

    If there are several ranks, each line starts with its rank.

    Args:
        folder: The sweep's folder.
        trial_id: Id of the trial.
        rank: Rank whose log is read; None reads the logs of all ranks.
        follow: True to wait for new lines while the trial runs.

    Raises:
        InputError: There is no such trial or rank.
    """
    trial = trial_of(record_reader.read(folder), trial_id)
    logs = SweepFolder(folder).logs(trial.id)
    offsets: dict[Path, int] = {}
    while True:
        # Without `follow`, the log of a running trial is read once, and may be incomplete.
        is_last_pass = (
            not follow
            or not is_driven(folder)
            or trial_of(record_reader.read(folder), trial.id).has_ended
        )
        files = _log_files(logs)
        selected = [f for f in files if rank is None or f.stem == f"rank-{rank}"]
        if is_last_pass and not files:
            text = "the trial has no log: it has not started, or the log was deleted or replaced"
            raise InputError(trial.id, text)
        if is_last_pass and not selected:
            raise InputError("--rank", f"no rank {rank}; the ranks are 0 to {len(files) - 1}")
        for file in selected:
            prefix = f"{file.stem} | " if len(selected) > 1 else ""
            for line in _new_lines(file, offsets, is_last_pass):
                yield prefix + line
        if is_last_pass:
            return
        time.sleep(POLL_INTERVAL)


def _new_lines(file: Path, offsets: dict[Path, int], is_last_pass: bool) -> list[str]:
    """Return the lines that were added to a log since the last call.

    Args:
        file: The log.
        offsets: Number of bytes of each log that earlier calls have read. This function updates the
            numbers.
        is_last_pass: True if no call follows. If False, an unfinished last line is left for the
            next call.
    """
    with open(file, "rb", opener=open_regular) as opened:
        size = opened.seek(0, os.SEEK_END)
        # A log that grows too large is cut, so it may be shorter now.
        start = opened.seek(min(offsets.get(file, 0), size))
        added = opened.read()
    complete = len(added) if is_last_pass else added.rfind(b"\n") + 1
    offsets[file] = start + complete
    return added[:complete].decode(errors="replace").splitlines()


def _log_files(logs: Path) -> list[Path]:
    """Return the log files of a trial, ordered by rank.

    Links and pipes are skipped, because another user may have made the folder.
    """
    if any(folder.is_symlink() for folder in (logs, logs.parent, logs.parent.parent)):
        return []
    files = [
        path
        for path in logs.glob("rank-*.log")
        if re.fullmatch(r"rank-\d{1,9}", path.stem) and kind_of(path) == FILE
    ]
    return sorted(files, key=lambda path: int(path.stem.partition("-")[2]))

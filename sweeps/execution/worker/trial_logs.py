"""Write the output of each trial into the trial's folder, to one log file for each rank.

This works although one worker process runs many trials.
"""

import contextlib
import ctypes
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

from sweeps.core.text.secrets import any_known, hide_known, hide_known_bytes
from sweeps.core.text.shell_text import printable

# Name of the folder with the logs, in the trial's folder.
LOGS = "logs"
# A log with more than `MOST_BYTES` is cut to its first `FIRST_BYTES` and its last `LAST_BYTES`.
MOST_BYTES = 10 * 2**20
FIRST_BYTES = 2**20
LAST_BYTES = 4 * 2**20


def log_of(folder: str | Path, rank: int) -> Path:
    """Return the path of the log of one rank, in the trial's folder."""
    return Path(folder, LOGS, f"rank-{rank}.log")


@contextlib.contextmanager
def redirect_output(path: Path, title: str) -> Iterator[Callable[[str], None]]:
    """Append all output of this process to a file while the `with` block runs.

    The output is that of Python's streams, of loggers and of native libraries. All of them write to
    the file descriptors 1 and 2, so these descriptors are redirected. If only `sys.stdout` were
    replaced, the lines of XGBoost's native code and of existing logging handlers would be missing.

    Args:
        path: The file. Its folder is created.
        title: Text that follows the time in the first line that is written.

    Yields:
        A function that writes a line to the log, even if the loop has closed or replaced Python's
        streams.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # A loop may replace `sys.stdout` while this stream still has unwritten output.
    streams = (sys.stdout, sys.stderr)
    log = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    originals = {number: os.dup(number) for number in (1, 2)}
    _flush(*streams)
    for number in originals:
        os.dup2(log, number)

    def write_line(line: str) -> None:
        _flush(*streams)
        os.write(log, _encoded(line))  # `print` would fail if the loop has closed `sys.stdout`.

    try:
        write_line(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {title}")
        yield write_line
    finally:
        _flush(*streams)
        for number, original in originals.items():
            os.dup2(original, number)
            os.close(original)
        os.close(log)
        hide_secrets(path)
        shorten(path)


@contextlib.contextmanager
def _open_log(log: Path) -> Iterator[int]:
    """Open a log that exists and is no link, for reading and appending. Yield its descriptor."""
    descriptor = os.open(log, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def append_line(log: Path, line: str) -> None:
    """Append a line of sweeps to a log, if the log exists."""
    with contextlib.suppress(OSError), _open_log(log) as descriptor:
        os.write(descriptor, _encoded(line))


def hide_secrets(log: Path) -> None:
    """Replace the secrets in the log of an attempt that has ended.

    Native code and child processes may have written them.

    Lines that other processes append at the same time may be lost.
    """
    if not any_known():
        return
    with contextlib.suppress(OSError), _open_log(log) as descriptor:
        content = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
        hidden = hide_known_bytes(content)
        if hidden != content:
            os.ftruncate(descriptor, 0)
            os.write(descriptor, hidden)


def hide_secrets_in(folder: Path) -> None:
    """Replace the secrets in all logs of a sweep. A worker that was killed has not done this.

    Links are left alone.
    """
    for log in folder.glob(f"trials/*/{LOGS}/rank-*.log"):
        if not any(path.is_symlink() for path in log.parents[:3]):
            hide_secrets(log)


def _encoded(line: str) -> bytes:
    """Return a line of sweeps for a log.

    The line may quote an exception, whose text may have characters that control a terminal.
    """
    return f"--- {printable(hide_known(line))}\n".encode()


def shorten(log: Path) -> None:
    """If a log has more than `MOST_BYTES`, remove its middle part.

    Other processes may append to the log at the same time. Lines that they write during the cut may
    be lost.
    """
    with contextlib.suppress(OSError), _open_log(log) as descriptor:
        size = os.fstat(descriptor).st_size
        if size <= MOST_BYTES:
            return
        # Only whole lines stay, because a secret in a line that is cut would not be recognized.
        first = os.pread(descriptor, FIRST_BYTES, 0)
        last = os.pread(descriptor, LAST_BYTES, size - LAST_BYTES)
        last = last[last.find(b"\n") + 1 :]
        os.ftruncate(descriptor, first.rfind(b"\n") + 1 or FIRST_BYTES)
        note = (
            f"\n--- output was left out here: of a log with more than {MOST_BYTES >> 20} MiB, "
            f"sweeps keeps the first {FIRST_BYTES >> 20} MiB and the last {LAST_BYTES >> 20} MiB\n"
        )
        os.write(descriptor, note.encode() + last)


def _flush(*streams: TextIO) -> None:
    """Flush the given streams, `sys.stdout`, `sys.stderr`, and C's standard output."""
    for stream in dict.fromkeys((*streams, sys.stdout, sys.stderr)):
        # A loop may have closed or replaced the streams.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    with contextlib.suppress(ValueError):  # This C library has another name for `stdout`.
        c = ctypes.CDLL(None)
        c.fflush(ctypes.c_void_p.in_dll(c, "stdout"))

"""Recognize the errors of full and broken disks, and check whether a disk has free space."""

import contextlib
import errno
import os
import shutil
from pathlib import Path

# Errors of a disk that is full, broken or read-only.
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)
# `check_disk_space` writes this many bytes as a test.
PROBE_BYTES = 1 << 20
# After a trial has failed because the disk was full, this many bytes must be free.
NEEDED_BYTES = 1 << 30


def disk_error(error: BaseException) -> str | None:
    """Return the operating system's message if a full, broken or read-only disk caused an error.

    Return None for other errors.

    The causes of the error are searched too, because libraries wrap such errors. In a
    `shutil.Error`, the text is searched, because `shutil.copytree` keeps only the texts of the
    original errors.
    """
    cause: BaseException | None = error
    seen: list[BaseException] = []
    while cause is not None and cause not in seen:  # two errors may be the causes of each other
        seen.append(cause)
        if isinstance(cause, OSError) and cause.errno in DISK_ERRORS:
            return os.strerror(cause.errno)
        if isinstance(cause, shutil.Error):
            for message in map(os.strerror, DISK_ERRORS):
                if message in str(cause):
                    return message
        # `cause` is set by Ray's task errors.
        cause = getattr(cause, "cause", None) or cause.__cause__ or cause.__context__
    return None


def check_disk_space(folder: Path, error: str = "") -> None:
    """Check that one mebibyte can be written to a sweep's folder.

    Args:
        folder: The sweep's folder.
        error: Traceback of a failed trial; "" if no trial has failed. If the traceback says that
            the disk was full, at least 1 GiB must be free. A smaller space may be free only because
            an unfinished checkpoint was deleted, and the next one would not fit either.

    Raises:
        OSError: The disk is full, broken or read-only, or the 1 GiB is not free.
    """
    if os.strerror(errno.ENOSPC) in error and shutil.disk_usage(folder).free < NEEDED_BYTES:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))
    probe = folder / f".room-{os.getpid()}"
    try:
        with open(probe, "wb", buffering=0) as file:
            file.write(bytes(PROBE_BYTES))
            os.fsync(file)
    except OSError as e:
        if e.errno in DISK_ERRORS:
            raise
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()

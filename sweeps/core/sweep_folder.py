"""A sweep's folder: made anew for a sweep, and enough to take the sweep up again."""

from __future__ import annotations

import contextlib
import datetime
import errno
import os
import shutil
from pathlib import Path
from typing import Any

from sweeps.core.errors import InputError, Problem
from sweeps.core.json_files import is_number, is_text, object_in
from sweeps.core.result import RESULT as RESULT
from sweeps.core.secrets import masked as masked
from sweeps.core.secrets import without_password as without_password

# Where the space file lay, what was overridden, and what `ls` tells of a sweep without reading its study.
ORIGIN = "origin.json"
# Which trials of a sweep that is driven do not train yet, or have not reported for long, and the stage of each, by id.
STAGES = "stages.json"
# The winner's bundle, and the file that every bundle has.
BUNDLE = "bundle"
MANIFEST = "manifest.json"
# Errors of a disk that is full, broken or not to be written any more.
DISK = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)
ROOM, NEARLY_FULL = 1 << 20, 1 << 30  # bytes
# What a folder's name has behind the sweep's.
STAMP = r"-\d{8}-\d{6}(-\d+)?"


def new_folder(root: Path, name: str, began: float) -> Path:
    """Make the folder of a new sweep: ROOT/NAME-DATE-TIME, with a count where that exists already."""
    stamp = datetime.datetime.fromtimestamp(began).strftime("%Y%m%d-%H%M%S")
    for tail in ("", *(f"-{i}" for i in range(2, 1000))):
        folder = root / f"{name}-{stamp}{tail}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as e:
            raise InputError(Problem("--dir", f"{root}: cannot make a folder here: {e.strerror}")) from e
        return folder
    raise InputError(Problem("--dir", f"{root}: no free name for a new sweep"))


def disk_fault(error: BaseException) -> str | None:
    """Return why the disk takes nothing more, in the system's words; None for an error of another kind.

    Libraries wrap such errors, and `shutil.copytree` keeps only their text. So the function searches the whole chain of causes.
    """
    cause: BaseException | None = error
    seen: list[BaseException] = []
    while cause is not None and cause not in seen:  # errors may name each other
        seen.append(cause)
        if isinstance(cause, OSError) and cause.errno in DISK:
            return os.strerror(cause.errno)
        if isinstance(cause, shutil.Error) and (said := [why for why in map(os.strerror, DISK) if why in str(cause)]):
            return said[0]
        cause = getattr(cause, "cause", None) or cause.__cause__ or cause.__context__  # `cause` is what a task of Ray raised
    return None


def refuse_links(folder: Path) -> None:
    """Refuse a sweep's folder in which a link leads elsewhere, before a command deletes or writes anything in the folder.

    Raises:
        InputError: a folder of the sweep, of a trial, or a checkpoint is a link.
    """
    own = [folder / name for name in ("trials", "prepared", BUNDLE, "checkpoint", "exports")]
    trials = [] if own[0].is_symlink() else list(own[0].glob("*"))
    inside = [path for trial in trials if not trial.is_symlink() for path in (trial / "logs", *trial.glob("checkpoint_*"))]
    for path in (*own, *trials, *inside):
        if path.is_symlink():
            rule = "is a link, and sweeps touches nothing outside the sweep's folder; put the files themselves there"
            raise InputError(Problem(str(path), rule))


def refuse_special(folder: Path) -> None:
    """Refuse a folder that holds anything but files and folders: of a pipe a reader would wait for ever, and a link leads elsewhere.

    Raises:
        InputError: it does.
    """
    for parent, folders, files in os.walk(folder):
        for path in (Path(parent, name) for name in (*folders, *files)):
            if path.is_symlink() or not (path.is_dir() or path.is_file()):
                kind = "a link" if path.is_symlink() else "no file"
                raise InputError(Problem(str(path), f"is {kind}; what is read from a sweep's folder must be files in that folder"))


def check_room(folder: Path, error: str = "") -> None:
    """See whether the disk of a sweep's folder takes another mebibyte.

    Args:
        folder: the sweep's.
        error: why a trial failed. If the trial found no space, the disk must have a gibibyte: the checkpoint that did not fit is gone.

    Raises:
        OSError: it does not.
    """
    if os.strerror(errno.ENOSPC) in error and shutil.disk_usage(folder).free < NEARLY_FULL:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))
    probe = folder / f".room-{os.getpid()}"
    try:
        with open(probe, "wb", buffering=0) as file:
            file.write(bytes(ROOM))
            os.fsync(file)
    except OSError as e:
        if e.errno in DISK:
            raise
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()


def saved_origin(folder: Path) -> dict[str, Any]:
    """What is kept of a sweep beside its space file.

    Raises:
        InputError: the folder is not a sweep's.
    """
    if (origin := object_in(folder / ORIGIN)) is None:
        raise InputError(Problem(str(folder), f"is not a sweep's folder: no readable {ORIGIN} in it"))
    if (why := origin_fault(origin)) is not None:
        raise InputError(Problem(str(folder / ORIGIN), f"{why}; copy the file from a backup, or mend it by hand"))
    return origin


def told_origin(folder: Path) -> dict[str, Any]:
    """What `saved_origin` gives as far as it can be read, for those who list sweeps: without the keys that hold something else."""
    origin = object_in(folder / ORIGIN) or {}
    return {key: value for key, value in origin.items() if key not in _ORIGIN or _ORIGIN[key][0](value)}


def origin_fault(origin: dict[str, Any]) -> str | None:
    """What keeps an object from being what `save_space` wrote: the key and the rule; None if nothing does."""
    for key, (holds, rule) in _ORIGIN.items():
        if key in ("base", "cwd", "overrides") and key not in origin:
            return f"`{key}` is missing"
        if key in origin and not holds(origin[key]):
            return f"`{key}` must be {rule}"
    return "`study` is missing" if origin.get("storage") and "study" not in origin else None


def _is_time(told: Any) -> bool:
    return is_number(told) and 0 <= told < 10**11


def _is_none_or_text(told: Any) -> bool:
    return told is None or is_text(told)


_ORIGIN: dict[str, tuple[Any, str]] = {
    "name": (lambda told: is_text(told) and bool(told) and "/" not in told, "the name of a sweep"),
    "base": (is_text, "the path of a folder"),
    "cwd": (is_text, "the path of a folder"),
    "overrides": (lambda told: isinstance(told, list) and all(map(is_text, told)), "a list of texts"),
    "began": (lambda told: told is None or _is_time(told), "seconds since the epoch"),
    "algorithm": (is_text, "the name of an algorithm"),
    "metric": (is_text, "the name of a metric"),
    "max_trials": (lambda told: type(told) is int and 0 <= told < 10**12, "a number from 0 on"),
    "repeats": (lambda told: type(told) is int and 0 < told < 10**9, "a number from 1 on"),
    "address": (_is_none_or_text, "null or text"),
    "tracking_uri": (_is_none_or_text, "null or text"),
    "storage": (_is_none_or_text, "null or text"),
    "study": (_is_none_or_text, "null or text"),
}

"""A sweep's folder: made anew for a sweep, and enough to take the sweep up again."""

from __future__ import annotations

import contextlib
import datetime
import difflib
import errno
import json
import os
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from sweeps import space as space_file
from sweeps.errors import InputError, Problem
from sweeps.json_file import is_number, is_text, object_in
from sweeps.leftovers import write
from sweeps.lock import driven
from sweeps.result import RESULT as RESULT
from sweeps.result import result_in
from sweeps.shell import quoted, typed
from sweeps.space import Space

# Where the space file lay, what was overridden, and what `ls` tells of a sweep without reading its study.
ORIGIN = "origin.json"
# Which trials of a sweep that is driven do not train yet, or have not reported for long, and the stage of each, by id.
STAGES = "stages.json"
# The winner's bundle, and the file that every bundle has.
BUNDLE = "bundle"
MANIFEST = "manifest.json"
_PASSWORD = re.compile(r"(://[^\s/:@'\"]*):[^\s/@'\"]*(?:/[^\s/@'\"]*)?@")
# Errors of a disk that is full, broken or not to be written any more.
DISK = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)
ROOM = 1 << 20  # bytes
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


def check_room(folder: Path) -> None:
    """See whether the disk of a sweep's folder takes another mebibyte.

    Raises:
        OSError: it does not.
    """
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


def roots_of(space: Space) -> tuple[Path, ...]:
    """Where the user's modules are found: beside the space file first, then where the command was typed."""
    return tuple(dict.fromkeys((space.data.base.resolve(), Path.cwd())))


def save_space(folder: Path, space: Space, began: float, **more: str | None) -> None:
    """Keep the file, where it was and what was overridden, so that the sweep can be taken up from its folder alone.

    Args:
        folder: the sweep's.
        space: of the sweep.
        began: when it did, seconds since the epoch.
        more: what else a driver that takes it up must know; never a password.
    """
    (folder / "space.yaml").write_text(space.text)
    origin: dict[str, Any] = {"name": space.name, "base": str(space.data.base), "cwd": str(Path.cwd()), "began": round(began, 3)}
    origin["algorithm"] = space.search.algorithm  # which `auto` stands for as long as the sweep lasts
    write(folder / ORIGIN, json.dumps(origin | more | _limits(space), indent=2) + "\n")


def save_limits(folder: Path, space: Space) -> None:
    """Keep the limits with which a sweep is taken up."""
    write(folder / ORIGIN, json.dumps(saved_origin(folder) | _limits(space), indent=2) + "\n")


def _limits(space: Space) -> dict[str, Any]:
    limits = {"overrides": list(space.overrides), "metric": space.objective.metric, "max_trials": space.limits.max_trials}
    return limits | ({"repeats": space.repeats.count} if space.repeats.count > 1 else {})


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


def saved_space(folder: Path) -> tuple[Space, tuple[Path, ...]]:
    """The space of a sweep's folder, with its paths relative to where the file was, and the folders of the user's modules.

    Raises:
        InputError: the folder is not a sweep's.
    """
    origin = saved_origin(folder)
    overrides, base, cwd = tuple(origin["overrides"]), Path(origin["base"]), Path(origin["cwd"])
    for root in (cwd, base):
        if str(root) not in sys.path:
            sys.path.insert(0, str(root))
    return _loaded(folder, overrides, base), (base, cwd)


def _loaded(folder: Path, overrides: tuple[str, ...], base: Path) -> Space:
    """The space of a sweep's folder; where the file says no name, with that of the file as it was called."""
    origin = saved_origin(folder)
    space = space_file.load(folder / "space.yaml", overrides, base=base, algorithm=_algorithm(origin))
    return replace(space, name=origin.get("name", space.name))


def _algorithm(origin: dict[str, Any]) -> str:
    """Return the search algorithm of a sweep that has begun; before 2026-11-23 the default was `tpe`, and was not kept."""
    return origin.get("algorithm", "tpe")


def bundle_of(folder: Path) -> Path:
    """Return the bundle of a sweep's winner, which the sweep wrote at its end. Runs no user code.

    Raises:
        InputError: the sweep has no bundle; why, and what to do.
    """
    bundle = folder / BUNDLE
    if bundle.is_dir():
        return bundle
    export = f"{typed('sweeps')} export {quoted(folder)}"
    exported = sorted(manifest.parent for manifest in folder.glob(f"exports/*/{MANIFEST}"))
    origin, result = saved_origin(folder), result_in(folder) or {}
    no_load = False
    with contextlib.suppress(InputError):  # the space of another version, perhaps
        no_load = _loaded(folder, tuple(origin["overrides"]), Path(origin["base"])).trainer.load is None
    if driven(folder):
        why = "the sweep is running, and writes its bundle when it ends; wait for it, or stop it with Ctrl-C"
    elif no_load:
        why = "the sweep has no bundle, as its trainer has no `load`; add `trainer.load` to the space file and run it again"
    elif exported:
        why = f"the sweep has no bundle of its own; name one of its exports, as {quoted(exported[0])}"
    elif result.get("front"):
        why = f"the sweep has several objectives and no single winner; choose a trial with `{export} --trial ID`"
    elif result and not result.get("best") and result.get("reason") != "interrupted":
        show = f"{typed('sweeps')} show {quoted(folder)}"
        why = f"the sweep failed and has no winner; `{show}` says why, `{export} --trial ID` takes a trial that left a checkpoint"
    else:
        how = "ended without a bundle" if result else "was interrupted or killed before it wrote its bundle"
        why = f"the sweep {how}; `{export}` writes one and prints its folder"
    raise InputError(Problem(str(folder), why))


def taken_up(folder: Path, file: Path | None, overrides: tuple[str, ...], add_trials: int) -> tuple[Space, tuple[Path, ...]]:
    """The space with which a sweep goes on, and the folders of the user's modules.

    Args:
        folder: the sweep's.
        file: the space file as it is now, which may differ in its limits alone; None for the one that was kept.
        overrides: of `limits`.
        add_trials: so many more than there were to be.

    Raises:
        InputError: something other than a limit has changed; with the difference.
    """
    space, roots = saved_space(folder)
    if wrong := [o for o in overrides if o.partition("=")[0].strip().split(".")[0] != "limits"]:
        rule = "a sweep that is resumed may change its limits alone, as --set limits.timeout=2h"
        raise InputError([Problem(f"--set {o}", rule) for o in wrong])
    more: tuple[str, ...] = ()
    if file is not None:
        kept = tuple(o for o in space.overrides if not o.startswith("limits"))
        now = space_file.load(file, kept, base=space.data.base, algorithm=space.search.algorithm)
        renamed = now.name != space.name and ("name" in now.places or "name" in space.places)  # else it is the file's own
        if renamed or not _alike(space, now):
            said = f"has changed since the sweep began, and not in its limits alone\n{_diff(space.text, file)}"
            raise InputError(Problem(str(file), said))
        given = {name: value for name, value in vars(now.limits).items() if value is not None}
        more = (f"limits={json.dumps(given)}",)
    fixed = f"a population of pbt cannot change once it trains; it has {space.scheduler.population} members"
    if add_trials and space.scheduler.population is not None:
        raise InputError(Problem("--add-trials", f"{fixed}, got {add_trials} more"))
    if add_trials:
        limits = _loaded(folder, (*space.overrides, *more, *overrides), space.data.base).limits
        overrides = (*overrides, f"limits.max_trials={limits.max_trials + add_trials}")
    if not (more or overrides):
        return space, roots
    changed = _loaded(folder, (*space.overrides, *more, *overrides), space.data.base)
    if changed.scheduler != space.scheduler:
        raise InputError(Problem("limits.max_trials", f"{fixed}, got {changed.limits.max_trials}"))
    return changed, roots


def _alike(space: Space, other: Space) -> bool:
    """Whether two spaces are the same but for their limits, which PBT's population follows, and for how they are written."""
    shared = {name: getattr(space, name) for name in ("text", "path", "overrides", "limits", "name")}
    population = replace(other.scheduler, population=space.scheduler.population)
    return replace(other, scheduler=population, **shared) == space


def without_password(uri: str) -> str:
    """A URI without the secret part of its authority; such a one can be kept and shown."""
    scheme, there, rest = uri.partition("://")
    rest, mark, query = rest.partition("?")
    query = "&".join(part for part in query.split("&") if not part.startswith("password="))
    authority, slash, path = rest.partition("/")
    user, at, host = authority.rpartition("@")
    return f"{scheme}{there}{user.partition(':')[0]}{at}{host}{slash}{path}{mark if query else ''}{query}"


def masked(text: str) -> str:
    """Return a text in which no URI shows its password, such as the message of a library.

    >>> masked("API request to http://me:secret@host/api failed")
    'API request to http://me:***@host/api failed'
    """
    return _PASSWORD.sub(r"\1:***@", text)


def _diff(before: str, file: Path) -> str:
    lines = (before.splitlines(), file.read_text(encoding="utf-8").splitlines())
    return "\n".join(difflib.unified_diff(*lines, "as the sweep began", str(file), lineterm="", n=1))

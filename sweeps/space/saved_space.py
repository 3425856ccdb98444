"""The space that a sweep's folder keeps, with which the sweep is taken up again."""

from __future__ import annotations

import contextlib
import difflib
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from sweeps.core.atomic_files import write_text
from sweeps.core.command_hints import shell_command, shell_quoted
from sweeps.core.errors import InputError, Problem
from sweeps.core.folder_lock import is_driven
from sweeps.core.origin import read_origin
from sweeps.core.result import read_result
from sweeps.core.sweep_folder import MANIFEST, SweepFolder
from sweeps.space.load import load
from sweeps.space.model import Space


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
    write_text(SweepFolder(folder).space, space.text)
    origin: dict[str, Any] = {"name": space.name, "base": str(space.data.base), "cwd": str(Path.cwd()), "began": round(began, 3)}
    origin["algorithm"] = space.search.algorithm  # which `auto` stands for as long as the sweep lasts
    write_text(SweepFolder(folder).origin, json.dumps(origin | more | _limits(space), indent=2) + "\n")


def save_limits(folder: Path, space: Space) -> None:
    """Keep the limits with which a sweep is taken up."""
    write_text(SweepFolder(folder).origin, json.dumps(read_origin(folder) | _limits(space), indent=2) + "\n")


def _limits(space: Space) -> dict[str, Any]:
    limits = {"overrides": list(space.overrides), "metric": space.objective.metric, "max_trials": space.limits.max_trials}
    return limits | ({"repeats": space.repeats.count} if space.repeats.count > 1 else {})


def saved_space(folder: Path) -> tuple[Space, tuple[Path, ...]]:
    """The space of a sweep's folder, with its paths relative to where the file was, and the folders of the user's modules.

    Raises:
        InputError: the folder is not a sweep's.
    """
    origin = read_origin(folder)
    overrides, base, cwd = tuple(origin["overrides"]), Path(origin["base"]), Path(origin["cwd"])
    for root in (cwd, base):
        if str(root) not in sys.path:
            sys.path.insert(0, str(root))
    return _loaded(folder, overrides, base), (base, cwd)


def _loaded(folder: Path, overrides: tuple[str, ...], base: Path) -> Space:
    """The space of a sweep's folder; where the file says no name, with that of the file as it was called."""
    origin = read_origin(folder)
    space = load(SweepFolder(folder).space, overrides, base=base, algorithm=_algorithm(origin))
    return replace(space, name=origin.get("name", space.name))


def _algorithm(origin: dict[str, Any]) -> str:
    """Return the search algorithm of a sweep that has begun; before 2026-11-23 the default was `tpe`, and was not kept."""
    return str(origin.get("algorithm", "tpe"))


def bundle_of(folder: Path) -> Path:
    """Return the bundle of a sweep's winner, which the sweep wrote at its end. Runs no user code.

    Raises:
        InputError: the sweep has no bundle; why, and what to do.
    """
    bundle = SweepFolder(folder).bundle
    if bundle.is_dir():
        return bundle
    export = f"{shell_command('sweeps')} export {shell_quoted(folder)}"
    exported = sorted(manifest.parent for manifest in SweepFolder(folder).exports.glob(f"*/{MANIFEST}"))
    origin, result = read_origin(folder), read_result(folder) or {}
    no_load = False
    with contextlib.suppress(InputError):  # the space of another version, perhaps
        no_load = _loaded(folder, tuple(origin["overrides"]), Path(origin["base"])).trainer.load is None
    if is_driven(folder):
        why = "the sweep is running, and writes its bundle when it ends; wait for it, or stop it with Ctrl-C"
    elif no_load:
        why = "the sweep has no bundle, as its trainer has no `load`; add `trainer.load` to the space file and run it again"
    elif exported:
        why = f"the sweep has no bundle of its own; name one of its exports, as {shell_quoted(exported[0])}"
    elif result.get("front"):
        why = f"the sweep has several objectives and no single winner; choose a trial with `{export} --trial ID`"
    elif result and not result.get("best") and result.get("reason") != "interrupted":
        show = f"{shell_command('sweeps')} show {shell_quoted(folder)}"
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
        now = load(file, kept, base=space.data.base, algorithm=space.search.algorithm)
        renamed = now.name != space.name and ("name" in now.places or "name" in space.places)  # else it is the file's own
        if renamed or not _alike(space, now):
            said = f"has changed since the sweep began, and not in its limits alone\n{_diff(space.text, file)}"
            raise InputError(Problem(str(file), said))
        given = {name: value for name, value in vars(now.limits).items() if value is not None}
        more = (f"limits={json.dumps(given)}",)
    fixed = f"the population of {space.scheduler.name} cannot change once it trains; it has {space.scheduler.population} members"
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
    options = other.scheduler.options | {k: v for k, v in space.scheduler.options.items() if k == "population"}
    return replace(other, scheduler=replace(other.scheduler, options=options), **shared) == space


def _diff(before: str, file: Path) -> str:
    lines = (before.splitlines(), file.read_text(encoding="utf-8").splitlines())
    return "\n".join(difflib.unified_diff(*lines, "as the sweep began", str(file), lineterm="", n=1))

"""`export` and `register`: what is taken home of a sweep that ran, and where it is made known."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

from sweeps.errors import InputError, Problem
from sweeps.folder import RESULT, saved_space
from sweeps.result import plain
from sweeps.search import storage
from sweeps.space import Space
from sweeps.trial import Result

EXPORTS = "exports"  # in the sweep's folder


def export(
    sweep: str | os.PathLike[str],
    *,
    trial: str | None = None,
    top: int | None = None,
    pareto: bool = False,
    refit: bool = False,
    output: str | os.PathLike[str] | None = None,
    again: bool = False,
) -> list[Path]:
    """Write the bundle of a trial of a sweep that ran, or of several.

    Args:
        sweep: the sweep's folder.
        trial: the trial's id; the best by default.
        top: so many of the best trials in place of one.
        pareto: the whole front of several objectives in place of one.
        refit: train the trial once more on train and valid together, for the steps that its model had; on a Ray as the sweep had it.
        output: folder to make; SWEEP/exports/ID by default. With `top` or `pareto` the folder in which each gets one by its id.
        again: one that lies in SWEEP/exports from before, and is whole, will do.

    Returns:
        The bundles' folders, or the checkpoints' where the trainer has no `load`; the best first.

    Raises:
        InputError: no such sweep or trial, or the trial left no checkpoint.
        SweepLocked: the sweep runs.
        BundleError: the bundle answers differently from the model in training.
        SweepFailed: the loop failed as it was trained once more.
    """
    from sweeps import winner
    from sweeps.lock import FolderLock
    from sweeps.search.storage import JOURNAL
    from sweeps.search.study import Ledger

    folder = Path(sweep).resolve()
    if not (folder / JOURNAL).is_file() and storage.place_of(folder) is None:
        raise InputError(Problem(str(sweep), "is not a sweep's folder: no study in it"))
    if trial is not None and top is not None:
        raise InputError(Problem("--top", "names the trials, as --trial does; give one of them"))
    if pareto and (trial is not None or top is not None):
        raise InputError(Problem("--pareto", "names the trials, as --trial and --top do; give one of them"))
    if refit and (pareto or top is not None):
        raise InputError(Problem("--refit", "trains one model: the best trial's, or that of --trial ID"))
    space, roots = saved_space(folder)
    lock = FolderLock(folder)
    try:
        ledger = Ledger(folder, space)
        if pareto:
            numbers = winner.front_numbers(ledger)
        else:
            numbers = [winner.number_of(ledger, trial)] if top is None else winner.best_numbers(ledger, top)
        named, several = Path(output).resolve() if output else None, pareto or top is not None
        targets = {n: named if named and not several else (named or folder / EXPORTS) / f"{n:04d}" for n in numbers}
        results = ledger.results()
        there = {target for n, target in targets.items() if again and named is None and _whole(target, refit, results[n])}
        for target in targets.values():
            if target not in there and target.exists():
                raise InputError(Problem("--output", f"{target} exists; name another folder with -o"))
        return [t if t in there else _export(folder, space, ledger, number, t, roots, refit) for number, t in targets.items()]
    finally:
        lock.release()


def _whole(target: Path, refit: bool, result: Result) -> bool:
    """Whether a bundle lies there as it was exported, of a model that was trained in this way, and of the trial as it stands now."""
    from sweeps.bundle import Manifest, seal

    try:
        seal.verify(target)
        made = Manifest.read(target).made
    except (seal.Broken, OSError):
        return False
    saved = result.checkpoint and result.checkpoint.best_step
    return ("refit" in made) == refit and made.get("value") == plain(result.value) and (refit or made.get("best_step") == saved)


def _export(folder: Path, space: Space, ledger: Any, number: int, target: Path, roots: tuple[Path, ...], refit: bool) -> Path:
    """One trial's bundle, in its place or not at all."""
    from sweeps import refitting, winner

    work = target.with_name(f".{target.name}.part")
    work.mkdir(parents=True, exist_ok=True)
    try:
        with refitting.refitted(folder, space, ledger, number, roots) if refit else contextlib.nullcontext() as again:
            done = winner.export_trial(folder, space, ledger, number, work, roots, again)
        if done.error is not None:
            raise done.error
        made = done.bundle or done.checkpoint
        if made is None:
            raise InputError(Problem("--trial", f"trial {number:04d} left no checkpoint: nothing to export"))
        made.rename(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)
        if target.parent == folder / EXPORTS and not target.exists():
            with contextlib.suppress(OSError):  # others are there
                target.parent.rmdir()
    return target


def digest_of(bundle: Path) -> str | None:
    """The SHA-256 of a bundle's manifest, which says what every other file is; None of what is no bundle."""
    from sweeps.bundle import seal

    file = bundle / seal.MANIFEST
    return seal.sha256(file) if file.is_file() else None


def register(sweep: str | os.PathLike[str], bundle: Path, name: str, alias: str | None = None, force: bool = False) -> list[str]:
    """Register a bundle of a sweep in MLflow, where the sweep was tracked.

    Args:
        sweep: the sweep's folder.
        bundle: what `export` wrote.
        name, alias, force: see `sweeps.tracking.registry.register`.

    Returns:
        What was done, in lines.

    Raises:
        InputError: it is no bundle, or MLflow does not know the sweep.
        SweepsError: MLflow does not answer.
    """
    from sweeps.bundle import Manifest, seal
    from sweeps.tracking import registry

    made = Manifest.read(bundle).made
    try:
        told = json.loads((Path(sweep) / RESULT).read_text())["mlflow"]
        uri, parent = str(told["tracking_uri"]), str(told["parent_run"])
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(Problem("--register", f"{sweep}: no {RESULT} says where the sweep was tracked; did it come to its end?")) from None
    return registry.register(bundle, seal.sha256(bundle / seal.MANIFEST), made, uri, parent, name, alias, force)

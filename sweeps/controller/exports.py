"""Export trials of a sweep as bundles, and register bundles in MLflow."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sweeps.core.atomic_files import part_of
from sweeps.core.disk import disk_error
from sweeps.core.errors import InputError, Problem
from sweeps.core.result import read_result, to_json_value
from sweeps.core.secrets import without_password
from sweeps.core.sweep_folder import RESULT, SweepFolder, refuse_links
from sweeps.core.trial import format_trial_id
from sweeps.space import Space
from sweeps.space.saved_space import saved_space
from sweeps.study import storage

if TYPE_CHECKING:
    from sweeps.study.study_store import StudyStore


@dataclass(frozen=True)
class Written:
    """What an export wrote.

    Attributes:
        path: Folder of the bundle, or of the checkpoint if the trainer has no `load`.
        notes: Notes for the user.
    """

    path: Path
    notes: tuple[str, ...] = ()


def export(
    sweep: str | os.PathLike[str],
    *,
    trial: str | None = None,
    top: int | None = None,
    pareto: bool = False,
    refit: bool = False,
    latest: bool = False,
    output: str | os.PathLike[str] | None = None,
    again: bool = False,
    trust: bool = False,
) -> list[Written]:
    """Write the bundles of one or several trials of a sweep.

    Args:
        sweep: The sweep's folder.
        trial: Id of the trial; by default the best.
        top: Export this many of the best trials.
        pareto: Export all trials of the Pareto front, for several objectives.
        refit: Train the trial again on train and valid together, for as many steps as its model had, where the sweep ran.
        latest: Export the latest checkpoint of each trial, not the best one.
        output: Folder to write; by default SWEEP/exports/ID, with the suffix `-refit` or `-latest`. With `top` or `pareto`, each trial
            gets a folder in it.
        again: Reuse a valid earlier export of the same model in SWEEP/exports.
        trust: Read pickles in the sweep's folder that this user's key has not signed. This runs the code that they hold.

    Returns:
        The exports; the best comes first.

    Raises:
        InputError: There is no such sweep or trial, the trial has no checkpoint, or the folder cannot be written.
        SweepLocked: The sweep runs.
        BundleError: The bundle's predictions differ from the predictions during training.
        SweepFailed: The loop failed during the refit.
    """
    from sweeps.bundle import export as trial_export
    from sweeps.core.folder_lock import FolderLock
    from sweeps.data.prepared_store import refuse_untrusted
    from sweeps.study.study_store import StudyStore

    folder = Path(sweep).resolve()
    if not SweepFolder(folder).journal.is_file() and storage.place_of(folder) is None:
        storage.refuse_less(folder)
        raise InputError(Problem(str(sweep), "is not a sweep's folder: no study in it"))
    if trial is not None and top is not None:
        raise InputError(Problem("--top", "names the trials, as --trial does; give one of them"))
    if pareto and (trial is not None or top is not None):
        raise InputError(Problem("--pareto", "names the trials, as --trial and --top do; give one of them"))
    if refit and (pareto or top is not None):
        raise InputError(Problem("--refit", "trains one model: the best trial's, or that of --trial ID"))
    if refit and latest:
        raise InputError(Problem("--refit", "trains the model of the last step anew; --latest exports one that is there. Give one of them"))
    space, roots = saved_space(folder)
    if refit and not space.data.given:
        raise InputError(Problem("--refit", "joins the rows of train and valid, and the space names no data: its loop reads its own"))
    refuse_links(folder)
    if not refit and space.trainer.load is not None:
        refuse_untrusted(folder, trust)
    lock = FolderLock(folder)
    try:
        study_store = StudyStore(folder, space)
        if pareto:
            numbers = trial_export.front_numbers(study_store, latest)
        else:
            numbers = [trial_export.number_of(study_store, trial)] if top is None else trial_export.best_numbers(study_store, top, latest)
        named, several = Path(output).resolve() if output else None, pareto or top is not None
        kind = "-refit" if refit else "-latest" if latest else ""
        exports = named or SweepFolder(folder).exports
        targets = {n: named if named and not several else exports / f"{format_trial_id(n)}{kind * (not named)}" for n in numbers}
        known = {n: t for n, t in targets.items() if again and named is None and t.exists()}
        there = {t for n, t in known.items() if _whole(t, refit, *_exported(study_store, n, latest))}
        for target in targets.values():
            try:
                exists = target.exists()
            except OSError as e:
                raise InputError(Problem("--output", f"{str(target)[:100]}: {e.strerror}")) from None
            if target not in there and exists:
                raise InputError(Problem("--output", f"{target} exists; name another folder with -o"))
        export_one = functools.partial(_export, folder, space, study_store, roots=roots, refit=refit, latest=latest, trust=trust)
        return [Written(t) if t in there else export_one(number, t) for number, t in targets.items()]
    finally:
        lock.release()


def _exported(study_store: StudyStore, number: int, latest: bool) -> tuple[int | None, float | None]:
    """Return the step of the model that an export of a trial takes, and the value of that model."""
    from sweeps.bundle import export as trial_export

    result = study_store.results()[number]
    kept = study_store.latest(number) if latest else result.checkpoint
    step = result.best_step if kept is None else kept.best_step
    return step, None if step is None else trial_export.worth(study_store, number, step)


def _whole(target: Path, refit: bool, step: int | None, value: float | None) -> bool:
    """Return whether a folder holds a valid bundle of the same model.

    Args:
        target: The folder.
        refit: Whether the model was refitted.
        step: Step of the model.
        value: Value of the model.
    """
    from sweeps.bundle import Manifest, integrity

    try:
        integrity.verify_hashes(target)
        made = Manifest.read(target).made
    except (integrity.IntegrityError, OSError):
        return False
    return ("refit" in made, made.get("best_step"), made.get("value")) == (refit, step, to_json_value(value))


def _export(
    folder: Path,
    space: Space,
    study_store: StudyStore,
    number: int,
    target: Path,
    *,
    roots: tuple[Path, ...],
    refit: bool,
    latest: bool,
    trust: bool,
) -> Written:
    """Export one trial. If anything fails, nothing is left in the target folder."""
    from sweeps.bundle import export as trial_export
    from sweeps.controller import trial_refit

    work = part_of(target)
    try:
        work.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise InputError(Problem("--output", f"{target} cannot be written: {e.strerror}")) from None
    try:
        with trial_refit.refitted(folder, space, study_store, number, roots) if refit else contextlib.nullcontext() as again:
            done = trial_export.export_trial(folder, space, study_store, number, work, roots, again, latest, trust)
        if done.error is not None:
            raise done.error
        made = done.bundle or done.checkpoint
        if made is None:
            raise InputError(Problem("--trial", done.notes[-1]))
        made.rename(target)
    except Exception as e:
        if (why := disk_error(e)) is None:
            raise
        raise InputError(Problem("--output", f"{target} cannot be written: {why}; free some space, or name another folder with -o")) from e
    finally:
        shutil.rmtree(work, ignore_errors=True)
        if target.parent == SweepFolder(folder).exports and not target.exists():
            with contextlib.suppress(OSError):  # others are there
                target.parent.rmdir()
    return Written(target, done.notes)


def digest_of(bundle: Path) -> str | None:
    """Return the SHA-256 of a bundle's manifest, which holds the hashes of all other files. Return None for a folder without a manifest."""
    from sweeps.bundle import integrity

    file = bundle / integrity.MANIFEST
    return integrity.sha256(file) if file.is_file() else None


def register(sweep: str | os.PathLike[str], bundle: Path, name: str, alias: str | None = None, force: bool = False) -> list[str]:
    """Register a bundle of a sweep in MLflow, where the sweep was tracked.

    Args:
        sweep: The sweep's folder.
        bundle: A bundle that `export` wrote.
        name: Name of the registered model.
        alias: Alias to move to the new version; see `sweeps.tracking.mlflow.registry.register`.
        force: Move the alias in any case.

    Returns:
        Lines that say what was done.

    Raises:
        InputError: The folder holds no bundle, or MLflow does not know the sweep.
        SweepsError: MLflow does not answer.
    """
    from sweeps.bundle import Manifest, integrity
    from sweeps.tracking.mlflow import registry

    made = Manifest.read(bundle).made
    told = (read_result(Path(sweep)) or {}).get("mlflow")
    if told == {}:
        raise InputError(Problem("--register", f"{sweep}: MLflow has no runs of this sweep, because `trackers` does not list mlflow"))
    if told is None or not told.get("parent_run"):
        raise InputError(Problem("--register", f"{sweep}: no {RESULT} says where the sweep was tracked; did it come to its end?"))
    uri, parent = told["tracking_uri"], told["parent_run"]
    said = os.environ.get("MLFLOW_TRACKING_URI", "")  # with the password, which no file keeps
    uri = said if without_password(said) == uri else uri
    return registry.register(bundle, integrity.sha256(bundle / integrity.MANIFEST), made, uri, parent, name, alias, force)

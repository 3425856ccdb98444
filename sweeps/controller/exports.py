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
    """Result of one export.

    Attributes:
        path: Folder of the bundle. If the trainer has no `load`, folder of the checkpoint.
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
    """Export one or several trials of a sweep as bundles.

    Args:
        sweep: The sweep's folder.
        trial: Id of the trial to export. The default is the best trial.
        top: Number of the best trials to export.
        pareto: Export all trials of the Pareto front. This needs several objectives.
        refit: Train the trial again on the train and valid rows together, for as many steps as its model had. The training runs on the
            cluster of the sweep.
        latest: Export the latest checkpoint of each trial instead of the best checkpoint.
        output: Folder to write. The default is SWEEP/exports/ID, with the suffix `-refit` or `-latest`. With `top` or `pareto`, each
            trial gets a subfolder.
        again: Reuse a valid earlier export of the same model in SWEEP/exports.
        trust: Read pickles in the sweep's folder even if this user's key has not signed them. Reading a pickle runs the code inside it.

    Returns:
        The exports, the best trial first.

    Raises:
        InputError: The arguments contradict each other, or the sweep or the trial does not exist. Also raised if the trial has no
            checkpoint, or if the output folder exists or cannot be written.
        SweepLocked: The sweep runs.
        BundleError: The predictions of the bundle differ from the predictions during training.
        SweepFailed: The training loop failed during the refit.
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
        raise InputError(Problem("--refit", "trains a new model, --latest exports an existing one; give one of them"))
    space, roots = saved_space(folder)
    if refit and not space.data.given:
        raise InputError(Problem("--refit", "needs the rows of train and valid, but the space file has no `data`"))
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
    """Return the step and the value of the model that an export of a trial would contain."""
    from sweeps.bundle import export as trial_export

    result = study_store.results()[number]
    kept = study_store.latest(number) if latest else result.checkpoint
    step = result.best_step if kept is None else kept.best_step
    return step, None if step is None else trial_export.worth(study_store, number, step)


def _whole(target: Path, refit: bool, step: int | None, value: float | None) -> bool:
    """Return True if a folder holds an undamaged bundle of a given model.

    Args:
        target: The folder.
        refit: True if the model is refitted.
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
    """Export one trial to a target folder. If the export fails, the target folder is not created."""
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
            with contextlib.suppress(OSError):  # other exports are in the folder
                target.parent.rmdir()
    return Written(target, done.notes)


def digest_of(bundle: Path) -> str | None:
    """Return the SHA-256 of a bundle's manifest. The manifest holds the hashes of all other files.

    Args:
        bundle: Folder of the bundle.

    Returns:
        The hash as hexadecimal text; None if the folder has no manifest.
    """
    from sweeps.bundle import integrity

    file = bundle / integrity.MANIFEST
    return integrity.sha256(file) if file.is_file() else None


def register(sweep: str | os.PathLike[str], bundle: Path, name: str, alias: str | None = None, force: bool = False) -> list[str]:
    """Register a bundle as a model version in the MLflow server that tracked the sweep.

    Args:
        sweep: The sweep's folder.
        bundle: A bundle that `export` wrote.
        name: Name of the registered model.
        alias: Alias to move to the new version; see `sweeps.tracking.mlflow.registry.register`.
        force: Move the alias without a comparison with its current version.

    Returns:
        Messages for the user, one for each action.

    Raises:
        InputError: The folder holds no bundle, or the sweep has no run in MLflow.
        SweepsError: MLflow does not answer.
    """
    from sweeps.bundle import Manifest, integrity
    from sweeps.tracking.mlflow import registry

    made = Manifest.read(bundle).made
    tracked = (read_result(Path(sweep)) or {}).get("mlflow")
    if tracked == {}:
        raise InputError(Problem("--register", f"{sweep}: MLflow has no runs of this sweep, because `trackers` does not list mlflow"))
    if not tracked or not tracked.get("tracking_uri") or not tracked.get("parent_run"):
        raise InputError(Problem("--register", f"{sweep}: no {RESULT} says where the sweep was tracked; did it come to its end?"))
    uri, from_environment = tracked["tracking_uri"], os.environ.get("MLFLOW_TRACKING_URI", "")
    if without_password(from_environment) == uri:  # No file stores the password.
        uri = from_environment
    digest = integrity.sha256(bundle / integrity.MANIFEST)
    return registry.register(bundle, digest, made, uri, tracked["parent_run"], name, alias, force)

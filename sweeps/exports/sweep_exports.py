"""Export trials of a sweep as bundles."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sweeps.bundle import ensemble as ensemble_export
from sweeps.bundle import export as trial_export
from sweeps.bundle import integrity, trial_choice
from sweeps.bundle.export import Refitted
from sweeps.bundle.manifest import Manifest
from sweeps.bundle.sweep_models import SweepModels
from sweeps.bundle.trial_facts import describe_recorded
from sweeps.bundle.trial_predictions import TrialPredictions, read_trial_predictions
from sweeps.core.errors import InputError
from sweeps.core.files.atomic_files import partial_path
from sweeps.core.files.disk import disk_error
from sweeps.core.files.folder_lock import FolderLock
from sweeps.core.files.stores import store_of
from sweeps.core.files.sweep_folder import SweepFolder, refuse_other_entries
from sweeps.core.host.machine_share import Share
from sweeps.core.result import to_json_value
from sweeps.core.trial import format_trial_id, refit_rows_text
from sweeps.data.sources import ingest
from sweeps.evaluation.new_rows import describe_new_rows
from sweeps.space import Space
from sweeps.space.python.saved_space import runnable_space, saved_space
from sweeps.stored import stored_sweeps
from sweeps.study import storage
from sweeps.study.study_store import StudyStore
from sweeps.sweep_report import content

from . import trial_refit

# Pairs of options that cannot be combined.
EXCLUSIVE = (
    ("--trial", "--top"),
    ("--trial", "--pareto"),
    ("--top", "--pareto"),
    ("--refit", "--top"),
    ("--refit", "--pareto"),
    ("--refit", "--latest"),
    *(("--ensemble", other) for other in ("--trial", "--top", "--pareto", "--latest")),
)


@dataclass(frozen=True)
class ExportResult:
    """Result of one export.

    Attributes:
        path: Folder of the bundle. If the trainer has no `load`, this is the folder of the exported
            checkpoint.
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
    ensemble: int | None = None,
    output: str | os.PathLike[str] | None = None,
    reuse: bool = False,
    trust: bool = False,
    cpus: int | None = None,
    gpus: int | None = None,
) -> list[ExportResult]:
    """Export one or several trials of a sweep as bundles.

    Args:
        sweep: The sweep's folder, or its address, such as `s3://BUCKET/PREFIX/SWEEP`.
        trial: Id of the trial to export. The default is the best trial.
        top: Number of trials to export, the best first.
        pareto: True to export all trials of the Pareto front. This needs several objectives.
        refit: True to train the trial again on the train and valid rows together. The training ends
            at the step of the model that an export without `refit` would contain. With
            `bundle: {train_on: all}`, every export without `latest` is a refit, and test may be one
            of the splits. Without a refit, the export after a cross-validation averages the models
            of the folds. The training runs on the Ray
            cluster with which the sweep started, or on this machine if the sweep started without
            one.
        latest: True to export the latest checkpoint of each trial instead of the best checkpoint.
        ensemble: Number of rounds in which models are chosen for an ensemble, at least 1. Each
            round adds one model, so this is also the largest number of members. None to export
            single models.
        output: Folder to write. The default is SWEEP/exports/ID; `refit` adds the suffix `-refit`,
            and `latest` adds `-latest`. With `top` or `pareto`, each trial gets a subfolder. With
            `ensemble`, the default is SWEEP/exports/ensemble-ROUNDS.
        reuse: True to reuse a valid earlier export of the same model in SWEEP/exports.
        trust: True to read pickles in the sweep's folder even if this user's key has not signed
            them. Reading a pickle runs the code inside it.
        cpus: Largest number of CPUs that the refit uses. The default is the number with which the
            sweep started.
        gpus: Largest number of GPUs that the refit uses. The default is the number with which the
            sweep started.

    Returns:
        The exports, the best trial first.

    Raises:
        InputError: The arguments contradict each other, or the sweep or the trial does not exist.
            Also raised if the trial has no checkpoint, or if the output folder exists or cannot be
            written.
        SweepLocked: The sweep runs.
        BundleError: The predictions of the bundle differ from the predictions during training.
        SweepFailed: The training loop failed during the refit.
    """
    is_given = {
        "--trial": trial is not None,
        "--top": top is not None,
        "--pareto": pareto,
        "--refit": refit,
        "--latest": latest,
        "--ensemble": ensemble is not None,
    }
    if ensemble is not None and ensemble < 1:
        raise InputError("--ensemble", f"is {ensemble}, but must be at least 1")
    for first, second in EXCLUSIVE:
        if is_given[first] and is_given[second]:
            raise InputError(second, f"cannot be combined with {first}")
    export_run = _Export.open(stored_sweeps.fetch(sweep), refit, latest, trust, Share(cpus, gpus))
    if not export_run.refit and (cpus is not None or gpus is not None):
        raise InputError(
            "--cpus" if cpus is not None else "--gpus",
            "is for an export that trains a model; add --refit",
        )
    target = Path(output).resolve() if output else None
    reuse = reuse and target is None
    report_files: list[Path] = []
    with FolderLock(export_run.folder):
        if ensemble is None:
            results = export_run.write(trial, top, pareto, target, reuse)
        else:
            results = [export_run.write_ensemble(ensemble, target, reuse)]
            if target is None:  # the report shows ensembles in the sweep's folder
                report_files = content.refresh(export_run.folder, export_run.space)
    exports = [result.path for result in results]
    stored_sweeps.save_exports(export_run.folder, [*exports, *report_files])
    return results


@dataclass(frozen=True)
class _Export:
    """One call of `export`.

    Attributes:
        folder: The sweep's folder.
        space: The sweep's space.
        roots: Folders of the user's modules.
        refit: True if the exported models are trained again.
        latest: See `export`.
        trust: See `export`.
        wanted: The CPUs and GPUs of a refit.
    """

    folder: Path
    space: Space
    roots: tuple[Path, ...]
    refit: bool
    latest: bool
    trust: bool
    wanted: Share

    @classmethod
    def open(cls, folder: Path, refit: bool, latest: bool, trust: bool, wanted: Share) -> _Export:
        """Check that a sweep can be exported, and read its space file."""
        if not storage.journal_in(folder).exists() and storage.place_of(folder) is None:
            storage.check_trial_count(folder)
            raise InputError(str(folder), "is not a sweep's folder, because it has no study")
        space, roots = saved_space(folder)
        if refit and not space.data.is_named:
            raise InputError(
                "--refit",
                "trains on the rows of train and valid, which sweeps knows only if the space file "
                "has the section `data`",
            )
        if space.data.folds and latest:
            raise InputError(
                "--latest", "does not work with a cross-validation, whose models are those of folds"
            )
        refit = refit or (space.trains_winner and not latest)
        store_of(folder)  # Raises an error if the user has given the folder of a sweep in a store.
        refuse_other_entries(folder)
        if refit or any(trainer.load is not None for trainer in space.trainers.values()):
            space, roots = runnable_space(folder, trust)
        return cls(folder, space, roots, refit, latest, trust, wanted)

    @functools.cached_property
    def models(self) -> SweepModels:
        """The models of the sweep."""
        store = StudyStore(self.folder, self.space)
        return SweepModels(store, self.space, self.roots, self.trust)

    @functools.cached_property
    def _predictions(self) -> TrialPredictions | None:
        """The predictions that the trials have kept."""
        return read_trial_predictions(self.models.study_store)

    def write(
        self, trial: str | None, top: int | None, pareto: bool, output: Path | None, reuse: bool
    ) -> list[ExportResult]:
        """Export the trials that the arguments of `export` select."""
        store = self.models.study_store
        if pareto:
            numbers = trial_choice.front_numbers(store, self.latest)
        elif top is not None:
            numbers = trial_choice.best_numbers(store, top, self.latest)
        else:
            numbers = [trial_choice.find_trial_number(store, trial)]
        targets = {
            number: self._target(number, output, several=pareto or top is not None)
            for number in numbers
        }
        reused = set()
        # No bundle is written if one of the folders cannot be used.
        for number, target in targets.items():
            if os.path.lexists(target):
                if not (reuse and self._holds_model(target, number)):
                    raise _exists_error(target)
                reused.add(number)
        place = "export" if trial is None else "--trial"
        return [
            ExportResult(target) if number in reused else self._write_bundle(number, target, place)
            for number, target in targets.items()
        ]

    def _target(self, number: int, output: Path | None, several: bool) -> Path:
        """Return the folder of a trial's export; see the argument `output` of `export`."""
        if output is not None:
            return output / format_trial_id(number) if several else output
        suffix = ""
        if self.refit:
            suffix = "-refit"
        elif self.latest:
            suffix = "-latest"
        return SweepFolder(self.folder).exports / f"{format_trial_id(number)}{suffix}"

    def _holds_model(self, target: Path, number: int) -> bool:
        """Return whether a folder holds a bundle of the model that `export` would write."""
        store = self.models.study_store
        step, value_step = self._model_steps(number)
        value = None
        if value_step is not None:
            value = describe_recorded(store, number, value_step)["value"]
        return holds_export(target, {"best_step": step, "value": to_json_value(value)})

    def _model_steps(self, number: int) -> tuple[int | None, int | None]:
        """Return the step of the model that `export` would write, and the step of its value.

        The bundle records the value that the search had at this second step.
        """
        store = self.models.study_store
        result = store.results()[number]
        if self.refit:
            trained = trial_refit.steps_to_train(store, number)
            # The steps of the search may be folds or parts of the rows. The last one counts then.
            last_counts = store.objectives.last_step_counts
            return trained, result.best_step if last_counts else trained
        checkpoint = store.states[number].checkpoint if self.latest else result.checkpoint
        step = result.best_step if checkpoint is None else checkpoint.best_step
        return step, step

    def write_ensemble(self, rounds: int, output: Path | None, reuse: bool) -> ExportResult:
        """Export an ensemble; see `export`."""
        data_fingerprint = self.models.study_store.data
        space = ingest.resolve(self.space, data_fingerprint)
        ensemble_export.require_supported(space)
        suffix = "-refit" if self.refit else ""
        target = output or SweepFolder(self.folder).exports / f"ensemble-{rounds}{suffix}"
        models = replace(self.models, space=space)
        trials = self._predictions
        choice = ensemble_export.choose(models.study_store, trials, rounds)
        if os.path.lexists(target):
            facts = {"rounds": rounds, "candidates": choice.facts["candidates"]}
            if reuse and holds_export(target, facts):
                return ExportResult(target)
            raise _exists_error(target)
        numbers = [model.number for model in choice.weights]
        with self._work_folder(target) as work:
            with self._trained_again(numbers) as refitted:
                single = int(choice.facts["single"]["trial"])
                more = {"new_rows": describe_new_rows(models.study_store, trials, single, choice)}
                exported = trial_export.export_ensemble(models, choice, work, refitted, more)
            if exported.error is not None:
                raise exported.error
            (work / "bundle").rename(target)
        scores = ensemble_export.score_lines(space.objective.metric, exported.best["ensemble"])
        return ExportResult(target, (*scores, *exported.notes))

    @contextlib.contextmanager
    def _trained_again(self, numbers: Sequence[int]) -> Iterator[dict[int, Refitted]]:
        """Yield the models of trials that are trained again; {} without a refit."""
        if not self.refit:
            yield {}
            return
        with trial_refit.refit(self.models, numbers, self.wanted) as refitted:
            yield refitted

    def _write_bundle(self, number: int, target: Path, place: str) -> ExportResult:
        """Write the bundle of a trial. `place` names the argument that has chosen the trial."""
        with self._work_folder(target) as work:
            with self._trained_again([number]) as refitted:
                more = {}
                if not self.latest:  # The predictions are those of the best model.
                    store, trials = self.models.study_store, self._predictions
                    more["new_rows"] = describe_new_rows(store, trials, number)
                exported = trial_export.export_trial(
                    self.models, number, work, refitted.get(number), self.latest, more
                )
            if exported.error is not None:
                raise exported.error
            folder = exported.bundle or exported.checkpoint
            if folder is None:
                raise InputError(place, exported.why_no_model)
            folder.rename(target)
        return ExportResult(target, (*exported.notes, *_refit_notes(exported.best)))

    @contextlib.contextmanager
    def _work_folder(self, target: Path) -> Iterator[Path]:
        """Yield a temporary folder on the disk of `target`, in which a bundle is written.

        Errors of the disk become an `InputError`.
        """
        work = partial_path(target)
        try:
            work.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise InputError("--output", f"{target} cannot be written: {e.strerror}") from None
        try:
            yield work
        except Exception as e:
            if (reason := disk_error(e)) is None:
                raise
            text = (
                f"{target} cannot be written: {reason}; free some space, or name another folder "
                "with -o"
            )
            raise InputError("--output", text) from e
        finally:
            shutil.rmtree(work, ignore_errors=True)
            # This fails if the folder holds exports.
            with contextlib.suppress(OSError):
                SweepFolder(self.folder).exports.rmdir()


def _refit_notes(best: Mapping[str, Any]) -> tuple[str, ...]:
    """Return notes about a model that was trained again: its rows, and a test score.

    The score of any other model stands in the sweep's result.
    """
    refit = best.get("refit")
    if refit is None:
        return ()
    note = f"trained on {refit_rows_text(refit)}"
    score = best["test"]
    if score is None:
        return (note,)
    # A model that was trained on test cannot be scored on it.
    model = "the model before" if "test" in refit["on"] else "the new model"
    return note, f"test score of {model}: {score:.6g}"


def _exists_error(target: Path) -> InputError:
    """Return the error to raise if the folder of an export exists."""
    return InputError("--output", f"{target} already exists; name another folder with -o")


def holds_export(target: Path, facts: Mapping[str, Any]) -> bool:
    """Return whether a folder holds an undamaged bundle that records these facts.

    Args:
        target: The folder.
        facts: Facts about the training of a model, or about the choice of an ensemble.
    """
    try:
        integrity.verify_hashes(target)
        training = Manifest.read(target).training
    except (integrity.IntegrityError, OSError):
        return False
    recorded = training | training.get("ensemble", {})
    return all(recorded.get(name) == fact for name, fact in facts.items())

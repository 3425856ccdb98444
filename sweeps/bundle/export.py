"""Export a trial of a sweep.

The export is a bundle, or a copy of the trial's checkpoint if the trainer has no `load`.

Exporting does not need Ray. The study, the checkpoints, the fitted chains and the test split are
read from the sweep's folder.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sweeps.core import metrics
from sweeps.core.errors import BundleError, SweepsError, UnreadableFile
from sweeps.core.files.checkpoint_files import local_checkpoint
from sweeps.core.files.disk import disk_error
from sweeps.core.files.sweep_folder import refuse_special_files
from sweeps.core.resources import COSTS
from sweeps.core.result import to_json_value
from sweeps.core.trial import Trial
from sweeps.data.prepared_store import PreparedStore
from sweeps.data.preprocessing.fit import data_key
from sweeps.study.study_store import StudyStore

from . import write
from .average_bundle import TrainedMember, score_on_test, write_average
from .ensemble import EnsembleChoice
from .manifest import Facts, Manifest
from .sweep_models import ModelFiles, SweepModels, recorded_predictions, score_test
from .trial_choice import SavedModel, saved_model, why_not_saved
from .trial_facts import describe_recorded

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Exported:
    """The result of an export.

    Attributes:
        best: Facts of the exported trial, in the format of the key `best` that `sweeps run --json`
            prints.
        bundle: The bundle's folder, or None if no bundle was written.
        checkpoint: Folder of the copied checkpoint if the trainer has no `load`; otherwise None.
        notes: Notes for the user.
        error: The error that prevented a bundle, or None.
        why_no_model: The reason if the trial has no model that can be exported; otherwise "".
    """

    best: Facts
    bundle: Path | None = None
    checkpoint: Path | None = None
    notes: tuple[str, ...] = ()
    error: SweepsError | None = None
    why_no_model: str = ""


@dataclass(frozen=True)
class Refitted:
    """Result of training a trial's configuration again, on several splits together.

    Attributes:
        folder: Folder whose subfolder `prepared` has the data of this training.
        checkpoint: Folder of the last checkpoint.
        steps: Number of steps for which the model was trained.
        rows: Number of rows in the splits together.
        splits: The splits.
    """

    folder: Path
    checkpoint: Path
    steps: int
    rows: int
    splits: tuple[str, ...] = ("train", "valid")

    @property
    def facts(self) -> Facts:
        """The splits, the number of rows and the number of steps.

        The bundle's manifest and the sweep's result contain these facts.
        """
        return {"on": list(self.splits), "rows": self.rows, "steps": self.steps}


def export_trial(
    models: SweepModels,
    number: int,
    target: Path,
    refitted: Refitted | None = None,
    latest: bool = False,
    more: Facts | None = None,
) -> Exported:
    """Export a trial of a sweep.

    Args:
        models: The models of the sweep.
        number: Number of the trial.
        target: Folder in which the subfolder `bundle` or `checkpoint` is written.
        refitted: The model to export, if the trial was trained again on several splits. None to
            export a checkpoint of the trial.
        latest: True to export the trial's latest checkpoint instead of the checkpoint of the best
            step.
        more: Further facts about the model; None if there are none.

    Returns:
        The result of the export. If the bundle cannot be written, `error` gives the reason.
    """
    store = models.study_store
    best = describe_recorded(store, number) | (more or {})
    model: SavedModel | None
    if refitted is not None:
        model = SavedModel(number, str(refitted.checkpoint), refitted.steps)
        exported = Exported(best | {"refit": refitted.facts})
    else:
        model = saved_model(store, number, latest)
        if model is None:
            reason = why_not_saved(store, number, latest)
            return Exported(best, notes=(reason,), why_no_model=reason)
        exported = Exported(best, notes=_step_notes(store, model, latest))
    if models.space.trainer_of(store.trial(number).labels).load is None:
        with local_checkpoint(model.source) as source:
            refuse_special_files(source)
            copy = write.copy_checkpoint(source, target / "checkpoint")
        return replace(exported, checkpoint=copy)
    try:
        with contextlib.ExitStack() as opened:
            return _export_bundle(
                models, model, exported, target=target, refitted=refitted, opened=opened, more=more
            )
    except Exception as e:
        return replace(exported, error=_export_error(e, f"trial {model.trial_id}"))


def _export_error(error: Exception, subject: str) -> SweepsError:
    """Return the error of an export, given what could not be exported.

    An error of the disk is raised again.
    """
    if disk_error(error) is not None:
        raise error
    if isinstance(error, UnreadableFile):
        return error
    log.error("the export of %s failed", subject, exc_info=error)
    if isinstance(error, BundleError):
        return error
    return BundleError(f"{subject} cannot be exported: {type(error).__name__}: {error}")


def _step_notes(store: StudyStore, model: SavedModel, latest: bool) -> tuple[str, ...]:
    """Return a note if the exported model has another value than its trial's best step."""
    best_step = store.results()[model.number].best_step
    values_by_step = dict(store.states[model.number].curve)
    value = values_by_step.get(model.step, math.nan)
    best_value = values_by_step.get(best_step or 0)
    if model.step == best_step or math.isnan(value) or value == best_value:
        return ()
    note = f"exported the model of step {model.step} (value {value:.6g})"
    if not latest:
        reason = "the loop saved no checkpoint at the trial's best step"
        note += f", because {reason}, {best_step}"
    return (note,)


def _export_bundle(
    models: SweepModels,
    model: SavedModel,
    exported: Exported,
    *,
    target: Path,
    refitted: Refitted | None,
    opened: contextlib.ExitStack,
    more: Facts | None,
) -> Exported:
    """Write the bundle of a model; see `export_trial`.

    Args:
        models: The models of the sweep.
        model: The model.
        exported: The facts and the notes that are known so far.
        target: Folder in which the subfolder `bundle` is written.
        refitted: See `export_trial`.
        opened: See `SweepModels.open_searched`.
        more: See `export_trial`.
    """
    store = models.study_store
    trial = store.trial(model.number)
    best = dict(exported.best)
    notes = exported.notes
    if refitted is None:
        files = models.open_searched(model, opened)
    else:
        files = [_refitted_files(models, trial, refitted)]
    info = models.prepared.load_info(trial.data)
    if models.space.data.is_named:
        best["test"], note = _score_on_test(models, files, opened, refitted=refitted)
        notes = (*notes, note) if note else notes
    step: int | None = model.step
    if refitted is not None and store.objectives.last_step_counts:
        # The steps of the search are folds or parts of the rows. The refit has other steps.
        step = None
    facts = describe_recorded(store, model.number, step)
    facts |= {"test": best["test"], "best_step": model.step, "seed": trial.seed}
    own_facts = dict(facts)
    facts |= models.facts(info.fingerprint) | (more or {})
    if refitted is not None:
        facts["refit"] = refitted.facts
    if files[0].fold is not None:
        member = TrainedMember(files, 1, own_facts)
        path = write_average(target, models, [member], facts)
        best["folds"] = len(files)
    else:
        trained = write.TrainedModel(files[0].folder, files[0].chain, models.code(trial))
        path = write.write_bundle(
            target / "bundle",
            models={write.SINGLE: trained},
            info=info,
            expected=recorded_predictions(trained.checkpoint),
            training=to_json_value(facts),
        )
    return replace(exported, best=best | bundle_costs(path), bundle=path, notes=notes)


def bundle_costs(bundle: Path) -> Facts:
    """Return the size of a bundle in bytes, and the speed of its predictions."""
    files = (file for file in bundle.rglob("*") if file.is_file())
    return {
        "bytes": sum(file.stat().st_size for file in files),
        "rows_per_second": Manifest.read(bundle).rows_per_second,
    }


def _refitted_files(models: SweepModels, trial: Trial, refitted: Refitted) -> ModelFiles:
    """Return the model of a trial that was trained again, with its fitted preprocessor."""
    key = data_key(models.prepared.load_info(trial.data).fingerprint, trial.preprocessor)
    chain = PreparedStore(refitted.folder, models.trust).find_chain(key)
    assert chain is not None, "each training stores the chain that it fits"
    models.check_files(trial, refitted.checkpoint)
    return ModelFiles(trial, refitted.checkpoint, chain)


def _score_on_test(
    models: SweepModels,
    files: Sequence[ModelFiles],
    opened: contextlib.ExitStack,
    *,
    refitted: Refitted | None,
) -> tuple[float | None, str | None]:
    """Score a model on the rows of test, which the model has not seen.

    This is the exported model, unless it was trained on these rows. In that case, the model of the
    search is scored.

    Args:
        models: The models of the sweep.
        files: The exported model, or the models of the folds.
        opened: See `SweepModels.open_searched`.
        refitted: See `export_trial`.

    Returns:
        See `score_test`. Two times None if there are no test rows.
    """
    trial = files[0].trial
    test = models.prepared.load_test(trial.data)
    if test is None:
        return None, None
    if refitted is not None and "test" in refitted.splits:
        searched = saved_model(models.study_store, trial.number)
        if searched is None:
            return None, "no test score: the checkpoint of the search was deleted"
        files = models.open_searched(searched, opened)
    if files[0].fold is not None:
        _, score, note = score_on_test(models, [TrainedMember(files, 1, {})])
        return score, note
    # Costs such as the duration are not computed from predictions. If there are only costs, the
    # score of the first one is refused with a note.
    all_metrics = [objective.metric for objective in models.space.objectives]
    metric = next((name for name in all_metrics if name not in COSTS), all_metrics[0])
    task = models.prepared.load_info(trial.data).task
    method = "decision_function" if metrics.needs(metric, task) == "scores" else "predict"
    rows, labels = test
    return score_test(metric, task, labels, models.predict(files[0], rows, method=method))


def export_ensemble(
    models: SweepModels,
    choice: EnsembleChoice,
    target: Path,
    refitted: Mapping[int, Refitted] | None = None,
    more: Facts | None = None,
) -> Exported:
    """Export an ensemble of a sweep's models.

    Args:
        models: The models of the sweep.
        choice: The members.
        target: Folder in which the subfolder `bundle` is written.
        refitted: The models of the members that were trained again on several splits, by the number
            of the trial. The other members have the models of the search.
        more: Further facts about the ensemble; None if there are none.

    Returns:
        The result of the export. If the bundle cannot be written, `error` gives the reason.
    """
    try:
        with contextlib.ExitStack() as opened:
            return _write_ensemble(models, choice, target, refitted or {}, more or {}, opened)
    except Exception as e:
        return Exported({}, error=_export_error(e, "the ensemble"))


def _write_ensemble(
    models: SweepModels,
    choice: EnsembleChoice,
    target: Path,
    refitted: Mapping[int, Refitted],
    more: Facts,
    opened: contextlib.ExitStack,
) -> Exported:
    """Write the bundle of an ensemble; see `export_ensemble`."""
    store = models.study_store
    searched = []
    members = []
    for model, weight in choice.weights.items():
        facts = describe_recorded(store, model.number, model.step)
        trial = store.trial(model.number)
        facts |= {"value": choice.values[model], "best_step": model.step, "seed": trial.seed}
        member = TrainedMember(models.open_searched(model, opened), weight, facts)
        searched.append(member)
        if (new := refitted.get(model.number)) is not None:
            own_facts = facts | {"refit": new.facts, "best_step": new.steps}
            member = TrainedMember([_refitted_files(models, trial, new)], weight, own_facts)
        members.append(member)
    saw_test = any("test" in new.splits for new in refitted.values())
    scores, test, note = score_on_test(models, searched if saw_test else members)
    single = dict(choice.facts["single"], test=None)
    for member, score in zip(members, scores, strict=True):
        member.facts["test"] = score
        if member.trial.id == single["trial"]:
            single["test"] = score
    about = _ensemble_facts(choice, refitted) | {"test": test, "single": single}
    facts = {
        **models.facts(store.data or ""),
        "trial": None,
        "value": choice.value,
        "test": test,
        "ensemble": choice.facts | about,
        **more,
    }
    path = write_average(target, models, members, facts)
    notes = (choice.members_line, *([note] if note else []), *choice.notes)
    best = {"ensemble": about, **more, **bundle_costs(path)}
    return Exported(best, bundle=path, notes=notes)


def _ensemble_facts(choice: EnsembleChoice, refitted: Mapping[int, Refitted]) -> Facts:
    """Return the key `ensemble` of `SweepResult.best`."""
    facts: Facts = {
        "members": {model.trial_id: weight for model, weight in choice.weights.items()},
        "refitted": len(refitted),
        "value": choice.value,
    }
    if choice.gain is not None:
        facts |= {"gain": choice.gain.mean, "noise": choice.gain.noise}
    for new in refitted.values():
        facts["rows"] = {"on": list(new.splits), "rows": new.rows}
    return facts

"""Export a trial of a sweep.

The export is a bundle, or a copy of the trial's checkpoint if the trainer has no `load`.

Exporting does not need Ray. The study, the checkpoints, the fitted chains and the test split are
read from the sweep's folder.
"""

from __future__ import annotations

import logging
import math
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
from sweeps.data.preprocessing.fitted_chain import FittedChain
from sweeps.study.study_store import StudyStore

from . import write
from .manifest import Facts, Manifest
from .sweep_models import SweepModels, recorded_predictions, score_test
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
        scored: The model that is scored on test if `splits` has test. None to score the model of
            the search.
    """

    folder: Path
    checkpoint: Path
    steps: int
    rows: int
    splits: tuple[str, ...] = ("train", "valid")
    scored: Refitted | None = None

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

    Returns:
        The result of the export. If the bundle cannot be written, `error` gives the reason.
    """
    store = models.study_store
    best = describe_recorded(store, number)
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
        return _export_bundle(models, model, exported, target=target, refitted=refitted)
    except UnreadableFile as e:
        return replace(exported, error=e)
    except Exception as e:
        if disk_error(e) is not None:
            raise
        log.error("the export of trial %s failed", model.trial_id, exc_info=e)
        if not isinstance(e, BundleError):
            e = BundleError(f"trial {model.trial_id} cannot be exported: {type(e).__name__}: {e}")
        return replace(exported, error=e)


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
) -> Exported:
    """Write the bundle of a model; see `export_trial`.

    Args:
        models: The models of the sweep.
        model: The model.
        exported: The facts and the notes that are known so far.
        target: Folder in which the subfolder `bundle` is written.
        refitted: See `export_trial`.
    """
    store = models.study_store
    trial = store.trial(model.number)
    best = dict(exported.best)
    notes = exported.notes
    fitted = None
    with models.local_folder(trial, model.source) as source:
        info = models.prepared.load_info(trial.data)
        if models.space.data.is_named:
            fitted = _load_chain(models, trial, refitted)
            best["test"], note = _score_on_test(models, trial, source, refitted=refitted)
            notes = (*notes, note) if note else notes
        step: int | None = model.step
        if refitted is not None and store.objectives.last_step_counts:
            # The steps of the search are folds or parts of the rows. The refit has other steps.
            step = None
        facts = describe_recorded(store, model.number, step)
        facts |= {"test": best["test"], "best_step": model.step, "seed": trial.seed}
        facts |= models.facts(info.fingerprint)
        if refitted is not None:
            facts["refit"] = refitted.facts
        path = write.write_bundle(
            target / "bundle",
            models={write.SINGLE: write.TrainedModel(source, fitted, models.code(trial))},
            info=info,
            expected=recorded_predictions(source),
            training=to_json_value(facts),
        )
    best["bytes"] = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    best["rows_per_second"] = Manifest.read(path).rows_per_second
    return replace(exported, best=best, bundle=path, notes=notes)


def _load_chain(models: SweepModels, trial: Trial, refitted: Refitted | None) -> FittedChain:
    """Load the chain that was fitted in the search, or when the trial was trained again."""
    if refitted is None:
        return models.chain(trial)
    key = data_key(models.prepared.load_info(trial.data).fingerprint, trial.preprocessor)
    chain = PreparedStore(refitted.folder, models.trust).find_chain(key)
    assert chain is not None, "each training stores the chain that it fits"
    return chain


def _score_on_test(
    models: SweepModels, trial: Trial, source: Path, *, refitted: Refitted | None
) -> tuple[float | None, str | None]:
    """Score a model on the rows of test, which the model has not seen.

    This is the exported model, unless it was trained on these rows. In that case, an earlier model
    is scored: `Refitted.scored`, or the model of the search.

    Args:
        models: The models of the sweep.
        trial: The trial.
        source: The folder of the checkpoint that is exported.
        refitted: See `export_trial`.

    Returns:
        See `score_test`. Two times None if there are no test rows.
    """
    test = models.prepared.load_test(trial.data)
    if test is None:
        return None, None
    checkpoint: str | Path = source
    scored = refitted  # the training whose model is scored; None for the model of the search
    if refitted is not None and "test" in refitted.splits:
        scored = refitted.scored
        searched = saved_model(models.study_store, trial.number)
        if scored is not None:
            checkpoint = scored.checkpoint
        elif searched is not None:
            checkpoint = searched.source
        else:
            return None, "no test score: the checkpoint of the search was deleted"
    # Costs such as the duration are not computed from predictions. If there are only costs, the
    # score of the first one is refused with a note.
    all_metrics = [objective.metric for objective in models.space.objectives]
    metric = next((name for name in all_metrics if name not in COSTS), all_metrics[0])
    task = models.prepared.load_info(trial.data).task
    method = "decision_function" if metrics.needs(metric, task) == "scores" else "predict"
    rows, labels = test
    prepared = _load_chain(models, trial, scored).transform(rows)
    predictions = models.predict(trial, checkpoint, prepared, method=method)
    return score_test(metric, task, labels, predictions)

"""Export a trial of a sweep.

The export is a bundle, or a copy of the trial's checkpoint if the trainer has no `load`.

Exporting does not need Ray. The study, the checkpoints, the fitted chains and the test split are
read from the sweep's folder.
"""

from __future__ import annotations

import contextlib
import logging
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sweeps.bundle import write
from sweeps.bundle.manifest import Manifest
from sweeps.core import metrics, provenance, references
from sweeps.core.checkpoint_files import checkpoint_exists, checkpoint_place, local_checkpoint
from sweeps.core.disk import disk_error
from sweeps.core.errors import (
    BundleError,
    InputError,
    Problem,
    SweepsError,
    UnreadableFile,
    first_of,
    unknown_trial,
)
from sweeps.core.resources import COSTS
from sweeps.core.result import to_json_value
from sweeps.core.sweep_folder import refuse_special_files
from sweeps.core.trial import (
    CHECK_PREDICTIONS,
    Result,
    Trial,
    complete_trial_id,
    format_trial_id,
)
from sweeps.core.trust import refuse_unsigned
from sweeps.data.prepared_store import DatasetInfo, PreparedStore
from sweeps.data.preprocessing.fit import data_key
from sweeps.space import Space
from sweeps.space.saved_space import how_to_get_a_bundle
from sweeps.space.trainer_definition import definition_of
from sweeps.study.study_store import StudyStore

if TYPE_CHECKING:
    import pandas as pd

    from sweeps.data.preprocessing.fitted_chain import FittedChain

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Exported:
    """The result of an export.

    Attributes:
        best: facts of the exported trial, in the format of the key `best` that `sweeps run --json`
            prints.
        bundle: the bundle's folder, or None if no bundle was written.
        checkpoint: folder of the copied checkpoint if the trainer has no `load`; otherwise None.
        notes: notes for the user.
        error: the error that prevented a bundle, or None.
    """

    best: dict[str, Any]
    bundle: Path | None = None
    checkpoint: Path | None = None
    notes: tuple[str, ...] = ()
    error: SweepsError | None = None


@dataclass(frozen=True)
class Refitted:
    """Result of training a trial's configuration again, on several splits together.

    Attributes:
        folder: folder whose subfolder `prepared` has the data of this training.
        checkpoint: folder of the last checkpoint.
        steps: number of steps for which the model was trained.
        rows: number of rows in the splits together.
        splits: the splits.
        scored: the model that is scored on test if `splits` has test. None to score the model of
            the search.
    """

    folder: Path
    checkpoint: Path
    steps: int
    rows: int
    splits: tuple[str, ...] = ("train", "valid")
    scored: Refitted | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """The splits, the number of rows and the number of steps.

        The bundle's manifest and the sweep's result contain these facts.
        """
        return {"on": list(self.splits), "rows": self.rows, "steps": self.steps}


@dataclass(frozen=True)
class SweepModels:
    """The models of a sweep.

    Attributes:
        folder: folder of the sweep.
        space: the search space.
        study_store: the study.
        roots: folders of the user's modules. They are added to `sys.path`.
        trust: True to read the pickles in the sweep's folder even if they are not signed with this
            user's key.
    """

    folder: Path
    space: Space
    study_store: StudyStore
    roots: tuple[Path, ...]
    trust: bool = False

    def __post_init__(self) -> None:
        """Make the user's modules importable."""
        sys.path[:0] = [str(root) for root in self.roots if str(root) not in sys.path]

    @property
    def prepared(self) -> PreparedStore:
        """The prepared data."""
        return PreparedStore(self.folder, self.trust)

    @contextlib.contextmanager
    def local(self, checkpoint: str | Path) -> Iterator[Path]:
        """Yield the local folder of a checkpoint, which exists until the `with` block ends.

        Raises:
            InputError: the folder has links, or a pickle that is not signed with this user's key.
        """
        with local_checkpoint(checkpoint) as files:
            refuse_special_files(files)
            refuse_unsigned_checkpoint(files, self.space, self.roots, self.trust)
            yield files


def export_trial(
    models: SweepModels,
    number: int,
    target: Path,
    refitted: Refitted | None = None,
    latest: bool = False,
) -> Exported:
    """Export a trial of a sweep.

    Args:
        models: the models of the sweep.
        number: number of the trial.
        target: folder in which the subfolder `bundle` or `checkpoint` is written.
        refitted: the model to export, if the trial was trained again on several splits. None to
            export a checkpoint of the trial.
        latest: True to export the trial's latest checkpoint instead of the checkpoint of the best
            step.

    Returns:
        The result of the export. If the bundle cannot be written, `error` gives the reason.
    """
    store = models.study_store
    result = store.results()[number]
    facts = {"refit": refitted.facts} if refitted else {}
    best = describe_recorded(store, number) | facts
    checkpoint: str | None
    if refitted is not None:
        checkpoint, step, note = str(refitted.checkpoint), refitted.steps, ""
    else:
        checkpoint, step, note = model_to_export(models.folder, store, number, result, latest)
    exported = Exported(best, notes=(note,) if note else ())
    if checkpoint is None:
        return exported
    if models.space.trainer.load is None:
        return replace(exported, checkpoint=_copy_checkpoint(checkpoint, target))
    exporter = _Exporter(models, number, result, refitted)
    try:
        with models.local(checkpoint) as source:
            return exporter.export(exported, target, source, step)
    except UnreadableFile as e:
        return replace(exported, error=e)
    except Exception as e:
        if disk_error(e) is not None:
            raise
        name = format_trial_id(number)
        log.error("the export of trial %s failed", name, exc_info=e)
        if not isinstance(e, BundleError):
            e = BundleError(f"trial {name} cannot be exported: {type(e).__name__}: {e}")
        return replace(exported, error=e)


def _copy_checkpoint(checkpoint: str, target: Path) -> Path:
    """Copy a checkpoint to the subfolder `checkpoint` of `target`, and return the copy."""
    with local_checkpoint(checkpoint) as source:
        refuse_special_files(source)
        return write.copy_checkpoint(source, target / "checkpoint")


@dataclass(frozen=True)
class _Exporter:
    """Exports the model in a checkpoint's folder.

    `result` is the trial's result. The other attributes are arguments of `export_trial`.
    """

    models: SweepModels
    number: int
    result: Result
    refitted: Refitted | None

    def export(self, exported: Exported, target: Path, source: Path, step: int) -> Exported:
        """Write the bundle.

        Args:
            exported: the facts and the notes that are known so far.
            target: folder in which the subfolder `bundle` is written.
            source: the checkpoint's folder.
            step: step of the model in the checkpoint.
        """
        space = self.models.space
        trial = self.models.study_store.trial(self.number)
        info = self.models.prepared.load_info(trial.data)
        fitted = self._load_chain(trial, self.refitted) if space.data.given else None
        notes = exported.notes
        best = dict(exported.best)
        if fitted is not None:
            best["test"], note = self._score_on_test(trial, source)
            notes = (*notes, note) if note else notes
        facts = self._description(exported.best, step) | {
            "test": best["test"],
            "best_step": step,
            "seed": trial.seed,
            **sweep_facts(self.models, info.fingerprint),
        }
        if self.refitted is not None:
            facts["refit"] = self.refitted.facts
        path = write.write_bundle(
            target / "bundle",
            models={write.SINGLE: write.TrainedModel(source, fitted)},
            code=code_of(space, self.models.roots),
            data=data_of(
                info,
                raw=info.check if space.data.given else None,
                expected=recorded_predictions(source),
            ),
            training=to_json_value(facts),
        )
        best["bytes"] = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        best["rows_per_second"] = Manifest.read(path).rows_per_second
        return replace(exported, best=best, bundle=path, notes=notes)

    def _load_chain(self, trial: Trial, refitted: Refitted | None) -> FittedChain | None:
        """Load the chain that was fitted in the search, or when the trial was trained again."""
        store = self.models.prepared
        if refitted is None:
            return store.load_chain(trial.preprocessor, trial.data)
        key = data_key(store.load_info(trial.data).fingerprint, trial.preprocessor)
        return PreparedStore(refitted.folder, self.models.trust).find_chain(key)

    def _score_on_test(self, trial: Trial, source: Path) -> tuple[float | None, str | None]:
        """Score a model on the rows of test, which the model has not seen.

        This is the exported model, unless it was trained on these rows. Then it is the model
        before: `Refitted.scored`, or the model of the search.

        Args:
            trial: the trial.
            source: the folder of the checkpoint that is exported.

        Returns:
            See `score_test`. Two times None if there are no test rows.
        """
        space = self.models.space
        store = self.models.prepared
        test = store.load_test(trial.data)
        if test is None:
            return None, None
        refitted = self.refitted
        checkpoint: str | Path | None = source
        if refitted is not None and "test" in refitted.splits:
            refitted = refitted.scored
            if refitted is not None:
                checkpoint = refitted.checkpoint
            else:
                checkpoint, _, _ = model_to_export(
                    self.models.folder, self.models.study_store, self.number, self.result
                )
        if checkpoint is None:
            return None, "no test score: the checkpoint of the search was deleted"
        metric = next(
            (o.metric for o in space.objectives if o.metric not in COSTS),
            space.objective.metric,
        )
        task = store.load_info(trial.data).task
        method = "decision_function" if metrics.needs(metric, task) == "scores" else "predict"
        chain = self._load_chain(trial, refitted)
        assert chain is not None, "each training stores the chain that it fits"
        rows = chain.transform(test[0])
        load = space.trainer.load
        assert load is not None
        with self.models.local(checkpoint) as files:
            predictions = predict_checkpoint(trial, load, files, rows, method)
        return score_test(metric, task, test[1], predictions)

    def _description(self, described: dict[str, Any], step: int) -> dict[str, Any]:
        """Return the facts of the trial at a step, given those at its best step."""
        store = self.models.study_store
        # If the steps are folds or parts of the rows, `step` counts the loop's own steps after a
        # refit.
        of_loop = self.refitted is not None and store.objectives.last_step_counts
        if of_loop or step == self.result.best_step:
            return described
        return describe_recorded(store, self.number, step)


def recorded_predictions(checkpoint: Path) -> np.ndarray | None:
    """Return the predictions that the trainer recorded for the check of a bundle.

    Args:
        checkpoint: folder of the checkpoint.

    Returns:
        The predictions, shape (n,) or (n, k); None if the trainer recorded none.

    Raises:
        UnreadableFile: the file holds no array of numbers.
    """
    file = checkpoint / CHECK_PREDICTIONS
    if not file.exists():
        return None
    try:
        loaded = np.load(file, allow_pickle=False)
        if not isinstance(loaded, np.ndarray):
            raise ValueError("it is an archive")
    except (OSError, ValueError, EOFError, MemoryError) as e:
        reason = " ".join(str(e).split())
        rule = f"holds no array of NumPy ({reason}); restore the file, or export another trial"
        raise UnreadableFile(Problem(str(file), rule)) from e
    return loaded


def refuse_unsigned_checkpoint(
    source: Path, space: Space, roots: Sequence[Path], trust: bool
) -> None:
    """Raise UntrustedFile if a checkpoint's folder has a pickle without this user's signature.

    If `trust` is true, raise no error.
    """
    names = [space.trainer.loop, *([space.trainer.load] if space.trainer.load else [])]
    definitions = [definition_of(references.parse(name)[0], roots) for name in names]
    refuse_unsigned(
        source, [name for definition in definitions for name in definition.pickles], trust
    )


def code_of(space: Space, roots: Sequence[Path]) -> write.ModelCode:
    """Return which code a bundle needs. The trainer must have a `load`."""
    load = space.trainer.load
    assert load is not None
    trainer = definition_of(references.parse(space.trainer.loop)[0], roots)
    # Only the trainer's own `load` imports the modules that options name. The user's `load` imports
    # what it needs by itself.
    named = space.trainer.references if trainer.load else ()
    imports = [*(references.parse(name)[0] for name in named), *space.trainer.packages]
    return write.ModelCode(load, roots, left_out=trainer.resume_files, imports=imports)


def data_of(
    info: DatasetInfo, raw: pd.DataFrame | None, expected: np.ndarray | None
) -> write.ModelData:
    """Return what a bundle records about the data; see `write.ModelData`."""
    return write.ModelData(
        label=info.label,
        task=info.task,
        classes=info.classes,
        raw=raw,
        expected=expected,
        missing=info.missing,
    )


def sweep_facts(models: SweepModels, fingerprint: str) -> dict[str, Any]:
    """Return the facts about a sweep that every bundle's manifest records.

    Args:
        models: the models of the sweep.
        fingerprint: fingerprint of the data.
    """
    space = models.space
    return {
        "sweep": models.folder.name,
        "metric": space.objective.metric,
        "goal": space.objective.goal,
        "space": space.public(space.text),
        "overrides": list(map(space.public, space.overrides)),
        "data_fingerprint": fingerprint,
        "read": vars(space.data.read),
        "git": provenance.git(space.data.base),
        "versions": provenance.versions(),
    }


def model_to_export(
    folder: Path,
    study_store: StudyStore,
    number: int,
    result: Result,
    latest: bool = False,
) -> tuple[str | None, int, str]:
    """Return the checkpoint to export, the step of its model, and a note for the user.

    The note may be empty. If there is no checkpoint to export, it is None, the step is 0, and the
    note gives the reason.
    """
    trial_id = format_trial_id(number)
    state = study_store.states[number]
    checkpoint = state.checkpoint if latest else state.best
    if checkpoint is None:
        return None, 0, _why_no_checkpoint(study_store, number, latest)
    source = checkpoint_place(folder, trial_id, checkpoint.name)
    if not checkpoint_exists(source):
        deleted = "latest checkpoint" if latest else "checkpoint"
        return None, 0, f"trial {trial_id} cannot be exported, because its {deleted} was deleted"
    step, note, values = checkpoint.best_step, "", dict(state.curve)
    value = values.get(step, math.nan)
    if (
        step != result.best_step
        and value == value
        and value != values.get(result.best_step or 0, math.nan)
    ):
        reason = (
            ""
            if latest
            else ", because the loop saved no checkpoint at the trial's best step, "
            f"{result.best_step}"
        )
        note = f"exported the model of step {step} (value {value:.6g}){reason}"
    return source, step, note


def _why_no_checkpoint(study_store: StudyStore, number: int, latest: bool) -> str:
    """Return why a trial that reported no checkpoint cannot be exported, and what to do."""
    cannot = f"trial {format_trial_id(number)} cannot be exported, because it"
    saved = [format_trial_id(n) for n in study_store.states if _saved(study_store, n, latest)]
    if saved:
        others = first_of(saved, 8)
        return f"{cannot} reported no checkpoint; trials with a checkpoint: {others}"
    how = how_to_get_a_bundle(study_store.space.trainer)
    return f"{cannot} reported no checkpoint" + (f"; {how}" if how else "")


def score_test(
    metric: str, task: str | None, labels: np.ndarray, predictions: Any
) -> tuple[float | None, str | None]:
    """Score predictions of the test split.

    Args:
        metric: the name of a metric, or a user's function `module:function`.
        task: "binary", "multiclass", "regression", or None if the sweep has no label.
        labels: encoded labels, shape (n,).
        predictions: the model's output for the same n rows.

    Returns:
        The score and None. If the score cannot be computed: None, and a note that tells the user
            the reason.
    """
    try:
        value = metrics.score(metric, task, labels, predictions)
    except Exception as e:
        if references.is_reference(metric):
            return None, f"no test score: the metric `{metric}` raised {type(e).__name__}: {e}"
        if isinstance(e, ValueError):
            return None, f"no test score: {e}"
        raise
    if value is None:
        return (
            None,
            (
                f"no test score: only the loop computes the metric `{metric}`, so sweeps cannot "
                "compute it on the test rows"
            ),
        )
    return value, None


def predict_checkpoint(
    trial: Trial, load: str, source: Path, rows: pd.DataFrame, method: str = "predict"
) -> Any:
    """Predict rows with the model of a checkpoint.

    Args:
        trial: the trial.
        load: the trainer's function that loads a model from a checkpoint, in the form
            `module:attr`.
        source: the checkpoint's folder.
        rows: the prepared rows.
        method: the model's method to call. `predict` is called instead if the model has no such
            method.

    Raises:
        BundleError: the user's `load` raised an error, or the method of the loaded model raised an
            error.
    """
    try:
        model = references.resolve(load)(str(source))
        return getattr(model, method, model.predict)(rows)
    except Exception as e:
        raise BundleError(
            f"trial {trial.id} cannot be exported: `{load}`, or the model that it returned, "
            f"raised {type(e).__name__}: {e}"
        ) from e


def describe_recorded(
    study_store: StudyStore, number: int, step: int | None = None
) -> dict[str, Any]:
    """Return the facts of a recorded trial, as `sweeps run --json` shows the best trial.

    If the sweep has several objectives, the result also has `values`. If the sweep has constraints,
    the result also has `feasible`. If trials are repeated, the result also has `repeats`, and
    `value` is the aggregate of all repeats.

    Args:
        study_store: the study.
        number: number of the trial.
        step: step at which to describe the trial; None for the best step. Repeated trials are
            always described at their best steps.
    """
    trial, configurations = study_store.trial(number), study_store.configurations()
    first, repeats, objectives = (
        trial.first_trial,
        study_store.space.repeats,
        study_store.objectives,
    )
    own, aggregate = dict(configurations.trials[first]), configurations.results()[first]
    result = own[number]
    if step is not None and step != result.best_step and repeats.count == 1:
        result = aggregate = _at_step(study_store, number, result, step)
    description = describe(trial, result)
    if repeats.count > 1:
        values = {format_trial_id(n): r.value for n, r in own.items()}
        description |= {
            "value": aggregate.value,
            "repeats": {"aggregate": repeats.aggregate, "values": values},
        }
    if len(objectives.objectives) > 1:
        description["values"] = dict(
            zip((o.metric for o in objectives.objectives), aggregate.values, strict=True)
        )
    if objectives.constraints:
        description["feasible"] = aggregate.feasible
    return description


def objective_value(study_store: StudyStore, number: int, step: int) -> float | None:
    """Return the objective's value for the model that a trial had at a step.

    A bundle records this value. `sweeps export --alias` compares this value with the value of the
    model version that has the alias.

    The value at the best step is the trial's value. In two cases, the value does not depend on the
    step. If trials are repeated, it is the aggregate of all repeats. If the objective is a cost, it
    is the cost of the whole trial.
    """
    return describe_recorded(study_store, number, step)["value"]  # type: ignore[no-any-return]


def _at_step(study_store: StudyStore, number: int, result: Result, step: int) -> Result:
    """Return the result that the trial would have if it had ended at this step.

    The costs are still the costs of the whole trial.
    """
    state, objectives = study_store.states[number], study_store.objectives
    curve, others = [(s, v) for s, v in state.curve if s == step], state.other_curves
    costs = {name: result.metrics[name] for name in COSTS if name in result.metrics}
    score = objectives.score(result.state, step, curve, others, costs, result.final)
    return replace(
        result,
        value=score.values[0],
        values=score.values,
        metrics=score.metrics,
        feasible=score.feasible,
    )


def describe(trial: Trial, result: Result) -> dict[str, Any]:
    """Return the facts of a trial that `sweeps run --json` shows for every sweep.

    `describe_recorded` adds more facts for some sweeps.
    """
    description = {
        "trial": trial.id,
        "value": result.value,
        "test": None,
        "metrics": result.metrics,
        "params": trial.params,
        "preprocessor": trial.chain,
        "scaling": trial.shape.scaling,
    }
    return description | ({"data": trial.data} if trial.data else {})


def number_of(study_store: StudyStore, trial_id: str | None) -> int:
    """Return the number of the trial with the given ID.

    If the ID is None, return the number of the best trial.

    Raises:
        InputError: the sweep has no trial with this ID. If the ID is None: the sweep has several
            objectives, or no complete trial has a value.
    """
    results = study_store.results()
    if trial_id is not None:
        known = {format_trial_id(n): n for n in results}
        if (name := complete_trial_id(trial_id)) not in known:
            raise unknown_trial("--trial", trial_id, known)
        return known[name]
    if len(study_store.objectives.objectives) > 1:
        front = ", ".join(format_trial_id(n) for n in study_store.front()) or "nothing"
        raise InputError(
            "--trial",
            "is required, because the sweep has several objectives; give the id of a trial, or "
            "use --pareto for "
            f"the Pareto front: {front}",
        )
    best = study_store.winner()
    if best is None:
        saved = [format_trial_id(n) for n, r in results.items() if r.checkpoint is not None]
        hint = "; use --trial with the id of a trial that has a checkpoint: "
        more = f"{hint}{first_of(saved, 8)}" if saved else ""
        raise InputError(
            "export", f"this sweep has no completed trial with a value of the objective{more}"
        )
    return best


def best_numbers(study_store: StudyStore, count: int, latest: bool = False) -> list[int]:
    """Return the numbers of the best trials that have a checkpoint, best first.

    Args:
        study_store: the study.
        count: largest number of trials to return.
        latest: True to require a trial's latest checkpoint instead of the checkpoint of its best
            step.

    Raises:
        InputError: no complete trial has both a value and the required checkpoint.
    """
    numbers = [n for n in study_store.ranked() if _saved(study_store, n, latest)]
    if not numbers:
        what = "its latest checkpoint" if latest else "a checkpoint"
        raise InputError(
            "--top", f"this sweep has no completed trial with a value of the objective and {what}"
        )
    return numbers[:count]


def front_numbers(study_store: StudyStore, latest: bool = False) -> list[int]:
    """Return the numbers of the trials on the Pareto front.

    Args:
        study_store: the study.
        latest: True to require a trial's latest checkpoint instead of the checkpoint of its best
            step.

    Raises:
        InputError: the sweep has only one objective, no complete trial has a value of every
            objective, or a trial of the front does not have the required checkpoint.
    """
    if len(study_store.objectives.objectives) == 1:
        one = study_store.objectives.objectives[0].metric
        raise InputError(
            "--pareto",
            f"needs several objectives, but this sweep has only one, `{one}`; use --top K instead",
        )
    front = study_store.front()
    if not front:
        raise InputError(
            "--pareto", "this sweep has no completed trial with a value of every objective"
        )
    if short := [format_trial_id(n) for n in front if not _saved(study_store, n, latest)]:
        what = "latest checkpoint" if latest else "checkpoint"
        raise InputError(
            "--pareto",
            f"the {what} of trial {', '.join(short)} is missing; use --trial to export another "
            "trial",
        )
    return front


def _saved(study_store: StudyStore, number: int, latest: bool) -> bool:
    """Return whether the checkpoint to export exists."""
    state = study_store.states[number]
    checkpoint = state.checkpoint if latest else state.best
    if checkpoint is None:
        return False
    return checkpoint_exists(checkpoint_place(study_store.folder, state.id, checkpoint.name))

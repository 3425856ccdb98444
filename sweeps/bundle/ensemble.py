"""Export an ensemble: one bundle that averages models of a sweep.

The models are chosen on the rows of valid.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from sweeps.core import metrics
from sweeps.core.errors import BundleError, InputError
from sweeps.core.files.trust import UntrustedFile
from sweeps.core.plugins import references
from sweeps.core.resources import COSTS
from sweeps.core.result import to_json_value
from sweeps.core.text.texts import count_noun
from sweeps.core.trial import Trial
from sweeps.data.prepared_store import DatasetInfo
from sweeps.data.preprocessing.fit import data_key, label_values
from sweeps.space import Space

from . import selection, write
from .averaging import average, has_only_classes, to_numbers
from .manifest import Facts, Member, members_text
from .sweep_models import SweepModels, recorded_predictions, score_test
from .trial_choice import SavedModel
from .trial_facts import describe_recorded

if TYPE_CHECKING:
    from sweeps.data.splits.variants import DataVariants

OPTION = "--ensemble"
# The notes give the reasons for at most this many of the candidates that cannot be used.
SHOWN_REASONS = 3


def require_supported(space: Space) -> None:
    """Check that a sweep's models can be averaged, and scored on the rows of valid.

    Raises:
        InputError: They cannot. The message gives the reason and the next step.
    """
    metric = space.objective.metric
    objectives = [o.metric for o in space.objectives]
    if all(trainer.load is None for trainer in space.trainers.values()):
        text = (
            "needs the key `load` of the trainer, a function that loads a model from a "
            "checkpoint; add it, and run the sweep again"
        )
    elif not space.data.is_named or not space.data.labels:
        text = (
            "needs the labelled rows of valid, which sweeps knows only if the space file has the "
            "section `data` with a `label`"
        )
    elif space.data.folds:
        text = "does not work with a cross-validation, whose checkpoints hold no model"
    elif space.data.ingest == "stream":
        text = (
            "does not work with streamed data, because the rows of valid must fit in memory; "
            "write `data.ingest: memory`"
        )
    elif len(objectives) > 1:
        text = (
            f"needs a single objective, but this sweep has {len(objectives)}: "
            f"{', '.join(objectives)}; use --pareto, or --trial ID"
        )
    elif metric in COSTS:
        text = (
            f"cannot choose models by the objective `{metric}`, because it is a cost and not a "
            "score of predictions; use --trial ID"
        )
    elif not references.is_reference(metric) and metrics.base_name(metric) not in metrics.METRICS:
        text = (
            f"cannot compute the objective `{metric}` from predictions, because only the loop "
            "knows it; use --trial ID, or run the sweep "
            "with a metric of sweeps, such as `logloss` or `rmse`, or with a function "
            "`module:function`"
        )
    else:
        return
    raise InputError(OPTION, text)


@dataclass(frozen=True)
class EnsembleExport:
    """Export of an ensemble of a sweep's models.

    Attributes:
        models: The models of the sweep; `require_supported` has accepted its space.
        variants: The data of the sweep.
        problems: Reason why a candidate cannot be used, by the id of the trial.
    """

    models: SweepModels
    variants: DataVariants
    problems: dict[str, str] = field(default_factory=dict)

    @property
    def metric(self) -> str:
        """The metric of the objective."""
        return self.models.space.objective.metric

    def trial(self, model: SavedModel) -> Trial:
        """Return the trial of a model."""
        return self.models.study_store.trial(model.number)

    def export(
        self, candidates: Sequence[SavedModel], rounds: int, target: Path
    ) -> tuple[str, ...]:
        """Choose the members with `sweeps.bundle.selection`, and write their bundle.

        Args:
            candidates: The models to choose from, at least one.
            rounds: Number of rounds of the selection.
            target: Folder in which the subfolder `bundle` is written.

        Returns:
            Notes for the user: the scores, the members, and which candidates cannot be used.

        Raises:
            InputError: The metric cannot be computed, or no model can be scored.
            BundleError: The bundle cannot be written, or predicts other values than the members.
        """
        data = self.trial(candidates[0]).data
        info = self.models.prepared.load_info(data)
        labels = label_values(self.variants.splits(data).valid, info.label)
        assert labels is not None, "`require_supported` needs labels"
        predictions = dict(self._predict_valid(candidates, info))
        models = [model for model in candidates if model in predictions]
        chosen = selection.select(
            [predictions[model] for model in models],
            functools.partial(self._score, info.task, labels),
            minimize=self.models.space.objective.goal == "minimize",
            rounds=rounds,
        )
        if chosen is None:
            reasons = [f": trial {trial} {reason}" for trial, reason in self.problems.items()]
            text = f"no model of this sweep has a finite `{self.metric}` on valid"
            raise InputError(OPTION, text + "".join(reasons[:1]))
        weights = {models[i]: weight for i, weight in chosen.weights.items()}
        single = models[chosen.single]
        test_scores, note = self._score_test(weights, single, info)
        valid_scores = dict(zip(models, chosen.single_values, strict=True))
        members = self._members(weights, valid_scores, test_scores)
        ensemble = {
            "rounds": rounds,
            "values": chosen.round_values,
            "rows": len(labels),
            "candidates": {model.trial_id: model.step for model in candidates},
            "single": {
                "trial": single.trial_id,
                "value": valid_scores[single],
                "test": test_scores.get(single),
            },
        }
        facts: Facts = {
            **self.models.facts(self.variants.fingerprint),
            "trial": None,
            "value": chosen.value,
            "test": test_scores.get(None),
            "ensemble": ensemble,
        }
        self._write(target, weights, members, facts=facts)
        notes = _summary(facts, members, len(models))
        if note is not None:
            notes.append(note)
        return (*notes, *self._problem_notes())

    def _predict_valid(
        self, candidates: Sequence[SavedModel], info: DatasetInfo
    ) -> Iterator[tuple[SavedModel, np.ndarray]]:
        """Yield the models that can predict, each with its predictions for valid.

        The models of trials that read another source than the best trial are left out, because
        other sources may have other rows of valid. Valid is prepared once for all models with the
        same data variant and preprocessor.
        """
        source = self.variants.source_index(self.trial(candidates[0]).data)
        # Models with the same data variant and preprocessor, by the key of both
        groups: dict[str, list[SavedModel]] = {}
        for model in candidates:
            trial = self.trial(model)
            if self.variants.source_index(trial.data) != source:
                self.problems[model.trial_id] = "its trial read another source of data"
                continue
            key = data_key(self.variants.fingerprint_of(trial.data), trial.preprocessor)
            groups.setdefault(key, []).append(model)
        for group in groups.values():
            trial = self.trial(group[0])
            splits = self.variants.splits(trial.data)
            raw = splits.valid.select(list(splits.features)).to_pandas()
            try:
                rows = self.models.chain(trial).transform(raw)
            except UntrustedFile:
                raise
            except Exception as e:  # a user's step may raise anything
                reason = f"its preprocessor failed: {type(e).__name__}: {e}"
                self.problems.update({model.trial_id: reason for model in group})
                continue
            for model in group:
                try:
                    yield model, self._predict(model, rows, info)
                except BundleError as e:
                    self.problems[model.trial_id] = str(e)

    def _predict(self, model: SavedModel, rows: pd.DataFrame, info: DatasetInfo) -> np.ndarray:
        """Predict prepared rows.

        Raises:
            BundleError: The model cannot be loaded or cannot predict, or the metric needs
                probabilities and the model predicts classes.
        """
        metric = self.metric
        classes = len(info.classes or ())
        output = self.models.predict(self.trial(model), model.source, rows)
        only_classes = has_only_classes(output, info.task, classes)
        if only_classes and metrics.needs(metric, info.task) not in (None, "classes"):
            raise BundleError(
                f"`{metric}` needs probabilities, but the model predicts only classes"
            )
        numbers = to_numbers(output, info.task, classes)
        if references.is_reference(metric) and (only_classes or numbers.shape != output.shape):
            raise BundleError(
                f"`{metric}` is a function that gets what the model predicts; the model predicts "
                f"an array of {output.dtype} with shape {output.shape}, and the average has shape "
                f"{numbers.shape}"
            )
        return numbers

    def _score(self, task: str | None, labels: np.ndarray, predictions: np.ndarray) -> float:
        """Return the score of some predictions for valid."""
        metric = self.metric
        try:
            value = metrics.score(metric, task, labels, predictions)
        except Exception as e:  # a user's metric may raise anything
            text = f"the metric `{metric}` cannot be computed on valid: {type(e).__name__}: {e}"
            raise InputError(OPTION, text) from e
        if value is None:
            text = f"cannot compute the metric `{metric}` for the task {task}"
            raise InputError(OPTION, f"{text}, because only the loop knows it; use --trial ID")
        return value

    def _score_test(
        self, weights: Mapping[SavedModel, int], single: SavedModel, info: DatasetInfo
    ) -> tuple[dict[SavedModel | None, float | None], str | None]:
        """Score the members, the best single model and the average on the test split.

        Args:
            weights: The weight of each member.
            single: The best single model.
            info: Information about the data.

        Returns:
            The score of each model, and the score of the average under the key None; {} if there is
            no test split. The second result is a note that says why the score of the average cannot
            be computed; None if it can.
        """
        outputs: dict[SavedModel, np.ndarray] = {}
        for model in (*weights, single):
            trial = self.trial(model)
            test = self.models.prepared.load_test(trial.data)
            if test is None:
                return {}, None
            rows, labels = test  # the labels are the same for all models
            outputs[model] = self._predict(model, self.models.chain(trial).transform(rows), info)
        scores: dict[SavedModel | None, float | None] = {}
        for model, output in outputs.items():
            scores[model], _ = score_test(self.metric, info.task, labels, output)
        averaged = average([outputs[model] for model in weights], list(weights.values()))
        scores[None], note = score_test(self.metric, info.task, labels, averaged)
        return scores, note

    def _members(
        self,
        weights: Mapping[SavedModel, int],
        values: Mapping[SavedModel, float],
        tests: Mapping[SavedModel | None, float | None],
    ) -> list[Member]:
        """Describe the members for the manifest, still without their columns.

        Args:
            weights: The weight of each member.
            values: Scores of models on valid.
            tests: Scores of models on test.
        """
        members = []
        for model, weight in weights.items():
            facts = describe_recorded(self.models.study_store, model.number, model.step)
            facts |= {
                "value": values[model],
                "test": tests.get(model),
                "best_step": model.step,
                "seed": self.trial(model).seed,
            }
            members.append(
                Member(trial=model.trial_id, weight=weight, training=to_json_value(facts))
            )
        return members

    def _write(
        self,
        target: Path,
        weights: Mapping[SavedModel, int],
        members: Sequence[Member],
        *,
        facts: Facts,
    ) -> None:
        """Write the bundle.

        Args:
            target: Folder in which the subfolder `bundle` is written.
            weights: The weight of each member.
            members: The members, without their columns.
            facts: Facts about the sweep and the ensemble, for the manifest.
        """
        trials = [self.trial(model) for model in weights]
        infos = [self.models.prepared.load_info(trial.data) for trial in trials]
        codes = [self.models.code(trial) for trial in trials]
        check = self._check_rows(infos)
        described = []
        for member, info, code in zip(members, infos, codes, strict=True):
            # None: the member reads all columns of the bundle, or has the `load` of the first.
            columns = None if list(info.features) == list(check.columns) else list(info.features)
            own = {"columns": columns, "load": None if code.load == codes[0].load else code.load}
            described.append(member.model_copy(update=own))
        first = infos[0]
        with contextlib.ExitStack() as stack:
            trained = {}
            for model, trial, code in zip(weights, trials, codes, strict=True):
                source = stack.enter_context(self.models.local_folder(trial, model.source))
                chain = self.models.chain(trial)
                trained[model.trial_id] = write.TrainedModel(source, chain, code)
            recorded = [recorded_predictions(model.checkpoint) for model in trained.values()]
            classes = len(first.classes or ())
            outputs = [to_numbers(r, first.task, classes) for r in recorded if r is not None]
            expected = None  # if a member has no recorded predictions, their average is unknown
            if len(outputs) == len(trained):
                expected = average(outputs, list(weights.values()))
            write.write_bundle(
                target / "bundle",
                models=trained,
                info=replace(first, check=check),
                expected=expected,
                training=to_json_value(facts),
                members=described,
            )

    def _check_rows(self, infos: Sequence[DatasetInfo]) -> pd.DataFrame:
        """Return the check rows with the features of all members, in the order of the sources."""
        member_columns = {name: info.check[name] for info in infos for name in info.features}
        ordered: dict[str, pd.Series] = {}
        for source in self.variants.sources.values():
            names = [name for name in source.features if name in member_columns]
            ordered |= {name: member_columns[name] for name in names}
        return pd.DataFrame(ordered, index=infos[0].check.index)

    def _problem_notes(self) -> list[str]:
        """Return notes on the candidates that cannot be used."""
        notes = [
            f"note: trial {trial} is no candidate: {reason}"
            for trial, reason in self.problems.items()
        ]
        hidden = len(notes) - SHOWN_REASONS
        if hidden <= 0:
            return notes
        return [*notes[:SHOWN_REASONS], f"note: {hidden} more trials are no candidates"]


def _summary(facts: Facts, members: Sequence[Member], used: int) -> list[str]:
    """Return lines with the scores of the ensemble and of the best model, and with the members.

    Args:
        facts: The facts about the ensemble in its manifest.
        members: The members.
        used: Number of models from which the members were chosen.
    """
    about = facts["ensemble"]
    lines = []
    for split, key in (("valid", "value"), ("test", "test")):
        single = about["single"][key]
        if facts[key] is not None and single is not None:
            scored = f"{metrics.base_name(facts['metric'])} on {split}: {facts[key]:.6g}"
            best = f"{single:.6g} for the best single model (trial {about['single']['trial']})"
            lines.append(f"{scored} for the ensemble, {best}")
    rounds = about["rounds"]
    line = (
        f"members: {members_text(members)}; chosen in {count_noun(rounds, 'round')} among "
        f"{count_noun(used, 'trial')}"
    )
    if len(members) == 1 and rounds > 1:
        line += "; no average scored better than this model alone"
    return [*lines, line]

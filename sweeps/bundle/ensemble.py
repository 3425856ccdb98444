"""Export an ensemble: one bundle that averages models of a sweep.

The models are chosen on the rows of valid.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from sweeps.bundle import averaging, selection, write
from sweeps.bundle.export import (
    SweepModels,
    code_of,
    data_of,
    describe_recorded,
    model_to_export,
    predict_checkpoint,
    recorded_predictions,
    score_test,
    sweep_facts,
)
from sweeps.bundle.manifest import Member
from sweeps.core import metrics, references
from sweeps.core.errors import BundleError, InputError
from sweeps.core.label_columns import MULTILABEL, label_columns
from sweeps.core.resources import COSTS
from sweeps.core.result import to_json_value
from sweeps.core.trial import format_trial_id
from sweeps.core.trust import UntrustedFile
from sweeps.data.prepared_store import DatasetInfo
from sweeps.data.preprocessing.fit import data_key
from sweeps.space import Space
from sweeps.study import ranking

if TYPE_CHECKING:
    from sweeps.data.variants import DataVariants

OPTION = "--ensemble"
# Only the best of more models are candidates, because the predictions of all candidates are held in
# memory.
MOST_CANDIDATES = 200
# Number of candidates that cannot be used which the notes name.
SHOWN_REASONS = 3


@dataclass(frozen=True)
class Candidate:
    """A model that an ensemble may contain.

    Attributes:
        number: number of the trial.
        source: path or URI of the checkpoint.
        step: step of the model.
    """

    number: int
    source: str
    step: int

    @property
    def trial(self) -> str:
        """Id of the trial."""
        return format_trial_id(self.number)


@dataclass(frozen=True)
class EnsembleExport:
    """The result of an export.

    Attributes:
        bundle: the bundle's folder.
        notes: the scores, the members, and other notes for the user.
    """

    bundle: Path
    notes: tuple[str, ...]


def require_supported(space: Space) -> None:
    """Check that a sweep's models can be averaged, and scored on the rows of valid.

    Raises:
        InputError: they cannot. The message gives the reason and the next step.
    """
    metric, goals = space.objective.metric, [o.metric for o in space.objectives]
    if space.trainer.load is None:
        text = (
            "needs the key `load` of the trainer, a function that loads a model from a "
            "checkpoint; add it, and run the sweep again"
        )
    elif not space.data.given or not space.data.labels:
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
    elif len(goals) > 1:
        text = (
            f"needs a single objective, but this sweep has {len(goals)}: {', '.join(goals)}; use "
            "--pareto, or --trial ID"
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


def candidates_of(models: SweepModels) -> list[Candidate]:
    """Return the models that an ensemble may contain, the best trial first.

    These are the checkpoints of completed and of pruned trials that still exist. Trials that
    violate a constraint are left out.

    Raises:
        InputError: no such trial has a checkpoint.
    """
    store, space = models.study_store, models.space
    results = store.results()
    found: list[Candidate] = []
    for number in ranking.ranked(results.items(), space.objective.goal == "minimize"):
        if results[number].feasible and len(found) < MOST_CANDIDATES:
            source, step, _ = model_to_export(models.folder, store, number, results[number])
            if source is not None:
                found.append(Candidate(number, source, step))
    if not found:
        rule = " and satisfies the constraints" if space.constraints else ""
        raise InputError(OPTION, f"no trial of this sweep has a value and a checkpoint{rule}")
    return found


def export_ensemble(
    models: SweepModels,
    candidates: Sequence[Candidate],
    variants: DataVariants,
    rounds: int,
    target: Path,
) -> EnsembleExport:
    """Choose the models of an ensemble with `sweeps.bundle.selection`, and write their bundle.

    Args:
        models: the models of the sweep; `require_supported` has accepted its space.
        candidates: the models to choose from, at least one.
        variants: the data of the sweep.
        rounds: number of rounds of the selection.
        target: folder in which the subfolder `bundle` is written.

    Returns:
        The bundle, and notes for the user.

    Raises:
        InputError: the metric cannot be computed, or no model can be scored.
        BundleError: the bundle cannot be written, or predicts other values than the members.
    """
    return _Exporter(models, variants).export(candidates, rounds, target)


@dataclass(frozen=True)
class _Exporter:
    """Exports an ensemble. `problems` says why candidates cannot be used, by the id of the trial.

    The other attributes are arguments of `export_ensemble`.
    """

    source: SweepModels
    variants: DataVariants
    problems: dict[str, str] = field(default_factory=dict)

    def export(self, candidates: Sequence[Candidate], rounds: int, target: Path) -> EnsembleExport:
        """Choose the members, and write their bundle; see `export_ensemble`."""
        first = self.source.study_store.trial(candidates[0].number)
        splits = self.variants.splits(first.data)
        info = self.source.prepared.load_info(first.data)
        self._require_metric_of(info.task)
        models = self._of_one_source(candidates)
        predictions = dict(self._predict_valid(models, info))
        models = [model for model in models if model.number in predictions]
        labels = _labels_of(splits.valid, info)
        outputs = [predictions[model.number] for model in models]
        found = self._select(outputs, info.task, labels, rounds=rounds)
        scores = {
            models[i].number: self._score(info.task, labels, outputs[i])
            for i in {*found.weights, found.single}
        }
        members = {models[i]: weight for i, weight in found.weights.items()}
        tests, note = self._score_test(
            [*members, models[found.single]], list(members.values()), info
        )
        about: dict[str, Any] = {
            "rounds": rounds,
            "values": found.rounds,
            "rows": len(labels),
            "candidates": steps_of(candidates),
            "single": {
                "trial": models[found.single].trial,
                "value": found.single_value,
                "test": tests[models[found.single].number],
            },
        }
        facts = {
            **sweep_facts(self.source, self.variants.fingerprint),
            "trial": None,
            "value": found.value,
            "test": tests[None],
        }
        bundle = self._write(
            target,
            members,
            {n: (scores[n], tests[n]) for n in scores},
            {**facts, "ensemble": about},
        )
        notes = [
            *_score_lines(
                metrics.base_name(self.source.space.objective.metric), facts, about["single"]
            ),
            _member_line(members, len(models), rounds),
        ]
        return EnsembleExport(bundle, (*notes, *([note] if note else ()), *self._problem_lines()))

    def _require_metric_of(self, task: str | None) -> None:
        """Raise InputError if sweeps cannot compute the metric for the task."""
        metric = self.source.space.objective.metric
        if not references.is_reference(metric) and metrics.find(metric, task) is None:
            text = (
                f"cannot compute the metric `{metric}` for the task {task}, because only the "
                "loop knows it; use --trial ID"
            )
            raise InputError(OPTION, text)

    def _select(
        self,
        outputs: Sequence[np.ndarray],
        task: str | None,
        labels: np.ndarray,
        *,
        rounds: int,
    ) -> selection.Selection:
        """Select the members by their predictions for valid.

        Raises:
            InputError: no model has a finite score.
        """
        minimize = self.source.space.objective.goal == "minimize"
        score = functools.partial(self._score, task, labels)
        found = selection.select(outputs, score, minimize, rounds=rounds)
        if found is None:
            raise self._nothing_scored()
        return found

    def _of_one_source(self, models: Sequence[Candidate]) -> list[Candidate]:
        """Return the models whose trials read the same source as the best trial.

        Other sources may have other rows of valid.
        """
        sources = {
            model: self.variants.source_index(self.source.study_store.trial(model.number).data)
            for model in models
        }
        for model, source in sources.items():
            if source != sources[models[0]]:
                self.problems[model.trial] = "its trial read another source of data"
        return [model for model, source in sources.items() if source == sources[models[0]]]

    def _predict_valid(
        self, models: Sequence[Candidate], info: DatasetInfo
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the number of each model's trial and the model's predictions for valid.

        Models that cannot predict are left out.

        Valid is prepared once for all models with the same data variant and preprocessor.
        """
        chains: dict[str, list[Candidate]] = {}
        for model in models:
            trial = self.source.study_store.trial(model.number)
            chains.setdefault(
                data_key(self.variants.fingerprint_of(trial.data), trial.preprocessor), []
            ).append(model)
        for alike in chains.values():
            trial = self.source.study_store.trial(alike[0].number)
            splits = self.variants.splits(trial.data)
            raw = splits.valid.select(list(splits.features)).to_pandas()
            try:
                rows = self.source.prepared.load_chain(trial.preprocessor, trial.data).transform(
                    raw
                )
            except UntrustedFile:
                raise
            except Exception as e:  # a user's step may raise anything
                self.problems.update(
                    {
                        model.trial: f"its preprocessor failed: {type(e).__name__}: {e}"
                        for model in alike
                    }
                )
                continue
            for model in alike:
                try:
                    yield model.number, self._predict(model, rows, info)
                except BundleError as e:
                    self.problems[model.trial] = str(e)

    def _predict(self, model: Candidate, rows: pd.DataFrame, info: DatasetInfo) -> np.ndarray:
        """Predict prepared rows.

        Raises:
            BundleError: the model cannot be loaded or cannot predict, or the metric needs
                probabilities and the model predicts classes.
        """
        load, metric = self.source.space.trainer.load, self.source.space.objective.metric
        assert load is not None
        with self.source.local(model.source) as source:
            output = np.asarray(
                predict_checkpoint(self.source.study_store.trial(model.number), load, source, rows)
            )
        only_classes = output.dtype.kind in "iub" and (
            info.task == MULTILABEL or (info.classes is not None and output.ndim == 1)
        )
        if only_classes and metrics.needs(metric, info.task) not in (None, "classes"):
            raise BundleError(
                f"`{metric}` needs probabilities, but the model predicts only classes"
            )
        numbers = averaging.to_numbers(output, info.task, len(info.classes or ()))
        if references.is_reference(metric) and (only_classes or numbers.shape != output.shape):
            got = (
                f"the model predicts an array of {output.dtype} with shape {output.shape}, and "
                f"the average has shape {numbers.shape}"
            )
            raise BundleError(f"`{metric}` is a function that gets what the model predicts; {got}")
        return numbers

    def _score(self, task: str | None, labels: np.ndarray, predictions: np.ndarray) -> float:
        metric = self.source.space.objective.metric
        try:
            value = metrics.score(metric, task, labels, predictions)
        except Exception as e:  # a user's metric may raise anything
            text = f"the metric `{metric}` cannot be computed on valid: {type(e).__name__}: {e}"
            raise InputError(OPTION, text) from e
        assert value is not None
        return value

    def _nothing_scored(self) -> InputError:
        metric = self.source.space.objective.metric
        reason = f": trial {' '.join(next(iter(self.problems.items())))}" if self.problems else ""
        return InputError(
            OPTION, f"no model of this sweep has a finite `{metric}` on valid{reason}"
        )

    def _score_test(
        self, models: Sequence[Candidate], weights: Sequence[int], info: DatasetInfo
    ) -> tuple[dict[int | None, float | None], str | None]:
        """Score models and their average on the test split.

        Args:
            models: the members, and after them the best single model.
            weights: weights of the members.
            info: information about the data.

        Returns:
            The score of each model by the number of its trial, and the score of the average under
            the key None. All scores are None if there is no test split. The second result is a note
            that says why a score cannot be computed.
        """
        outputs: list[np.ndarray] = []
        scores: dict[int | None, float | None] = dict.fromkeys(
            [None, *(model.number for model in models)]
        )
        labels = None
        for model in models:
            trial = self.source.study_store.trial(model.number)
            if (test := self.source.prepared.load_test(trial.data)) is None:
                return scores, None
            rows, labels = (
                self.source.prepared.load_chain(trial.preprocessor, trial.data).transform(test[0]),
                test[1],
            )
            outputs.append(self._predict(model, rows, info))
        assert labels is not None
        mean = averaging.average(outputs[: len(weights)], weights)
        note = None
        for number, output in zip(
            [None, *(model.number for model in models)], [mean, *outputs], strict=True
        ):
            scores[number], note = score_test(
                self.source.space.objective.metric, info.task, labels, output
            )
        return scores, note

    def _write(
        self,
        target: Path,
        members: Mapping[Candidate, int],
        scores: Mapping[int, tuple[float | None, float | None]],
        facts: dict[str, Any],
    ) -> Path:
        """Write the bundle.

        Args:
            target: folder in which the subfolder `bundle` is written.
            members: the weight of each member.
            scores: the scores on valid and test, by the number of the trial.
            facts: facts about the sweep and the ensemble, for the manifest.
        """
        trials = {model: self.source.study_store.trial(model.number) for model in members}
        infos = {
            model: self.source.prepared.load_info(trial.data) for model, trial in trials.items()
        }
        first = next(iter(infos.values()))
        raw = self._check_rows(list(infos.values()))
        described = []
        for model, weight in members.items():
            features = list(infos[model].features)
            columns = None if features == list(raw.columns) else features
            described.append(
                self._describe_member(model, weight, columns, scores=scores[model.number])
            )
        with contextlib.ExitStack() as stack:
            models = {
                model.trial: write.TrainedModel(
                    stack.enter_context(self.source.local(model.source)),
                    self.source.prepared.load_chain(trial.preprocessor, trial.data),
                )
                for model, trial in trials.items()
            }
            expected = self._expected(
                [model.checkpoint for model in models.values()], list(members.values()), first
            )
            return write.write_bundle(
                target / "bundle",
                models=models,
                code=code_of(self.source.space, self.source.roots),
                data=data_of(first, raw=raw, expected=expected),
                training=to_json_value(facts),
                members=described,
            )

    def _check_rows(self, infos: Sequence[DatasetInfo]) -> pd.DataFrame:
        """Return the rows for the check of the bundle, with the features of all members."""
        checks = {name: info.check[name] for info in infos for name in info.features}
        whole = list(
            dict.fromkeys(
                name for source in self.variants.sources.values() for name in source.features
            )
        )
        return pd.DataFrame(
            {name: checks[name] for name in sorted(checks, key=whole.index)},
            index=infos[0].check.index,
        )

    def _describe_member(
        self,
        model: Candidate,
        weight: int,
        columns: list[str] | None,
        *,
        scores: tuple[float | None, float | None],
    ) -> Member:
        """Describe a member, with its scores on valid and test, for the manifest."""
        value, test = scores
        training = describe_recorded(self.source.study_store, model.number, model.step)
        seed = self.source.study_store.trial(model.number).seed
        training |= {"value": value, "test": test, "best_step": model.step, "seed": seed}
        return Member(
            trial=model.trial, weight=weight, columns=columns, training=to_json_value(training)
        )

    def _expected(
        self, checkpoints: Sequence[Path], weights: Sequence[int], info: DatasetInfo
    ) -> np.ndarray | None:
        """Return the average of the predictions that the trainer recorded for the check.

        Return None if it did not record those of a member.
        """
        recorded = []
        for checkpoint in checkpoints:
            predictions = recorded_predictions(checkpoint)
            if predictions is None:
                return None
            recorded.append(averaging.to_numbers(predictions, info.task, len(info.classes or ())))
        return averaging.average(recorded, weights)

    def _problem_lines(self) -> list[str]:
        """Return notes on the candidates that cannot be used."""
        lines = [
            f"note: trial {trial} is no candidate: {reason}"
            for trial, reason in self.problems.items()
        ]
        more = (
            [f"note: {len(lines) - SHOWN_REASONS} more trials are no candidates"]
            if len(lines) > SHOWN_REASONS
            else []
        )
        return lines[:SHOWN_REASONS] + more


def _labels_of(rows: Any, info: DatasetInfo) -> np.ndarray:
    """Return the encoded labels of some rows, shape (n,), or (n, k) for k label columns."""
    labels = [rows.column(name).to_numpy() for name in label_columns(info.label)]
    return labels[0] if len(labels) == 1 else np.column_stack(labels)


def _score_lines(metric: str, facts: Mapping[str, Any], single: Mapping[str, Any]) -> list[str]:
    """Return one line for each split with scores: the ensemble's and the best single model's."""
    lines = []
    for split, key in (("valid", "value"), ("test", "test")):
        if facts[key] is not None and single[key] is not None:
            best = f"{single[key]:.6g} for the best single model (trial {single['trial']})"
            lines.append(f"{metric} on {split}: {facts[key]:.6g} for the ensemble, {best}")
    return lines


def _member_line(members: Mapping[Candidate, int], used: int, rounds: int) -> str:
    """Return a line with the members, their weights, and from how many models they were chosen."""
    listed = ", ".join(f"{model.trial} (weight {weight})" for model, weight in members.items())
    line = (
        f"members: {listed}; chosen in {rounds} round{'s' * (rounds != 1)} among {used} "
        f"trial{'s' * (used != 1)}"
    )
    if len(members) == 1 and rounds > 1:
        line += "; no average scored better than this model alone"
    return line


def steps_of(candidates: Sequence[Candidate]) -> dict[str, int]:
    """Return the step of each model, by the id of its trial."""
    return {model.trial: model.step for model in candidates}

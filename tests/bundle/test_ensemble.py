"""Which models of a sweep become an ensemble, and what is refused. No bundle is written."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sweeps.bundle import ensemble, write
from sweeps.bundle.averaging import average, to_numbers
from sweeps.bundle.ensemble_summary import ensembles_of
from sweeps.bundle.export import export_ensemble
from sweeps.bundle.selection import Selection
from sweeps.bundle.sweep_models import SweepModels
from sweeps.bundle.trial_predictions import read_trial_predictions
from sweeps.core import metrics
from sweeps.core.errors import InputError
from sweeps.exports import sweep_exports
from sweeps.space.sections.trainer_definition import definition_of
from sweeps.terminal.sweep_text import format_ensemble
from tests.bundle.ensemble_sweeps import recorded_sweep, reopened
from tests.commands import invoke


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Replace `write_bundle` by a function that writes nothing.

    Return a list of the arguments of each call.
    """
    calls = []

    def keep(target: Any, **arguments: Any) -> Any:
        calls.append(arguments)
        return target

    monkeypatch.setattr(write, "write_bundle", keep)
    monkeypatch.setattr("sweeps.bundle.export.bundle_costs", lambda _: {})
    return calls


def export(sweep: Any, rounds: int, tmp_path: Path) -> tuple[str, ...]:
    """Write the bundle of an ensemble, and return the notes."""
    models = SweepModels(sweep.store, sweep.space, sweep.roots)
    choice = ensemble.choose(sweep.store, read_trial_predictions(sweep.store), rounds)
    exported = export_ensemble(models, choice, tmp_path)
    if exported.error is not None:
        raise exported.error
    scores = ensemble.score_lines(sweep.space.objective.metric, exported.best["ensemble"])
    return (*scores, *exported.notes)


TWO = "[{metric: a, goal: minimize}, {metric: b, goal: minimize}]"
TASKS: dict[str, dict[str, Any]] = {
    "binary": {},
    "auc": {"metric": "valid-auc", "goal": "maximize"},
    "codes": {
        "metric": "accuracy",
        "goal": "maximize",
        "kinds": ("codes", "scores", "codes", "codes"),
    },
    "multiclass": {"source": "sklearn:iris", "metric": "mlogloss", "more": ""},
    "regression": {
        "source": "sklearn:diabetes",
        "metric": "rmse",
        "more": "",
        "kinds": ("number",) * 6,
    },
    "several": {
        "source": "MODULE:two_labels",
        "label": "[long, wide]",
        "more": "",
        "kinds": ("several",) * 6,
    },
    "own metric": {"metric": "sklearn.metrics:brier_score_loss"},
}


@pytest.mark.parametrize("task", TASKS)
def test_ensemble_score_is_that_of_the_average_of_members(
    task: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: Any
) -> None:
    sweep = recorded_sweep(tmp_path, monkeypatch, **TASKS[task])
    done = export(sweep, 4, tmp_path)
    (call,) = written
    facts, members, info = (
        call["training"],
        call["members"],
        sweep.variants.splits(sweep.store.trial(0).data),
    )
    metric, classes = sweep.space.objective.metric, len(info.classes or ())
    outputs = {n: to_numbers(output, info.task, classes) for n, output in sweep.outputs.items()}
    scores = []
    for output in outputs.values():
        score = metrics.score(metric, info.task, sweep.labels, output)
        assert score is not None
        scores.append(score)
    best = max(scores) if sweep.space.objective.goal == "maximize" else min(scores)
    mean = average([outputs[int(m.trial)] for m in members], [m.weight for m in members])
    assert facts["value"] == metrics.score(metric, info.task, sweep.labels, mean)
    assert (
        facts["value"] >= best
        if sweep.space.objective.goal == "maximize"
        else facts["value"] <= best
    )
    assert (
        facts["ensemble"]["single"]["value"] == best
        and facts["trial"] is None
        and 1 <= sum(m.weight for m in members) <= 4
    )
    assert all(m.training["value"] == scores[int(m.trial)] for m in members)
    assert isinstance(facts["test"], float) and isinstance(
        facts["ensemble"]["single"]["test"], float
    )
    shown = metrics.base_name(metric)
    assert done[0].startswith(
        f"{shown} on valid: {facts['value']:.6g} for the ensemble, {best:.6g} for the best single "
        "model"
    )
    assert done[1].startswith(f"{shown} on test: ") and len(done) == 3
    assert f"; chosen in 4 rounds among {len(sweep.outputs)} trials" in done[2], done[2]


def test_each_member_has_its_own_preprocessor_and_its_own_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: Any
) -> None:
    sweep = recorded_sweep(tmp_path, monkeypatch, kinds=("scores",) * 8)
    everything = Selection(dict.fromkeys(range(8), 1), 0, (0.6,))
    monkeypatch.setattr(ensemble, "select", lambda *_, **__: everything)
    export(sweep, 8, tmp_path)
    (call,) = written
    trials = {m.trial: sweep.store.trial(int(m.trial)) for m in call["members"]}
    chains = {name: [step.name for step in call["models"][name].fitted.steps] for name in trials}
    assert chains == {
        name: [step.name for step in trial.preprocessor] for name, trial in trials.items()
    }
    assert len({tuple(chain) for chain in chains.values()}) == 2, "both preprocessors"
    whole = next(iter(sweep.variants.sources.values())).features
    assert {len(whole) - len(m.columns) for m in call["members"] if m.columns} <= {2} and list(
        call["info"].check.columns
    ) == list(whole)
    assert {len(trial.data["drop"]) for trial in trials.values()} == {0, 2}, (
        "with and without the two columns"
    )
    np.testing.assert_array_equal(call["expected"].shape, (32,))


def test_the_same_sweep_gives_the_same_ensemble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: Any
) -> None:
    sweep = recorded_sweep(tmp_path, monkeypatch)
    first, second = (
        export(sweep, 5, tmp_path),
        export(reopened(sweep.folder, sweep.variants, {}), 5, tmp_path),
    )
    assert first == second and written[0]["members"] == written[1]["members"]


def test_checkpoints_that_were_deleted_are_left_out_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: Any
) -> None:
    sweep = recorded_sweep(tmp_path, monkeypatch)
    for trial in ("0001", "0004"):
        shutil.rmtree(sweep.folder / "trials" / trial)
    done = export(sweep, 6, tmp_path)
    assert not {m.trial for m in written[0]["members"]} & {"0001", "0004"}
    assert "among 4 trials" in done[2]
    for trial in ("0000", "0002", "0003", "0005"):
        shutil.rmtree(sweep.folder / "trials" / trial)
    with pytest.raises(
        InputError, match="--ensemble: no completed trial of this sweep has kept a model and its"
    ):
        export(sweep, 2, tmp_path)


def test_models_that_cannot_predict_or_predict_only_classes_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: Any
) -> None:
    sweep = recorded_sweep(tmp_path, monkeypatch, kinds=("codes", "broken", "scores", "scores"))
    done = export(sweep, 3, tmp_path)
    assert {m.trial for m in written[0]["members"]} <= {"0002", "0003"}
    notes = "\n".join(done)
    assert (
        "note: trial 0000 is no candidate: `logloss` needs probabilities, but the model predicts "
        "only classes" in notes
    )
    assert "among 2 trials" in notes
    sweep = recorded_sweep(tmp_path / "all", monkeypatch, kinds=("codes", "codes"))
    with pytest.raises(
        InputError,
        match=r"no model of this sweep has a finite `logloss` on valid: trial 000[01] `logloss` "
        "needs probabilities",
    ):
        export(sweep, 3, tmp_path)


def test_a_function_as_the_metric_gets_only_what_models_predict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: Any
) -> None:
    kinds = ("codes", "scores", "scores")
    sweep = recorded_sweep(
        tmp_path, monkeypatch, metric="sklearn.metrics:brier_score_loss", kinds=kinds
    )
    notes = "\n".join(export(sweep, 3, tmp_path))
    assert (
        "note: trial 0000 is no candidate: `sklearn.metrics:brier_score_loss` is a function that "
        "gets what the model predicts" in notes
    )


def test_without_recorded_predictions_the_check_compares_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: Any
) -> None:
    export(recorded_sweep(tmp_path, monkeypatch, check=False), 3, tmp_path)
    assert written[0]["expected"] is None


def test_an_unsigned_pickle_is_refused_unless_it_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: Any
) -> None:
    sweep = recorded_sweep(tmp_path, monkeypatch)
    definition = dataclasses.replace(definition_of("x", ()), pickles=("model.json",))
    monkeypatch.setattr("sweeps.bundle.sweep_models.definition_of", lambda *_: definition)
    with pytest.raises(InputError, match="has no signature"):
        export(sweep, 3, tmp_path)
    assert not written


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (("load: ", "resume_files: "), "needs the key `load` of the trainer"),
        (("label: target, ", ""), "needs the labelled rows of valid"),
        (
            ('{metric: "logloss", goal: minimize}', TWO),
            "needs a single objective, but this sweep has 2: a, b",
        ),
        (
            ('metric: "logloss"', "metric: cpu_seconds"),
            "because it is a cost and not a score of predictions",
        ),
        (
            ('metric: "logloss"', "metric: my_loss"),
            "because only the loop knows it; export single models",
        ),
    ],
)
def test_sweeps_whose_models_cannot_be_averaged_or_scored_are_refused(
    changed: Any, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sweeps import space as space_file
    from tests.bundle.ensemble_sweeps import space_text

    (tmp_path / "refused_models.py").write_text(
        "def train(config): ...\n\n\ndef load(path, params): ...\n"
    )
    text = space_text(
        "refused_models", "sklearn:breast_cancer", "target", "logloss", "minimize", ""
    )
    assert changed[0] in text
    text = (
        text.replace(', load: "refused_models:load"', "")
        if changed[0] == "load: "
        else text.replace(*changed)
    )
    (tmp_path / "space.yaml").write_text(text)
    with pytest.raises(InputError, match=said) as raised:
        ensemble.require_supported(space_file.load(tmp_path / "space.yaml", ()))
    assert raised.value.problems[0].place == "--ensemble" and "\n" not in str(raised.value)


@pytest.mark.parametrize("other", [("--trial", "0001"), ("--top", 2), ("--pareto",), ("--latest",)])
def test_options_that_contradict_each_other(other: Any, finished_sweep: Any) -> None:
    done = invoke("export", finished_sweep, "--ensemble", 2, *other)
    assert done.exit_code == 2 and f"{other[0]}: cannot be combined with --ensemble" in done.stderr
    with pytest.raises(InputError, match="--ensemble: is 0, but must be at least 1"):
        sweep_exports.export(finished_sweep, ensemble=0)


TRAINING = {
    "metric": "valid-rmse",
    "value": 1.5,
    "test": None,
    "ensemble": {"single": {"trial": "0003", "value": 2.0, "test": None}},
}
MANIFEST = {
    "training": TRAINING,
    "members": [
        {"trial": "0003", "weight": 2, "training": {}},
        {"trial": "0001", "weight": 1, "training": {}},
    ],
}


@pytest.mark.parametrize(
    ("changed", "valid"),
    [
        ({}, True),
        ({"members": []}, False),
        ({"members": [{"trial": "../x", "weight": 1}]}, False),
        ({"members": [{"trial": "0001", "weight": 0}]}, False),
        ({"training": {**TRAINING, "value": None}}, False),
        ({"training": {**TRAINING, "metric": "\0"}}, False),
        ({"training": {"value": 1.0}}, False),
    ],
)
def test_show_reads_only_valid_manifests_of_ensembles(
    changed: Any, valid: bool, tmp_path: Path
) -> None:
    for name, content in {
        "ensemble-3": {**MANIFEST, **changed},
        "0001": {"training": TRAINING},
        "list": [],
    }.items():
        (tmp_path / "exports" / name).mkdir(parents=True)
        (tmp_path / "exports" / name / "manifest.json").write_text(json.dumps(content))
    ensembles, of_copy = ensembles_of(tmp_path), ensembles_of(tmp_path, "s3://bucket/sweep")
    assert [ensemble.path for ensemble in of_copy] == [
        "s3://bucket/sweep/exports/ensemble-3"
    ] * valid
    assert [ensemble.path for ensemble in ensembles] == [
        str(tmp_path / "exports" / "ensemble-3")
    ] * valid
    for summary in ensembles:
        assert summary.members == {"0003": 2, "0001": 1} and (
            summary.single,
            summary.single_value,
        ) == ("0003", 2.0)
        assert format_ensemble(summary).startswith("1.5 (2 models; best single model 2): ")

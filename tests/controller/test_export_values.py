"""Values, scores and constraints of an exported bundle are those of the exported model."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from sweeps import cli
from sweeps import space as space_file
from sweeps.bundle import export as trial_export
from sweeps.bundle import sweep_models, write
from sweeps.bundle.sweep_models import SweepModels, score_test
from sweeps.bundle.trial_facts import describe_recorded
from sweeps.core.trial import Checkpoint, Report, State
from sweeps.exports import sweep_exports, trial_refit
from sweeps.search.search_loop import SearchLoop
from sweeps.space.python.saved_space import save_space
from sweeps.study.events import TrialReported
from tests.commands import space_of


def uneven(tmp_path: Path, extra: str = "", objective: str = "loss") -> tuple[Path, SearchLoop]:
    """A sweep of one trial that was best at its third step, had saved its second, and last its
    fourth.
    """
    file = space_of(tmp_path, "plain", limits="max_trials: 1")
    file.write_text(file.read_text().replace("metric: loss", f"metric: {objective}") + extra)
    space = space_file.load(file, ())
    folder = tmp_path / "root" / "own-1"
    folder.mkdir(parents=True)
    save_space(folder, space, 0.0)
    loop = SearchLoop.open(folder, space)
    for again in range(space.repeats.count):
        trial = loop.ask()
        assert trial is not None
        kept = [Checkpoint(f"checkpoint_{step:06d}", step, step) for step in (2, 4)]
        for checkpoint in kept:
            saved = folder / "trials" / trial.id / checkpoint.name
            saved.mkdir(parents=True)
            (saved / "state.json").write_text(json.dumps(checkpoint.step))
        curves = zip((0.9, 0.35, 0.29, 0.5), (0.5, 0.7, 0.85, 0.6), strict=True)
        reports = tuple(
            Report(step, {"loss": loss + again, "auc": auc}, 1.0)
            for step, (loss, auc) in enumerate(curves, 1)
        )
        loop.store.append(TrialReported(1.0, trial.number, reports, kept[1], kept[0], 1.0))
        loop.store.end(trial.number, State.COMPLETE)
    return folder, loop


def test_a_bundle_is_worth_what_its_own_step_was(tmp_path: Path) -> None:
    _, loop = uneven(tmp_path)
    assert loop.store.results()[0].value == 0.29
    assert [describe_recorded(loop.store, 0, step)["value"] for step in (2, 3, 4)] == [
        0.35,
        0.29,
        0.5,
    ]


def test_of_repeats_a_bundle_is_worth_what_they_came_to_together(tmp_path: Path) -> None:
    _, loop = uneven(tmp_path, "repeats: 2\n")
    assert (
        describe_recorded(loop.store, 0, 2)["value"]
        == describe_recorded(loop.store, 1, 4)["value"]
        == pytest.approx(0.79)
    )


def exported(
    folder: Path, loop: SearchLoop, monkeypatch: pytest.MonkeyPatch, **how: Any
) -> tuple[trial_export.Exported, dict[str, Any]]:
    """Export trial 0 as if its loop had a `load`. Return the export, and the manifest's facts."""
    training: dict[str, Any] = {}
    facts = SimpleNamespace(
        fingerprint="f", label="y", task="binary", classes=(0, 1), check=None, missing={}
    )
    store = SimpleNamespace(
        load_info=lambda data: facts,
        load_chain=lambda *which: None,
        find_chain=lambda key: object(),
        load_test=lambda data: None,
    )
    for module in (trial_export, sweep_models):
        monkeypatch.setattr(module, "PreparedStore", lambda folder, trust: store)
    monkeypatch.setattr(
        write,
        "write_bundle",
        lambda target, **kept: training.update(kept["training"]) or target,
    )
    trainer = dataclasses.replace(loop.store.space.trainer, load="tests.user_loops:load")
    space = dataclasses.replace(loop.store.space, trainers={"": trainer})
    models = SweepModels(loop.store, space, ())
    return trial_export.export_trial(models, 0, folder / "exports" / "0000", **how), training


@pytest.mark.parametrize("objective", ["loss", "seconds"])
@pytest.mark.parametrize("latest", [False, True])
def test_a_bundle_keeps_the_constraints_if_its_own_step_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, objective: str, latest: bool
) -> None:
    folder, loop = uneven(tmp_path, 'constraints: {auc: ">= 0.8"}\n', objective)
    done, training = exported(folder, loop, monkeypatch, latest=latest)
    assert done.best["feasible"] and done.best["metrics"]["auc"] == 0.85, "the trial as it is shown"
    step, loss, auc = (4, 0.5, 0.6) if latest else (2, 0.35, 0.7)
    assert (training["best_step"], training["feasible"], training["metrics"]["auc"]) == (
        step,
        False,
        auc,
    )
    assert (
        training["value"]
        == training["metrics"][objective]
        == (loss if objective == "loss" else 1.0)
    ), "a cost is a whole trial's"


def test_a_refit_is_worth_what_the_model_is_that_is_exported_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, loop = uneven(tmp_path)
    again = trial_export.Refitted(folder, folder / "trials" / "0000" / "checkpoint_000002", 2, 150)
    _, training = exported(folder, loop, monkeypatch, refitted=again)
    assert training["value"] == 0.35 and training["refit"] == {
        "on": ["train", "valid"],
        "rows": 150,
        "steps": 2,
    }


def test_a_refit_prints_the_test_score_of_the_new_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = uneven(tmp_path)

    refit = {"on": ["train", "valid"], "rows": 1500, "steps": 2}

    def write(*args: Any) -> trial_export.Exported:
        (args[2] / "bundle").mkdir()
        facts = {"refit": refit} if args[3] is not None else {}
        return trial_export.Exported({"test": 0.25} | facts, args[2] / "bundle")

    monkeypatch.setattr(trial_export, "export_trial", write)
    monkeypatch.setattr(trial_refit, "refit", lambda *args: contextlib.nullcontext({0: "model"}))
    done = CliRunner().invoke(cli.main, ["export", str(folder), "--refit"], prog_name="sweeps")
    rows = "trained on 1,500 rows: train and valid\n"
    assert done.stderr == f"{rows}test score of the new model: 0.25\n" and done.exit_code == 0
    assert [written.notes for written in sweep_exports.export(folder)] == [()], (
        "the result of the sweep has the other score"
    )


def own_score(labels: np.ndarray, predictions: np.ndarray) -> float:
    return float(np.abs(labels - predictions).max())


def broken_score(labels: np.ndarray, predictions: np.ndarray) -> float:
    raise OSError("no table of costs")


def test_a_users_metric_scores_the_test_split() -> None:
    labels, predictions = np.array([0, 1]), np.array([0.25, 0.5])
    assert score_test(
        "tests.controller.test_export_values:own_score", "binary", labels, predictions
    ) == (
        0.5,
        None,
    )
    metric = "tests.controller.test_export_values:broken_score"
    note = f"no test score: the metric `{metric}` raised OSError: no table of costs"
    assert score_test(metric, "binary", labels, predictions) == (None, note), (
        "the bundle is written all the same"
    )
    assert score_test("profit", "binary", labels, predictions) == (
        None,
        (
            "no test score: only the loop computes the metric `profit`, so sweeps cannot compute "
            "it "
            "on the test rows"
        ),
    )


def test_a_metric_that_cannot_be_computed_from_the_predictions_is_a_note() -> None:
    labels, codes = np.array([0, 1, 1]), np.array([0, 1, 0])
    assert score_test("valid-balanced_accuracy", "binary", labels, codes) == (
        0.75,
        None,
    )
    note = (
        "no test score: `valid-neg_log_loss` needs probabilities, but the model predicts only "
        "classes"
    )
    assert score_test("valid-neg_log_loss", "binary", labels, codes) == (None, note)

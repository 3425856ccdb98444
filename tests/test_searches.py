"""Kinds of search that other files try without Ray, once each as a whole sweep: several objectives
with a constraint, costs, schedulers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import sweeps
from sweeps.study.record_reader import Record, read
from tests.commands import invoke, space_of

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(240)]


def record_of(result: sweeps.SweepResult) -> Record:
    record = read(result.dir)
    assert record is not None
    return record


def runs_of(result: sweeps.SweepResult) -> dict[str, Any]:
    """The trials' runs in MLflow, by trial."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(result.mlflow["tracking_uri"])
    where = f"tags.`mlflow.parentRunId` = '{result.mlflow['parent_run']}'"
    experiment = client.get_experiment_by_name("own")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id], where)
    return {run.data.tags["sweeps.trial"]: run for run in runs}


def test_several_objectives_of_which_one_is_a_cost_and_a_constraint(
    clean_ray: Any, tmp_path: Path
) -> None:
    objectives = (
        "objective=[{metric: loss, goal: minimize}, {metric: size, goal: minimize}, {metric: "
        "cpu_seconds, goal: minimize}]"
    )
    file = space_of(
        tmp_path,
        "sized",
        x="{grid: [0.1, 0.3, 0.6, 0.9]}",
        limits="max_trials: 4, max_concurrent_trials: 1",
    )
    result = sweeps.run(
        file, dir=tmp_path / "runs", overrides=(objectives, 'constraints={size: "<= 0.8"}')
    )
    assert (
        result.trials == {"completed": 4, "pruned": 0, "failed": 0}
        and result.best is None
        and result.bundle is None
    )
    record = record_of(result)
    feasible = {t.id: t.params["x"] > 0.2 for t in record.trials}
    assert {t.id: t.result.feasible for t in record.trials} == feasible and list(
        feasible.values()
    ).count(False) == 1
    front = [best["trial"] for best in result.front]
    assert sorted(front) == sorted(name for name, kept in feasible.items() if kept), (
        "loss falls as size grows, so none dominates another"
    )
    for best in result.front:
        t = next(t for t in record.trials if t.id == best["trial"])
        assert (
            best["values"]["loss"] == pytest.approx(t.params["x"] + 0.2)
            and best["values"]["size"] == 1 - t.params["x"]
        )
        assert (
            best["values"]["cpu_seconds"]
            == t.result.metrics["cpu_seconds"]
            == t.result.metrics["seconds"]
            > 0
        )
    logged = runs_of(result)
    for name, run in logged.items():
        data = run.data
        assert data.tags["sweeps.feasible"] == str(feasible[name]).lower() and (
            data.tags.get("sweeps.front") == "true"
        ) == (name in front)
        values = next(t for t in record.trials if t.id == name).result.values
        assert [
            data.metrics[f"objective.{metric}"] for metric in ("loss", "size", "cpu_seconds")
        ] == pytest.approx(values)
    shown = invoke("show", result.dir)
    names = [t.id for t in record.trials if t.id in front]
    assert f"3: {', '.join(names)}" in shown.stdout, shown.stderr
    written = json.loads((result.dir / "result.json").read_text())
    for trial in written["front"]:
        trial["uncertain"] = trial["trial"] == names[1]
    (result.dir / "result.json").write_text(json.dumps(written))
    shown = invoke("show", result.dir)
    assert f"3: {names[0]}, {names[1]}?, {names[2]}" in shown.stdout, shown.stderr


def test_paused_trials_continue_from_their_checkpoints_in_other_workers(
    clean_ray: Any, tmp_path: Path
) -> None:
    """One slot. Each trial is worse than the one before, so each pauses at its first rung.

    `reuse: never` gives every run a new worker.
    """
    (tmp_path / "go").touch()
    limits = "max_trials: 3, max_concurrent_trials: 1"
    file = space_of(
        tmp_path, "held", extra=", reuse: never", limits=limits, x="{grid: [0.1, 0.2, 0.3]}"
    )
    scheduler = "scheduler={name: asha, max_t: 2, reduction_factor: 2, type: promotion}"
    result = sweeps.run(
        file, dir=tmp_path / "runs", overrides=(scheduler, "trackers=[mlflow, jsonl]")
    )
    record = record_of(result)
    assert [(t.result.state.name, t.result.steps, t.reason) for t in record.trials] == [
        ("COMPLETE", 2, None),
        ("PRUNED", 1, "asha at step 1"),
        ("PRUNED", 1, "asha at step 1"),
    ]
    assert all(
        [step for step, _ in t.curve] == list(range(1, t.result.steps + 1)) for t in record.trials
    )
    started = [f.name.split(".started-at-") for f in tmp_path.glob("*.started-at-*")]
    runs = sorted((trial.removeprefix("own-"), step.partition(".")[0]) for trial, step in started)
    assert runs == [("0000", "0"), ("0000", "1"), ("0001", "0"), ("0002", "0")]
    assert len({step.rpartition(".")[2] for _, step in started}) == len(started), (
        "each run has its own process"
    )
    logged = runs_of(result)
    assert {
        name: (run.info.status, run.data.tags["sweeps.state"]) for name, run in logged.items()
    } == {t.id: ("FINISHED", t.result.state.name) for t in record.trials}
    events = [json.loads(line) for line in (result.dir / "events.jsonl").read_text().splitlines()]
    paused = [(e["trial"], e["step"]) for e in events if e["type"] == "TrialPaused"]
    assert paused == [("0000", 1), ("0001", 1), ("0002", 1)]
    assert result.best is not None and result.best["trial"] == "0000" and result.bundle is None

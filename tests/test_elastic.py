"""An elastic gang in a whole sweep: it loses a worker, continues with the others, and grows again.

Every record says so.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import sweeps
from sweeps.core.trial import GangSizePeriod
from sweeps.study.record_reader import read
from sweeps.study.states import TrialState
from sweeps.terminal.sweep_text import format_trial

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(240)]

SPACE = """\
name: elastic
trainer: {{loop: "tests.elastic_digits:train_func", backend: torch}}
data: {{train: "sklearn:digits", label: target, valid: 0.2}}
objective: {{metric: loss, goal: minimize}}
limits: {{max_trials: 1}}
trackers: [mlflow, jsonl]
space:
  scaling: {{num_workers: {{elastic: [1, 3]}}, resources_per_worker: {{CPU: 0.5}}}}
  params: {{lr: 0.001, latch: {latch}, more: 4, until: 3, seconds: 0.4}}
"""


def check_sizes(sizes: tuple[GangSizePeriod, ...], steps: int) -> None:
    """Check that three workers began, two continued from a checkpoint, and three ended.

    The pool may hear of the checkpoint of step 4 up to half a second after all ranks reported it.
    """
    assert [size.workers for size in sizes] == [3, 2, 3]
    first, second, third = sizes
    assert (first.step, first.reported) == (0, 0)
    assert second.step in (2, 4) and second.reported == 5
    assert third.step == third.reported == steps - 4 and third.step % 2 == 0


def the_trial(folder: Path) -> TrialState:
    """Return the only trial of a sweep."""
    study = read(folder)
    assert study is not None
    return study.trials[0]


def test_a_sweep_with_an_elastic_gang_that_shrinks_and_grows(
    clean_ray: Any, tmp_path: Path
) -> None:
    from mlflow.tracking import MlflowClient

    file = tmp_path / "elastic.yaml"
    file.write_text(SPACE.format(latch=tmp_path))
    result = sweeps.run(file, dir=tmp_path / "runs")
    trial = the_trial(result.dir)
    check_sizes(trial.sizes, trial.result.steps)
    assert [step for step, _ in trial.curve] == list(range(1, trial.result.steps + 1)), (
        "no report is lost or doubled"
    )
    assert trial.trial.shape.scaling == {
        "num_workers": {"elastic": [1, 3]},
        "resources_per_worker": {"CPU": 0.5},
    }
    seconds, cpu = trial.result.seconds, trial.result.metrics["cpu_seconds"]
    assert 2 * 0.5 * seconds < cpu < 3 * 0.5 * seconds, "each worker's time counts"

    client = MlflowClient(result.mlflow["tracking_uri"])
    experiment = client.get_experiment_by_name("elastic")
    assert experiment is not None
    (run,) = client.search_runs(
        [experiment.experiment_id], f"tags.`mlflow.parentRunId` = '{result.mlflow['parent_run']}'"
    )
    assert run.data.params["scaling.num_workers"] == "1 to 3"
    logged = client.get_metric_history(run.info.run_id, "scaling.num_workers")
    assert [(m.step, m.value) for m in sorted(logged, key=lambda m: m.timestamp)] == [
        (s.step, s.workers) for s in trial.sizes
    ]
    changes = [
        event
        for event in map(json.loads, (result.dir / "events.jsonl").read_text().splitlines())
        if event["type"] == "TrialResized"
    ]
    assert [(event["step"], event["workers"]) for event in changes] == [
        (s.step, s.workers) for s in trial.sizes
    ]

    shown = format_trial(trial, "COMPLETE")
    _, second, third = trial.sizes
    lost = "step 5" if second.step == 4 else "steps 3 to 5"
    periods = f"3 from step 1, 2 from step 6 (trained {lost} again), 3 from step {third.step + 1}"
    assert periods in shown
    assert [size["workers"] for size in trial.to_json()["sizes"]] == [3, 2, 3]

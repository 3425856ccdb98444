"""Population Based Training on a real Ray: four members that take turns on two CPUs."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

import sweeps
from sweeps.study.record_reader import Record, read
from tests.commands import command, space_of
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]
PBT = ("scheduler={name: pbt, max_t: 6, perturbation_interval: 2, quantile_fraction: 0.5}",)


def test_members_exploit_others_and_continue_from_their_checkpoints(
    clean_ray: Any, tmp_path: Path
) -> None:
    from mlflow.tracking import MlflowClient

    result = sweeps.run(
        space_of(tmp_path, "falls", limits="max_failures: 0, max_trials: 4"),
        dir=tmp_path / "runs",
        overrides=PBT,
    )
    assert result.trials == {"completed": 4, "pruned": 0, "failed": 0}
    record = read(result.dir)
    assert record is not None
    taken = [t for t in record.trials if t.lineage]
    assert taken and any(t.attempt > 1 for t in record.trials)
    for t in taken:
        curve, last = dict(t.curve), t.lineage[-1]  # what was before the last one is the donor's
        assert (
            sorted(curve) == [1, 2, 3, 4, 5, 6]
            and t.params["x"] == last.params["x"]
            and t.params["latch"]
        )
        for step in range(last.donor_step + 1, 7):
            assert curve[step] == pytest.approx(curve[step - 1] - t.params["x"]), (
                "from the donor's state, with the new x"
            )
    values = [t.result.value for t in record.trials if t.result.value is not None]
    assert result.best is not None and len(values) == len(record.trials)
    assert result.best["value"] == min(values)
    client = MlflowClient(result.mlflow["tracking_uri"])
    where = f"tags.`mlflow.parentRunId` = '{result.mlflow['parent_run']}'"
    experiment = client.get_experiment_by_name("own")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id], where)
    logged = {run.data.tags["sweeps.trial"]: run for run in runs}
    assert len(runs) == 4 and all(run.info.status == "FINISHED" for run in runs)
    for t in record.trials:
        run = logged[t.id]
        assert ("sweeps.pbt" in run.data.tags) == bool(t.lineage)
        steps = [
            (m.step, m.value) for m in client.get_metric_history(run.info.run_id, "pbt.params.x")
        ]
        assert sorted(steps) == [(x.donor_step, x.params["x"]) for x in t.lineage]


@pytest.mark.long
def test_a_loop_that_ignores_its_checkpoint_is_refused_in_one_line(
    clean_ray: Any, tmp_path: Path
) -> None:
    with pytest.raises(
        sweeps.InputError, match=r"the scheduler needs a loop that continues from its checkpoint"
    ) as e:
        sweeps.run(
            space_of(tmp_path, "forgets", limits="max_failures: 0, max_trials: 4"),
            dir=tmp_path / "runs",
            overrides=PBT,
        )
    assert len(e.value.problems) == 1 and "scheduler.name" in str(e.value)


MEMBERS = """\
name: members
trainer: {trainer}
data: {{train: "sklearn:breast_cancer", label: target, valid: 0.25}}
objective: {{metric: valid-logloss, goal: minimize}}
search: {{algorithm: random, seed: 1}}
scheduler: {{name: pbt, max_t: 8, perturbation_interval: 2, quantile_fraction: 0.5}}
limits: {{max_trials: 4, max_failures: 2}}
space:
  preprocessor: StandardScaler
  scaling: {{num_workers: {workers}, resources_per_worker: {{CPU: 1}}}}
  params: {params}
"""


@pytest.mark.long
@pytest.mark.parametrize(
    "trainer, workers, params",
    [
        (
            "torch_tabular",
            1,
            "{lr: {loguniform: [1.0e-4, 1.0e-1]}, optimizer: {choice: [sgd, adam]}, width: 16}",
        ),
        (
            "xgboost",
            2,
            "{eta: {loguniform: [1.0e-2, 1.0]}, subsample: {uniform: [0.5, 1.0]}, max_depth: 3}",
        ),
    ],
    ids=["torch", "xgboost"],
)
def test_a_killed_population_of_a_built_in_trainer_resumes(
    trainer: str, workers: int, params: str, tmp_path: Path
) -> None:
    file, runs = tmp_path / "members.yaml", tmp_path / "runs"
    file.write_text(MEMBERS.format(trainer=trainer, workers=workers, params=params))
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    process = command("run", file, "--dir", runs, "--tracking-uri", uri)
    before = wait_until(lambda: _with_lineage(runs), 150, "a member to take over from another")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(20)
    resumed = command("resume", "latest", "--dir", runs, "--json")
    out, err = resumed.communicate(timeout=150)
    assert resumed.returncode == 0, err
    result = json.loads(out)
    assert (
        result["trials"] == {"completed": 4, "pruned": 0, "failed": 0}
        and Path(result["bundle"]).is_dir()
    )
    record = read(Path(result["dir"]))
    assert record is not None
    kept = {t.id: t.lineage for t in record.trials}
    for t in before.trials:
        assert kept[t.id][: len(t.lineage)] == t.lineage, "what was taken over stays as it was"
    assert all([step for step, _ in t.curve] == list(range(1, 9)) for t in record.trials)


def _with_lineage(runs: Path) -> Record | None:
    folder = next(runs.glob("members-*"), None)
    record = read(folder) if folder is not None and (folder / "study.journal").exists() else None
    return record if record is not None and any(t.lineage for t in record.trials) else None

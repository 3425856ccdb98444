"""Population Based Training on a real Ray: four members that take turns on two CPUs."""

from __future__ import annotations

import pytest

import sweeps
from sweeps.search.record import read
from tests.commands import space_of

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]
PBT = ("scheduler={name: pbt, max_t: 6, perturbation_interval: 2, quantile_fraction: 0.5}",)


def test_members_take_over_and_go_on_from_there(clean_ray, tmp_path):
    from mlflow.tracking import MlflowClient

    result = sweeps.run(space_of(tmp_path, "falls", limits="max_failures: 0, max_trials: 4"), dir=tmp_path / "runs", overrides=PBT)
    assert result.trials == {"completed": 4, "pruned": 0, "failed": 0}
    record = read(result.dir)
    assert record is not None
    taken = [t for t in record.trials if t.lineage]
    assert taken and any(t.attempts > 1 for t in record.trials)
    for t in taken:
        curve, last = dict(t.curve), t.lineage[-1]  # what was before the last one is the donor's
        assert sorted(curve) == [1, 2, 3, 4, 5, 6] and t.params["x"] == last.params["x"] and t.params["latch"]
        for step in range(last.origin + 1, 7):
            assert curve[step] == pytest.approx(curve[step - 1] - t.params["x"]), "from the donor's state, with the new x"
    assert result.best["value"] == min(t.result.value for t in record.trials)
    client = MlflowClient(result.mlflow["tracking_uri"])
    where = f"tags.`mlflow.parentRunId` = '{result.mlflow['parent_run']}'"
    runs = client.search_runs([client.get_experiment_by_name("own").experiment_id], where)
    logged = {run.data.tags["sweeps.trial"]: run for run in runs}
    assert len(runs) == 4 and all(run.info.status == "FINISHED" for run in runs)
    for t in record.trials:
        run = logged[t.id]
        assert ("sweeps.pbt" in run.data.tags) == bool(t.lineage)
        steps = [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, "pbt.params.x")]
        assert sorted(steps) == [(x.origin, x.params["x"]) for x in t.lineage]


@pytest.mark.long
def test_a_loop_that_begins_anew_is_refused_in_one_line(clean_ray, tmp_path):
    with pytest.raises(sweeps.InputError, match=r"pbt needs a loop that goes on from its checkpoint") as e:
        sweeps.run(space_of(tmp_path, "forgets", limits="max_failures: 0, max_trials: 4"), dir=tmp_path / "runs", overrides=PBT)
    assert len(e.value.problems) == 1 and "scheduler.name" in str(e.value)


@pytest.mark.long
def test_a_loop_without_checkpoints_is_refused_in_one_line(clean_ray, tmp_path):
    with pytest.raises(sweeps.InputError, match=r"trial 000\d reported none at step 2") as e:
        sweeps.run(space_of(tmp_path, "no_checkpoint", limits="max_failures: 0, max_trials: 4"), dir=tmp_path / "runs", overrides=PBT)
    assert len(e.value.problems) == 1 and "scheduler.name" in str(e.value)

"""What a loop logs to MLflow lands in its trial's run, whatever the loop calls, and the next trial
finds MLflow as it was.

When MLflow changes its insides this is what breaks first; `sweeps/execution/loop_mlflow.py` is the
file to mend.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import time

import pytest

from sweeps.core.resources import Shape
from sweeps.core.trial import Result, State, Trial
from sweeps.execution import isolation, loop_mlflow
from sweeps.execution.loop_mlflow import TrialRun, logged
from sweeps.tracking.mlflow.run_writer import Destination
from sweeps.tracking.mlflow.tracker import MlflowTracker, default_uri
from tests.commands import REPO, mlflow_database
from tests.tracking.made import begin, end
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(120)
NOBODY = "http://127.0.0.1:1"


@pytest.fixture(scope="module")
def database():
    """An empty database of MLflow's, and the module, imported before a loop does."""
    import mlflow  # noqa: F401

    return mlflow_database()


class Sweep:
    """A sweep of two trials whose runs its tracker has made, and a loop that is run in this
    process.
    """

    def __init__(self, root, database):
        from mlflow.tracking import MlflowClient

        shutil.copy(database, root)
        self.root, self.uri = root, default_uri(root)
        self.client = MlflowClient(self.uri)
        self.tracker = MlflowTracker(Destination(self.uri, root, "exp", "sweep-1", 1.0))
        for number in (0, 1):
            self.folder(number).mkdir(parents=True)
            self.tracker.handle(
                begin(
                    Trial(
                        number, f"{number:04d}", {}, (), Shape(1, (("CPU", 1.0),)), 7, {"lr": 0.1}
                    ),
                    1.0,
                )
            )

    def folder(self, number):
        return self.root / "sweep-1" / "trials" / f"{number:04d}"

    def id(self, number):
        return json.loads((self.folder(number) / "mlflow.json").read_text())["run_id"]

    def run(self, number):
        return self.client.get_run(self.id(number))

    def loop(self, loop, number=0, rank=0, tracking=""):
        """Run a loop as a rank does."""
        with (
            isolation.isolated(),
            logged(TrialRun(self.uri if tracking == "" else tracking, self.folder(number), rank)),
        ):
            return loop()

    def runs(self):
        """The runs of the experiment, but for the sweep's own."""
        found = self.client.search_runs([self.client.get_experiment_by_name("exp").experiment_id])
        return [run for run in found if run.data.tags.get("sweeps.kind") != "sweep"]


@pytest.fixture
def sweep(tmp_path, database):
    loop_mlflow.watch()
    loop_mlflow._last_wait_failed = False
    made = Sweep(tmp_path, database)
    # A thread that imports while another calls `mlflow.autolog` can stop both for ever: each holds
    # a lock that the other waits for
    wait_until(
        lambda: all((made.folder(number) / "mlflow.json").exists() for number in (0, 1)),
        60,
        "the runs of both trials",
    )
    yield made
    made.tracker.close(5.0)


def test_what_a_loop_logs_lands_in_its_trials_run_and_the_next_trials_in_its_own(sweep):
    import mlflow

    def loop():
        assert mlflow.active_run() is None
        mlflow.log_metric("first", 1.0)  # which starts a run
        mlflow.end_run()
        with mlflow.start_run(run_name="mine", tags={"own": "tag"}) as run:
            mlflow.log_metric("loss", 0.5, step=3)
            mlflow.log_params({"batch": 32})
        with mlflow.start_run():
            mlflow.log_text("hello", "note.txt")
        mlflow.start_run()  # and is left active
        return run.info.run_id

    assert [sweep.loop(loop, number) for number in (0, 1)] == [sweep.id(0), sweep.id(1)]
    assert mlflow.active_run() is None and len(sweep.runs()) == 2
    for number in (0, 1):
        run = sweep.run(number)
        assert (run.data.metrics, run.data.params["batch"], run.data.tags["own"]) == (
            {"first": 1.0, "loss": 0.5},
            "32",
            "tag",
        )
        assert (run.info.run_name, run.info.status) == (f"{number:04d}", "RUNNING"), (
            "its name and its end are the sweep's"
        )
        assert [file.path for file in sweep.client.list_artifacts(run.info.run_id)] == ["note.txt"]


def test_a_loop_cannot_replace_what_sweeps_logs(sweep, capfd):
    import mlflow

    def loop():
        mlflow.log_metric("objective", 77.0, step=5)
        mlflow.log_metrics({"steps": 1000.0, "loss": 0.5, "loop/steps": 3.0})
        mlflow.set_tags({"sweeps.trial": "0009", "team": "a"})

    sweep.loop(loop)
    data = sweep.run(0).data
    assert data.metrics == {
        "loop/objective": 77.0,
        "loop/steps": 1000.0,
        "loss": 0.5,
        "loop/loop/steps": 3.0,
    }
    assert (data.tags["sweeps.trial"], data.tags["loop/sweeps.trial"]) == ("0000", "0009")
    assert data.tags["team"] == "a"
    assert "`objective` is logged to MLflow as `loop/objective`" in capfd.readouterr().err


def test_ranks_log_to_the_same_run(sweep):
    import mlflow

    for rank in (0, 1):
        sweep.loop(lambda rank=rank: mlflow.log_metric(f"rank-{rank}", rank), rank=rank)
    assert sweep.run(0).data.metrics == {"rank-0": 0.0, "rank-1": 1.0} and len(sweep.runs()) == 2


def test_nested_runs_are_children_of_the_trials_run(sweep):
    import mlflow

    def loop():
        with mlflow.start_run(nested=True) as first:
            mlflow.log_metric("fold", 1.0)
        with mlflow.start_run(), mlflow.start_run(nested=True, run_name="fold 2") as second:
            pass
        mlflow.start_run(nested=True)  # and is left active
        return [first.info.run_id, second.info.run_id]

    children = sweep.loop(loop)
    found = [run for run in sweep.runs() if run.data.tags["mlflow.parentRunId"] == sweep.id(0)]
    assert len(found) == 3 and set(children) < {run.info.run_id for run in found}
    assert {run.info.status for run in found} == {"FINISHED"} and sweep.run(0).data.metrics == {}


def test_the_place_that_a_loop_names_itself_is_respected_and_forgotten(sweep, tmp_path, database):
    import mlflow

    (tmp_path / "own").mkdir()
    own = f"sqlite:///{shutil.copy(database, tmp_path / 'own')}"

    def elsewhere():
        mlflow.set_tracking_uri(own)
        mlflow.set_experiment("mine")
        with mlflow.start_run() as run:
            return run.info.run_id

    def another_experiment():
        mlflow.set_experiment("mine")
        mlflow.log_metric("loss", 1.0)
        return mlflow.active_run().info.run_id

    def the_sweeps():
        mlflow.set_tracking_uri(sweep.uri)
        mlflow.set_experiment("exp")
        with mlflow.start_run() as run:
            return run.info.run_id

    before = mlflow.get_tracking_uri(), dict(os.environ)
    assert mlflow.MlflowClient(own).get_run(sweep.loop(elsewhere)).info.status == "FINISHED"
    there = sweep.client.get_run(sweep.loop(another_experiment))
    assert (
        there.info.experiment_id == sweep.client.get_experiment_by_name("mine").experiment_id
        and there.info.status == "FINISHED"
    )
    assert sweep.loop(the_sweeps, 1) == sweep.id(1), "the same place by its name"
    assert (mlflow.get_tracking_uri(), dict(os.environ)) == before
    assert sweep.loop(lambda: mlflow.start_run().info.run_id) == sweep.id(0)


def test_the_experiment_that_a_module_sets_as_it_is_imported_holds_for_all_trials(
    sweep, monkeypatch
):
    import mlflow
    from mlflow.tracking import fluent

    monkeypatch.setattr(fluent, "_active_experiment_id", None)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", sweep.uri)
    with logged(TrialRun(sweep.uri, sweep.folder(0), 0), keep=True):
        mlflow.log_metric("imported", 1.0)
    assert mlflow.active_run() is None and fluent._active_experiment_id is None
    with logged(TrialRun(sweep.uri, sweep.folder(0), 0), keep=True):
        mine = mlflow.set_experiment("mine").experiment_id
    for number in (0, 1):
        assert sweep.loop(lambda: mlflow.start_run().info.experiment_id, number) == mine
    assert [sweep.run(number).data.metrics for number in (0, 1)] == [{"imported": 1.0}, {}]


def test_a_run_that_the_sweep_was_started_in_is_not_the_trials(sweep, monkeypatch):
    import mlflow

    monkeypatch.setenv("MLFLOW_RUN_ID", "0" * 32)
    assert sweep.loop(lambda: mlflow.start_run().info.run_id) == sweep.id(0)


def test_autolog_logs_to_the_trials_run_and_is_undone(sweep):
    import mlflow
    import sklearn.linear_model

    plain = sklearn.linear_model.Ridge.fit

    def fit():
        return sklearn.linear_model.Ridge(alpha=0.25).fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 2.0])

    def loop():
        mlflow.autolog(log_models=False, silent=True)
        fit()

    sweep.loop(loop)
    assert sweep.run(0).data.params["alpha"] == "0.25" and len(sweep.runs()) == 2
    assert sklearn.linear_model.Ridge.fit is plain
    sweep.loop(fit, 1)
    assert "alpha" not in sweep.run(1).data.params
    from mlflow.utils import import_hooks

    assert not any(import_hooks._post_import_hooks.values()), (
        "a library that is imported later is not patched"
    )


def test_a_parameter_of_the_trial_keeps_its_value_and_the_loop_goes_on(sweep, capfd):
    import mlflow

    def loop():
        mlflow.log_param("lr", 0.1000001)
        mlflow.log_params({"lr": 0.2, "batch": 8})

    sweep.loop(loop)
    params = sweep.run(0).data.params
    assert (params["lr"], params["batch"]) == ("0.1", "8")
    assert "`lr`" in capfd.readouterr().err


@pytest.mark.parametrize("theirs", [8, 9], ids=["the same value", "another value"])
def test_two_ranks_may_log_the_same_parameter_at_the_same_moment(sweep, monkeypatch, theirs):
    import mlflow
    from mlflow.store.tracking.dbmodels.models import SqlParam
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    plain, calls = SqlAlchemyStore._log_params, []

    def beaten(store, run_id, params):
        calls.append(params)
        if len(calls) > 1:
            return plain(store, run_id, params)
        sweep.client.log_param(run_id, "batch", theirs)  # after this rank has seen that nobody had
        with store.ManagedSessionMaker(read_only=False) as session:
            session.add(SqlParam(run_uuid=run_id, key="batch", value="8"))

    monkeypatch.setattr(SqlAlchemyStore, "_log_params", beaten)
    sweep.loop(
        lambda: (mlflow.log_params({"batch": 8, "depth": 3}), mlflow.log_metric("loss", 0.5))
    )
    run = sweep.run(0)
    assert (run.data.params["batch"], run.data.params["depth"], run.data.metrics["loss"]) == (
        str(theirs),
        "3",
        0.5,
    ) and len(calls) >= 2


@pytest.mark.parametrize("state, status", [(State.COMPLETE, "FINISHED"), (State.FAIL, "FAILED")])
def test_the_run_status_of_the_sweep_counts_whatever_the_loop_sets_later(
    sweep, monkeypatch, state, status
):
    import mlflow

    def loop():
        mlflow.start_run()
        with monkeypatch.context() as elsewhere:  # the tracker is in another process than the loop
            elsewhere.setattr(loop_mlflow, "_current_run", None)
            sweep.tracker.handle(end(0, Result(state, 0.5), 2.0))
            sweep.tracker.close(20.0)
        mlflow.end_run("KILLED")
        mlflow.start_run()
        mlflow.MlflowClient().set_terminated(sweep.id(0), "KILLED")

    sweep.loop(loop)
    assert (sweep.run(0).info.status, sweep.run(0).info.end_time) == (status, 2000)


def local_runs(folder, name="mlflow.db"):
    from mlflow.tracking import MlflowClient

    client = MlflowClient(f"sqlite:///{folder / name}")
    return client.search_runs([client.get_experiment_by_name("trial").experiment_id])


def test_without_a_server_a_loop_logs_to_the_trials_folder_and_its_log_says_so(
    sweep, monkeypatch, capfd
):
    import mlflow

    monkeypatch.setattr(loop_mlflow, "ANSWER_WITHIN", 0.5)
    began = time.monotonic()
    assert sweep.loop(lambda: mlflow.log_metric("loss", 0.5), tracking=NOBODY) is None
    assert time.monotonic() - began < 60
    (run,) = local_runs(sweep.folder(0))
    assert (run.data.metrics, run.info.status) == ({"loss": 0.5}, "FINISHED")
    said = capfd.readouterr().err
    assert NOBODY in said and str(sweep.folder(0) / "mlflow.db") in said
    assert loop_mlflow._last_wait_failed, "the next trial waits less"
    sweep.loop(lambda: mlflow.log_metric("loss", 0.5), 1)
    assert sweep.run(1).data.metrics == {"loss": 0.5} and mlflow.active_run() is None


def test_a_server_that_never_answers_is_waited_for_ten_seconds_at_most(monkeypatch, tmp_path):
    import socket

    assert (
        loop_mlflow.ANSWER_WITHIN <= 10
        and float(loop_mlflow.BOUNDS["MLFLOW_HTTP_REQUEST_TIMEOUT"]) <= 10
    )
    monkeypatch.setattr(loop_mlflow, "ANSWER_WITHIN", 0.5)
    monkeypatch.setattr(loop_mlflow, "_last_wait_failed", False)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began, said = time.monotonic(), []
        assert (
            loop_mlflow.find(
                f"http://user:secret@127.0.0.1:{silent.getsockname()[1]}", tmp_path, said.append
            )
            is None
        )
    assert time.monotonic() - began < 5 and "secret" not in said[0]


def test_a_server_that_goes_away_in_the_middle_costs_the_loop_nothing(sweep, monkeypatch, capfd):
    import mlflow
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    gone = []

    def unless_gone(plain):
        def call(self, *args, **kwargs):
            if gone and self.db_uri == sweep.uri:
                raise mlflow.MlflowException("connection refused")
            return plain(self, *args, **kwargs)

        return functools.wraps(plain)(call)

    for name in loop_mlflow.CALLS:
        monkeypatch.setattr(SqlAlchemyStore, name, unless_gone(getattr(SqlAlchemyStore, name)))
    answers = loop_mlflow.answers
    monkeypatch.setattr(loop_mlflow, "answers", lambda *given: not gone and answers(*given))

    def loop():
        mlflow.log_metric("loss", 1.0, step=1)
        gone.append(True)
        mlflow.log_metric("loss", 0.5, step=2)
        mlflow.end_run()
        with mlflow.start_run():
            mlflow.log_params({"batch": 8})

    sweep.loop(loop)
    gone.clear()
    (run,) = local_runs(sweep.folder(0))
    assert (run.data.metrics, run.data.params, run.info.status) == (
        {"loss": 0.5},
        {"batch": "8"},
        "FINISHED",
    )
    assert (
        sweep.run(0).data.metrics == {"loss": 1.0} and "no longer answers" in capfd.readouterr().err
    )


def test_a_loop_that_does_not_use_mlflow_does_not_import_it():
    code = """
import sys
from sweeps.execution import loop_mlflow
loop_mlflow.watch()
with loop_mlflow.logged(loop_mlflow.TrialRun("http://127.0.0.1:1", "/nowhere", 0)):
    pass
assert "mlflow" not in sys.modules and "sweeps.space" not in sys.modules
"""
    subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        env={**os.environ, "PYTHONPATH": str(REPO)},
        timeout=60,
    )


@pytest.mark.integration
def test_a_loop_that_is_the_first_to_import_mlflow_by_name_logs_to_the_trials_run(sweep):
    code = f"""
from sweeps.execution import loop_mlflow
loop_mlflow.watch()
with loop_mlflow.logged(loop_mlflow.TrialRun({sweep.uri!r}, {str(sweep.folder(0))!r}, 0)):
    from mlflow import log_metric, start_run
    with start_run():
        log_metric("loss", 0.5)
"""
    subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        env={**os.environ, "PYTHONPATH": str(REPO)},
        timeout=100,
    )
    assert sweep.run(0).data.metrics == {"loss": 0.5} and len(sweep.runs()) == 2

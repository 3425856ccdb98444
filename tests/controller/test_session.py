"""The session of a sweep and a whole run around it, with fakes in the place of Ray, the pool and
the data actor.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from sweeps.controller import reservation
from sweeps.controller.controller import SweepController
from sweeps.controller.pool_monitor import PoolMonitor
from sweeps.controller.session import SweepSession
from sweeps.core.errors import InputError, Problem, SweepsError
from sweeps.core.files.sweep_folder import SCRATCH
from sweeps.core.host.machine_share import Share
from sweeps.core.result import SweepResult
from sweeps.core.trial import Report, State
from sweeps.data import data_actor
from sweeps.data.prepared_store import DatasetInfo
from sweeps.execution import pool as pool_module
from sweeps.execution.cluster import local_ray, ray_authentication, ray_cluster
from sweeps.execution.isolation import child_processes
from sweeps.execution.ray_apis import tune_adapter
from sweeps.exports.rerun import rerun
from sweeps.runs import api
from sweeps.space import Space, load
from tests.trial_updates import trial_update

SPACE = """\
name: faked
trainer: xgboost
data: {train: "sklearn:iris", label: target, valid: 0.2}
objective: {metric: valid-mlogloss, goal: minimize}
trackers: []
scheduler: {name: none}
limits: {max_trials: 2}
space:
  preprocessor: [StandardScaler]
  params: {eta: {uniform: [0.1, 0.5]}}
"""
INFO = DatasetInfo(
    "target",
    "classification",
    (0, 1, 2),
    ("a",),
    "f" * 64,
    {"train": 120, "valid": 30},
    pd.DataFrame({"a": [1.0]}),
)


class FakeHandle:
    """Handle of an actor.

    It keeps the names of the called methods, and returns their names as references.
    """

    def __init__(self, name: str, events: list[str]) -> None:
        self.name = name
        self._events = events

    def __getattr__(self, method: str) -> Any:
        def remote(*args: Any) -> str:
            self._events.append(f"{self.name}.{method}")
            return method

        return SimpleNamespace(remote=remote)


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happens to the fakes, in order."""
    events: list[str] = []

    def end_workers(folder: str) -> int:
        events.append("end workers")
        return 0

    monkeypatch.setattr(
        pool_module,
        "Pool",
        SimpleNamespace(
            options=lambda **kw: SimpleNamespace(remote=lambda *a: _start("pool", events))
        ),
    )
    monkeypatch.setattr(data_actor, "start", lambda where, config: _start("data", events))
    monkeypatch.setattr(data_actor, "load", lambda actor, space, fingerprint: INFO)
    monkeypatch.setattr(child_processes, "end", end_workers)
    monkeypatch.setattr(ray_cluster, "at_driver", lambda: "here")
    monkeypatch.setattr("ray.kill", lambda actor: events.append(f"kill {actor.name}"))
    monkeypatch.setattr("ray.get", lambda reference: None)
    monkeypatch.setattr("ray.wait", lambda references, timeout: ([], references))
    use_cluster(monkeypatch, events, ours=True)
    return events


def _start(name: str, events: list[str]) -> FakeHandle:
    events.append(f"start {name}")
    return FakeHandle(name, events)


def use_cluster(
    monkeypatch: pytest.MonkeyPatch, events: list[str], ours: bool, cpus: float = 2.0
) -> None:
    @contextlib.contextmanager
    def ray_connection(
        space: Space, folder: Path, roots: Any, address: Any, share: Any
    ) -> Iterator[Any]:
        events.append("start Ray")
        try:
            yield ray_cluster.RayConnection(ours, (), ({"CPU": cpus},), {"CPU": cpus})
        finally:
            events.append("stop Ray")

    monkeypatch.setattr(ray_cluster, "ray_connection", ray_connection)


@pytest.fixture
def space(tmp_path: Path) -> Space:
    (tmp_path / "faked.yaml").write_text(SPACE)
    return load(tmp_path / "faked.yaml")


START = ["start Ray", "start pool", "start data"]
END = ["kill pool", "kill data", "end workers", "stop Ray"]


def test_a_session_starts_and_ends_everything_in_order(
    events: Any, space: Any, tmp_path: Path
) -> None:
    for name in SCRATCH:
        (tmp_path / name).mkdir()
    with SweepSession(space, tmp_path, (), None) as opened:
        assert opened.load_data() is INFO and opened.count_fits() == 0
        opened.warm_workers(space.shapes)
    assert events == [
        *START,
        "pool.configure",
        "pool.warm",
        "pool.await_stopped",
        "pool.shutdown",
        *END,
    ]
    assert not [name for name in SCRATCH if (tmp_path / name).exists()]


def test_shared_cluster_starts_gangs_after_reading_data(
    events: Any, space: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_cluster(monkeypatch, events, ours=False)
    with SweepSession(space, tmp_path, (), None) as opened:
        opened.warm_workers(space.shapes)
        opened.close_workers()
    assert events == [*START, "pool.await_stopped", "pool.shutdown", *END]


def test_after_an_error_nothing_is_waited_for(
    events: Any, space: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_cluster(monkeypatch, events, ours=False)
    with pytest.raises(KeyError), SweepSession(space, tmp_path, (), None):
        raise KeyError
    assert events == [*START, *END]


def test_a_shape_that_never_fits_is_refused_before_any_actor_starts(
    events: Any, space: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_cluster(monkeypatch, events, ours=True, cpus=0.5)
    with pytest.raises(InputError, match="CPU"), SweepSession(space, tmp_path, (), None):
        pass
    assert events == ["start Ray", "stop Ray"]


def test_an_actor_that_cannot_start_leaves_nothing_behind(
    events: Any, space: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any, **arguments: Any) -> None:
        raise OSError

    monkeypatch.setattr(data_actor, "start", fail)
    with pytest.raises(OSError), SweepSession(space, tmp_path, (), None):
        pass
    assert events == ["start Ray", "start pool", "kill pool", "end workers", "stop Ray"]


# ---- a whole sweep around the session


@pytest.fixture
def no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweeps.sweep_report.content.write", lambda *args: None)


def run_all(controller: SweepController, *more: Any) -> None:
    """Run all trials, in the place of Ray Tune."""
    with contextlib.suppress(StopIteration):
        while (trial := controller.start_trial()) is not None:
            controller.on_update(
                trial_update(
                    trial, (Report(1, {"valid-mlogloss": 0.5}, 1.0),), state=State.COMPLETE
                )
            )
            controller.poll()


def swept(tmp_path: Path, **more: Any) -> SweepResult:
    return api.run(tmp_path / "faked.yaml", dir=tmp_path / "runs", **more)


def test_a_run_goes_from_the_space_file_to_the_result(
    events: Any, space: Any, no_report: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tune_adapter, "run", run_all)
    monkeypatch.setattr("ray.is_initialized", lambda: False)  # other tests may have started it
    stages: list[str | None] = []
    result = swept(tmp_path, on_progress=lambda status: stages.append(status.stage))
    assert (
        result.trials == {"completed": 2, "pruned": 0, "failed": 0}
        and result.fits == 0
        and result.reason is None
    )
    assert result.best is not None and result.best["trial"] == "0000"
    assert any("reported no checkpoint" in note for note in result.notes)
    assert {
        "starting Ray",
        "reading the data",
        "exporting the winner",
        "writing the report",
    } <= set(stages)
    again = api.resume(result.dir)
    assert again.trials == result.trials and "nothing is left to do" in again.notes[-1]
    ended: list[int] = []
    more = api.resume(
        result.dir, add_trials=1, on_progress=lambda status: ended.append(status.ended)
    )
    assert more.trials["completed"] == 3
    assert ended[0] == 2, "a resume counts the trials of earlier drivers from its first status on"


@pytest.mark.parametrize(
    ("is_notebook", "on_progress", "is_logged"),
    [(False, None, True), (True, None, False), (True, lambda status: None, True)],
    ids=["a script", "a notebook", "a notebook with an own view"],
)
def test_notes_about_the_space_are_logged_unless_a_notebook_shows_them(
    events: Any,
    space: Any,
    no_report: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    is_notebook: bool,
    on_progress: Any,
    is_logged: bool,
) -> None:
    monkeypatch.setattr(tune_adapter, "run", run_all)
    monkeypatch.setattr(api, "in_notebook", lambda: is_notebook)
    text = SPACE.replace("params: {", "params: {twice: 'params.eta * 2', ")
    (tmp_path / "faked.yaml").write_text(text)
    swept(tmp_path, on_progress=on_progress)
    notes = [line for line in caplog.messages if line.startswith("note: space.params.twice: ")]
    assert len(notes) == is_logged


def test_a_ray_that_runs_is_not_started(
    events: Any, space: Any, no_report: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tune_adapter, "run", run_all)
    monkeypatch.setattr("ray.is_initialized", lambda: True)
    stages: list[str | None] = []
    swept(tmp_path, on_progress=lambda status: stages.append(status.stage))
    assert stages[0] == "connecting to Ray" and "starting Ray" not in stages


def test_changed_data_ends_sweep_in_one_line_and_resume_works(
    events: Any, space: Any, no_report: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def change_data(monitor: PoolMonitor) -> bool:
        monitor.data_error = InputError(Problem("data.train", "the data has changed"))
        return False

    def run_one(controller: SweepController, *more: Any) -> None:
        controller.start_trial()
        controller.poll()

    error = (
        r"^.*faked.yaml:3:15: data.train: the data has changed\. Restore .*: .*sweeps resume .*$"
    )
    with monkeypatch.context() as patch:
        patch.setattr(PoolMonitor, "pool_was_restarted", change_data)
        patch.setattr(tune_adapter, "run", run_one)
        with pytest.raises(SweepsError, match=error):
            swept(tmp_path)
    assert events[-4:] == END
    monkeypatch.setattr(tune_adapter, "run", run_all)
    (folder,) = (tmp_path / "runs").iterdir()
    assert api.resume(folder).trials["completed"] == 2


def test_a_rerun_uses_the_same_session(
    events: Any, space: Any, no_report: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tune_adapter, "run", run_all)
    folder = swept(tmp_path).dir
    events.clear()
    again = trial_update("0000", (Report(1, {"valid-mlogloss": 0.5}, 1.0),), state=State.COMPLETE)
    monkeypatch.setattr("ray.wait", lambda references, timeout: (references, []))
    monkeypatch.setattr("ray.get", lambda reference: {"step": {"update": again}}.get(reference))
    assert str(rerun(folder, "0")) == "trial 0000: 1 step, bit-identical to the original run"
    assert events == [
        *START,
        "pool.configure",
        "pool.start",
        "pool.life",
        "pool.step",
        "pool.await_stopped",
        "pool.shutdown",
        *END,
    ]
    assert not list(folder.glob(".rerun-*"))


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give this machine 4 CPUs and 2 GPUs, and a folder of temporary files of its own."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.setenv("RAY_OVERRIDE_RESOURCES", '{"CPU": 4, "GPU": 2}')
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_session_reserves_requested_recorded_or_free_resources(
    machine: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with reservation.reserve("one", tmp_path, None, None, None) as everything:
        assert everything == Share(4, 2, None) and not caplog.messages, "Ray finds the GPUs"
    sweep = tmp_path / "sweep"
    sweep.mkdir()

    def started_with(**options: int) -> Path:
        (sweep / "origin.json").write_text(json.dumps(options))
        return sweep

    with reservation.reserve("one", started_with(cpus=16, gpus=1), None, None, None) as saved:
        assert saved == Share(4, 1, ("0",)), "this machine has fewer CPUs"
    with (
        reservation.reserve("one", started_with(cpus=2, gpus=0), None, 3, 1) as given,
        reservation.reserve("two", tmp_path, None, None, None) as left,
    ):
        assert (given, left) == (Share(3, 1, ("0",)), Share(1, 1, ("1",)))
    assert caplog.messages[0].endswith("and uses 3 of 4 CPUs and 1 of 2 GPUs")
    assert (
        caplog.messages[1]
        == "note: this sweep uses 1 CPU and 1 GPU; the options --cpus and --gpus change this"
    )
    monkeypatch.setattr(ray_cluster, "check_reachable", lambda address: None)
    monkeypatch.setattr(ray_authentication, "prepare_authentication", lambda address: None)
    with reservation.reserve("one", started_with(gpus=3), "auto", 64, None) as of_cluster:
        assert of_cluster.limit == {"CPU": 64, "GPU": 3}


def test_ray_starts_with_the_gpus_of_the_share_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2")
    with local_ray.limit_gpus(("2",)):
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "2"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1,2"
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    with local_ray.limit_gpus(()):
        assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
    assert "CUDA_VISIBLE_DEVICES" not in os.environ

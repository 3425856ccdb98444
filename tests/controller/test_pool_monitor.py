"""The pool is watched without waiting for it. No test starts Ray."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from sweeps.controller.pool_monitor import PoolMonitor
from sweeps.core.errors import InputError, Problem
from sweeps.core.files.sweep_folder import STAGES
from sweeps.execution.pool_usage import Stage, TrialUsage, Usage
from tests.search.deaths import Deaf


def use_fake_ray(monkeypatch: pytest.MonkeyPatch, ready: Any, get: Any) -> None:
    """Let `ray.wait` say that all references are ready as long as `ready` is true, and let
    `ray.get` call `get`.
    """
    wait = lambda references, timeout: (references, []) if ready else ([], references)  # noqa: E731
    monkeypatch.setattr(
        "sweeps.controller.pool_monitor.ray",
        SimpleNamespace(wait=wait, get=get, exceptions=ray.exceptions),
    )


def raises(error: Exception) -> Any:
    def get(reference: Any) -> None:
        raise error

    return get


def monitor_of(folder: Any, prefit: Any = None) -> PoolMonitor:
    pool: Any = Deaf()
    return PoolMonitor(pool, folder, prefit)


def test_usage_is_requested_again_only_after_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready: list[bool] = []
    reports = iter([Usage({"CPU": 1.0}), Usage({"CPU": 2.0})])
    use_fake_ray(monkeypatch, ready, lambda reference: next(reports))
    requests: list[str] = []

    def request_usage() -> str:
        requests.append("usage")
        return "reference"

    pool: Any = SimpleNamespace(usage=SimpleNamespace(remote=request_usage))
    monitor = PoolMonitor(pool, tmp_path)
    for cpus, count, next_ready in (
        (None, 1, []),
        (None, 1, [True]),
        (1.0, 2, [True]),
        (2.0, 3, []),
    ):
        monitor.update_usage()
        assert (monitor.usage and monitor.usage.total["CPU"]) == cpus and len(requests) == count
        ready[:] = next_ready


def test_stages_of_waiting_trials_are_in_the_folder_until_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / STAGES).write_text('{"0000": "waiting for workers"}')  # of a driver that was killed
    pool: Any = SimpleNamespace(usage=SimpleNamespace(remote=object))
    monitor = PoolMonitor(pool, tmp_path)
    assert not (tmp_path / STAGES).exists()
    training = TrialUsage(Stage.TRAINING)
    trials = {"0000": training, "0001": TrialUsage(Stage.WAITING)}
    usage = Usage({"CPU": 2.0}, trials=trials)
    use_fake_ray(monkeypatch, True, lambda reference: usage)
    monitor.update_usage()

    def saved() -> dict[str, str]:
        monitor.update_usage()
        stages: dict[str, str] = json.loads((tmp_path / STAGES).read_text())
        return stages

    assert saved() == {"0001": "waiting for workers"}
    silence = "rank 1 has not reported for 301 s"
    trials |= {"0000": TrialUsage(Stage.TRAINING, silent=silence), "0001": training}
    assert saved() == {"0000": "silent: rank 1 has not reported for 301 s"}
    trials["0000"] = training
    assert saved() == {}
    monitor.close()
    assert not (tmp_path / STAGES).exists()


def test_an_error_of_a_chain_is_returned_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = InputError(Problem("space.preprocessor", "no column `x`"))
    use_fake_ray(monkeypatch, True, raises(ray.exceptions.RayTaskError("prefit", "", bad)))
    monitor = monitor_of(tmp_path, prefit=object())
    assert monitor.prefit_error() is bad and monitor.prefit_error() is None


def test_a_prefit_that_still_runs_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_fake_ray(monkeypatch, False, raises(AssertionError()))
    assert monitor_of(tmp_path, prefit=object()).prefit_error() is None


def test_a_lost_pool_is_distinguished_from_changed_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monitor = monitor_of(tmp_path)
    use_fake_ray(monkeypatch, True, raises(ray.exceptions.RayActorError()))
    assert monitor.pool_was_restarted() and monitor.data_error is None
    changed = InputError(Problem("data.train", "the data has changed"))
    use_fake_ray(monkeypatch, True, raises(ray.exceptions.RayTaskError("life", "", changed)))
    assert not monitor.pool_was_restarted() and monitor.data_error is changed

"""One test of each framework: its documented loop, unchanged, several trials in a row.

`make test-frameworks` runs them.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from sweeps.core.trial import Report, State
from tests.execution.driving import Driving, job, trial

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(400)]


def in_a_row(
    folder: Path,
    loop: str,
    backend: str,
    metric: str,
    workers: int,
    trials: int,
    stop_at: int | None = None,
) -> list[list[Report]]:
    """Run trials of a loop one after the other and return the reports of each; every second one is
    stopped at `stop_at`, if given.
    """
    driving = Driving(
        job(f"tests.frameworks.loops:{loop}", backend, metric, rungs=(stop_at,) if stop_at else ()),
        folder,
    )
    try:
        reports_of_trials = []
        for number in range(trials):
            t = trial(number, {"lr": 0.05 + 0.01 * number}, workers, backend, seed=7)
            driving.start(t)
            stopped = stop_at is not None and number % 2 == 1
            outcome, reports = driving.finish(t, stop_at if stopped else None, timeout=300)
            assert outcome.state is (State.PRUNED if stopped else State.COMPLETE), outcome.error
            assert outcome.attempt == 1 and all(
                math.isfinite(report.metrics[metric]) for report in reports
            )
            reports_of_trials.append(reports)
        return reports_of_trials
    finally:
        driving.close()


def worker_of(folder: Path, number: int) -> str:
    """Return the worker that ran rank 0 of a trial."""
    title = Path(folder, f"{number:04d}", "logs", "rank-0.log").read_text().split("\n", 1)[0]
    return title.rsplit(" on ", 1)[1]


def saved(folder: Path, number: int, step: int) -> set[str]:
    """The files of a trial's checkpoint."""
    return {file.name for file in Path(folder, f"{number:04d}", f"checkpoint_{step:06d}").iterdir()}


def test_lightgbm_trains_trial_after_trial_on_the_same_workers(
    clean_ray: Any, tmp_path: Path
) -> None:
    trials = in_a_row(
        tmp_path, "lightgbm_loop", "lightgbm", "valid-rmse", workers=2, trials=4, stop_at=3
    )
    assert [len(reports) for reports in trials] == [4, 3] * 2
    assert {worker_of(tmp_path, number) for number in range(4)} == {"worker-001"}
    assert saved(tmp_path, 3, 2) == {"model.txt"}


def test_tensorflow_on_several_workers_has_new_workers_for_each_trial(
    clean_ray: Any, tmp_path: Path
) -> None:
    trials = in_a_row(tmp_path, "tensorflow_loop", "tensorflow", "loss", workers=2, trials=2)
    assert {report.metrics["replicas"] for reports in trials for report in reports} == {2.0}
    assert [worker_of(tmp_path, number) for number in range(2)] == ["worker-001", "worker-003"]


def test_lightning_trains_on_one_worker(clean_ray: Any, tmp_path: Path) -> None:
    trials = in_a_row(tmp_path, "lightning_loop", "torch", "loss", workers=1, trials=2, stop_at=1)
    assert [len(reports) for reports in trials] == [2, 1]
    assert {worker_of(tmp_path, number) for number in range(2)} == {"worker-001"}
    assert saved(tmp_path, 0, 2) == {"checkpoint.ckpt"}


def test_tunes_callback_reports_and_saves_each_step(clean_ray: Any, tmp_path: Path) -> None:
    trials = in_a_row(
        tmp_path, "lightning_for_tune", "none", "loss", workers=1, trials=2, stop_at=2
    )
    assert [len(reports) for reports in trials] == [3, 2]
    assert saved(tmp_path, 0, 3) == saved(tmp_path, 1, 2) == {"checkpoint"}

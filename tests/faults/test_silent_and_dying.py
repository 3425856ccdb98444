"""Errors and notes about a rank that is silent or dies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sweeps.core.trial import State
from tests.execution.driving import Driving, job, trial

pytestmark = [pytest.mark.faults, pytest.mark.timeout(240)]


@pytest.mark.parametrize(("workers", "how", "rank"), [(2, "on rank 1", 1)])
def test_r13_silent_rank_fails_its_trial_with_its_stack(
    clean_ray: Any, tmp_path: Path, workers: int, how: str, rank: int
) -> None:
    with Driving(
        replace(job("tests.faults.loops:hangs", "none"), report_timeout=2.0), tmp_path
    ) as driving:
        t = trial(0, {"how": how}, workers, "none")
        driving.start(t)
        outcome, _ = driving.finish(t)
        assert (outcome.state, outcome.attempt) == (State.FAIL, 1)
        assert outcome.error is not None
        for part in (
            "limits.report_timeout",
            f"rank {rank} ",
            "wait_for_ever",
            "tests/faults/loops.py",
        ):
            assert part in outcome.error
        assert "wait_for_ever" in (tmp_path / t.id / "logs" / f"rank-{rank}.log").read_text()
        last = trial(1, {"how": "not at all"}, workers, "none")
        assert driving.run(last)[0] is State.COMPLETE


DEATHS = {"exits": "code 3", "segfaults": "SIGSEGV", "aborts": "SIGABRT", "is killed": "SIGKILL"}


def test_r16_how_a_rank_died_is_in_its_trials_error(clean_ray: Any, tmp_path: Path) -> None:
    with Driving(job("tests.faults.loops:dies", "none"), tmp_path, max_failures=0) as driving:
        for number, (how, said) in enumerate(DEATHS.items()):
            t = trial(number, {"how": how}, 1, "none")
            driving.start(t)
            outcome, _ = driving.finish(t)
            assert outcome.state is State.FAIL and outcome.error is not None
            assert said in outcome.error, outcome.error

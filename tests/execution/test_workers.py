"""Gangs over many trials: nothing of one reaches the next, what is kept is kept on all ranks, and a
worn gang goes.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.execution.driving import Driving, job, trial

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]


@pytest.mark.parametrize("reuse, gangs", [("auto", ["001", "001"]), ("never", ["001", "002"])])
def test_a_worker_is_closed_after_each_trial_if_it_may_not_be_reused(
    clean_ray: Any, tmp_path: Path, reuse: str, gangs: Any
) -> None:
    with Driving(
        replace(job("tests.execution.loops:three_steps", "none"), reuse=reuse), tmp_path
    ) as driving:
        for number in range(2):
            driving.run(trial(number, {}, 1, "none"))
        titles = [
            (tmp_path / f"{number:04d}" / "logs" / "rank-0.log").read_text().split("\n", 1)[0]
            for number in range(2)
        ]
        assert [title.rsplit("worker-", 1)[1] for title in titles] == gangs

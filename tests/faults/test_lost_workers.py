"""SIGKILLs at latched moments: the trial continues from its checkpoint on a new gang, and nothing
is left behind.
"""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import ray

from sweeps.core.trial import Checkpoint, State, Trial
from tests.execution.driving import Driving, job, trial
from tests.study.trial_states import resumed_trial
from tests.waiting import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(180)]


def started(folder: Path, number: int) -> list[tuple[int, int, int]]:
    """Return (start step, rank, pid) for each start of the trial on a rank."""
    workers = []
    for file in folder.glob(f"test-{number:04d}.started-at-*"):
        start, rank, pid = file.name.split("started-at-")[1].split(".")
        workers.append((int(start), int(rank), int(pid)))
    return sorted(workers)


LOST = [
    pytest.param(1, [[0]], id="a gang of one", marks=pytest.mark.long),
    pytest.param(2, [[1]], id="a gang of two"),
    pytest.param(2, [[1], [0, 1]], id="a gang of two, again and again", marks=pytest.mark.long),
]


def wait_for_two_reports(driving: Driving, folder: Path, t: Trial) -> None:
    """Wait until a trial holds after two reports, and the pool has its second checkpoint."""
    held = folder / f"test-{t.id}.two"
    wait_until(held.exists, 60, "the trial to hold after two reports")
    wait_until(lambda: driving.checkpoint_step(t) == 2, 20, "the checkpoint of step 2 to be known")


@pytest.mark.parametrize("workers, rounds", LOST)
def test_a_killed_rank_costs_only_its_trial_an_attempt(
    clean_ray: Any, tmp_path: Path, workers: Any, rounds: Any
) -> None:
    with Driving(job("tests.user_loops:held", "none"), tmp_path) as driving:
        for number, victims in enumerate(rounds):
            (tmp_path / "go").unlink(missing_ok=True)
            t = trial(number, {"x": 0.0, "latch": str(tmp_path)}, workers, "none")
            driving.start(t)
            wait_for_two_reports(driving, tmp_path, t)
            pids = {rank: pid for _, rank, pid in started(tmp_path, number)}
            for victim in victims:
                os.kill(pids[victim], signal.SIGKILL)
            outcome, reports = driving.finish(t)
            assert (outcome.state, outcome.attempt) == (State.COMPLETE, 2), outcome.error
            assert [r.step for r in reports] == [1, 2, 3, 4, 5], "no report is lost or told twice"
            assert {start for start, _, _ in started(tmp_path, number)} == {0, 2}, (
                "it went on from its last checkpoint"
            )
        (tmp_path / "go").touch()
        last = trial(len(rounds), {"x": 0.0, "latch": str(tmp_path)}, workers, "none")
        assert driving.run(last)[0] is State.COMPLETE, "the gang that took over serves on"


def checkpoints_in(folder: Path) -> list[int]:
    return sorted(
        int(path.name.removeprefix("checkpoint_")) for path in folder.glob("checkpoint_*")
    )


@pytest.mark.long
@pytest.mark.parametrize("count, left", [(2, [4, 5]), (4, [2, 3, 4, 5])])
def test_a_trial_keeps_its_latest_checkpoints_over_a_retry(
    clean_ray: Any, tmp_path: Path, count: int, left: Any
) -> None:
    """In the loop `held`, the newest checkpoint is also the best one."""
    with Driving(
        replace(job("tests.user_loops:held", "none"), keep_latest=count), tmp_path
    ) as driving:
        t = trial(0, {"x": 0.0, "latch": str(tmp_path)}, 1, "none")
        driving.start(t)
        wait_until(
            lambda: (tmp_path / "test-0000.two").exists(), 60, "the trial to hold after two reports"
        )
        wait_until(
            lambda: driving.checkpoint_step(t) == 2, 20, "the checkpoint of step 2 to be known"
        )
        assert checkpoints_in(tmp_path / t.id) == [1, 2]
        os.kill(started(tmp_path, 0)[0][2], signal.SIGKILL)
        outcome, _ = driving.finish(t)
        assert (outcome.state, outcome.attempt) == (State.COMPLETE, 2), outcome.error
        wait_until(
            lambda: checkpoints_in(tmp_path / t.id) == left, 20, "older checkpoints to be deleted"
        )


def test_a_resumed_trial_keeps_the_checkpoints_of_its_first_driver(
    clean_ray: Any, tmp_path: Path
) -> None:
    """The study has the checkpoint of step 2. The checkpoint of step 3 is incomplete."""
    with Driving(
        replace(job("tests.user_loops:plain", "none"), keep_latest=9), tmp_path
    ) as driving:
        t = trial(0, {"x": 0.0}, 1, "none")
        saved = [Checkpoint(f"checkpoint_{step:06d}", step, step) for step in (1, 2, 3)]
        for c in saved:
            folder = tmp_path / t.id / c.name
            folder.mkdir(parents=True)
            (folder / ("state.json" if c.step < 3 else "half")).write_text(
                json.dumps({"step": c.step, "loss": 1 / c.step})
            )
        recorded = resumed_trial([{"loss": 1.0}, {"loss": 0.5}], saved[1], saved[1])
        recorded = recorded.changed(trial=t)
        ray.get(driving.pool.start.remote(recorded, str(tmp_path / t.id)))
        outcome, reports = driving.finish(t)
        assert outcome.state is State.COMPLETE and [r.step for r in reports] == [3, 4, 5], (
            outcome.error
        )
        assert (
            checkpoints_in(tmp_path / t.id) == [1, 2, 3, 4, 5]
            and not (tmp_path / t.id / saved[2].name / "half").exists()
        )


@pytest.mark.long
@pytest.mark.parametrize(
    "loop, backend", [("ddp_until_killed", "torch"), ("boosts_until_killed", "xgboost")]
)
def test_a_rank_that_raises_because_its_peer_was_killed_is_not_to_blame(
    clean_ray: Any, tmp_path: Path, loop: str, backend: str
) -> None:
    with Driving(job(f"tests.faults.loops:{loop}", backend), tmp_path) as driving:
        t = trial(0, {"latch": str(tmp_path)}, 2, backend)
        driving.start(t)
        outcome, reports = driving.finish(t)
        assert (outcome.state, outcome.attempt) == (State.COMPLETE, 2), outcome.error
        assert [r.step for r in reports] == [1, 2]


@pytest.mark.long
def test_a_rung_is_decided_once_even_if_the_trial_passes_it_again(
    clean_ray: Any, tmp_path: Path
) -> None:
    """A trial that is killed after a rung without a checkpoint starts again.

    The decision stays, and no rank waits for another.
    """
    with Driving(job("tests.faults.loops:dies_once", "none", rungs=(1, 3)), tmp_path) as driving:
        t = trial(0, {"latch": str(tmp_path)}, 1, "none")
        driving.start(t)
        asked: list[int] = []
        outcome, reports = driving.finish(t, asked=asked)
        assert (outcome.state, outcome.attempt, asked) == (State.COMPLETE, 2, [1, 3])
        assert [r.step for r in reports] == [1, 2, 3, 4]


@pytest.mark.long
@pytest.mark.parametrize("together", [False, True], ids=["rungs", "milestones"])
def test_ranks_that_report_unequally_often_fail_and_none_waits_for_another(
    clean_ray: Any, tmp_path: Path, together: bool
) -> None:
    """If one rank never reaches a rung, there is no decision, and the gang stays usable."""
    rungs = range(2, 5, 2)
    asked = replace(
        job("tests.faults.loops:reports_unequally", "none", rungs=tuple(rungs)),
        milestones=rungs if together else range(0),
    )
    with Driving(asked, tmp_path) as driving:
        for number, counts in enumerate([(3, 4), (4, 3), (1, 2), (0, 5)]):
            t = trial(number, {"reports": counts}, 2, "none")
            driving.start(t)
            outcome, _ = driving.finish(t, timeout=60)
            assert outcome.state is State.FAIL and outcome.error is not None, outcome
            assert "all ranks must report the same number of times" in outcome.error
        t = trial(9, {"reports": (5, 5)}, 2, "none")
        driving.start(t)
        assert driving.finish(t)[0].state is State.COMPLETE
        assert "on worker-00" in (tmp_path / t.id / "logs" / "rank-0.log").read_text()


@pytest.mark.long
def test_a_killed_rank_does_not_affect_another_trial(clean_ray: Any, tmp_path: Path) -> None:
    with Driving(job("tests.user_loops:held", "none"), tmp_path) as driving:
        params = {"x": 0.0, "latch": str(tmp_path)}
        victim, other = trial(0, params, 1, "none"), trial(1, params, 1, "none")
        for t in (victim, other):
            driving.start(t)
        for t in (victim, other):
            wait_for_two_reports(driving, tmp_path, t)
        os.kill(started(tmp_path, 0)[0][2], signal.SIGKILL)
        outcome, reports = driving.finish(victim)
        assert (outcome.state, outcome.attempt, len(reports)) == (State.COMPLETE, 2, 5), (
            outcome.error
        )
        (tmp_path / "go").touch()
        outcome, reports = driving.finish(other)
        assert (outcome.state, outcome.attempt) == (State.COMPLETE, 1), outcome.error
        assert [r.step for r in reports] == [1, 2, 3, 4, 5] and len(started(tmp_path, 1)) == 1


def test_a_trial_that_loses_its_worker_too_often_fails_and_says_so(
    clean_ray: Any, tmp_path: Path
) -> None:
    with Driving(
        job("tests.faults.loops:kills_itself", "none"), tmp_path, max_failures=1
    ) as driving:
        t = trial(0, {}, 1, "none")
        driving.start(t)
        outcome, _ = driving.finish(t)
        assert (outcome.state, outcome.attempt) == (State.FAIL, 2)
        assert outcome.error is not None
        assert "died in 2 attempts" in outcome.error
        assert "`limits.max_failures` allows only 1" in outcome.error


def test_a_loop_may_change_its_gang_in_these_ways(clean_ray: Any, tmp_path: Path) -> None:
    """Each misdeed in one pool affects only its own trial.

    The next trial runs as if nothing had happened.
    """
    driving = Driving(job("tests.faults.loops:misbehaves", "torch"), tmp_path)

    def run(number: int, how: str) -> Any:
        t = trial(number, {"how": how}, 2, "torch")
        driving.start(t)
        return driving.finish(t)

    try:
        # As sharded models are saved: every rank its own file, at the same moment.
        for number in range(5):
            outcome, _ = run(number, "saves in parts")
            assert outcome.state is State.COMPLETE, outcome.error
            assert sorted(
                f.name for f in (tmp_path / f"{number:04d}" / outcome.best.name).iterdir()
            ) == ["rank0", "rank1"]
        wrongs = [
            ("raises everywhere", "every rank"),
            ("exits", "SystemExit"),
            ("raises its own kind", "Enough: enough for now"),
            ("ends Ray", "a training loop must not call ray.shutdown()"),
            ("raises alone", "only rank 1"),
        ]
        for number, (how, said) in enumerate(wrongs, start=10):
            outcome, _ = run(number, how)
            assert (outcome.state, outcome.attempt) == (State.FAIL, 1), (
                "the user's own exception is a failure at once"
            )
            assert said in outcome.error and (
                "sweeps/execution" not in outcome.error or how == "ends Ray"
            )
            log = (
                tmp_path
                / f"{number:04d}"
                / "logs"
                / f"rank-{'1' if how == 'raises alone' else '0'}.log"
            )
            assert said in log.read_text() and "tests/faults/loops.py" in log.read_text(), (
                "its log has the traceback too"
            )
        # On the fresh gang after the one that hung: a destroyed process group is noticed, its gang
        # not used again.
        for number, how in enumerate(["destroys the group", "sums"], start=20):
            outcome, reports = run(number, how)
            assert outcome.state is State.COMPLETE, outcome.error
            assert [r.metrics["loss"] for r in reports] == [2.0]
    finally:
        driving.close()

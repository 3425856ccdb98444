"""Elastic trials in the pool: the steps at which the ranks stop, the record of sizes, and the parts
of the data.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.controller.rerun import sizes_to_replay
from sweeps.core.best_step import StepOrder
from sweeps.core.resources import Shape
from sweeps.core.trial import Checkpoint, GangSizePeriod, Report
from sweeps.execution import gates as gates_module
from sweeps.execution.gates import STOP, Gates
from sweeps.execution.messages import RankUpdate, ResumeState
from sweeps.execution.running_trial import RunningTrial
from sweeps.execution.trial_progress import TrialProgress
from tests.execution.driving import trial


def running(most: int = 3, replay: tuple[GangSizePeriod, ...] = ()) -> RunningTrial:
    """An elastic trial with 1 to `most` workers."""
    shape = Shape(1, (("CPU", 1.0),), most=most)
    return RunningTrial(
        replace(trial(0, {}, 1, "none"), shape=shape),
        "",
        TrialProgress(1, StepOrder("loss", True)),
        replay,
    )


def update(rank: int, step: int, saved: bool = False) -> RankUpdate:
    reports = (Report(step, {"loss": 1.0}, 0.0),) if rank == 0 else ()
    return RankUpdate(
        rank, step, reports, (Checkpoint(f"/t/checkpoint_{step:06d}", step, step),) if saved else ()
    )


def test_all_ranks_get_one_answer_when_the_last_has_reported():
    async def scene() -> None:
        progress, asked = TrialProgress(1, StepOrder("loss", True)), list[int]()
        gates = Gates(progress)
        progress.begin(2)

        def decide(step: int) -> int:
            asked.append(step)
            return STOP if step == 4 else step + 3

        def come(rank: int, step: int) -> asyncio.Future[int]:
            progress.record_update(1, update(rank, step))
            answer = gates.answer(step)
            gates.update(decide)
            return answer

        first = come(0, 1)
        assert not first.done() and gates.holds(0) and not gates.holds(1)
        assert come(1, 1) is first and first.result() == gates.next_step == 4
        second = come(1, 4)
        assert not second.done()
        assert come(0, 4) is second and second.result() == STOP
        assert asked == [1, 4], "each step is decided once"

    asyncio.run(scene())


def test_a_rank_that_died_or_ended_does_not_keep_its_peers_waiting():
    async def scene() -> None:
        progress = TrialProgress(1, StepOrder("loss", True))
        gates = Gates(progress)
        progress.begin(2)
        answer = gates.answer(1)
        gates.close()
        assert answer.result() == STOP and gates.answer(2).result() == STOP
        gates.reset()
        progress.begin(2)
        progress.record_update(2, update(1, 1), ended=True)
        progress.record_update(2, update(0, 3))
        answer = gates.answer(3)
        gates.update(lambda step: STOP)
        assert answer.result() == 4, "no change of the size with a rank that has ended"

    asyncio.run(scene())


def test_a_gang_that_cannot_grow_asks_a_few_times_a_second(monkeypatch):
    now = 100.0
    monkeypatch.setattr(gates_module.time, "monotonic", lambda: now)
    gates, step, asked = Gates(TrialProgress(1, StepOrder("loss", True))), 1, list[int]()
    for _ in range(14):
        asked.append(step)
        after = gates.later(step, 0.25)
        now += (after - step) * 0.001
        step = after
    assert asked[:6] == [1, 2, 4, 8, 16, 32] and asked[-1] - asked[-2] in (249, 250), (
        "a report each millisecond"
    )
    now += 10.0
    assert gates.later(step, 0.25) == step + 6, "the steps have become slow"


def test_the_record_says_how_many_workers_there_were_from_which_step_on():
    progress = TrialProgress(1, StepOrder("loss", True))
    first = progress.begin(3)
    for step in (1, 2, 3):
        for rank in (2, 1, 0):
            progress.record_update(first, update(rank, step, saved=rank == 0 and step == 2))
    second = progress.begin(2)
    for step in (3, 4):
        for rank in (1, 0):
            progress.record_update(second, update(rank, step, saved=rank == 0 and step == 4))
    progress.begin(2)
    progress.begin(3)
    sizes = progress.next_progress(1.0).sizes
    assert [(s.step, s.workers, s.reported) for s in sizes] == [(0, 3, 0), (2, 2, 3), (4, 3, 4)]
    assert (
        ", ".join(map(str, sizes))
        == "3 from step 1, 2 from step 4 (trained step 3 again), 3 from step 5"
    )
    resumed = TrialProgress(1, StepOrder("loss", True))
    resumed.restore(
        ResumeState(
            4, ((4, {"loss": 1.0}),), Checkpoint("/t/checkpoint_000004", 4, 4), None, sizes=sizes
        )
    )
    resumed.begin(3)
    assert resumed.sizes == sizes, "the same number is not recorded again"


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 4)), max_size=6))
def test_a_replay_leaves_out_sizes_that_did_nothing(changes):
    sizes, step, reported = [], 0, 0
    for more_steps, more_reports, workers in changes:
        step, reported = step + more_steps, max(step + more_steps, reported + more_reports)
        sizes.append(GangSizePeriod(step, workers, reported, 0.0))
    replay = sizes_to_replay(sizes)
    assert replay[-1:] == tuple(sizes[-1:])
    places = [(size.step, size.reported) for size in replay]
    assert len(set(places)) == len(places), "every other size reports or saves something"
    assert set(places) == {(size.step, size.reported) for size in sizes}


def test_a_replay_continues_from_the_recorded_checkpoint_although_a_later_one_is_complete():
    progress = TrialProgress(1, StepOrder("loss", True), keep_latest=100)
    attempt = progress.begin(1)
    for step in range(1, 6):
        progress.record_update(attempt, update(0, step, saved=True))
    progress.return_to(3)
    assert progress.checkpoint is not None and progress.checkpoint.step == 3
    progress.return_to(0)
    assert progress.checkpoint is None


def test_a_replay_starts_with_the_recorded_number_of_workers():
    async def scene() -> None:
        one = running(replay=(GangSizePeriod(0, 3, 0, 0.0), GangSizePeriod(2, 2, 3, 0.0)))
        assert one.shape == Shape(3, (("CPU", 1.0),))

    asyncio.run(scene())


@pytest.mark.integration
@pytest.mark.timeout(120)
def test_a_rank_takes_the_same_part_as_one_that_is_cut_ahead(clean_ray: Any):
    import pandas as pd
    import pyarrow as pa

    from sweeps.data.tables import part_of, split_equally

    frame = pd.DataFrame(
        {"a": range(11), "b": [None, 1.0] * 5 + [2.0], "c": pd.Categorical(list("xyzxyzxyzxy"))}
    )
    whole = clean_ray.data.from_blocks([frame])
    for workers in (2, 3, 4):
        ahead = [
            part.to_pandas()
            for part in split_equally(pa.Table.from_pandas(frame, preserve_index=False), workers)
        ]
        for rank in range(workers):
            pd.testing.assert_frame_equal(part_of(whole, workers, rank).to_pandas(), ahead[rank])

"""Elastic trials in the pool: the steps at which the ranks stop, the record of sizes, and the parts
of the data.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from sweeps.core.resources import Shape
from sweeps.core.trial import Checkpoint, Report, State
from sweeps.execution.gangs.pool_worker import PoolWorker
from sweeps.execution.messages import Ended, RankUpdate
from sweeps.execution.trials.elastic import ElasticGangs
from sweeps.execution.trials.running_trial import RunningTrial
from sweeps.study.transitions import apply_all
from tests.execution.driving import trial
from tests.in_loop import in_loop
from tests.study.trial_states import new_trial
from tests.trial_updates import rank_places


def update(rank: int, step: int, saved: bool = False) -> RankUpdate:
    reports = (Report(step, {"loss": 1.0}, 0.0),) if rank == 0 else ()
    return RankUpdate(
        rank, step, reports, (Checkpoint(f"checkpoint_{step:06d}", step, step),) if saved else ()
    )


class Growing:
    """A pool of workers that has another worker at step 4."""

    joining = object.__new__(PoolWorker)

    def grow(
        self, shape: Any, members: Any, trials_pending: bool, reserve: bool
    ) -> list[PoolWorker]:
        return [self.joining] if reserve else []


def running_of_two() -> tuple[RunningTrial, ElasticGangs]:
    shape = Shape(1, (("CPU", 1.0),), most=3)
    running = RunningTrial(new_trial(replace(trial(0, {}, 1, "none"), shape=shape)), "")
    running.begin_attempt(rank_places(2))
    running.may_change_size = True
    pool: Any = Growing()
    return running, ElasticGangs(pool)


def test_all_ranks_get_one_answer_when_the_last_has_reported() -> None:
    async def scene() -> None:
        running, elastic = running_of_two()

        async def come(rank: int, step: int, saved: bool = False) -> asyncio.Task[bool]:
            running.record(1, update(rank, step, saved))
            answer = asyncio.create_task(elastic.may_continue(running, step))
            await asyncio.sleep(0)
            return answer

        first = await come(0, 1)
        assert not first.done()
        assert await (await come(1, 1)) and await first
        first = await come(0, 4, saved=True)
        assert not first.done()
        assert not await (await come(1, 4)) and not await first
        assert running.yields and running.next_workers == [Growing.joining]

    asyncio.run(scene())


def test_a_rank_that_died_or_ended_does_not_keep_its_peers_waiting() -> None:
    async def scene() -> None:
        running, elastic = running_of_two()
        answer = running.answers[1]
        running.answers.close()
        assert not answer.result() and not running.answers[2].result()
        running.begin_attempt(rank_places(2))
        running.record(2, update(1, 1), Ended(0, State.COMPLETE))
        running.record(2, update(0, 3, saved=True))
        assert await elastic.may_continue(running, 3), (
            "with a rank that has ended, it keeps its size"
        )

    asyncio.run(scene())


@in_loop
def test_the_record_says_how_many_workers_there_were_from_which_step_on() -> None:
    shape = Shape(1, (("CPU", 1.0),), most=3)
    elastic = new_trial(replace(trial(0, {}, 1, "none"), shape=shape))
    running = RunningTrial(elastic, "")
    first = running.begin_attempt(rank_places(3))
    for step in (1, 2, 3):
        for rank in (2, 1, 0):
            running.record(first, update(rank, step, saved=rank == 0 and step == 2))
    second = running.begin_attempt(rank_places(2))
    for step in (3, 4):
        for rank in (1, 0):
            running.record(second, update(rank, step, saved=rank == 0 and step == 4))
    running.begin_attempt(rank_places(2))
    running.begin_attempt(rank_places(3))
    driven = apply_all(elastic, running.next_update().events)
    sizes = driven.sizes
    assert [(s.step, s.workers, s.reported) for s in sizes] == [(0, 3, 0), (2, 2, 3), (4, 3, 4)]
    assert (
        ", ".join(map(str, sizes))
        == "3 from step 1, 2 from step 4 (trained step 3 again), 3 from step 5"
    )
    assert driven.attempt == 4
    assert driven.checkpoint is not None and driven.checkpoint.step == 4
    resumed = RunningTrial(driven, "")
    resumed.begin_attempt(rank_places(3))
    assert resumed.state.sizes == sizes, "the same number is not recorded again"


@pytest.mark.integration
@pytest.mark.timeout(120)
def test_a_rank_takes_the_same_part_as_one_that_is_cut_ahead(clean_ray: Any) -> None:
    import pandas as pd
    import pyarrow as pa

    from sweeps.data.columns.tables import rows_of_rank, split_equally

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
            pd.testing.assert_frame_equal(
                rows_of_rank(whole, workers, rank).to_pandas(), ahead[rank]
            )

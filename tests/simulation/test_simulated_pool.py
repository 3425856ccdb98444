"""The driver, the search, the allocation and the retries on a simulated pool."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sweeps.controller.controller import SweepController
from sweeps.core import clock
from sweeps.core.trial import State
from sweeps.execution.gangs.cluster_state import Phase
from sweeps.search.search_loop import SearchLoop
from sweeps.study import record_reader
from tests.search.deaths import Deaf
from tests.simulation.simulated_pool import (
    SimulatedLoop,
    SimulatedNode,
    SimulatedPool,
    nodes_of,
)

GPUS = {"CPU": 8.0, "GPU": 8.0}
BODY = """
scaling: {num_workers: %s, resources_per_worker: {CPU: 1, GPU: 1}}
params: {eta: {uniform: [0, 1]}}
"""
# One of the nodes joins late, one dies while trials run on it, and one is slow.
OTHERS = (
    SimulatedNode(GPUS, joins=20.0),
    SimulatedNode(GPUS, leaves=15.0),
    SimulatedNode(GPUS, slowness=3.0),
)
LOOP = SimulatedLoop(
    9, lambda state, step: {"loss": state.params["eta"] + 1 / step}, rungs=frozenset({1, 3})
)


class Watched(SimulatedPool):
    """Checks after every allocation that no node has more busy workers than GPUs."""

    def _serve(self) -> None:
        super()._serve()
        busy = Counter(w.node for w in self._workers.values() if w.phase is Phase.BUSY)
        assert all(count <= 8 for count in busy.values()), busy


def swept(
    make_space: Callable[..., Any], folder: Path, pool: SimulatedPool, slots: int, **space: Any
) -> SearchLoop:
    """Run a sweep of random configurations on a simulated pool, and return its search."""
    workers = space.pop("workers", 1)
    given = {"algorithm": "random", "scheduler": "{name: asha, max_t: 9}", **space}
    described = make_space(BODY % workers, **given)
    deaf: Any = Deaf()
    monitor: Any = pool
    with clock.use_clock(pool.clock):
        search = SearchLoop.open(folder, described)
        pool.run(
            SweepController(
                search, pool.handle, deaf, 0.0, lambda: False, deaf, lambda: None, monitor=monitor
            ),
            slots,
        )
    return search


@pytest.mark.timeout(60)
def test_a_thousand_trials_on_twenty_nodes(make_space: Any, tmp_path: Path) -> None:
    pool = SimulatedPool(nodes_of(17, GPUS, OTHERS), LOOP)
    search = swept(make_space, tmp_path, pool, 160, max_trials=1000)
    ends = Counter(result.state for result in search.store.results().values())
    assert set(ends) == {State.COMPLETE, State.PRUNED} and ends.total() == 1000
    assert 1000 < pool.attempts < 1010, "the trials of the node that died were tried again"
    assert ends[State.COMPLETE] >= 1000 // 9, "one in three of each rung"
    best = search.store.winner()
    etas = [state.params["eta"] for state in search.store.states.values()]
    assert best is not None and search.store.states[best].params["eta"] == min(etas)
    study = record_reader.read(tmp_path)
    assert study is not None and all(trial.has_ended for trial in study.trials)


@pytest.mark.parametrize("workers", [1, 3, 8])
def test_gangs_never_get_more_than_there_is(make_space: Any, tmp_path: Path, workers: int) -> None:
    pool = Watched(nodes_of(2, GPUS, OTHERS), LOOP)
    search = swept(make_space, tmp_path, pool, 12, max_trials=30, workers=workers)
    assert all(result.state is not State.RUNNING for result in search.store.results().values())


def test_promotion_lets_paused_trials_continue(make_space: Any, tmp_path: Path) -> None:
    pool = SimulatedPool(nodes_of(2, GPUS), LOOP)
    scheduler = "{name: asha, max_t: 9, type: promotion}"
    search = swept(make_space, tmp_path, pool, 16, max_trials=81, scheduler=scheduler)
    ends = Counter(result.state for result in search.store.results().values())
    assert ends.total() == 81 and ends[State.COMPLETE] >= 1
    assert pool.attempts > 81, "a trial that continues runs again"


def test_a_simulated_sweep_is_the_same_each_time(make_space: Any, tmp_path: Path) -> None:
    outcomes = []
    for name in ("first", "second"):
        pool = SimulatedPool(nodes_of(1, GPUS, OTHERS), LOOP)
        (tmp_path / name).mkdir()
        search = swept(make_space, tmp_path / name, pool, 32, max_trials=60)
        outcomes.append([search.store.results(), pool.clock.now, pool.attempts])
    assert outcomes[0] == outcomes[1]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_ten_thousand_trials_on_hundred_nodes_take_three_minutes(
    make_space: Any, tmp_path: Path
) -> None:
    began = time.monotonic()
    pool = SimulatedPool(nodes_of(97, GPUS, OTHERS), LOOP)
    search = swept(make_space, tmp_path, pool, 800, max_trials=10_000)
    assert len(search.store.results()) == 10_000
    assert time.monotonic() - began < 180

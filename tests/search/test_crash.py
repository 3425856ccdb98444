"""A driver that dies at any record of the journal, once or again and again: the next one comes to
the same end as if nothing had been.
"""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sweeps.controller.controller import SweepController
from sweeps.controller.ports import RemoteMethod
from sweeps.core.files.sweep_folder import JOURNAL
from sweeps.core.trial import Checkpoint, Report, State, Trial
from sweeps.search.search_loop import SearchLoop
from sweeps.study import record_reader
from sweeps.study.states import TrialState
from sweeps.tracking.hub import TrackerHub
from tests.controller.controllers import start_trial
from tests.search.deaths import Deaf, Killed, dying, records_of, with_deaths
from tests.study.studies import recorded_study
from tests.trial_updates import trial_update

BODY = """
preprocessor: {grid: [StandardScaler, MinMaxScaler]}
params: {eta: {loguniform: [1e-3, 1.0]}, kind: {choice: [a, b]}, \
drop: {uniform: [0, 1], when: {params.kind: b}}}
"""
# In part, as a whole, and with a known result
POINTS = """[{params.eta: 0.5}, {preprocessor: MinMaxScaler, params.kind: b, \
params.eta: 0.1, params.drop: 0.25},
  {preprocessor: StandardScaler, params.kind: a, params.eta: 0.25, value: 0.125}]"""
MAX_T = 9


class Pool(Deaf):
    """Remembers what it was told to start."""

    def __init__(self) -> None:
        self.started: dict[str, TrialState] = {}
        self.start: RemoteMethod = SimpleNamespace(remote=self._start)

    def _start(self, state: TrialState, *_: Any) -> None:
        self.started[state.id] = state


def loss(trial: Trial, step: int) -> float:
    eta: float = trial.params["eta"]
    drop: float = trial.params.get("drop", 0.3)
    return eta + drop + 1 / step + (0.001 * trial.number if trial.repeat_of is not None else 0)


def drive(
    space: Any, folder: Any, loss: Any = loss, max_t: int = MAX_T, before: Any = lambda loop: None
) -> SearchLoop:
    """One driver with one slot, to the end of the sweep: a loop of so many steps with a checkpoint
    at every other one.
    """
    loop, pool = SearchLoop.open(folder, space), Pool()
    controller = SweepController(
        loop,
        pool,
        TrackerHub(),
        time.monotonic() - loop.store.spent,
        lambda: False,
        lambda s: None,
        lambda: None,
    )
    controller.finish_leftover_trials()
    while True:
        before(loop)
        try:
            name = start_trial(controller)
        except StopIteration:
            return loop
        state = pool.started[name]
        trial, kept = state.trial, state.checkpoint
        runs, attempts = True, state.attempt + 1
        for step in range(kept.step + 1 if kept else 1, max_t + 1):
            saves = step % 2 == 0 or (
                loop.scheduler.needs_checkpoint and step in loop.scheduler.rungs()
            )
            if saves:
                path = folder / "trials" / name / f"checkpoint_{step:06d}"
                path.mkdir(exist_ok=True)
                kept = Checkpoint(path.name, step, step)
            reports = (
                Report(step, {"loss": loss(trial, step), "other": float(step)}, time.time()),
            )
            rung = step if step in loop.scheduler.rungs() else None
            runs = controller.on_update(
                trial_update(
                    name, reports, kept if saves else None, kept, rung, None, attempt=attempts
                )
            )
            if not runs:
                break
        if runs:
            controller.on_update(
                trial_update(name, state=State.COMPLETE, best=kept, attempt=attempts)
            )


def _start_of(state: TrialState) -> dict[str, Any]:
    trial = state.started.trial
    known = {"id": trial.id, "seed": trial.seed, "params": trial.params, "labels": trial.labels}
    return known | {"bracket": state.started.bracket, "scaling": trial.shape.scaling}


def outcome(loop: SearchLoop) -> list[Any]:
    """What a sweep came to, without times."""
    states = loop.store.states
    return [
        (
            t.number,
            t.state.name,
            t.params,
            _start_of(states[t.number]),
            record_reader.repeat_of(t),
            t.intermediate_values,
            [(r.step, r.metrics) for r in states[t.number].own_reports],
        )
        for t in loop.store.study.get_trials(deepcopy=False)
    ] + [loop.store.winner(), [r.value for r in loop.store.results().values()]]


PLAIN = {"max_trials": 8}
PROMOTION = {
    "max_trials": 10,
    "scheduler": "{name: asha, max_t: 9, type: promotion}",
    "extra": "repeats: {count: 2}",
}
ASKED = {"max_trials": 5, "points": POINTS, "extra": "repeats: {count: 2}"}


@pytest.fixture
def undisturbed(make_space: Any, tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    """A sweep as nobody disturbs it: its space, what it comes to, the records of its journal."""
    space = make_space(BODY, **request.param)
    (tmp_path / "whole").mkdir()
    return space, outcome(drive(space, tmp_path / "whole")), records_of(tmp_path / "whole")


@pytest.mark.timeout(120)
@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@pytest.mark.parametrize(
    "undisturbed",
    [PLAIN, ASKED, PROMOTION],
    ids=["sampled", "initial points and repeats", "promotion"],
    indirect=True,
)
@given(data=st.data())
def test_a_driver_may_die_at_any_record_and_any_byte_of_it(
    undisturbed: Any, tmp_path: Path, data: Any
) -> None:
    space, expected, records = undisturbed
    assert {state for _, state, *_ in expected[:-2]} == {"COMPLETE", "PRUNED"}
    folder = tmp_path / "cut"
    assert outcome(with_deaths(lambda: drive(space, folder), folder, data, records)) == expected


def enqueue_after_two(loop: SearchLoop) -> None:
    """Enqueue two configurations as soon as two trials have started.

    A driver that follows makes the same calls again.
    """
    if sum(state.started.given is None for state in loop.store.states.values()) >= 2:
        loop.enqueue({"params.kind": "b", "params.drop": 0.75}, "first")
        loop.enqueue({"preprocessor": "MinMaxScaler", "params.eta": 0.875}, "second")


@pytest.fixture
def enqueued(make_space: Any, tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    """Like `undisturbed`, with two configurations that are enqueued while the sweep runs."""
    space, whole = make_space(BODY, **request.param), tmp_path / "whole"
    whole.mkdir()
    expected = outcome(drive(space, whole, before=enqueue_after_two))
    trials = recorded_study(whole).trials
    first, second = (t for t in trials if t.trial.enqueued)
    assert (first.labels["params.kind"], first.labels["params.drop"]) == ("b", 0.75)
    assert (second.trial.chain, second.labels["params.eta"]) == ("MinMaxScaler", 0.875)
    assert (
        sum(t.trial.repeat_of is None and not t.result.given for t in trials)
        == space.limits.max_trials
        == space.limits.max_trials
    )
    return space, expected, records_of(whole)


@pytest.mark.timeout(120)
@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@pytest.mark.parametrize(
    "enqueued", [PLAIN, ASKED], ids=["sampled", "initial points and repeats"], indirect=True
)
@given(data=st.data())
def test_enqueued_configurations_are_the_same_after_any_death(
    enqueued: Any, tmp_path: Path, data: Any
) -> None:
    space, expected, records = enqueued
    folder = tmp_path / "cut"
    assert (
        outcome(
            with_deaths(
                lambda: drive(space, folder, before=enqueue_after_two), folder, data, records
            )
        )
        == expected
    )


@pytest.mark.timeout(120)
@pytest.mark.parametrize("undisturbed", [ASKED], ids=[""], indirect=True)
def test_a_driver_may_die_between_putting_a_trial_in_line_and_beginning_it(
    undisturbed: Any, tmp_path: Path
) -> None:
    """At each record from the one that puts an initial point, or a repeat, in line to the one that
    begins it: within and after it.
    """
    space, expected, _ = undisturbed
    entries = [json.loads(line) for line in (tmp_path / "whole" / JOURNAL).read_text().splitlines()]
    lined = [i for i, e in enumerate(entries) if "fixed_params" in str(e.get("system_attrs", ""))]
    begins = [i for i, e in enumerate(entries) if "events.0" in e.get("user_attr", {})]
    repeats = sum(trial[4] is not None for trial in expected[:-2])
    assert repeats and len(lined) == 2 + repeats, (
        "two initial points and the repeats; what is given is not run"
    )
    for first in lined[:3]:
        for at in range(first + 1, next(i for i in begins if i > first) + 2):
            for part in (0.5, 1.0):
                folder = tmp_path / "cut"
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
                    dying(patch, at, part)
                    drive(space, folder)
                assert outcome(drive(space, folder)) == expected, (at, part)

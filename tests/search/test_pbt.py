"""A population on record: the conductor and the ledger with a pool that hands out turns, and
drivers that die.
"""

from __future__ import annotations

import dataclasses
import time
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sweeps.controller.controller import SweepController
from sweeps.controller.decide import decide
from sweeps.controller.driver_commands import Continue
from sweeps.controller.ports import RemoteMethod
from sweeps.core.trial import Checkpoint, Report, Result, State, Trial
from sweeps.search import exploit
from sweeps.search.search_loop import SearchLoop
from sweeps.study.events import Event, Perturbation, TrialDecided, TrialReported, TrialStarted
from sweeps.study.states import TrialState
from sweeps.tracking.earlier_events import TrialHistory
from sweeps.tracking.hub import TrackerHub
from tests.search.deaths import Deaf, records_of, with_deaths
from tests.study.studies import recorded_study
from tests.study.trial_states import LOSS, known_trial
from tests.trial_updates import trial_update

BODY = """
preprocessor: {grid: [StandardScaler, MinMaxScaler]}
params: {eta: {loguniform: [1e-3, 1.0]}, n: {randint: [1, 20]}, kind: {choice: [a, b]}, \
drop: {uniform: [0, 1], when: {params.kind: b}}}
"""
MEMBERS, MAX_T, EVERY = 6, 12, 3
PBT = f"{{name: pbt, max_t: {MAX_T}, perturbation_interval: {EVERY}, quantile_fraction: 0.34}}"


class Pool(Deaf):
    """One slot, which its trials have in turns: an answered trial goes to the end of the line."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.line: deque[TrialState] = deque()
        self.now: TrialState | None = None
        self.start: RemoteMethod = SimpleNamespace(remote=self._start)
        self.answer: RemoteMethod = SimpleNamespace(remote=self._answer)
        self.renew: RemoteMethod = SimpleNamespace(remote=self._renew)

    def _start(self, state: TrialState, *_: Any) -> None:
        self.line.append(state)

    def _answer(self, trial: str, step: int, go_on: bool) -> None:
        assert self.now is not None and self.now.id == trial
        if go_on:
            self.line.append(self.now)

    def _renew(self, step: int, recorded: TrialState) -> None:
        saved = recorded.checkpoint
        assert saved is not None and saved.step >= step
        assert (self.folder / "trials" / recorded.id / saved.name).is_dir()
        self.line.append(recorded)


class RecordingTrackers(TrackerHub):
    """Records the events that trackers handle."""

    def __init__(self) -> None:
        super().__init__()
        self.began: dict[int, Trial] = {}
        self.tags: dict[int, dict[str, str]] = {}
        self.reports: dict[int, list[Report]] = {}

    def publish(self, event: Event) -> None:
        match event:
            case TrialStarted():
                self.began[event.number] = event.trial
            case TrialReported():
                self.reports.setdefault(event.number, []).extend(event.reports)
            case TrialDecided(perturbation=Perturbation() as change, lineage=lineage):
                self.tags[event.number] = {"sweeps.pbt": lineage}
                self.reports.setdefault(event.number, []).append(
                    Report(change.donor_step, change.metrics, event.time)
                )


def conduct(space: Any, folder: Path, pool: Pool, tracker: TrackerHub) -> SweepController:
    loop = SearchLoop.open(folder, space)
    began = time.monotonic() - loop.store.spent
    return SweepController(
        loop, pool, tracker, began, lambda: False, lambda status: None, lambda: None
    )


def drive(
    space: Any, folder: Path, tracker: TrackerHub | None = None, saves: bool = True
) -> SweepController:
    """One driver, to the end of the sweep.

    A loop's state is a number that each step makes smaller by what its parameters are worth.
    """
    pool = Pool(folder)
    controller = conduct(space, folder, pool, tracker or RecordingTrackers())
    controller.finish_leftover_trials()
    known = set()
    while True:
        try:
            known.add(controller.start_trial())
        except StopIteration:
            break
    while pool.line and controller.refused is None:
        recorded = pool.now = pool.line.popleft()
        trial, kept, attempts = recorded.trial, recorded.checkpoint, recorded.attempt + 1
        assert trial.id in known
        saved = folder / "trials" / trial.id
        state = float((saved / kept.name / "state").read_text()) if kept else 9.0
        for step in range(kept.step + 1 if kept else 1, MAX_T + 1):
            state -= (
                trial.params["eta"]
                * trial.params["n"]
                / (2 if trial.params["kind"] == "a" else 3 + trial.params["drop"])
            )
            fresh = None
            if saves and step % EVERY == 0:
                path = folder / "trials" / trial.id / f"checkpoint_{step:06d}"
                path.mkdir(exist_ok=True)
                (path / "state").write_text(repr(state))
                kept = fresh = Checkpoint(path.name, step, step)
            rung = step if step in controller.scheduler.rungs() else None
            reports = (Report(step, {"loss": state, "other": trial.params["eta"]}, time.time()),)
            pool.now = recorded.changed(checkpoint=kept, attempt=attempts)
            runs = controller.on_update(
                trial_update(trial.id, reports, fresh, kept, rung, None, attempt=attempts)
            )
            if rung is not None or not runs:
                break
        else:
            controller.on_update(
                trial_update(trial.id, state=State.COMPLETE, best=kept, attempt=attempts)
            )
    return controller


def outcome(loop: SearchLoop) -> list[Any]:
    """What a sweep came to, without times."""
    result: list[Any] = [
        loop.store.winner(),
        [(r.state, r.value, r.best_step, r.steps) for r in loop.store.results().values()],
    ]
    for t in loop.store.study.get_trials(deepcopy=False):
        state = loop.store.states[t.number]
        lineage = [(x.step, x.donor, x.donor_step, x.keys, x.params) for x in state.lineage]
        known = (state.curve, lineage, state.decided_rung)
        result.append((t.number, t.params, t.intermediate_values, *known))
    return result


@pytest.fixture
def space(make_space: Any) -> Any:
    return make_space(BODY, max_trials=MEMBERS, scheduler=PBT)


@pytest.fixture
def undisturbed(space: Any, tmp_path: Path) -> Any:
    (tmp_path / "whole").mkdir()
    tracker = RecordingTrackers()
    return drive(space, tmp_path / "whole", tracker), tracker


def test_the_worst_take_over_and_only_params_change(space: Any, undisturbed: Any) -> None:
    controller, tracker = undisturbed
    loop = controller.search
    assert {r.state for r in loop.store.results().values()} == {State.COMPLETE}
    recorded = recorded_study(loop.store.folder)
    perturbed = [t for t in recorded.trials if t.lineage]
    assert perturbed and len({t.trial.chain for t in recorded.trials}) == 2
    for t in recorded.trials:
        began, now = tracker.began[t.number], loop.store.trial(t.number)
        assert (now.preprocessor, now.data, now.shape, now.seed) == (
            began.preprocessor,
            began.data,
            began.shape,
            began.seed,
        )
        assert now.params == t.params and t.trial.chain == began.chain
        assert (now.params != began.params) == bool(t.lineage) and ("drop" in now.params) == (
            now.params["kind"] == "b"
        )
    for t in perturbed:
        donors = [recorded.trials[int(x.donor)] for x in t.lineage]
        assert all(d.trial.chain == t.trial.chain and d.number != t.number for d in donors)
        assert all(EVERY <= x.step <= x.donor_step < MAX_T for x in t.lineage)
        assert tracker.tags[t.number] == {"sweeps.pbt": ", ".join(map(str, t.lineage))}
        steps = [r for r in tracker.reports[t.number] if "pbt.params.eta" in r.metrics]
        assert [(r.step, r.metrics["pbt.params.eta"]) for r in steps] == [
            (x.donor_step, x.params["eta"]) for x in t.lineage
        ]
        assert (
            steps[-1].metrics["pbt.params.n"] == t.params["n"]
            and "pbt.params.kind" not in steps[-1].metrics
        )
        assert t.to_json()["lineage"][0]["donor"] == t.lineage[0].donor
        assert [step for step, _ in t.curve] == list(range(1, MAX_T + 1)), "the model's whole curve"


def test_a_new_tracker_gets_the_recorded_events_again(space: Any, undisturbed: Any) -> None:
    controller, tracker = undisturbed
    again = RecordingTrackers()
    for event in TrialHistory(controller.search.store.folder)():
        again.publish(event)
    assert again.tags == tracker.tags and again.reports == tracker.reports
    assert {number: trial.params for number, trial in again.began.items()} == {
        number: trial.params for number, trial in tracker.began.items()
    }


def test_trial_stays_unchanged_without_checkpoint_of_donor(
    space: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own, donor = (known_trial(number, LOSS, Result(State.RUNNING)) for number in (0, 1))
    donor = dataclasses.replace(donor, checkpoint=Checkpoint("checkpoint_000003", 3, 3))
    monkeypatch.setattr(exploit, "build_trial", lambda space, number, choose: own.trial)
    assert (
        exploit.exploit_donor(space, tmp_path, own, donor, lambda dimension, key: key, step=4)
        is None
    )


@pytest.mark.timeout(120)
@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_a_driver_may_die_at_any_record_and_the_population_is_as_before(
    space: Any, undisturbed: Any, tmp_path: Path, data: Any
) -> None:
    folder = tmp_path / "cut"
    controller = with_deaths(
        lambda: drive(space, folder), folder, data, records_of(tmp_path / "whole")
    )
    assert outcome(controller.search) == outcome(undisturbed[0].search)


def test_pbt_refuses_loop_without_checkpoints_at_first_step(space: Any, tmp_path: Path) -> None:
    controller = drive(space, tmp_path, saves=False)
    said = (
        "scheduler.name: the scheduler pbt needs a checkpoint at each step at which it compares "
        "trials, but trial 0000 reported step 3 "
        "without a checkpoint"
    )
    assert str(controller.refused).startswith(said) and not controller.search.budget.ended


def test_once_a_member_has_ended_another_without_a_checkpoint_fails_alone(
    space: Any, tmp_path: Path
) -> None:
    pool = Pool(tmp_path)
    controller = conduct(space, tmp_path, pool, RecordingTrackers())
    for _ in range(2):
        controller.start_trial()
    controller.on_update(
        trial_update("0000", (Report(1, {"loss": 1.0, "other": 1.0}, 1.0),), state=State.COMPLETE)
    )
    reports = tuple(Report(step, {"loss": 1.0, "other": 1.0}, float(step)) for step in (1, 2, 3))
    pool.now = pool.line[1]
    assert not controller.on_update(trial_update("0001", reports, rung=3))
    assert controller.refused is None
    error = controller.search.store.results()[1].error
    assert error is not None and "reported step 3 without a checkpoint" in error


def test_a_member_that_passes_a_milestone_again_is_not_decided_again(
    space: Any, tmp_path: Path
) -> None:
    controller = drive(space, tmp_path)
    (command,) = decide(controller.driver, trial_update("0001", rung=EVERY), controller.policy)
    assert isinstance(command, Continue)
    assert not command.is_new, "the decision is not recorded again"


def test_a_perturbed_option_is_text_and_a_perturbed_number_a_metric() -> None:
    labels = {
        "params.lr": 0.1,
        "params.optimizer": "adam",
        "params.nesterov": True,
        "preprocessor": "none",
    }
    saved = Checkpoint("checkpoint_000008_of_0003", 8, 8)
    taken = Perturbation(8, "0003", 8, {}, {}, labels, 0.0, saved)
    assert str(taken) == "0003 at 8 (optimizer adam, nesterov True)" and taken.metrics == {
        "pbt.params.lr": 0.1
    }
    assert str(dataclasses.replace(taken, labels={"params.lr": 0.1})) == "0003 at 8"

"""Although messages of ranks are doubled, delayed and shuffled, each report and each checkpoint is
recorded once, in order.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sweeps.core.best_step import Constraint
from sweeps.core.trial import Checkpoint, Report, State
from sweeps.execution.messages import Ended, RankUpdate
from sweeps.execution.trials.running_trial import RunningTrial
from sweeps.space.sections.search_models import Objective
from sweeps.study.objectives import Objectives
from sweeps.study.transitions import apply_all
from tests.execution.driving import trial
from tests.in_loop import in_loop
from tests.study.trial_states import LOSS, new_trial, resumed_trial
from tests.trial_updates import rank_places


def report(step: int, loss: float = 0.0) -> Report:
    return Report(step, {"loss": loss}, float(step))


def saved(step: int, best: int | None = None) -> Checkpoint:
    return Checkpoint(f"checkpoint_{step:06d}", step, best or step)


def started(ranks: int = 1, objectives: Objectives = LOSS, keep_latest: int = 1) -> Any:
    """Return a trial in its first attempt, which is number 1."""
    state = new_trial(trial(0, {}, ranks, "none"), objectives)
    running = RunningTrial(state, "", keep_latest=keep_latest)
    assert running.begin_attempt(rank_places(ranks)) == 1
    return running


def dropped(running: RunningTrial) -> list[str]:
    return running.parts.drop_unneeded(running.state)


@settings(max_examples=300)
@given(st.integers(1, 12), st.randoms(use_true_random=False))
@in_loop
def test_each_report_arrives_once_and_in_order(steps: Any, chance: Any) -> None:
    """Rank 0 tells all that is not acknowledged; any of its messages may come twice or late, the
    last one comes.
    """
    messages, known = [], 0
    for step in range(1, steps + 1):
        if chance.random() < 0.5 or step == steps:
            messages.append(
                RankUpdate(0, step, tuple(report(s) for s in range(known + 1, step + 1)))
            )
            if chance.random() < 0.5:
                known = step  # acknowledged: later messages do not repeat it, so it has arrived
    running = started()
    driven, arrived = new_trial(running.trial), 0
    for message in messages:
        assert message.reports[0].step <= arrived + 1
        running.record(1, message)
        arrived = message.step
        for late in chance.sample(messages[: messages.index(message) + 1], k=1):
            running.record(1, late)
        if chance.random() < 0.5:
            driven = apply_all(driven, running.next_update().events)
    driven = apply_all(driven, running.next_update().events)
    assert [r.step for r in driven.reports] == list(range(1, steps + 1))
    assert driven == running.state, "the driver and the pool know the same"


@in_loop
def test_a_checkpoint_counts_when_every_rank_has_done_its_part() -> None:
    running = started(3)
    running.record(1, RankUpdate(0, 2, (report(1), report(2)), (saved(2),)))
    assert running.state.checkpoint is None
    running.record(1, RankUpdate(1, 2, (), (saved(2),)))
    running.record(1, RankUpdate(2, 1))
    assert running.state.checkpoint is None
    running.record(1, RankUpdate(2, 5))
    assert running.state.checkpoint == saved(2) and running.is_urgent
    running.record(1, RankUpdate(1, 2, (), (saved(2),)))  # told twice
    assert dropped(running) == []


@in_loop
def test_a_rank_that_raised_has_no_part_in_later_checkpoints() -> None:
    running = started(2)
    reports = tuple(report(step) for step in (1, 2, 3))
    running.record(1, RankUpdate(0, 3, reports, (saved(2), saved(3))), Ended(0, State.COMPLETE))
    running.record(1, RankUpdate(1, 2, (), ()), Ended(0, State.FAIL))
    assert running.state.checkpoint == saved(2), "the other rank never did step 3"


@in_loop
def test_best_and_newest_checkpoint_are_kept() -> None:
    running = started()
    for step, loss in enumerate([0.5, 0.1, 0.4, 0.3], start=1):
        running.record(1, RankUpdate(0, step, (report(step, loss),), (saved(step),)))
    assert (running.state.best, running.state.checkpoint) == (saved(2), saved(4))
    assert dropped(running) == [saved(1).name, saved(3).name]
    assert dropped(running) == []


@in_loop
def test_a_checkpoint_of_an_earlier_step_has_the_value_of_that_step() -> None:
    running = started(objectives=Objectives((Objective("loss", "maximize"),)))
    reports = (report(1, 0.9), report(2, 0.2), report(3, 0.1))
    running.record(1, RankUpdate(0, 3, reports, (saved(3, best=1),)))
    running.record(1, RankUpdate(0, 4, (report(4, 0.5),), (saved(4),)))
    assert running.state.best == saved(3, best=1)


@in_loop
def test_a_rung_is_sent_once() -> None:
    running = started()
    running.record(1, RankUpdate(0, 1, (report(1),)))
    _ = running.decisions[1]
    running.update_rungs(together=False)
    assert running.next_update().rung == 1 and not running.is_urgent
    assert running.next_update().rung is None
    assert running.accept_decision(1) and not running.accept_decision(1)
    assert running.next_update().rung is None


@in_loop
def test_the_first_end_counts_and_nothing_after_it() -> None:
    running = started()
    running.finish(Ended(0, State.PRUNED))
    running.finish(Ended(0, State.FAIL, "late"))
    end = running.next_update().end
    assert end is not None and (end.state, end.error) == (State.PRUNED, None)
    assert not running.record(1, RankUpdate(0, 1, (report(1),)))


@in_loop
def test_retry_keeps_newest_checkpoints_and_deletes_partial_ones() -> None:
    running = started(2, keep_latest=3)
    for step, loss in {1: 0.5, 2: 0.4, 3: 0.3, 4: 0.2}.items():
        running.record(1, RankUpdate(0, step, (report(step, loss),), (saved(step),)))
        running.record(1, RankUpdate(1, min(step, 3), (), (saved(min(step, 3)),)))
    there = [saved(step).name for step in (1, 2, 3, 4)]
    assert running.begin_attempt(rank_places(2)) == 2
    assert running.state.checkpoint == saved(3)
    assert running.parts.names_to_delete(running.state, there) == [saved(4).name], (
        "rank 1 has not written its part of it"
    )
    assert running.parts.names_to_keep(running.state) == set(there[:3])


@given(st.integers(1, 4), st.integers(1, 8), st.integers(1, 8), st.integers(0, 3))
@in_loop
def test_a_resume_continues_from_the_newest_complete_checkpoints(
    keep: Any, latest: Any, best: Any, more: Any
) -> None:
    """The record names two checkpoints, the folder may hold more; what is newer than the record's
    may be half written.
    """
    best, there = min(best, latest), [saved(step).name for step in range(1, latest + more + 1)]
    half_deleted = f"{saved(1).name}.gone"
    curve = [{"loss": float(step != best)} for step in range(1, latest + 1)]
    running = RunningTrial(resumed_trial(curve, saved(latest), saved(best)), "", keep_latest=keep)
    attempt = running.begin_attempt(rank_places(1))
    gone = set(running.parts.names_to_delete(running.state, [*there, half_deleted]))
    newest = set(range(max(1, latest - keep + 1), latest + 1))
    assert {*there, half_deleted} - gone == {saved(step).name for step in newest | {best}}
    update = RankUpdate(0, latest + 1, (report(latest + 1, 2.0),), (saved(latest + 1),))
    running.record(attempt, update)
    on_record = {saved(step).name for step in (latest, best)}
    expected = {saved(step).name for step in range(max(1, latest - keep + 2), latest + 2)}
    kept = running.parts.names_to_keep(running.state)
    assert kept == on_record | expected
    assert not set(dropped(running)) & kept


@in_loop
def test_the_best_checkpoint_satisfies_the_constraints_also_after_a_resume() -> None:
    objectives = Objectives((Objective("score", "maximize"),), (Constraint("hours", "<=", 3),))
    running = started(objectives=objectives)
    for step in range(1, 6):
        report = Report(step, {"score": float(step), "hours": float(step)}, 0.0)
        running.record(1, RankUpdate(0, step, (report,), (saved(step),)))
    assert (running.state.best, running.state.checkpoint) == (saved(3), saved(5))
    again = RunningTrial(running.state, "")
    report = Report(6, {"score": 6.0, "hours": 6.0}, 0.0)
    again.record(again.begin_attempt(rank_places(1)), RankUpdate(0, 6, (report,), (saved(6),)))
    assert again.state.best == saved(3)

"""Although news are doubled, delayed and shuffled, the driver hears each report once, in order."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from sweeps.core.best_step import Constraint, StepOrder
from sweeps.core.trial import Checkpoint, Report, State
from sweeps.execution.messages import RankUpdate
from sweeps.execution.trial_progress import TrialProgress
from tests.study.made_states import resumed_trial


def report(step: int, loss: float = 0.0) -> Report:
    return Report(step, {"loss": loss}, float(step))


def saved(step: int, rank: int = 0, best: int | None = None) -> Checkpoint:
    return Checkpoint(f"checkpoint_{step:06d}", step, best or step)


@settings(max_examples=300)
@given(st.integers(1, 12), st.randoms(use_true_random=False))
def test_each_report_arrives_once_and_in_order(steps, chance):
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
    book, heard = TrialProgress(1, StepOrder("loss", True)), []
    attempt = book.begin()
    arrived = 0
    for message in messages:
        assert message.reports[0].step <= arrived + 1
        book.record_update(attempt, message)
        arrived = message.step
        for late in chance.sample(messages[: messages.index(message) + 1], k=1):
            book.record_update(attempt, late)
        if chance.random() < 0.5:
            heard += book.next_progress(0.0).reports
    heard += book.next_progress(0.0).reports
    assert [r.step for r in heard] == list(range(1, steps + 1))


def test_a_checkpoint_counts_when_every_rank_has_done_its_part():
    book = TrialProgress(3, StepOrder("loss", True))
    attempt = book.begin()
    book.record_update(attempt, RankUpdate(0, 2, (report(1), report(2)), (saved(2),)))
    assert book.checkpoint is None
    book.record_update(attempt, RankUpdate(1, 2, (), (saved(2, 1),)))
    book.record_update(attempt, RankUpdate(2, 1))
    assert book.checkpoint is None
    book.record_update(attempt, RankUpdate(2, 5))
    assert book.checkpoint == saved(2) and book.urgent
    book.record_update(attempt, RankUpdate(1, 2, (), (saved(2, 1),)))  # told twice
    assert book.drop() == []


def test_a_rank_that_raised_has_no_part_in_later_checkpoints():
    book = TrialProgress(2, StepOrder("loss", True))
    first = book.begin()
    reports = tuple(report(step) for step in (1, 2, 3))
    book.record_update(first, RankUpdate(0, 3, reports, (saved(2), saved(3))), ended=True)
    book.record_update(first, RankUpdate(1, 2, (), ()), ended=True, failed=True)
    assert book.checkpoint == saved(2), "the other rank never did step 3"


def test_the_best_and_the_newest_checkpoint_are_kept_and_the_others_dropped():
    book = TrialProgress(1, StepOrder("loss", True))
    attempt = book.begin()
    for step, loss in enumerate([0.5, 0.1, 0.4, 0.3], start=1):
        book.record_update(attempt, RankUpdate(0, step, (report(step, loss),), (saved(step),)))
    assert (book.best, book.checkpoint) == (saved(2), saved(4))
    assert book.drop() == [saved(1).name, saved(3).name]
    assert book.drop() == []


def test_a_checkpoint_that_holds_an_earlier_step_is_judged_by_that_step():
    book = TrialProgress(1, StepOrder("loss", False))
    attempt = book.begin()
    book.record_update(
        attempt,
        RankUpdate(0, 3, (report(1, 0.9), report(2, 0.2), report(3, 0.1)), (saved(3, best=1),)),
    )
    book.record_update(attempt, RankUpdate(0, 4, (report(4, 0.5),), (saved(4),)))
    assert book.best == saved(3, best=1)


def test_a_rung_is_sent_once():
    book = TrialProgress(1, StepOrder("loss", True))
    attempt = book.begin()
    book.record_update(attempt, RankUpdate(0, 1, (report(1),)))
    book.wait_at(1)
    assert book.next_progress(0.0).rung == 1 and not book.urgent
    assert book.next_progress(0.0).rung is None
    assert book.answered(1) and not book.answered(1)
    assert book.next_progress(0.0).rung is None


def test_the_first_end_counts_and_nothing_after_it():
    book = TrialProgress(1, StepOrder("loss", True))
    attempt = book.begin()
    book.finish(State.PRUNED)
    book.finish(State.FAIL, "late")
    assert (book.state, book.error) == (State.PRUNED, None)
    assert not book.record_update(attempt, RankUpdate(0, 1, (report(1),)))


def reported(book: TrialProgress, attempt: int, losses: dict[int, float]) -> None:
    """Rank 0 of one reports these losses by step, each with a checkpoint."""
    for step, loss in losses.items():
        book.record_update(attempt, RankUpdate(0, step, (report(step, loss),), (saved(step),)))


def test_a_retry_keeps_the_newest_checkpoints_and_deletes_what_is_not_whole():
    book = TrialProgress(2, StepOrder("loss", True), keep_latest=3)
    first = book.begin()
    for step, loss in {1: 0.5, 2: 0.4, 3: 0.3, 4: 0.2}.items():
        book.record_update(first, RankUpdate(0, step, (report(step, loss),), (saved(step),)))
        book.record_update(first, RankUpdate(1, min(step, 3), (), (saved(min(step, 3), 1),)))
    there = [saved(step).name for step in (1, 2, 3, 4)]
    book.begin()
    assert book.checkpoint == saved(3)
    assert book.checkpoints_to_delete(there) == [saved(4).name], (
        "rank 1 has not written its part of it"
    )
    assert book.kept == set(there[:3])


@given(st.integers(1, 4), st.integers(1, 8), st.integers(1, 8), st.integers(0, 3))
def test_a_resume_continues_from_the_newest_complete_checkpoints(keep, latest, best, more):
    """The record names two checkpoints, the folder may hold more; what is newer than the record's
    may be half written.
    """
    best, there = min(best, latest), [saved(step).name for step in range(1, latest + more + 1)]
    half_deleted = f"{saved(1).name}.gone"
    book = TrialProgress(1, StepOrder("loss", True), keep_latest=keep)
    book.restore(
        resumed_trial(
            [{"loss": float(step != best)} for step in range(1, latest + 1)],
            saved(latest),
            saved(best),
        )
    )
    attempt = book.begin()
    gone = set(book.checkpoints_to_delete([*there, half_deleted]))
    newest = set(range(max(1, latest - keep + 1), latest + 1))
    assert {*there, half_deleted} - gone == {saved(step).name for step in newest | {best}}
    reported(book, attempt, {latest + 1: 2.0})
    on_record = {saved(step).name for step in (latest, best)}
    expected = {saved(step).name for step in range(max(1, latest - keep + 2), latest + 2)}
    assert book.kept == on_record | expected
    assert not set(book.drop()) & book.kept


def test_the_best_checkpoint_satisfies_the_constraints_also_after_a_resume():
    order = StepOrder("score", False, (Constraint("hours", "<=", 3),))
    book = TrialProgress(1, order)
    attempt = book.begin()
    for step in range(1, 6):
        made = Report(step, {"score": float(step), "hours": float(step)}, 0.0)
        book.record_update(attempt, RankUpdate(0, step, (made,), (saved(step),)))
    assert (book.best, book.checkpoint) == (saved(3), saved(5))
    again = TrialProgress(1, order)
    curve = [{"score": float(step), "hours": float(step)} for step in range(1, 6)]
    again.restore(resumed_trial(curve, saved(5), saved(3)))
    made = Report(6, {"score": 6.0, "hours": 6.0}, 0.0)
    again.record_update(again.begin(), RankUpdate(0, 6, (made,), (saved(6),)))
    assert again.best == saved(3)

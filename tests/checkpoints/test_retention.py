from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sweeps.checkpoints.retention import RetentionPolicy, TrialCheckpoints, TrialRanking, rank_trials, select_deletable
from sweeps.core.trial import Checkpoint, Result, State
from sweeps.space.section_models import Repeats
from sweeps.study.repeats import Configurations


@st.composite
def sweeps(draw):
    held = []
    for number in range(draw(st.integers(0, 6))):
        files = draw(st.dictionaries(st.sampled_from(["c1", "c2", "c3", "c4"]), st.integers(0, 100)))
        names = st.none() | (st.sampled_from(sorted(files)) if files else st.none())
        held.append(TrialCheckpoints(number, draw(st.booleans()), files, draw(names), draw(names)))
    ended = [h.number for h in held if h.ended]
    ranked = draw(st.permutations(ended))[: draw(st.integers(0, 6))]
    return held, ranked, set(ranked[: draw(st.integers(min(1, len(ranked)), len(ranked)))])


RULES = st.builds(RetentionPolicy, st.integers(1, 5), st.none() | st.integers(0, 4), st.none() | st.integers(0, 400))


def left_of(held, gone):
    return {h.number: {n: b for n, b in h.files.items() if (h.number, n) not in set(gone)} for h in held}


@given(sweeps(), RULES)
def test_what_a_resume_a_running_trial_or_the_best_needs_stays(sweep, rule):
    held, ranked, needed = sweep
    gone = select_deletable(held, ranked, needed, rule)
    left = left_of(held, gone)
    assert len(gone) == len(set(gone))
    for h in held:
        if not h.ended:
            assert left[h.number] == h.files
        elif h.number in needed and h.best is not None:
            assert h.best in left[h.number]


@given(sweeps(), RULES)
def test_the_rule_is_kept(sweep, rule):
    held, ranked, needed = sweep
    left = left_of(held, select_deletable(held, ranked, needed, rule))
    ended = [h for h in held if h.ended]
    for h in ended:
        others = set(left[h.number]) - {h.best}
        assert len(others) <= max(rule.per_trial - 1, int(h.best is None)), "beside its best, the latest"
        if h.latest is None:
            assert not others
        else:
            assert all(name <= h.latest for name in others), "what is newer than the latest whole one is not whole"
            if rule.top is None and rule.max_disk is None:
                assert others >= {n for n in h.files if min(others, default="~") < n <= h.latest} - {h.best}
    if rule.top is not None:
        assert {h.number for h in ended if left[h.number]} <= {*ranked[: rule.top], *needed}
    if rule.max_disk is not None and sum(sum(files.values()) for files in left.values()) > rule.max_disk:
        assert not [h.number for h in ended if left[h.number] and not (h.number in needed and set(left[h.number]) == {h.best})]


@given(sweeps(), RULES)
def test_a_second_time_there_is_nothing_to_do(sweep, rule):
    held, ranked, needed = sweep
    left = left_of(held, select_deletable(held, ranked, needed, rule))
    assert (
        select_deletable([TrialCheckpoints(h.number, h.ended, left[h.number], h.best, h.latest) for h in held], ranked, needed, rule) == []
    )


@given(sweeps(), st.integers(0, 400))
def test_no_more_goes_than_the_disk_asks_for_and_the_worst_first(sweep, most):
    held, ranked, needed = sweep
    plain = select_deletable(held, ranked, needed, RetentionPolicy(2))
    gone = select_deletable(held, ranked, needed, RetentionPolicy(2, max_disk=most))
    assert gone[: len(plain)] == plain
    if len(gone) > len(plain):
        before = left_of(held, gone[:-1])
        assert sum(sum(files.values()) for files in before.values()) > most
        place = {n: i for i, n in enumerate(ranked)}
        order = [place.get(n, len(ranked)) for n, _ in gone[len(plain) :]]
        assert order == sorted(order, reverse=True)


# ---- who is needed

ENDS = st.sampled_from([State.COMPLETE, State.COMPLETE, State.PRUNED, State.FAIL])
VALUES = st.none() | st.sampled_from([0.0, 1.0, 2.0, 3.0])


@st.composite
def courses(draw):
    """Trials in the order in which they end: a configuration's repeats after its first, and only if that came to its end."""
    count, goals = draw(st.integers(1, 3)), draw(st.sampled_from([(True,), (False,), (True, False)]))
    aggregate = draw(st.sampled_from(["mean", "median", "min", "max"]))
    waiting, course, number = [(None, n) for n in range(draw(st.integers(1, 6)))], [], 6
    while waiting:
        origin, n = waiting.pop(draw(st.integers(0, len(waiting) - 1)))
        state = draw(ENDS)
        values = tuple(draw(VALUES) for _ in goals)
        if state is State.COMPLETE:
            values = tuple(0.0 if v is None else v for v in values)
        saved = Checkpoint(f"trials/{n:04d}/best", 1, 1) if draw(st.integers(0, 9)) else None
        course.append((n, origin, Result(state, values[0], 1, 1, saved, values=values, feasible=draw(st.booleans()))))
        if origin is None and state is State.COMPLETE:
            for _ in range(count - 1):
                number += 1
                waiting.append((n, number))
    return course, Repeats(count, aggregate), goals


@given(courses(), st.sampled_from([RetentionPolicy(1, 1), RetentionPolicy(1, 2), RetentionPolicy(1, max_disk=0), RetentionPolicy(2, 1, 3)]))
def test_whoever_wins_in_the_end_has_its_checkpoint_whenever_they_were_deleted(course, rule):
    course, repeats, goals = course
    running = Result(State.RUNNING)
    left = {n: {"best": 1, "last": 1} for n, _, _ in course}
    for done in range(len(course) + 1):
        told = [(n, origin, r if i < done else running) for i, (n, origin, r) in enumerate(course)]
        now = rank_trials(Configurations.of(told, repeats), goals)
        assert now == rank_trials(Configurations.of(told[:done], repeats), goals), "what runs counts as not there"
        for n, name in select_deletable(
            [TrialCheckpoints(n, n in now.finished, left[n], "best", "last") for n in left], now.ranked, now.protected, rule
        ):
            del left[n][name]
        assert all(len(left[n]) == 2 for n, _, r in told if r.state is State.RUNNING)
    final = Configurations.of(course, repeats)
    best = final.winner(goals)
    for n in final.front(goals) if best is None else [best]:
        assert "best" in left[n]


def test_repeats_that_are_still_to_come_may_turn_it_round():
    of = lambda value, n: Result(State.COMPLETE, value, 1, 1, Checkpoint(f"{n}/c", 1, 1), values=(value,))  # noqa: E731
    trials = [(0, None, of(0.1, 0)), (1, None, of(0.5, 1)), (2, 1, of(0.3, 2))]
    now = rank_trials(Configurations.of(trials, Repeats(2)), (True,))
    assert now == TrialRanking(frozenset({1, 2}), (2, 1), frozenset({2})), "trial 0 leads, but its repeat has not ended"
    now = rank_trials(Configurations.of([*trials, (3, 0, of(0.9, 3))], Repeats(2)), (True,))
    assert now.protected == {2} and now.finished == {0, 1, 2, 3}


def test_where_fewer_came_to_their_end_the_best_of_the_stopped_are_kept():
    of = lambda n, state, value: (n, None, Result(state, value, 1, 1, Checkpoint(f"{n}/c", 1, 1), values=(value,)))  # noqa: E731
    trials = [of(0, State.PRUNED, 0.3), of(1, State.PRUNED, 0.1), of(2, State.COMPLETE, 0.2), of(3, State.PRUNED, 0.2)]
    now = rank_trials(Configurations.of(trials, Repeats()), (True,))
    assert now.ranked == (2, 1, 3, 0) and now.protected == {2}
    held = [TrialCheckpoints(n, True, {"c": 1}, "c", "c") for n in range(4)]
    assert select_deletable(held, now.ranked, now.protected, RetentionPolicy(1, top=3)) == [(0, "c")]


def test_the_whole_front_is_needed():
    of = lambda n, *values: (n, None, Result(State.COMPLETE, values[0], 1, 1, Checkpoint(f"{n}/c", 1, 1), values=values))  # noqa: E731
    trials = [of(0, 1.0, 3.0), of(1, 2.0, 2.0), of(2, 3.0, 3.0), of(3, 3.0, 1.0)]
    now = rank_trials(Configurations.of(trials, Repeats()), (True, True))
    assert now.protected == {0, 1, 3} and now.ranked[:3] == (0, 1, 3)
    held = [TrialCheckpoints(n, True, {"c": 1}, "c", "c") for n in range(4)]
    assert select_deletable(held, now.ranked, now.protected, RetentionPolicy(1, top=1, max_disk=0)) == [(2, "c")]

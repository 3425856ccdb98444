from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sweeps.search.retention import Held, Rule, droppable


@st.composite
def sweeps(draw):
    held = []
    for number in range(draw(st.integers(0, 6))):
        files = draw(st.dictionaries(st.sampled_from(["c1", "c2", "c3", "c4"]), st.integers(0, 100)))
        names = st.none() | (st.sampled_from(sorted(files)) if files else st.none())
        held.append(Held(number, draw(st.booleans()), files, draw(names), draw(names)))
    ended = [h.number for h in held if h.ended]
    return held, draw(st.permutations(ended))[: draw(st.integers(0, 6))]


RULES = st.builds(Rule, st.sampled_from([1, 2]), st.none() | st.integers(0, 4), st.none() | st.integers(0, 400))


def left_of(held, gone):
    return {h.number: {n: b for n, b in h.files.items() if (h.number, n) not in set(gone)} for h in held}


@given(sweeps(), RULES)
def test_what_a_resume_a_running_trial_or_the_best_needs_stays(sweep, rule):
    held, ranked = sweep
    gone = droppable(held, ranked, rule)
    left = left_of(held, gone)
    assert len(gone) == len(set(gone))
    for h in held:
        if not h.ended:
            assert left[h.number] == h.files
        elif ranked and h.number == ranked[0] and h.best is not None:
            assert h.best in left[h.number]


@given(sweeps(), RULES)
def test_the_rule_is_kept(sweep, rule):
    held, ranked = sweep
    left = left_of(held, droppable(held, ranked, rule))
    ended = [h for h in held if h.ended]
    for h in ended:
        assert set(left[h.number]) <= {h.best, h.latest}
        if rule.per_trial == 1 and h.best is not None:
            assert set(left[h.number]) <= {h.best}
    if rule.top is not None:
        assert {h.number for h in ended if left[h.number]} <= set(ranked[: max(1, rule.top)])
    if rule.max_disk is not None and sum(sum(files.values()) for files in left.values()) > rule.max_disk:
        assert not [
            h.number for h in ended if left[h.number] and not (ranked and h.number == ranked[0] and set(left[h.number]) == {h.best})
        ]


@given(sweeps(), RULES)
def test_a_second_time_there_is_nothing_to_do(sweep, rule):
    held, ranked = sweep
    left = left_of(held, droppable(held, ranked, rule))
    assert droppable([Held(h.number, h.ended, left[h.number], h.best, h.latest) for h in held], ranked, rule) == []


@given(sweeps(), st.integers(0, 400))
def test_no_more_goes_than_the_disk_asks_for_and_the_worst_first(sweep, most):
    held, ranked = sweep
    plain = droppable(held, ranked, Rule(2))
    gone = droppable(held, ranked, Rule(2, max_disk=most))
    assert gone[: len(plain)] == plain
    if len(gone) > len(plain):
        before = left_of(held, gone[:-1])
        assert sum(sum(files.values()) for files in before.values()) > most
        place = {n: i for i, n in enumerate(ranked)}
        order = [place.get(n, len(ranked)) for n, _ in gone[len(plain) :]]
        assert order == sorted(order, reverse=True)

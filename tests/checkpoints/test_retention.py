"""Property tests of the retention policy, and examples of the ranking behind it."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sweeps.checkpoints.retention import (
    TrialCheckpoints,
    rank_trials,
    select_deletable,
)
from sweeps.core.trial import Checkpoint, Result, State
from sweeps.space.sections.search_models import Checkpoints, Repeats
from sweeps.study.repeats import Configurations


@st.composite
def sweeps(draw: Any) -> Any:
    trials = []
    for number in range(draw(st.integers(0, 6))):
        files = draw(
            st.dictionaries(st.sampled_from(["c1", "c2", "c3", "c4"]), st.integers(0, 100))
        )
        names = st.none() | (st.sampled_from(sorted(files)) if files else st.none())
        trials.append(
            TrialCheckpoints(number, draw(st.booleans()), files, draw(names), draw(names))
        )
    ended = [h.number for h in trials if h.finished]
    ranked = draw(st.permutations(ended))[: draw(st.integers(0, 6))]
    return trials, ranked, set(ranked[: draw(st.integers(min(1, len(ranked)), len(ranked)))])


POLICIES = st.builds(
    Checkpoints,
    st.integers(1, 5),
    st.none() | st.integers(0, 4),
    st.none() | st.integers(0, 400),
)


def remaining_after(trials: Any, deleted: Any) -> Any:
    return {
        h.number: {n: b for n, b in h.sizes.items() if (h.number, n) not in set(deleted)}
        for h in trials
    }


@given(sweeps(), POLICIES)
def test_unfinished_and_protected_trials_keep_their_checkpoints(sweep: Any, policy: Any) -> None:
    trials, ranked, protected = sweep
    deleted = select_deletable(trials, ranked, protected, policy)
    left = remaining_after(trials, deleted)
    assert len(deleted) == len(set(deleted))
    for h in trials:
        if not h.finished:
            assert left[h.number] == h.sizes
        elif h.number in protected and h.best is not None:
            assert h.best in left[h.number]


@given(sweeps(), POLICIES)
def test_the_policy_is_kept(sweep: Any, policy: Any) -> None:
    trials, ranked, protected = sweep
    left = remaining_after(trials, select_deletable(trials, ranked, protected, policy))
    ended = [h for h in trials if h.finished]
    for h in ended:
        others = set(left[h.number]) - {h.best}
        assert len(others) <= max(policy.per_trial - 1, int(h.best is None)), (
            "its best checkpoint and the latest ones"
        )
        if h.latest is None:
            assert not others
        else:
            assert all(name <= h.latest for name in others), (
                "a checkpoint newer than the latest complete one is incomplete"
            )
            if policy.top is None and policy.max_disk is None:
                assert others >= {
                    n for n in h.sizes if min(others, default="~") < n <= h.latest
                } - {h.best}
    if policy.top is not None:
        assert {h.number for h in ended if left[h.number]} <= {*ranked[: policy.top], *protected}
    if (
        policy.max_disk is not None
        and sum(sum(files.values()) for files in left.values()) > policy.max_disk
    ):
        assert not [
            h.number
            for h in ended
            if left[h.number] and not (h.number in protected and set(left[h.number]) == {h.best})
        ]


@given(sweeps(), st.integers(0, 400))
def test_a_limit_of_bytes_deletes_no_more_than_necessary(sweep: Any, max_disk: int) -> None:
    trials, ranked, protected = sweep
    always = select_deletable(trials, ranked, protected, Checkpoints(5))
    deleted = select_deletable(trials, ranked, protected, Checkpoints(5, max_disk=max_disk))
    assert deleted[: len(always)] == always
    sizes = {(h.number, name): size for h in trials for name, size in h.sizes.items()}
    remaining = sum(sizes.values()) - sum(sizes[name] for name in always)
    for name in deleted[len(always) :]:
        assert remaining > max_disk, f"{name} was deleted, though the rest fits"
        remaining -= sizes[name]
    position = {number: i for i, number in enumerate(ranked)}
    ranks = [position.get(number, len(ranked)) for number, _ in deleted[len(always) :]]
    assert ranks == sorted(ranks, reverse=True), "the worst trials lose their checkpoints first"


# ---- the ranking

ENDS = st.sampled_from([State.COMPLETE, State.COMPLETE, State.PRUNED, State.FAIL])
VALUES = st.none() | st.sampled_from([0.0, 1.0, 2.0, 3.0])


@st.composite
def histories(draw: Any) -> Any:
    """Trials in the order in which they end.

    Repeats end after the first trial, and exist only if that is complete.
    """
    count, goals = (
        draw(st.integers(1, 3)),
        draw(st.sampled_from([(True,), (False,), (True, False)])),
    )
    aggregate = draw(st.sampled_from(["mean", "median", "min", "max"]))
    waiting: list[tuple[int | None, int]] = [(None, n) for n in range(draw(st.integers(1, 6)))]
    history = []
    number = 6
    while waiting:
        first, n = waiting.pop(draw(st.integers(0, len(waiting) - 1)))
        state = draw(ENDS)
        values = tuple(draw(VALUES) for _ in goals)
        if state is State.COMPLETE:
            values = tuple(0.0 if v is None else v for v in values)
        saved = Checkpoint(f"trials/{n:04d}/best", 1, 1) if draw(st.integers(0, 9)) else None
        history.append(
            (
                n,
                first,
                Result(state, values[0], 1, 1, saved, values=values, feasible=draw(st.booleans())),
            )
        )
        if first is None and state is State.COMPLETE:
            for _ in range(count - 1):
                number += 1
                waiting.append((n, number))
    return history, Repeats(count, aggregate), goals


@given(
    histories(),
    st.sampled_from(
        [
            Checkpoints(1, 1),
            Checkpoints(1, 2),
            Checkpoints(1, max_disk=0),
            Checkpoints(2, 1, 3),
        ]
    ),
)
def test_the_final_winner_has_its_checkpoint_whenever_others_were_deleted(
    history: Any, policy: Any
) -> None:
    history, repeats, goals = history
    running = Result(State.RUNNING)
    left = {n: {"best": 1, "last": 1} for n, _, _ in history}
    for done in range(len(history) + 1):
        trials = [(n, first, r if i < done else running) for i, (n, first, r) in enumerate(history)]
        now = rank_trials(Configurations.of(trials, repeats), goals)
        assert now == rank_trials(Configurations.of(trials[:done], repeats), goals), (
            "running trials are ignored"
        )
        for n, name in select_deletable(
            [TrialCheckpoints(n, n in now.finished, left[n], "best", "last") for n in left],
            now.ranked,
            now.protected,
            policy,
        ):
            del left[n][name]
        assert all(len(left[n]) == 2 for n, _, r in trials if r.state is State.RUNNING)
    final = Configurations.of(history, repeats)
    best = final.winner(goals)
    for n in final.front(goals) if best is None else [best]:
        assert "best" in left[n]

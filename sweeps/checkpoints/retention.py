"""Which checkpoints of a sweep may go: pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sweeps.core.checkpoint_files import newest, step_of
from sweeps.core.trial import State
from sweeps.study import ranking
from sweeps.study.repeats import Configurations, settled


@dataclass(frozen=True)
class TrialCheckpoints:
    """What a trial holds on disk.

    Attributes:
        number: the trial's.
        ended: it is over, see `Standing`; so no resume goes on from it.
        files: each checkpoint's name -> its bytes.
        best: the name of the one that an export takes; None if there is none.
        latest: the name of the one that going on takes; None if there is none.
    """

    number: int
    ended: bool
    files: Mapping[str, int]
    best: str | None = None
    latest: str | None = None


@dataclass(frozen=True)
class RetentionPolicy:
    """What is kept.

    Attributes:
        per_trial: checkpoints that a trial that ended keeps: its best, and its `per_trial` - 1 latest.
        top: so many of the trials that ended keep any; None for all.
        max_disk: bytes for all trials together; None for no bound.
    """

    per_trial: int = 1
    top: int | None = None
    max_disk: int | None = None


@dataclass(frozen=True)
class TrialRanking:
    """How the trials of a sweep stand, as far as their checkpoints are concerned.

    Attributes:
        over: numbers of the trials that have ended, with all repeats of their configuration. Until then it may still win by any of them.
        ranked: those of them that left a checkpoint and could be exported, the best first.
        needed: those of them whose best checkpoint is what the sweep is about: the winner's, or the whole front's.
    """

    finished: frozenset[int]
    ranked: tuple[int, ...]
    protected: frozenset[int]


def rank_trials(trials: Configurations, goals: Sequence[bool]) -> TrialRanking:
    """How trials stand.

    Whoever wins in the end is `needed` now, or is not over yet: what is over keeps its value, and what comes can only go before it.

    Args:
        trials: all of a sweep; those that run count as not there.
        goals: for each objective whether smaller is better.
    """
    ended = {first: [(n, r) for n, r in own if r.state is not State.RUNNING] for first, own in trials.trials.items()}
    whole = {first: own for first, own in ended.items() if own and own[0][0] == first and settled([r for _, r in own], trials.repeats)}
    done = Configurations(whole, trials.repeats)
    results = {n: r for own in whole.values() for n, r in own}
    best = done.winner(goals)
    first = done.front(goals) if best is None else [best]
    saved = [n for n in (*first, *ranking.ranked(results.items(), goals[0])) if results[n].checkpoint is not None]
    ranked = tuple(dict.fromkeys(saved))
    return TrialRanking(frozenset(results), ranked, frozenset(ranked[:1]) | set(first))


def select_deletable(
    held: Iterable[TrialCheckpoints], ranked: Sequence[int], needed: Collection[int], rule: RetentionPolicy
) -> list[tuple[int, str]]:
    """The checkpoints that may be deleted, in the order in which they should be.

    A trial that is not over keeps all it has: it runs, a resume goes on from it, or its repeats do. What is needed keeps its best, whatever
    the rule. So `max_disk` may be passed all the same.

    Args:
        held: of every trial that holds anything.
        ranked, needed: see `Standing`.
        rule: what to keep.

    Returns:
        (number of the trial, name of the checkpoint).
    """
    held = list(held)
    place = {number: i for i, number in enumerate(ranked)}
    # Who could not win goes first, then the worst
    ended = sorted((h for h in held if h.ended), key=lambda h: (place.get(h.number, len(place)), h.number), reverse=True)
    gone: list[tuple[int, str]] = []
    left = {h.number: dict(h.files) for h in held}
    total = sum(sum(files.values()) for files in left.values())

    def drop(number: int, name: str) -> None:
        nonlocal total
        gone.append((number, name))
        total -= left[number].pop(name)

    for h in ended:
        # A trial without a best checkpoint keeps its latest.
        latest = newest(h.files, h.latest, max(rule.per_trial - 1, int(h.best is None)))
        wanted = {h.best, *latest}
        for name in sorted(set(h.files) - wanted):
            drop(h.number, name)
    kept = {*ranked[: rule.top], *needed} if rule.top is not None else {h.number for h in ended}
    for h in ended:
        if h.number not in kept:
            for name in sorted(left[h.number]):
                drop(h.number, name)
    if rule.max_disk is not None:
        for h in ended:
            spared = h.best if h.number in needed else None
            for name in sorted(left[h.number], key=lambda n: (n == h.best, step_of(n), n)):
                if name != spared and total > rule.max_disk:
                    drop(h.number, name)
    return gone

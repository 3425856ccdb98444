"""Which checkpoints of a sweep may go: pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Held:
    """What a trial holds on disk.

    Attributes:
        number: the trial's.
        ended: it came to its end, so no resume goes on from it.
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
class Rule:
    """What is kept.

    Attributes:
        per_trial: 1, a trial that ended keeps its best checkpoint; 2, its latest too.
        top: so many of the trials that ended keep any; None for all.
        max_disk: bytes for all trials together; None for no bound.
    """

    per_trial: int = 1
    top: int | None = None
    max_disk: int | None = None


def droppable(held: Iterable[Held], ranked: Sequence[int], rule: Rule) -> list[tuple[int, str]]:
    """The checkpoints that may be deleted, in the order in which they should be.

    A trial that has not ended keeps all it has: it runs, or a resume goes on from it. The best trial keeps its best, whatever the rule.
    So `max_disk` may be passed all the same.

    Args:
        held: of every trial.
        ranked: numbers of the trials that could win, the best first.
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

    def drop(number: int, name: str) -> None:
        gone.append((number, name))
        del left[number][name]

    for h in ended:
        wanted = {h.best} if rule.per_trial == 1 and h.best is not None else {h.best, h.latest}
        for name in sorted(set(h.files) - wanted):
            drop(h.number, name)
    kept = set(ranked[: max(1, rule.top)]) if rule.top is not None else {h.number for h in ended}
    for h in ended:
        if h.number not in kept:
            for name in sorted(left[h.number]):
                drop(h.number, name)
    if rule.max_disk is not None:
        for h in ended:
            spared = h.best if ranked and h.number == ranked[0] else None
            for name in sorted(left[h.number], key=lambda n: (n == h.best, n)):
                if name != spared and sum(sum(files.values()) for files in left.values()) > rule.max_disk:
                    drop(h.number, name)
    return gone

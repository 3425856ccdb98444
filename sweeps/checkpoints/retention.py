"""Decide which checkpoints of a sweep can be deleted. Pure; no I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sweeps.core.checkpoint_files import newest_checkpoints, step_of
from sweeps.core.trial import State
from sweeps.study import ranking
from sweeps.study.repeats import Configurations, settled


@dataclass(frozen=True)
class TrialCheckpoints:
    """The checkpoints of one trial on disk.

    Attributes:
        number: number of the trial.
        finished: whether the trial is finished, as `TrialRanking.finished` defines it. A resume never continues a finished trial.
        files: size in bytes of each checkpoint, by its name.
        best: name of the checkpoint that an export uses, or None.
        latest: name of the checkpoint that the trial would continue from, or None.
    """

    number: int
    finished: bool
    files: Mapping[str, int]
    best: str | None = None
    latest: str | None = None


@dataclass(frozen=True)
class RetentionPolicy:
    """The checkpoints that a sweep keeps.

    Attributes:
        per_trial: number of checkpoints that a finished trial keeps: its best one and its `per_trial` - 1 latest ones.
        top: number of the best trials that keep checkpoints. None keeps them for all trials.
        max_disk: limit in bytes for the checkpoints of all trials together. None for no limit.
    """

    per_trial: int = 1
    top: int | None = None
    max_disk: int | None = None


@dataclass(frozen=True)
class TrialRanking:
    """The order in which the trials of a sweep deserve their checkpoints.

    Attributes:
        finished: numbers of the trials that have ended together with all repeats of their configuration. Until its last repeat has
            ended, a configuration may still win with any of its trials.
        ranked: the finished trials that have a checkpoint and can be exported, best first.
        protected: the finished trials that always keep their best checkpoint: the winner, or the whole Pareto front.
    """

    finished: frozenset[int]
    ranked: tuple[int, ...]
    protected: frozenset[int]


def rank_trials(trials: Configurations, goals: Sequence[bool]) -> TrialRanking:
    """Rank the finished trials of a sweep.

    The final winner is always protected in time: it is either protected now, or not finished yet. The values of finished trials do
    not change, so a finished trial can only lose places.

    Args:
        trials: all trials of the sweep. Running trials are ignored.
        goals: for each objective, whether it is minimized.

    Returns:
        The ranking.
    """
    ended = {first: [(n, r) for n, r in own if r.state is not State.RUNNING] for first, own in trials.trials.items()}
    whole = {first: own for first, own in ended.items() if own and own[0][0] == first and settled([r for _, r in own], trials.repeats)}
    finished = Configurations(whole, trials.repeats)
    results = {n: r for own in whole.values() for n, r in own}
    winner = finished.winner(goals)
    front = finished.front(goals) if winner is None else [winner]
    with_checkpoint = [n for n in (*front, *ranking.ranked(results.items(), goals[0])) if results[n].checkpoint is not None]
    ranked = tuple(dict.fromkeys(with_checkpoint))
    return TrialRanking(frozenset(results), ranked, frozenset(ranked[:1]) | set(front))


def select_deletable(
    trials: Iterable[TrialCheckpoints], ranked: Sequence[int], protected: Collection[int], policy: RetentionPolicy
) -> list[tuple[int, str]]:
    """Select the checkpoints to delete, in the order of deletion.

    A trial that is not finished keeps all its checkpoints, because it runs or a resume may continue it. A protected trial keeps its
    best checkpoint whatever the policy says. The checkpoints may therefore take more than `max_disk`.

    Args:
        trials: every trial that has checkpoints.
        ranked: see `TrialRanking`.
        protected: see `TrialRanking`.
        policy: the checkpoints to keep.

    Returns:
        Pairs of trial number and checkpoint name.
    """
    trials = list(trials)
    place = {number: i for i, number in enumerate(ranked)}
    # Trials that cannot win lose their checkpoints first, then the worst trials.
    finished = sorted((t for t in trials if t.finished), key=lambda t: (place.get(t.number, len(place)), t.number), reverse=True)
    deletable: list[tuple[int, str]] = []
    remaining = {t.number: dict(t.files) for t in trials}
    total = sum(sum(files.values()) for files in remaining.values())

    def delete(number: int, name: str) -> None:
        nonlocal total
        deletable.append((number, name))
        total -= remaining[number].pop(name)

    for t in finished:
        # A trial without a best checkpoint keeps its latest one.
        latest = newest_checkpoints(t.files, t.latest, max(policy.per_trial - 1, int(t.best is None)))
        for name in sorted(set(t.files) - {t.best, *latest}):
            delete(t.number, name)
    if policy.top is not None:
        top = {*ranked[: policy.top], *protected}
        for t in finished:
            for name in sorted(remaining[t.number]) if t.number not in top else ():
                delete(t.number, name)
    if policy.max_disk is not None:
        for t in finished:
            spared = t.best if t.number in protected else None
            for name in sorted(remaining[t.number], key=lambda n: (n == t.best, step_of(n), n)):
                if name != spared and total > policy.max_disk:
                    delete(t.number, name)
    return deletable

"""Decide which checkpoints of a sweep can be deleted. Pure functions, no I/O."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sweeps.core.files.checkpoint_files import newest_checkpoints, step_of
from sweeps.core.trial import Result, State
from sweeps.space.sections.search_models import Checkpoints
from sweeps.study import ranking
from sweeps.study.repeats import Configurations, is_settled


@dataclass(frozen=True)
class TrialCheckpoints:
    """The checkpoints of one trial on disk.

    Attributes:
        number: Number of the trial.
        finished: True if the trial is finished, as `TrialRanking.finished` defines it. A resumed
            sweep never continues a finished trial.
        sizes: Size of each checkpoint in bytes, by the checkpoint's name.
        best: Name of the checkpoint that an export uses; None if the trial has no such checkpoint.
        latest: Name of the latest checkpoint, from which the trial would continue; None if the
            trial has no such checkpoint.
    """

    number: int
    finished: bool
    sizes: Mapping[str, int]
    best: str | None = None
    latest: str | None = None


@dataclass(frozen=True)
class TrialRanking:
    """Ranking that decides which trials keep their checkpoints.

    Attributes:
        finished: Numbers of the finished trials. A trial is finished when all trials of its
            configuration have ended. Until then, each of these trials may still become the winner.
        ranked: Numbers of the finished trials that have a checkpoint and can be exported, the best
            first.
        protected: Numbers of the finished trials that always keep their best checkpoint: the
            winner, and the first trial in `ranked`. With several objectives, all trials on the
            Pareto front take the place of the winner.
    """

    finished: frozenset[int]
    ranked: tuple[int, ...]
    protected: frozenset[int]


def rank_trials(trials: Configurations, goals: Sequence[bool]) -> TrialRanking:
    """Rank the finished trials of a sweep.

    The trial that finally wins never loses its best checkpoint, because this trial is always either
    protected or not finished yet. The values of finished trials do not change, so a finished trial
    can never move up in the ranking.

    Args:
        trials: All trials of the sweep. Running trials are ignored.
        goals: One boolean for each objective: True if smaller values are better.

    Returns:
        The ranking.
    """
    groups: dict[int, list[tuple[int, Result]]] = {}
    for first, group in trials.trials.items():
        ended = [(number, result) for number, result in group if result.state is not State.RUNNING]
        has_first = bool(ended) and ended[0][0] == first
        if has_first and is_settled([result for _, result in ended], trials.repeats):
            groups[first] = ended
    finished = Configurations(groups, trials.repeats, trials.choice)
    results = {number: result for group in groups.values() for number, result in group}
    winner = finished.winner(goals)
    front = finished.front(goals) if winner is None else [winner]
    # A trial that is on the front and in the ranking counts once.
    best_first = dict.fromkeys([*front, *ranking.ranked(results.items(), goals[0])])
    ranked = tuple(number for number in best_first if results[number].checkpoint is not None)
    return TrialRanking(frozenset(results), ranked, frozenset(ranked[:1]) | set(front))


def select_deletable(
    trials: Sequence[TrialCheckpoints],
    ranked: Sequence[int],
    protected: Collection[int],
    policy: Checkpoints,
) -> list[tuple[int, str]]:
    """Select the checkpoints to delete, in the order of deletion.

    A trial that is not finished keeps all its checkpoints, because it may continue. A protected
    trial keeps its best checkpoint. So the remaining checkpoints may be larger than `max_disk`.

    Args:
        trials: All trials that have checkpoints.
        ranked: Numbers of the ranked trials; see `TrialRanking`.
        protected: Numbers of the protected trials; see `TrialRanking`.
        policy: Rule that says which checkpoints are kept.

    Returns:
        (trial number, checkpoint name) of each checkpoint to delete.
    """
    rank = {number: i for i, number in enumerate(ranked)}
    # Trials that are not ranked come first, then ranked trials, the worst first.
    finished = sorted(
        (t for t in trials if t.finished),
        key=lambda t: (rank.get(t.number, len(rank)), t.number),
        reverse=True,
    )
    # A dict with values of None is a set that keeps its order.
    deletable: dict[tuple[int, str], None] = {}
    for t in finished:
        # A trial without a best checkpoint keeps at least its latest checkpoint.
        count = max(policy.per_trial - 1, int(t.best is None))
        needed = {t.best, *newest_checkpoints(t.sizes, t.latest, count)}
        deletable |= {(t.number, name): None for name in sorted(t.sizes) if name not in needed}
    if policy.top is not None:
        top = {*ranked[: policy.top], *protected}
        worse = [t for t in finished if t.number not in top]
        deletable |= {(t.number, name): None for t in worse for name in sorted(t.sizes)}
    if policy.max_disk is not None:
        sizes = {(t.number, name): size for t in trials for name, size in t.sizes.items()}
        remaining = sum(sizes.values()) - sum(sizes[checkpoint] for checkpoint in deletable)
        for t in finished:
            # The best checkpoint of a trial is deleted last, and never if the trial is protected.
            names = sorted(t.sizes, key=lambda name: (name == t.best, step_of(name), name))
            if t.number in protected and t.best in names:
                names.remove(t.best)
            for name in names:
                if remaining > policy.max_disk and (t.number, name) not in deletable:
                    deletable[t.number, name] = None
                    remaining -= t.sizes[name]
    return list(deletable)

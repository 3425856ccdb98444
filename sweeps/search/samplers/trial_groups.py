"""Trials of a study, sorted and grouped for samplers.

The cost of an update depends on the number of new and running trials, not on the number of all
trials. The content of the history depends only on the study, not on the order in which trials were
added to the history.
"""

import json
import math
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from optuna import Study
from optuna.distributions import BaseDistribution
from optuna.search_space.group_decomposed import _SearchSpaceGroup
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from sweeps.space.model.conditions import Key
from sweeps.space.sections.search_models import Repeats
from sweeps.study.record_reader import paused_at, repeat_of, steps_of

from .configuration_view import merge_repeats

# The level for the final values of complete trials.
FULL = math.inf

# A step at which trials were compared, or `FULL`.
Level = float
# A configuration; see `point_of`.
Point = frozenset[tuple[str, float]]


class Rank(NamedTuple):
    """A trial at a level. Ranks are compared like tuples: the smallest rank is the best trial.

    Attributes:
        violation: Sum of the violations of constraints. Infinity for a failed trial.
        values: One value for each objective, or only the first objective's value at a step. Smaller
            values are better.
        number: Number of the trial.
    """

    violation: float
    values: tuple[float, ...]
    number: int


class History:
    """Trials of a study, by level and cell.

    A level is a step at which trials were compared, or `FULL` for the final values of complete
    trials. A trial has a value at every level that it reached. A complete trial that ended before a
    level has its final value there. Failed trials and trials that violate a constraint rank last.
    The repeats of a configuration are merged into one trial; see `merge_repeats`.

    Args:
        grids: Names of the grid dimensions. The values of these dimensions identify the cell of a
            trial.
        repeats: Number of trials of a configuration, and the aggregate of their values.
        space: Distributions of the dimensions that every trial has, by name.

    Attributes:
        space: The argument `space`.
        number: Number of the trial that is being sampled.
        running: Trials that have not ended and are not paused, by number.
        levels: Ranks of the trials that reached each level, by cell, the best trial first. With
            several objectives, the first objective decides the order, and the next objective
            decides only ties.
        ended: Numbers of the ended and the paused trials that reached at least one level, by the
            highest level that they reached and by cell.
        known: Trials that have reached at least one level, by number.
        failed: Trials that failed, by number.
        signs: One number for each objective: 1 if smaller values are better, else -1. The values in
            `levels` are multiplied by it.
        tried: Configurations of all trials that have a value or have ended; see `point_of`.
        last_step: Highest recorded step.
    """

    def __init__(
        self,
        grids: Collection[str] = (),
        repeats: Repeats = Repeats(),  # noqa: B008 - frozen
        space: Mapping[str, BaseDistribution] | None = None,
    ):
        self.space: Mapping[str, BaseDistribution] = space or {}
        self.number = 0
        self._study: Study | None = None
        self._grids = sorted(grids)
        self._repeats = repeats
        # Numbers of the repeats, by the number of the first trial.
        self._repeated: dict[int, list[int]] = defaultdict(list)
        self._read = 0  # number of trials read so far
        # Ranks of the running and paused trials, by number and level.
        self._ranks: dict[int, dict[Level, Rank]] = defaultdict(dict)
        # Groups of dimensions that occur in the same trials, and the sets of names that they cover.
        self._group = _SearchSpaceGroup()
        self._grouped_names: set[frozenset[str]] = set()
        self.running: dict[int, FrozenTrial] = {}
        # Paused trials by number: the rung, and the list in `ended` that has the number.
        self._paused: dict[int, tuple[int | None, list[int]]] = {}
        self.levels: dict[Level, dict[str, list[Rank]]] = defaultdict(lambda: defaultdict(list))
        self.ended: dict[Level, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        self.known: dict[int, FrozenTrial] = {}
        self.failed: dict[int, FrozenTrial] = {}
        self.signs: list[float] = [1.0]
        # Degrees of freedom and sums of squares of repeated configurations; see `_deviations`.
        self._deviations: dict[int, tuple[int, list[float]]] = {}
        self.tried: set[Point] = set()
        self._complete: list[tuple[int, Rank]] = []  # last step and final rank of complete trials
        self.last_step = 1

    @property
    def study(self) -> Study:
        """The Optuna study of the last `refresh`. Raise RuntimeError before the first `refresh`."""
        if self._study is None:
            raise RuntimeError("the history has not been refreshed from a study")
        return self._study

    def trials(self) -> list[FrozenTrial]:
        """Return the trials that are running or have reached a level, ordered by their numbers.

        The trial that is being sampled is left out.

        Returns:
            Optuna's frozen trials, one for each configuration; see `merge_repeats`.
        """
        trials = self.known | self.running
        return [trials[number] for number in sorted(trials) if number != self.number]

    def refresh(self, study: Study) -> None:
        """Read the new trials and the new values of running trials from a study."""
        self._study = study
        signs = [-1.0 if d is StudyDirection.MAXIMIZE else 1.0 for d in study.directions]
        self.add(study.get_trials(deepcopy=False), signs)

    def add(self, trials: Sequence[FrozenTrial], signs: list[float]) -> None:
        """Read the new trials and the new values of running trials.

        Args:
            trials: All trials, ordered by their numbers.
            signs: See the attribute `signs`.
        """
        self.signs = signs
        new = []  # numbers of first trials
        for trial in trials[self._read :]:
            first = repeat_of(trial)
            if first is None:
                new.append(trial.number)
            else:
                self._repeated[first].append(trial.number)
        # A paused trial may have continued, and may be paused at a later rung already.
        resumed = [
            n
            for n, (rung, _) in self._paused.items()
            if paused_at(trials[n]) != rung or trials[n].state.is_finished()
        ]
        for number in resumed:
            _, numbers = self._paused.pop(number)
            numbers.remove(number)
        for number in [*self.running, *resumed, *new]:
            repeats = [trials[n] for n in (number, *self._repeated.get(number, ()))]
            trial = merge_repeats(repeats, self._repeats)
            self.running[number] = trial
            for step, value in trial.intermediate_values.items():
                self.last_step = max(self.last_step, step)
                if step not in self._ranks[number]:
                    self._add(trial, step, (_finite(signs[0] * value),))
            if trial.state is TrialState.COMPLETE:
                values = (_finite(s * v) for s, v in zip(signs, trial.values, strict=True))
                self._add(trial, FULL, tuple(values))
            if trial.state.is_finished():
                self._end(trial, repeats)
            elif paused_at(trial) is not None and number in self._ranks:
                del self.running[number]
                numbers = self.ended[max(self._ranks[number])][self.cell(trial.params)]
                self._paused[number] = (paused_at(trial), numbers)
                insort(numbers, number)
        self._read = len(trials)

    def _end(self, trial: FrozenTrial, repeats: Sequence[FrozenTrial]) -> None:
        """Record the end of a trial.

        Args:
            trial: The merged trial; see `merge_repeats`.
            repeats: The trials of its configuration.
        """
        number = trial.number
        del self.running[number]
        self.tried.add(point_of(trial.params, trial.distributions))
        self._repeated.pop(number, None)
        if number in self.known:
            self.known[number] = trial  # with the state and the constraints that it ended with
        violation = sum(v for v in trial.constraints.values() if v > 0)
        if trial.state is TrialState.FAIL:
            self.failed[number] = trial
            violation = math.inf
        if len(repeats) > 1:
            self._deviations[number] = _deviations(
                [t.values for t in repeats if t.state is TrialState.COMPLETE]
            )
        if violation:  # only now known; the trial ranks last at the levels that it reached
            for level, rank in list(self._ranks[number].items()):
                self._remove(trial, level)
                self._add(trial, level, rank.values, violation)
        if trial.state is TrialState.COMPLETE:
            self._add_later_levels(steps_of(trial), self._ranks[number][FULL])
        ranks = self._ranks.pop(number, None)
        if ranks:
            insort(self.ended[max(ranks)][self.cell(trial.params)], number)

    def _add(
        self, trial: FrozenTrial, level: Level, values: tuple[float, ...], violation: float = 0.0
    ) -> None:
        """Add a trial at a level. The arguments are parts of a `Rank`."""
        rank = Rank(violation, values, trial.number)
        self._ranks[trial.number][level] = rank
        if level not in self.levels:  # `_add_later_levels` could not know it
            for steps, complete in self._complete:
                if steps < level:
                    self._insert(level, complete)
        if trial.number not in self.known:
            self.tried.add(point_of(trial.params, trial.distributions))
        self.known[trial.number] = trial
        self._insert(level, rank)
        names = frozenset(trial.distributions)
        if names not in self._grouped_names:
            self._grouped_names.add(names)
            self._group.add_distributions(trial.distributions)

    def _add_later_levels(self, steps: int, rank: Rank) -> None:
        """Give a complete trial its final value at the levels after its last step."""
        if not steps:  # a known result, or a trial of an earlier sweep
            return
        for level in self.levels:
            if steps < level < FULL:
                self._insert(level, rank)
        self._complete.append((steps, rank))

    def _insert(self, level: Level, rank: Rank) -> None:
        """Insert a rank into the sorted list of its cell."""
        insort(self.levels[level][self.cell(self.known[rank.number].params)], rank)

    def _remove(self, trial: FrozenTrial, level: Level) -> None:
        """Remove the rank of a trial from the list of its cell."""
        ranks = self.levels[level][self.cell(trial.params)]
        del ranks[bisect_left(ranks, self._ranks[trial.number][level])]

    def cell(self, params: Mapping[str, Key]) -> str:
        """Return the cell of a trial as JSON text, given the trial's parameters.

        Return "" if there are no grids.
        """
        if self._grids:
            return json.dumps([params.get(name) for name in self._grids], default=str)
        return ""

    def count(self, level: Level) -> int:
        """Return the number of trials that reached a level."""
        return sum(map(len, self.levels[level].values())) if level in self.levels else 0

    def noise(self) -> tuple[int, list[float]]:
        """Estimate the variance of one configuration's values, given all configurations' repeats.

        Returns:
            (degrees of freedom, variances). There is one variance for each objective. The degrees
            of freedom are the number of repeats, without the first trials. If they are 0, the
            variances are 0.
        """
        deviations = [(degrees, sums) for degrees, sums in self._deviations.values() if degrees]
        freedom = sum(degrees for degrees, _ in deviations)
        # `fsum` is exact, so the result does not depend on the order in which trials ended.
        return freedom, [
            math.fsum(sums[i] for _, sums in deviations) / max(freedom, 1)
            for i in range(len(self.signs))
        ]

    def highest(self, enough: int) -> Level | None:
        """Return the highest level that at least `enough` trials reached.

        Return None if no level was reached by enough trials.
        """
        return max((level for level in self.levels if self.count(level) >= enough), default=None)

    def spaces(self) -> list[dict[str, BaseDistribution]]:
        """Return groups of dimensions that occur in the same trials: distributions by name.

        For example, all dimensions inside one option form a group, because only trials with this
        option have these dimensions.
        """
        groups = [dict(sorted(space.items())) for space in self._group.search_spaces]
        return sorted(groups, key=lambda space: tuple(space))


def _deviations(values: Sequence[Sequence[float]]) -> tuple[int, list[float]]:
    """Return (degrees of freedom, sums of squares), given the values of several repeats.

    There is one sum for each objective: the sum of the squared deviations from the mean.
    """
    if len(values) < 2 or not all(math.isfinite(v) for row in values for v in row):
        return 0, []
    means = [math.fsum(column) / len(column) for column in zip(*values, strict=True)]
    return len(values) - 1, [
        math.fsum((v - m) ** 2 for v in column)
        for m, column in zip(means, zip(*values, strict=True), strict=True)
    ]


def point_of(params: Mapping[str, Key], space: Mapping[str, BaseDistribution]) -> Point:
    """Return a configuration as a hashable point.

    Two configurations are equal if their points are equal.

    Args:
        params: Parameters of a trial.
        space: Distributions of the dimensions of the point, by name. Dimensions with a single value
            are left out.
    """
    return frozenset(
        (name, distribution.to_internal_repr(params[name]))
        for name, distribution in space.items()
        if name in params and not distribution.single()
    )


def _finite(value: float) -> float:
    """Replace NaN with infinity, so that a trial with NaN ranks last."""
    return math.inf if math.isnan(value) else value

"""The study as the schedulers see it."""

from __future__ import annotations

import bisect
import itertools
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sweeps.core.trial import State

if TYPE_CHECKING:
    from sweeps.study.states import TrialState


@dataclass
class TrialView:
    """A trial as a scheduler sees it. A scheduler must not change it.

    Attributes:
        number: Number of the trial.
        state: All that is known of the trial.
        bracket: Number of the trial's bracket. Schedulers compare only trials of the same bracket.
        population: Text that identifies the trial's population. Trials of the same population can
            use each other's checkpoints. "" if the scheduler does not perturb trials.
        values: Reported values of one metric by step, in the order of the steps. This is the metric
            of the first objective that is not a cost; if all objectives are costs, see
            `sweeps.study.objectives`.
    """

    state: TrialState
    bracket: int = 0
    population: str = ""
    number: int = field(init=False)
    values: dict[int, float] = field(init=False)
    # Mean of the values up to each step, and sum of the values that are in these means.
    _means: dict[int, float] = field(default_factory=dict, repr=False, compare=False)
    _sum: float = field(default=0.0, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Set the attributes that follow from the state."""
        self.number = self.state.number
        self.values = dict(self.state.compared)

    @property
    def running(self) -> bool:
        """True until the trial has ended. A paused trial has not ended."""
        return not self.state.has_ended

    @property
    def failed(self) -> bool:
        """True if the trial has failed."""
        return self.state.state is State.FAIL

    @property
    def paused_at(self) -> int | None:
        """Rung at which the trial is paused; None if the trial is not paused."""
        return self.state.paused_at

    @property
    def seconds(self) -> float:
        """Wall time that the trial has used so far, in seconds."""
        return self.state.seconds

    @property
    def checkpoint_step(self) -> int | None:
        """Step of the trial's latest checkpoint; None if it has none."""
        return None if self.state.checkpoint is None else self.state.checkpoint.step

    @property
    def final_value(self) -> float:
        """Best value of a trial that has ended on its own. NaN for other trials."""
        if self.state.state is not State.COMPLETE:
            return math.nan
        return self.values.get(self.state.result.best_step or 0, math.nan)

    def has_reached(self, step: int) -> bool:
        """Return True if the trial has a value at a step, or has ended on its own before it."""
        if step in self.values:
            return True
        return not math.isnan(self.final_value) and step > max(self.values, default=0)

    def value_at(self, step: int) -> float:
        """Return the value with which the trial is compared at a step; NaN if there is none.

        A trial that has ended on its own before this step has its best value.
        """
        value = self.values.get(step)
        return self.final_value if value is None else value

    def mean_until(self, step: int) -> float:
        """Return the mean of all values up to a step; NaN if one of these values is NaN.

        Args:
            step: A step that the trial has reached; see `has_reached`.
        """
        if step not in self._means:
            for reached, value in itertools.islice(self.values.items(), len(self._means), None):
                self._sum += value
                self._means[reached] = self._sum / (len(self._means) + 1)
        return self._means[min(step, max(self._means))]

    def best_until(self, step: int, minimize: bool) -> float:
        """Return the best value up to a step; NaN values do not count.

        Return NaN if every value is NaN or there is none.

        Args:
            step: The last step to consider.
            minimize: True if smaller values are better.
        """
        values = (
            value
            for reached, value in self.values.items()
            if reached <= step and not math.isnan(value)
        )
        return (min if minimize else max)(values, default=math.nan)


class StudyView:
    """The study as a scheduler sees it.

    Only the first trial of each configuration is included, because repeats are never stopped.

    Args:
        seed: Seed of the sweep. Random decisions must depend only on this seed, the trial's number
            and the rung.
        minimize: True if smaller values are better.

    Attributes:
        seed, minimize: The arguments.
        trials: Trials by number, in the order in which they started.
        paused: Rung at which each paused trial waits, by trial number, sorted by number.
        all_started: True if no more configurations start, because `limits.max_trials` is reached.
    """

    def __init__(self, seed: int = 0, minimize: bool = True):
        self.seed = seed
        self.minimize = minimize
        self.trials: dict[int, TrialView] = {}
        self.paused: dict[int, int] = {}
        self.all_started = False
        # The trials that have reached a step, by (step, bracket). There is an entry for each step
        # and bracket for which a scheduler has asked.
        self._reached: dict[tuple[int, int], list[TrialView]] = {}
        self._values: dict[tuple[int, int], list[float]] = {}  # of these trials; see `values_at`

    def add(self, state: TrialState, bracket: int = 0, population: str = "") -> None:
        """Add the first trial of a configuration. See `TrialView`."""
        trial = self.trials[state.number] = TrialView(state, bracket, population)
        self._update_paused(trial)
        for step, other in self._reached:
            if other == bracket and trial.has_reached(step):
                self._add_reached(trial, step)

    def follow(self, state: TrialState) -> None:
        """Replace the state of a trial. Trials that were not added are ignored."""
        trial = self.trials.get(state.number)
        if trial is None:
            return
        new = dict(state.compared[len(trial.values) :])
        trial.values.update(new)
        trial.state = state
        self._update_paused(trial)
        # A trial that has ended on its own has also reached the steps after its last one.
        last = math.inf if math.isnan(trial.final_value) else max(trial.values)
        for step, bracket in self._reached:
            if bracket == trial.bracket and (step in new or step > last):
                self._add_reached(trial, step)

    def _update_paused(self, trial: TrialView) -> None:
        if trial.paused_at is None:
            self.paused.pop(trial.number, None)
            return
        in_order = not self.paused or trial.number > next(reversed(self.paused))
        self.paused[trial.number] = trial.paused_at
        if not in_order:
            self.paused = dict(sorted(self.paused.items()))

    def _add_reached(self, trial: TrialView, step: int) -> None:
        """Add a trial to those that have reached a step, which are sorted by number."""
        trials = self._reached[step, trial.bracket]
        index = bisect.bisect(trials, trial.number, key=lambda other: other.number)
        trials.insert(index, trial)
        if (step, trial.bracket) in self._values:
            self._values[step, trial.bracket].insert(index, trial.value_at(step))

    def values_at(self, rung: int, bracket: int = 0) -> list[float]:
        """Return the value of each trial that `at_rung` returns; see `TrialView.value_at`."""
        if (rung, bracket) not in self._values:
            trials = self.at_rung(rung, bracket)
            self._values[rung, bracket] = [trial.value_at(rung) for trial in trials]
        return self._values[rung, bracket]

    def at_rung(self, rung: int, bracket: int = 0) -> list[TrialView]:
        """Return the trials of a bracket that have reached a rung; see `TrialView.has_reached`.

        Args:
            rung: Step of the rung.
            bracket: Number of the bracket; 0 if there is only one bracket.
        """
        if (rung, bracket) not in self._reached:
            trials = (self.trials[number] for number in sorted(self.trials))
            self._reached[rung, bracket] = [
                trial for trial in trials if trial.bracket == bracket and trial.has_reached(rung)
            ]
        return self._reached[rung, bracket]

"""Facts about trials for the schedulers: values, brackets, pauses, wall times and checkpoints."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass
class TrialView:
    """A trial as a scheduler sees it.

    Attributes:
        number: Number of the trial.
        bracket: Number of the trial's bracket. Schedulers compare only trials of the same bracket.
        values: Reported values of one metric by step, in the order of the steps. This is the metric
            of the first objective that is not a cost; if all objectives are costs, see
            `sweeps.study.objectives`.
        running: True until the trial has ended. A paused trial has not ended.
        failed: True if the trial has failed.
        paused_at: Rung at which the trial is paused; None if the trial is not paused.
        seconds: Wall time that the trial has used so far, in seconds.
        checkpoint_step: Step of the latest checkpoint of a running trial. None if the trial has no
            checkpoint, or if the scheduler does not perturb trials.
        population: Text that identifies the trial's population. Trials of the same population can
            use each other's checkpoints. "" if the scheduler does not perturb trials.
        final_value: Best value of a trial that has ended on its own. NaN for other trials.
    """

    number: int
    bracket: int = 0
    values: dict[int, float] = field(default_factory=dict)
    running: bool = True
    paused_at: int | None = None
    seconds: float = 0.0
    checkpoint_step: int | None = None
    population: str = ""
    failed: bool = False
    final_value: float = math.nan
    _means: dict[int, float] = field(default_factory=dict, repr=False, compare=False)
    _sum: float = field(default=0.0, repr=False, compare=False)

    def has_reached(self, step: int) -> bool:
        """Return True if the trial has a value at a step, or has ended on its own before it."""
        if step in self.values:
            return True
        return not math.isnan(self.final_value) and step > max(self.values, default=0)

    def value_at(self, step: int) -> float:
        """Return the value with which the trial is compared at a step; NaN if there is none.

        A trial that has ended on its own before this step has its best value.
        """
        return self.values.get(step, self.final_value)

    def mean_until(self, step: int) -> float:
        """Return the mean of all values up to a step; NaN if one of these values is NaN.

        Args:
            step: A step that the trial has reached; see `has_reached`.
        """
        if step not in self._means:
            for at, value in itertools.islice(self.values.items(), len(self._means), None):
                self._sum += value
                self._means[at] = self._sum / (len(self._means) + 1)
        return self._means[min(step, max(self._means))]

    def best_until(self, step: int, minimize: bool) -> float:
        """Return the best value up to a step; NaN values do not count.

        Return NaN if every value is NaN or there is none.

        Args:
            step: The last step to consider.
            minimize: True if smaller values are better.
        """
        values = (
            value for at, value in self.values.items() if at <= step and not math.isnan(value)
        )
        return (min if minimize else max)(values, default=math.nan)


class StudyView:
    """The study as a scheduler sees it.

    Only the first trial of each configuration is included, because repeats are never stopped.

    Args:
        seed: Seed of the sweep. Random decisions must depend only on this seed, the trial's number
            and the rung.
        minimize: True if smaller values are better.
        trials: Trials in the view.

    Attributes:
        seed, minimize: The arguments.
        trials: Trials by number, in the order in which they started.
        all_started: True if no more configurations start, because `limits.max_trials` is reached.
    """

    def __init__(self, seed: int = 0, minimize: bool = True, trials: Iterable[TrialView] = ()):
        self.seed = seed
        self.minimize = minimize
        self.trials: dict[int, TrialView] = {trial.number: trial for trial in trials}
        self.all_started = False

    @property
    def paused(self) -> Mapping[int, int]:
        """Rung at which each paused trial waits, by trial number."""
        return {
            number: trial.paused_at
            for number, trial in self.trials.items()
            if trial.paused_at is not None
        }

    def at_rung(self, rung: int, bracket: int = 0) -> list[TrialView]:
        """Return the trials of a bracket that have reached a rung; see `TrialView.has_reached`.

        Args:
            rung: Step of the rung.
            bracket: Number of the bracket; 0 if there is only one bracket.
        """
        return [
            trial
            for trial in self.trials.values()
            if trial.bracket == bracket and trial.has_reached(rung)
        ]

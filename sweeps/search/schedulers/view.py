"""What a scheduler sees of the study: curves, brackets, paused trials and costs."""

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
        bracket: Bracket of the trial. Schedulers compare trials of one bracket.
        values: Values of the objective that the trial reported, by step, in the order of the steps.
        running: Whether the trial has not ended. A paused trial has not ended.
        paused_at: Rung at which the trial is paused, or None.
        seconds: Wall time that the trial has used.
        checkpoint_step: Step of the latest checkpoint of a running trial, or None. Only known if the scheduler needs checkpoints.
        population: Trials with equal populations can exchange checkpoints. Only known if the scheduler perturbs.
    """

    number: int
    bracket: int = 0
    values: dict[int, float] = field(default_factory=dict)
    running: bool = True
    paused_at: int | None = None
    seconds: float = 0.0
    checkpoint_step: int | None = None
    population: str = ""
    _means: dict[int, float] = field(default_factory=dict, repr=False, compare=False)
    _sum: float = field(default=0.0, repr=False, compare=False)

    def mean_until(self, step: int) -> float:
        """Return the mean of the values up to a step at which the trial reported; NaN if one of them is NaN."""
        if step not in self._means:
            for at, value in itertools.islice(self.values.items(), len(self._means), None):
                self._sum += value
                self._means[at] = self._sum / (len(self._means) + 1)
        return self._means[step]

    def best_until(self, step: int, minimize: bool) -> float:
        """Return the best value up to a step, without NaN values; NaN if there is none."""
        values = (value for at, value in self.values.items() if at <= step and not math.isnan(value))
        return (min if minimize else max)(values, default=math.nan)


class StudyView:
    """The study as a scheduler sees it. Repeats of a configuration are not part of the view.

    Args:
        seed: Seed of the sweep. Random decisions must follow from this seed, the trial's number and the rung.
        minimize: Whether smaller values are better.
        trials: Trials in the view.

    Attributes:
        trials: Trials by number, in the order in which they started.
    """

    def __init__(self, seed: int = 0, minimize: bool = True, trials: Iterable[TrialView] = ()):
        self.seed = seed
        self.minimize = minimize
        self.trials: dict[int, TrialView] = {trial.number: trial for trial in trials}

    @property
    def curves(self) -> Mapping[int, Mapping[int, float]]:
        """Reported values by trial and step."""
        return {number: trial.values for number, trial in self.trials.items()}

    @property
    def brackets(self) -> Mapping[int, int]:
        """Bracket of each trial."""
        return {number: trial.bracket for number, trial in self.trials.items()}

    @property
    def paused(self) -> Mapping[int, int]:
        """Rung at which each paused trial waits, by number."""
        return {number: trial.paused_at for number, trial in self.trials.items() if trial.paused_at is not None}

    @property
    def costs(self) -> Mapping[int, float]:
        """Seconds that each trial has used."""
        return {number: trial.seconds for number, trial in self.trials.items()}

    def at_rung(self, rung: int, bracket: int = 0) -> list[TrialView]:
        """Return the trials of a bracket that reported at a rung."""
        return [trial for trial in self.trials.values() if rung in trial.values and trial.bracket == bracket]

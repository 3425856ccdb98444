"""Population Based Training (Jaderberg et al., 2017).

The worst trials continue from checkpoints of the best trials. A trial that continues from the
checkpoint of another trial, the donor, gets a perturbed copy of the donor's parameters. The
scheduler is asynchronous, as in Ray Tune: a trial that reaches a perturbation step is compared only
with the trials that have already reached this step. A checkpoint can be used only by trials with
the same preprocessor, the same data and the same grid values (except grids of `scaling`). Such
trials form a population.
"""

import functools
import random
import sys
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from sweeps.core.trial import Action
from sweeps.space.sections.key_types import AtLeast1, AtLeast2, Number

from . import perturbation
from .scheduler import CONTINUE, Decision, Explore, Scheduler
from .view import StudyView, TrialView


@dataclass(frozen=True)
class Pbt(Scheduler):
    """At each perturbation step, let the worst trials continue from the best trials' checkpoints.

    The parameters of a trial that continues in this way are perturbed.
    """

    perturbs: ClassVar[bool] = True
    needs_checkpoint: ClassVar[bool] = True

    perturbation_interval: Annotated[
        AtLeast1, Field(description="the number of reports between two perturbations")
    ]
    max_t: Annotated[AtLeast1 | None, Field(description="the step at which a trial ends")] = None
    quantile_fraction: Annotated[
        Number,
        Field(
            gt=0,
            le=0.5,
            description="with 0.25, the worst quarter of the trials continues from checkpoints of "
            "the best quarter",
        ),
    ] = 0.25
    resample_probability: Annotated[
        Number,
        Field(
            ge=0,
            le=1,
            description="probability that a copied parameter is drawn at random instead of "
            "perturbed",
        ),
    ] = 0.25
    population: Annotated[
        AtLeast2 | None,
        Field(description="number of trials of the sweep; by default `limits.max_trials`"),
    ] = None

    def rungs(self, bracket: int = 0) -> range:
        """Return the perturbation steps: the multiples of `perturbation_interval` below `max_t`."""
        return range(
            self.perturbation_interval, self.max_t or sys.maxsize, self.perturbation_interval
        )

    def decide(self, view: StudyView, trial: int, rung: int) -> Decision:
        """Return EXPLOIT with a donor if the trial is among the worst of its population.

        Otherwise, return CONTINUE. The members of the population are compared at this step. The
        donor is drawn at random from the best trials of the population that are running and have a
        checkpoint to continue from. If no trial is such a donor, CONTINUE is returned too.
        """
        donor, _ = self._choose(view, trial, rung)
        return CONTINUE if donor is None else Decision(Action.EXPLOIT, donor)

    def explorer(self, view: StudyView, trial: int, rung: int) -> Explore:
        """Return the function that perturbs the donor's parameters.

        The returned function continues the random sequence of the generator that drew the donor in
        `decide`.
        """
        _, rng = self._choose(view, trial, rung)
        return functools.partial(perturbation.explore, resample=self.resample_probability, rng=rng)

    def _choose(self, view: StudyView, trial: int, rung: int) -> tuple[int | None, random.Random]:
        rng = perturbation.rng_of(view.seed, trial, rung)
        population = view.trials[trial].population
        members = [
            member
            for member in view.trials.values()
            if rung in member.values and member.population == population
        ]
        donor = perturbation.choose_donor(
            trial,
            values={member.number: member.values[rung] for member in members},
            donors={member.number for member in members if self._can_donate(member, rung)},
            minimize=view.minimize,
            fraction=self.quantile_fraction,
            rng=rng,
        )
        return donor, rng

    def _can_donate(self, trial: TrialView, rung: int) -> bool:
        """Return True if a trial is running and has a checkpoint to continue from.

        Its latest checkpoint must be from step `rung` or later, but from before `max_t`.
        """
        step = trial.checkpoint_step
        return (
            trial.running
            and step is not None
            and step >= rung
            and (self.max_t is None or step < self.max_t)
        )

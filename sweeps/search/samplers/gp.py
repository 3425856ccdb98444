"""Gaussian process over configuration and step, as in MOBSTER (Klein et al., 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field, StrictBool

from sweeps.search.samplers.base import Algorithm, Model, SamplerContext
from sweeps.space.section_models import AtLeast1


@dataclass(frozen=True)
class Gp(Algorithm):
    """Suggest the configuration with the largest expected improvement at the last step of a trial.

    Conditional dimensions, ordered choices, failures, constraints, several objectives and the noise
    among repeats are modeled, too.
    """

    several_objectives: ClassVar[bool] = True

    n_startup_trials: Annotated[
        AtLeast1,
        Field(
            examples=[20],
            description="number of trials that must have a value before the model is used; until then, "
            "suggestions are random",
        ),
    ] = 10
    deterministic_objective: Annotated[
        StrictBool,
        Field(
            description="whether two trials with equal parameters always have equal values, so that "
            "values have no noise"
        ),
    ] = False
    cost: Annotated[
        Literal["seconds", "cpu_seconds", "gpu_seconds"] | None,
        Field(
            examples=["gpu_seconds"],
            description=(
                "cost that the search saves: the expected improvement of a configuration is "
                "divided by the square root of the expected "
                "cost of its trial, which is learned from the costs of earlier trials. `seconds` "
                "is the wall time of a trial, "
                "`cpu_seconds` and `gpu_seconds` are the CPU and GPU time of its workers. By "
                "default, costs do not count"
            ),
        ),
    ] = None

    def build(self, context: SamplerContext) -> Model:
        """Build the model."""
        from sweeps.search.samplers.gp_model import GpModel
        from sweeps.study.distributions import distribution_of

        model = GpModel(
            self.n_startup_trials,
            self.deterministic_objective,
            {name: distribution_of(dimension) for name, dimension in context.dimensions.items()}
            or context.always,
            context.max_t,
            context.dimensions,
            context.conditions,
            context.repeats,
            self.cost,
        )
        if context.earlier:
            from sweeps.search.samplers.earlier_sweeps import earlier_processes

            model.learn_from(earlier_processes(context.earlier, model.axes, context.minimize))
        return model

"""The importance of each dimension: its share in the influence on the objective.

Optuna's PED-ANOVA computes it from a study in memory that holds a sweep's trials.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sweeps.space import Dimension

if TYPE_CHECKING:
    import optuna

    from sweeps.study.states import TrialState

# Smallest number of trials for importances at a rung. If fewer trials reached a rung, the values at
# an earlier rung are more informative.
MIN_RUNG_TRIALS = 30
# Smallest number of trials for which importances are computed. With fewer trials, importances are
# mostly noise.
MIN_IMPORTANCE_TRIALS = 10


@dataclass(frozen=True)
class Importance:
    """The importances of a sweep's dimensions.

    Attributes:
        shares: (name, importance) of each dimension, the largest importance first. The importances
            add up to 1. Empty if the importances are unknown.
        basis: Description of the values from which the importances were computed, such as "the
            values at step 9, which 40 trials reached".
        unknown: Reason why the importances are unknown; "" if they are known.
    """

    shares: tuple[tuple[str, float], ...] = ()
    basis: str = ""
    unknown: str = ""


def importance_of(
    dimensions: Sequence[Dimension],
    trials: Sequence[TrialState],
    rungs: Sequence[int],
    minimize: bool,
) -> Importance:
    """Return the importances of a sweep's dimensions for its first objective, by PED-ANOVA.

    The dimensions have their full names, such as `params.eta`. For the arguments, see `PlotData`.
    """
    basis, values = basis_of(trials, rungs)
    if len(values) < MIN_IMPORTANCE_TRIALS:
        return Importance(
            unknown=f"importance needs {MIN_IMPORTANCE_TRIALS} trials with comparable values, but "
            f"there are {len(values)}"
        )
    from optuna.importance import get_param_importances

    shares: dict[str, float] = {}
    if min(values.values()) != max(values.values()):
        # no dimension varies, or there are too few trials
        with contextlib.suppress(ValueError, RuntimeError):
            study = study_of(dimensions, trials, values, minimize)
            shares = get_param_importances(study)
    if not sum(shares.values()) > 0:
        return Importance(
            unknown="the importance is unknown, because the values or the dimensions do not vary "
            "enough"
        )
    return Importance(tuple((name, float(share)) for name, share in shares.items()), basis)


def distribution_of(
    dimension: Dimension, values: Sequence[float]
) -> optuna.distributions.BaseDistribution:
    """Return an Optuna distribution that contains all values of a dimension.

    Args:
        dimension: The dimension.
        values: The values of the dimension in the trials, as in `TrialState.labels`. For a normal
            distribution, these are values from the distribution itself, not the quantiles (0 to 1)
            that Optuna samples.
    """
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if dimension.options:
        return CategoricalDistribution([option.key for option in dimension.options])
    if dimension.lower is None or dimension.highest is None:
        return FloatDistribution(min(values), max(values))
    lower = min([dimension.lower, *values])
    upper = max([dimension.highest, *values])
    if dimension.is_integer:
        return IntDistribution(int(lower), int(upper), log=dimension.is_log)
    return FloatDistribution(lower, upper, log=dimension.is_log)


def study_of(
    dimensions: Sequence[Dimension],
    trials: Sequence[TrialState],
    values: Mapping[int, float],
    minimize: bool,
) -> optuna.Study:
    """Return a study in memory.

    All its trials are COMPLETE, because Optuna's analyses omit trials in other states.

    Args:
        dimensions: The dimensions of the space.
        trials: The trials of the sweep.
        values: The value of each trial, by trial number. Other trials are left out.
        minimize: True if smaller values are better.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    # Parameters of a trainer that few trials have are rare, not wrong.
    warnings.filterwarnings("ignore", message="Some regimes for parameter")
    study = optuna.create_study(direction="minimize" if minimize else "maximize")
    distributions = {}
    for d in dimensions:
        seen = [t.labels[d.name] for t in trials if d.name in t.labels]
        if seen:
            distributions[d.name] = distribution_of(d, seen)
    for t in trials:
        if t.number in values:
            active = {name: d for name, d in distributions.items() if name in t.labels}
            frozen = optuna.trial.create_trial(
                params={name: t.labels[name] for name in active},
                distributions=active,
                value=values[t.number],
            )
            study.add_trial(frozen)
    return study


def basis_of(trials: Sequence[TrialState], rungs: Sequence[int]) -> tuple[str, dict[int, float]]:
    """Return comparable values of the trials: values at the same step.

    The best values of the trials are not comparable, because a trial that was stopped early had
    fewer steps. The values are therefore taken at the highest rung at which at least
    `MIN_RUNG_TRIALS` trials have a finite value. If there is no such rung, the lowest rung that any
    trial reached is used. If no trial has a finite value there either, the best values of the
    trials are returned.

    Args:
        trials: The trials of the sweep.
        rungs: The steps at which the scheduler compares trials, in ascending order; empty if there
            are no such steps.

    Returns:
        (description, values). The description is a short text, such as "the values at step 9, which
        40 trials reached". `values` maps trial numbers to these values. Trials without such a value
        are left out. All values are finite.
    """
    reached = {step for t in trials for step, _ in t.curve if step in rungs}
    for rung in sorted(reached, reverse=True):
        values = {
            t.number: value
            for t in trials
            for step, value in t.curve
            if step == rung and math.isfinite(value)
        }
        if len(values) >= MIN_RUNG_TRIALS or (rung == min(reached) and values):
            return f"the values at step {rung}, which {len(values)} trials reached", values
    values = {
        t.number: t.result.value
        for t in trials
        if t.result.value is not None and math.isfinite(t.result.value)
    }
    return f"the values of {len(values)} trials", values

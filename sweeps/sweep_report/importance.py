"""The importance of each dimension: its share in the influence on the objective.

Optuna's PED-ANOVA computes it from a study in memory that holds a sweep's trials.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sweeps.space import Dimension
from sweeps.sweep_report.figures import (
    MIN_IMPORTANCE_TRIALS,
    PlotData,
    basis_of,
)

if TYPE_CHECKING:
    import optuna


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


def importance_of(data: PlotData) -> Importance:
    """Return the importances of a sweep's dimensions for its first objective, by PED-ANOVA.

    The dimensions have their full names, such as `params.eta`.
    """
    basis, values = basis_of(data.trials, data.rungs)
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
            shares = get_param_importances(study_of(data, values))
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


def study_of(data: PlotData, values: Mapping[int, float]) -> optuna.Study:
    """Return a study in memory.

    All its trials are COMPLETE, because Optuna's analyses omit trials in other states.

    Args:
        data: The sweep.
        values: The value of each trial, by trial number. Other trials are left out.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(direction="minimize" if data.minimize else "maximize")
    distributions = {}
    for d in data.dimensions:
        if seen := [t.labels[d.name] for t in data.trials if d.name in t.labels]:
            distributions[d.name] = distribution_of(d, seen)
    for t in data.trials:
        if t.number in values:
            own = {name: found for name, found in distributions.items() if name in t.labels}
            params = {name: t.labels[name] for name in own}
            study.add_trial(
                optuna.trial.create_trial(params=params, distributions=own, value=values[t.number])
            )
    return study

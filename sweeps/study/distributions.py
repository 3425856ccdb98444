"""Convert the dimensions of a search space to Optuna distributions."""

from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from sweeps.space import Dimension
from sweeps.space.model.domains import EDGES


def distribution_of(dimension: Dimension) -> BaseDistribution:
    """Return the Optuna distribution of a dimension's keys.

    `Dimension.value` converts a key to a value.

    Optuna does not allow a step in a logarithmic distribution, so the keys of `qloguniform` and
    `qlograndint` are sampled without the step `q`. A key of `randn` or `qrandn` is a cumulative
    probability, so these keys have a uniform distribution.

    Raises:
        ValueError: The kind of the dimension is unknown.
    """
    d: Any = dimension
    if d.options:
        return CategoricalDistribution([option.key for option in d.options])
    match d.kind:
        case "uniform":
            return FloatDistribution(d.lower, d.upper)
        case "quniform":
            return FloatDistribution(d.lower, d.upper, step=d.q)
        case "loguniform" | "qloguniform":
            return FloatDistribution(d.lower, d.upper, log=True)
        case "randint":
            return IntDistribution(d.lower, d.upper - 1)
        case "qrandint":
            return IntDistribution(d.lower, d.highest, step=d.q)
        case "lograndint":
            return IntDistribution(d.lower, d.upper - 1, log=True)
        case "qlograndint":
            return IntDistribution(d.lower, d.highest, log=True)
        case "randn" | "qrandn":
            return FloatDistribution(*EDGES)
    raise ValueError(f"{d.name}: no distribution for {d.kind}")


def suggest(trial: optuna.Trial, dimension: Dimension) -> Any:
    """Return the key that the sampler of an Optuna study suggests for a dimension of a trial."""
    return trial._suggest(dimension.name, distribution_of(dimension))

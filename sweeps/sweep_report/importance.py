"""The importance of each dimension: its share in the influence on the objective.

Optuna's PED-ANOVA computes it from a study in memory that holds a sweep's trials.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sweeps.core.json_files import is_number
from sweeps.space import Dimension
from sweeps.sweep_report.figures import (
    MIN_IMPORTANCE_TRIALS,
    PlotData,
    basis_of,
    option_texts,
    plot_data,
)

if TYPE_CHECKING:
    import optuna

    from sweeps.space import Space
    from sweeps.study.record import Record
    from sweeps.study.states import TrialState


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


def importance_of(record: Record | None, space: Space) -> Importance:
    """Return the importances of a sweep's dimensions for its first objective.

    The dimensions have their full names, such as `params.eta`.

    Args:
        record: The content of the study; None if there is no study yet.
        space: The sweep's space.
    """
    if record is None:
        return Importance(unknown=_too_few(0))
    data = plot_data(record, space)
    if (count := len(basis_of(data.trials, data.rungs)[1])) < MIN_IMPORTANCE_TRIALS:
        return Importance(unknown=_too_few(count))
    try:
        basis, shares = data.importances
    except Exception as e:  # a stranger's study can have any values
        return Importance(unknown=f"the importance cannot be computed: {type(e).__name__}: {e}")
    if not shares:
        return Importance(
            unknown="the importance is unknown, because the values or the dimensions do not vary "
            "enough"
        )
    full = {short: name for name, short in data.names.items()}
    return Importance(tuple((full[name], share) for name, share in shares), basis)


def _too_few(count: int) -> str:
    return (
        f"importance needs {MIN_IMPORTANCE_TRIALS} trials with comparable values, but there are "
        f"{count}"
    )


def distribution_of(
    dimension: Dimension, values: Sequence[Any]
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
        return CategoricalDistribution(list(shown_options(dimension).values()))
    if dimension.lower is None or dimension.highest is None:
        return FloatDistribution(min(values), max(values))
    lower, upper = min([dimension.lower, *values]), max([dimension.highest, *values])
    if dimension.is_integer:
        return IntDistribution(int(lower), int(upper), log=dimension.is_log)
    return FloatDistribution(lower, upper, log=dimension.is_log)


def shown_options(dimension: Dimension) -> dict[Any, Any]:
    """Return what a plot shows for each option: a number, which Optuna orders, or a text."""
    texts = option_texts(dimension)
    return {key: key if is_number(key) else text for key, text in texts.items()}


def study_of(
    data: PlotData, trials: Sequence[TrialState], values: dict[int, float]
) -> optuna.Study:
    """Return a study in memory.

    All its trials are COMPLETE, because Optuna's analyses omit trials in other states.

    Args:
        data: The sweep.
        trials: The trials. Trials without a value in `values` are left out.
        values: The value of each trial, by trial number.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(direction="minimize" if data.minimize else "maximize")
    seen = {
        d.name: [t.labels[d.name] for t in data.trials if d.name in t.labels]
        for d in data.dimensions
    }
    distributions = {
        d.name: distribution_of(d, seen[d.name]) for d in data.dimensions if seen[d.name]
    }
    options = {d.name: shown_options(d) for d in data.dimensions}
    made = []
    for t in trials:
        if t.number in values:
            had = [name for name in distributions if name in t.labels]
            params = {
                data.names[name]: options[name].get(t.labels[name], t.labels[name]) for name in had
            }
            of_params = {data.names[name]: distributions[name] for name in had}
            made.append(
                optuna.trial.create_trial(
                    params=params, distributions=of_params, value=values[t.number]
                )
            )
    study.add_trials(made)
    return study


def importances_of(data: PlotData) -> tuple[str, tuple[tuple[str, float], ...]]:
    """Return the importance of each dimension by Optuna's PED-ANOVA.

    Returns:
        (basis, importances). `basis` describes the values from which the importances were computed.
        `importances` has (name, importance) pairs, the largest first, which add up to 1. It is
        empty if there are too few trials or if the values do not vary.
    """
    basis, values = basis_of(data.trials, data.rungs)
    if len(values) < MIN_IMPORTANCE_TRIALS or min(values.values()) == max(values.values()):
        return basis, ()
    import optuna

    try:
        found = optuna.importance.get_param_importances(study_of(data, data.trials, values))
    except (ValueError, RuntimeError):  # no dimension varies, or there are too few trials
        return basis, ()
    return basis, tuple((name, float(value)) for name, value in found.items()) if sum(
        found.values()
    ) > 0 else ()

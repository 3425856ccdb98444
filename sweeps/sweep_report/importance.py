"""The importance of each dimension: its share of the influence on the objective, by Optuna's PED-ANOVA."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sweeps.sweep_report.figures import MIN_IMPORTANCE_TRIALS, basis_of, plot_data

if TYPE_CHECKING:
    from sweeps.space import Space
    from sweeps.study.record import Record


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
    """Return the importances of a sweep's dimensions for its first objective, with full names such as `params.eta`.

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

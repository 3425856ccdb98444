"""Find the points of a Pareto front that may be dominated, because values are noisy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from sweeps.study.study_store import StudyStore

from .model_scores import WIDTH
from .value_noise import recorded_noise


def uncertain_points(
    values: Mapping[int, Sequence[float]], errors: Sequence[float], goals: Sequence[bool]
) -> list[int]:
    """Return the points that another point may dominate.

    In no objective is it clear (95%) that such a point is better than the other one.

    Args:
        values: Values of each point of the front, by its number.
        errors: Standard error of a value of each objective.
        goals: True for each objective of which smaller values are better.
    """

    def is_clearly_better(point: int, other: int) -> bool:
        pairs = zip(values[point], values[other], errors, goals, strict=True)
        return any(
            (theirs - own if minimize else own - theirs) > WIDTH * math.sqrt(2) * error
            for own, theirs, error, minimize in pairs
        )

    return [
        point
        for point in values
        if any(other != point and not is_clearly_better(point, other) for other in values)
    ]


def uncertain_front(study_store: StudyStore, front: Sequence[int]) -> list[int]:
    """Return the trials of the front that another one may dominate; [] if the noise is unknown."""
    variances = recorded_noise(study_store) if front else None
    results = study_store.configurations().results()
    values = {n: [v for v in results[n].values if v is not None] for n in front}
    if variances is None or any(len(own) < len(variances) for own in values.values()):
        return []
    return uncertain_points(values, [*map(math.sqrt, variances)], study_store.objectives.goals)

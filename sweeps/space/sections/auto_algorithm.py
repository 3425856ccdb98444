"""Choose the sampler for `search.algorithm: auto`. Pure function, no I/O.

The choice depends on the dimensions, the objectives and the limits of a sweep.
"""

from dataclasses import dataclass

AUTO = "auto"
# Largest number of trials for which `auto` chooses `gp`. `gp` found better values than `tpe` in
# most of the measured tasks, up to 3,800 trials. The time of a suggestion was measured up to 10,000
# trials: reports/search_quality.md.
GP_TRIALS = 10_000
# Largest number of objectives for which `auto` chooses `gp`. More objectives were not measured.
GP_OBJECTIVES = 3


@dataclass(frozen=True)
class Choice:
    """The search algorithm of a sweep, with the reason for the choice.

    Attributes:
        algorithm: Name of the algorithm, such as `tpe`.
        reason: Reason for the choice, in a few words, such as "2 objectives". "" if the space file
            names the algorithm.
    """

    algorithm: str
    reason: str = ""


def choose(*, sampled: int, objectives: int, max_trials: int, perturbs: bool = False) -> Choice:
    """Choose the algorithm for `auto`.

    Args:
        sampled: Number of sampled dimensions. All dimensions except grids are sampled.
        objectives: Number of objectives.
        max_trials: Number of trials, `limits.max_trials`.
        perturbs: True if the scheduler changes the parameters of running trials, as in Population
            Based Training.
    """
    if not sampled:
        return Choice("grid", "nothing is sampled")
    # Reasons against `gp`: a pair of the condition and the text for each.
    objections = [
        (objectives > GP_OBJECTIVES, f"{objectives} objectives"),
        (max_trials > GP_TRIALS, f"more than {GP_TRIALS:,} trials"),
        (perturbs, "all trials start before any value is known"),
    ]
    reasons = [text for holds, text in objections if holds]
    if reasons:
        return Choice("tpe", ", ".join(reasons))
    goals = "one objective" if objectives == 1 else f"{objectives} objectives"
    return Choice("gp", f"{goals}, at most {GP_TRIALS:,} trials")

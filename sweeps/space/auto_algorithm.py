"""Which algorithm `search.algorithm: auto` stands for: a pure function of the space and its limits."""

from __future__ import annotations

from dataclasses import dataclass

AUTO = "auto"
# Algorithms that have options and that `auto` may stand for. If both have an option, the last one checks it.
AUTO_CANDIDATES = ("gp", "tpe")
# `gp` looks at every value that it knows for each suggestion; up to this number of trials it finds more than `tpe` in as many.
GP_TRIALS = 500


@dataclass(frozen=True)
class Choice:
    """The algorithm that searches a space.

    Attributes:
        algorithm: its name.
        reason: why sweeps chose it, in a few words; "" if the space file names it.
    """

    algorithm: str
    reason: str = ""


def choose(
    *, sampled: int, conditional: int, objectives: int, max_trials: int, perturbs: bool = False, takes_options: bool = True
) -> Choice:
    """Choose the algorithm of a search that names none.

    Args:
        sampled: number of dimensions that are sampled, and so are no grids.
        conditional: number of dimensions that only some trials have: those with a `when`, and those inside an option.
        objectives: number of objectives.
        max_trials: `limits.max_trials`.
        perturbs: Whether the scheduler changes the parameters of trials, as in Population Based Training.
        takes_options: whether `gp` has all options that the space file gives.
    """
    if not sampled:
        return Choice("grid", "nothing is sampled")
    against = [
        (objectives > 1, f"{objectives} objectives"),
        (conditional > 0, f"{conditional} conditional dimension{'s' * (conditional > 1)}"),
        (max_trials > GP_TRIALS, f"more than {GP_TRIALS} trials"),
        (perturbs, "the members of a population begin together"),
        (not takes_options, "its options"),
    ]
    reasons = [text for holds, text in against if holds]
    if reasons:
        return Choice("tpe", ", ".join(reasons))
    return Choice("gp", f"one objective, at most {GP_TRIALS} trials, no conditional dimensions")

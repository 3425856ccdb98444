"""Text about the choice of the exported trial."""

import math
from collections.abc import Mapping
from typing import Any

from .texts import count_noun


def choice_text(trial: str, choice: Mapping[str, Any]) -> str:
    """Return a text such as `chosen by the mean of a model; trial 0009 has the best value, 0.115`.

    Args:
        trial: Id of the chosen trial.
        choice: The key `choice` of `SweepResult.best`.
    """
    best = choice["best"]
    is_best = best["trial"] == trial
    if choice["rule"] == "mean":
        if is_best:
            return "it has the best value, and the best mean of a model of all trials"
        text = "chosen by the mean of a model of all trials"
        return f"{text}; trial {best['trial']} has the best value, {best['value']:.6g}"
    values = choice["values"]
    further = values[trial]
    rounds = count_noun(len(further), "further training")
    text = f"confirmed among {count_noun(len(values), 'trial')} in {rounds}"
    if further:
        text += f", with a mean of {_mean(further):.6g}"
    if is_best:
        return text
    text += f"; trial {best['trial']} has the best value in the search, {best['value']:.6g}"
    others = values[best["trial"]]
    if others and None not in others:
        text += f", and a mean of {_mean(others):.6g}"
    return text


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)

"""Text about the choice of the exported trial."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from .texts import count_noun


def choice_text(trial: str, choice: Mapping[str, Any]) -> str:
    """Return a text such as `chosen by the mean of a model; trial 0009 has the best value, 0.115`.

    Args:
        trial: Id of the chosen trial.
        choice: The key `choice` of `SweepResult.best`.
    """
    best, values = choice["best"], choice["values"]
    text = "chosen by the mean of a model of all trials"
    if values:
        rounds = count_noun(len(values[trial]) - 1, "further training")
        text = f"confirmed among {count_noun(len(values), 'trial')} in {rounds}"
        text += _mean(", with", values[trial])
    if best == trial:
        return f"{text}; it has the best value, too"
    text += f"; trial {best} has the best value in the search, {choice['best_value']:.6g}"
    return text + _mean(", and", values.get(best, ()))


def _mean(text: str, values: Sequence[float | None]) -> str:
    """Return a text about the mean of further trainings, if all of them have a value."""
    known = [value for value in values[1:] if value is not None]
    if not known or len(known) < len(values) - 1:
        return ""
    return f"{text} a mean of {fmean(known):.6g} in them"

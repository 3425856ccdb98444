"""The choice of the trial that a sweep exports, as the study records it. Pure, no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

# Name of the study's attribute
CHOICE = "choice"


@dataclass(frozen=True)
class TrialChoice:
    """The choice of the trial that a sweep exports, if it is not simply the best value.

    Attributes:
        rule: The rule; see `Objective.choose`.
        trials: Number of trials of the study. With more trials, the choice is made again.
        number: Number of the first trial of the chosen configuration. None while trials are still
            confirmed.
        values: For each trial that is confirmed, its value in the search and in each further
            training. None for a training that gave no value.
    """

    rule: Literal["mean", "confirmed"]
    trials: int
    number: int | None = None
    values: Mapping[int, tuple[float | None, ...]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the choice as a JSON object for the study."""
        values = {str(number): list(values) for number, values in self.values.items()}
        content = {"rule": self.rule, "trials": self.trials, "number": self.number}
        return content | {"values": values}


def recorded_choice(attributes: Mapping[str, Any], trials: int) -> TrialChoice | None:
    """Return the choice that a study records; None if there is none for its trials.

    Args:
        attributes: The attributes of the study.
        trials: Number of its trials.
    """
    content = attributes.get(CHOICE)
    if content is None or content["trials"] != trials:
        return None
    values = {int(number): tuple(values) for number, values in content["values"].items()}
    return TrialChoice(content["rule"], trials, content["number"], values)

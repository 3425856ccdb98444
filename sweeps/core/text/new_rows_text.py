"""Texts about the score of a model on new rows."""

import math
from collections.abc import Mapping
from typing import Any

from .texts import count_noun

# Keys of the interval of a loss, and those of the gain from which it is computed
SWAPPED = {"value": "value", "low": "high", "high": "low"}


def new_rows_text(facts: Mapping[str, Any]) -> str:
    """Return a text such as `on new rows about 0.131 (90%: 0.109 to 0.158)`.

    Args:
        facts: The key `new_rows` of `SweepResult.best`.
    """
    if "unknown" in facts:
        return f"no interval for new rows: {facts['unknown']}"
    return f"on new rows about {interval_text(facts)}"


def comparison_lines(facts: Mapping[str, Any]) -> list[str]:
    """Return a line for each default configuration, and one about the trials that are as good.

    Args:
        facts: The key `new_rows` of `SweepResult.best`.
    """
    lines = []
    for default in facts.get("defaults", ()):
        name = f"the default of {default['trainer']}" if default["trainer"] else "the default"
        if "value" not in default:
            lines.append(f"tuning did not beat {name}, which is the best trial")
        elif default["low"] > 0:
            lines.append(f"better than {name} by {interval_text(default)}")
        else:
            better = default
            comparison = "better"
            if default["value"] < 0:
                better = {key: -default[of] for key, of in SWAPPED.items()}
                comparison = "worse"
            fact = "tuning did not beat" if default["high"] < 0 else "cannot be told from"
            lines.append(f"{fact} {name}: {comparison} by {interval_text(better)}")
    similar = facts.get("similar", 0)
    if similar:
        lines.append(
            f"{similar} of {count_noun(facts['compared'], 'other trial')} cannot be told from it"
        )
    return lines


def new_rows_sentences(facts: Mapping[str, Any]) -> str:
    """Return the texts of `new_rows_text` and `comparison_lines` as sentences."""
    texts = [new_rows_text(facts), *comparison_lines(facts)]
    return " ".join(f"{text[0].upper()}{text[1:]}." for text in texts)


def interval_text(interval: Mapping[str, float]) -> str:
    """Return an estimate with its interval, such as `0.131 (90%: 0.109 to 0.158)`.

    The interval has two digits that count.

    Args:
        interval: Object with the keys `value`, `low` and `high`.
    """
    width = interval["high"] - interval["low"]
    digits = 1 - math.floor(math.log10(width / 2)) if width > 0 else 6
    value, low, high = (
        f"{interval[key]:.{min(max(digits, 0), 12)}f}" for key in ("value", "low", "high")
    )
    return f"{value} (90%: {low} to {high})"

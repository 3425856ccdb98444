"""Texts about the score of a model on new rows."""

import math
from collections.abc import Mapping
from typing import Any

from .shell_text import shell_command
from .texts import count_noun


def new_rows_lines(facts: Mapping[str, Any]) -> list[str]:
    """Return a line such as `on new rows about 0.131 (90%: 0.109 to 0.158)`, and comparisons.

    There is a line for each default configuration, and one about the trials that are as good.

    Args:
        facts: The key `new_rows` of `SweepResult.best`.
    """
    if "unknown" in facts:
        return [f"no interval for new rows: {facts['unknown']}"]
    lines = [f"on new rows about {interval_text(facts)}"]
    for default in facts.get("trials", ()):
        if "default" not in default:
            continue
        name = f"the default of {default['default']}" if default["default"] else "the default"
        if "value" not in default:
            lines.append(f"tuning did not beat {name}, which is the best trial")
        elif default["low"] > 0:
            lines.append(f"better than {name} by {interval_text(default)}")
        else:
            comparison = f"better by {interval_text(default)}"
            if default["value"] < 0:
                comparison = f"worse by {interval_text(_loss(default))}"
            fact = "tuning did not beat" if default["high"] < 0 else "cannot be told from"
            lines.append(f"{fact} {name}: {comparison}")
    similar = facts.get("similar", 0)
    if similar:
        lines.append(
            f"{similar} of {count_noun(facts['compared'], 'other trial')} cannot be told from it"
        )
    if (cheaper := facts.get("cheaper")) is not None:
        command = f"{shell_command('sweeps')} {cheaper['command']}"
        facts_of_model = (
            f"{cheaper['bytes'] / cheaper['winner_bytes']:.0%} of the size, "
            f"{cheaper['bytes'] / 1e3:,.0f} kB; trained in {cheaper['seconds']:.1f} s"
        )
        if cheaper["rows_per_second"] is not None:
            speed = float(f"{cheaper['rows_per_second']:.2g}")
            facts_of_model += f"; predicted {speed:,.0f} prepared rows a second"
        lines.append(
            f"trial {cheaper['trial']} is one of them, with a smaller model ({facts_of_model}): "
            f"`{command}`"
        )
    return lines


def difference_text(old: str, new: str, difference: Mapping[str, float]) -> str:
    """Return a text such as `B is better than A on new rows by 0.008 (90%: 0.002 to 0.014)`.

    Args:
        old: Name of the first model.
        new: Name of the second model.
        difference: Interval of how much better the second model is.
    """
    if not any(difference.values()):
        return f"{old} and {new} make the same predictions"
    better, worse, gain = new, old, difference
    if difference["value"] < 0:
        better, worse, gain = old, new, _loss(difference)
    if gain["low"] > 0:
        return f"{better} is better than {worse} on new rows by {interval_text(gain)}"
    text = f"no difference between {old} and {new} can be shown on new rows"
    return f"{text}: {better} is better by {interval_text(gain)}"


def _loss(gain: Mapping[str, float]) -> dict[str, float]:
    """Return the interval of a loss, given that of a gain."""
    return {"value": -gain["value"], "low": -gain["high"], "high": -gain["low"]}


def new_rows_sentences(facts: Mapping[str, Any]) -> str:
    """Return the lines of `new_rows_lines` as sentences."""
    return " ".join(f"{line[0].upper()}{line[1:]}." for line in new_rows_lines(facts))


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

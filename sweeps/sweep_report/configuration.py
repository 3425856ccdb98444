"""The configuration of a trial as rows of a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sweeps.core.resources import workers_text
from sweeps.core.trial import flatten_params, shorten_chain

if TYPE_CHECKING:
    from pydantic import JsonValue

    from sweeps.core.trial import Trial


def dotted_rows(trial: Trial, params: str = "") -> list[tuple[str, JsonValue]]:
    """Return the configuration of a trial as (dotted name, value).

    Args:
        trial: The trial.
        params: Prefix of the parameters' names.
    """
    return [
        *flatten_params(trial.data, "data."),
        *([("trainer", trial.trainer)] if trial.trainer else []),
        ("preprocessor", trial.chain),
        *flatten_params(trial.shape.scaling, "scaling."),
        *flatten_params(trial.params, params),
    ]


def short_rows(trial: Mapping[str, Any]) -> list[tuple[str, JsonValue]]:
    """Return the configuration of a trial as (name, value), with one row for the scaling.

    Args:
        trial: JSON object of the trial, as in `SweepResult.best`.
    """
    return [
        *flatten_params(trial.get("data", {}), "data."),
        *[(name, trial[name]) for name in ("trainer",) if trial.get(name)],
        ("preprocessor", shorten_chain(trial["preprocessor"])),
        ("scaling", scaling_text(trial["scaling"])),
        *flatten_params({name: _without_lists(value) for name, value in trial["params"].items()}),
    ]


def _without_lists(value: JsonValue) -> JsonValue:
    """Return a value in which each list of lists or mappings is a mapping by position."""
    if isinstance(value, (list, tuple)) and any(
        isinstance(inner, (Mapping, list, tuple)) for inner in value
    ):
        value = {str(position): inner for position, inner in enumerate(value)}
    if isinstance(value, Mapping):
        return {name: _without_lists(inner) for name, inner in value.items()}
    return value


def scaling_text(scaling: Mapping[str, Any]) -> str:
    """Return the text of a scaling, such as `2 workers × 1 CPU, 0.5 GPU`."""
    amounts = scaling["resources_per_worker"].items()
    per_worker = ", ".join(f"{amount:g} {name}" for name, amount in amounts)
    return f"{workers_text(scaling['num_workers'])} × {per_worker}"

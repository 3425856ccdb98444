"""Convert values to JSON for trackers. Secrets in the values are replaced."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pydantic import JsonValue

from sweeps.core.result import to_json_value
from sweeps.core.text.secrets import masked


def json_value(content: Mapping[str, object]) -> dict[str, JsonValue]:
    """Return a mapping as a JSON object.

    NaN and infinity become null, secrets become `***`, and other objects become text.
    """
    values: dict[str, JsonValue] = json.loads(json.dumps(to_json_value(content), default=str))
    return {masked(key): _mask(value) for key, value in values.items()}


def _mask(value: JsonValue) -> JsonValue:
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, dict):
        return {masked(key): _mask(inner) for key, inner in value.items()}
    return [_mask(inner) for inner in value] if isinstance(value, list) else value

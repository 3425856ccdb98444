"""What trackers write as JSON: plain values without secrets."""

from __future__ import annotations

import json
from typing import Any

from sweeps.core.result import to_json_value
from sweeps.core.secrets import masked


def json_value(value: Any) -> Any:
    """Return a value that JSON can hold. NaN and infinity become null; secrets of URIs become `***`; other objects become text."""
    return _mask(json.loads(json.dumps(to_json_value(value), default=str)))


def _mask(value: Any) -> Any:
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, dict):
        return {masked(key): _mask(inner) for key, inner in value.items()}
    return [_mask(inner) for inner in value] if isinstance(value, list) else value

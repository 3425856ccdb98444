"""A configuration as rows of a table."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any


def value_text(value: Any) -> str:
    """Return the text of a value.

    Floats have at most six significant digits; other values without a text of their own are as in
    YAML.

    >>> value_text(0.12345678), value_text(None), value_text(True), value_text(["a", 1])
    ('0.123457', 'null', 'true', 'a, 1')
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {value_text(inner)}" for name, inner in value.items())
    return ", ".join(map(value_text, value)) if isinstance(value, (list, tuple)) else str(value)


def configuration_rows(
    configuration: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, str]]:
    """Yield a row (name, text) for each value of a configuration. A nested value has a dotted name.

    >>> optimizer, layers = {"name": "sgd", "momentum": 0.9}, [{"size": 8}, {"size": 4}]
    >>> list(configuration_rows({"eta": 0.1, "optimizer": optimizer, "layers": layers}))
    [('eta', '0.1'), ('optimizer.name', 'sgd'), ('optimizer.momentum', '0.9'), ('layers.0.size',
    '8'), ('layers.1.size', '4')]
    """
    for name, value in configuration.items():
        if isinstance(value, (list, tuple)) and any(
            isinstance(inner, (Mapping, list, tuple)) for inner in value
        ):
            value = {str(at): inner for at, inner in enumerate(value)}
        if isinstance(value, Mapping) and value:
            yield from configuration_rows(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value_text(value)

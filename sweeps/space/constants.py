"""List the constants of a space: what every trial has, beside the dimensions. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sweeps.space.domains import Dimension
from sweeps.space.step_names import Step
from sweeps.space.templates import Chain, Template, dimensions


def constants(sections: Mapping[str, Template]) -> tuple[tuple[str, Any], ...]:
    """Return the name and the value of each constant of a space, in the order of the file.

    Values inside an option of a dimension are part of this option and are not listed.

    Args:
        sections: the templates of the sections; see `Space.sections`.
    """
    return tuple(
        pair
        for name, template in sections.items()
        if name != "data"
        for pair in _constants(template, name)
    )


def _constants(template: Template, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(template, Dimension):
        return
    if isinstance(template, Chain):
        for i, item in enumerate(template.items):
            yield from _constants(item, f"{path}.{i}" if len(template.items) > 1 else path)
    elif isinstance(template, Step):
        if not any(dimensions(template)):
            yield path, _step_text(template)
        else:
            for key, value in template.arguments().items():
                yield from _constants(value, f"{path}.{template.short}.{key}")
    elif isinstance(template, dict) and (template or "." in path):
        if not template:
            yield path, {}
        for key, value in template.items():
            yield from _constants(value, f"{path}.{key}")
    elif isinstance(template, (list, tuple)) and any(dimensions(template)):
        for i, value in enumerate(template):
            yield from _constants(value, f"{path}.{i}")
    elif not isinstance(template, dict):
        yield path, list(template) if isinstance(template, tuple) else template


def _step_text(step: Step) -> str:
    """Return a step and its parameters as text, such as `OneHotEncoder(columns=color)`."""
    arguments = {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in step.arguments().items()
    }
    return step.short + (
        f"({', '.join(f'{key}={value}' for key, value in arguments.items())})" if arguments else ""
    )

"""All settings of a space as texts, so that two spaces can be compared key by key.

Pure functions, no I/O.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from sweeps.core.secrets import masked
from sweeps.plan.text import dimension_values
from sweeps.space import Dimension, Space, Split, Step
from sweeps.space.conditions import ABSENT, Term
from sweeps.space.templates import Chain, Template, dimensions

# Keys of the section `data` that change neither the valid rows nor their labels.
SAME_VALID_ROWS = (
    "data.drop",
    "data.rows",
    "data.weight",
    "data.class_weight",
    "data.drop_missing_label",
    "data.ingest",
)


def settings_of(space: Space) -> dict[str, str]:
    """Return every setting of a space by its key: constants, defaults, and the domain of each dimension.

    Keys are named as in MLflow and in `sweeps show`, such as `scheduler.max_t` and `params.eta`.
    """
    found = {
        "trainer": space.trainer.name or space.trainer.loop,
        **_flat("trainer", space.trainer.options),
    }
    found |= _data(space)
    found["objective"] = ", ".join(f"{o.goal} {o.metric}" for o in space.objectives)
    found["constraints"] = ", ".join(map(str, space.constraints)) or "none"
    found |= {"search.algorithm": space.search.algorithm, "search.seed": str(space.search.seed)}
    found |= _flat("search.options", space.search.options or {})
    found["search.initial_points"] = str(len(space.search.initial_points))
    found["search.portfolio"] = _text(space.search.portfolio)
    found |= {"scheduler": space.scheduler.name, **_flat("scheduler", space.scheduler.options)}
    found |= {"repeats": str(space.repeats.count), "repeats.aggregate": space.repeats.aggregate}
    found |= _flat("limits", vars(space.limits)) | _flat("checkpoints", vars(space.checkpoints))
    found |= _flat("bundle", vars(space.bundle))
    for name, template in space.sections.items():
        found |= dict(_leaves(template, name))
    return found


def _data(space: Space) -> dict[str, str]:
    """Return the settings of the section `data`; {} if the training loop reads its own data."""
    data = space.data
    if not data.given:
        return {}
    found = {
        "data.train": data.train,
        "data.args": data.args,
        "data.label": data.label,
        "data.task": data.task,
    }
    found |= {"data.valid": _split(data.valid), "data.test": _split(data.test)}
    found |= {key: getattr(data, key.removeprefix("data.")) for key in SAME_VALID_ROWS}
    return {name: masked(_text(value)) for name, value in found.items()}


def _split(split: Split | None) -> str:
    """Return the rule of a split as text, such as `fraction 0.2` or `time day, fraction 0.2`."""
    if split is None:
        return "none"
    given = [(f.name, getattr(split, f.name)) for f in fields(split) if f.name != "kind"]
    values = [f"{name} {_text(value)}" for name, value in given if value not in (None, 0, {})]
    return ", ".join(values if len(values) == 1 else [split.kind, *values])


def _leaves(template: Template, path: str) -> Iterator[tuple[str, str]]:
    """Yield (key, text) of every constant and every dimension in a template.

    An option that is a mapping or a chain has keys of its own.
    """
    if isinstance(template, Dimension):
        yield template.name, domain_text(template)
        for option in template.options:
            if not _is_scalar(option.value):
                yield from _leaves(option.value, f"{template.name}[{option.key}]")
        if template.otherwise is not ABSENT:
            yield from _leaves(template.otherwise, f"{template.name}[otherwise]")
    elif isinstance(template, Step):
        if template.columns is not None:
            yield from _leaves(template.columns, f"{path}.columns")
        yield from _leaves(template.params, path)
    elif isinstance(template, Chain):
        yield (
            path,
            " + ".join(
                item.name if isinstance(item, Step) else domain_text(item)
                for item in template.items
            )
            or "none",
        )
        for i, item in enumerate(template.items):
            yield from _leaves(item, f"{path}.{i}")
    elif isinstance(template, dict):
        for key, value in template.items():
            yield from _leaves(value, f"{path}.{key}")
    elif isinstance(template, (list, tuple)) and _has_parts(template):
        for i, item in enumerate(template):
            yield from _leaves(item, f"{path}.{i}")
    elif template is not ABSENT:
        yield path, _text(template)


def _has_parts(items: list[Any] | tuple[Any, ...]) -> bool:
    """Return whether a list has steps or dimensions, so that its items are compared one by one."""
    return any(isinstance(item, Step) or any(True for _ in dimensions(item)) for item in items)


def _is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))


def domain_text(dimension: Dimension) -> str:
    """Return the domain of a dimension as text.

    Returns:
        Text such as `loguniform 0.001 to 0.5`, or `choice 2, 4 if params.booster is gbtree or
        dart`.
    """
    terms = " and ".join(map(_term, dimension.when))
    return f"{dimension.kind} {dimension_values(dimension)}" + (f" if {terms}" if terms else "")


def _term(term: Term) -> str:
    accepted = [_text(key) for key in term.keys] + [
        f"{sign} {number:g}" for sign, number in term.tests
    ]
    return f"{term.name} {'is ' if term.keys else ''}{' or '.join(accepted)}"


def _flat(name: str, values: Mapping[str, Any]) -> dict[str, str]:
    """Return the texts of nested values, with dotted names."""
    found: dict[str, str] = {}
    for key, value in values.items():
        inner = f"{name}.{key}"
        found |= (
            _flat(inner, value) if isinstance(value, Mapping) and value else {inner: _text(value)}
        )
    return found


def _text(value: Any) -> str:
    """Return a value as text, as YAML writes it."""
    if value is None or value == () or value == {}:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_text, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_text(inner)}" for key, inner in value.items())
    return str(value)

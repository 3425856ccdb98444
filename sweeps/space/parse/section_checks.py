"""Check the sections of a space file with pydantic, and turn its errors into problems."""

import dataclasses
import functools
import typing
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from sweeps.space.model.domains import domain_kind
from sweeps.space.schema.parameter_schema import Fragment, rule_of
from sweeps.space.sections.data_models import FOLD_FORMS, SPLIT_FORMS, DataKeys
from sweeps.space.sections.search_models import Objective
from sweeps.space.sections.trainer_models import LoopKeys

from .key_suggestions import suggest
from .nodes import Node
from .parameter_checks import mismatch

T = TypeVar("T")
# Instructions for a missing required key, by section and key.
REQUIRED: dict[type, dict[str, str]] = {
    DataKeys: {
        "valid": f"give {SPLIT_FORMS}; or {FOLD_FORMS}",
        "train": "give a path, a glob, a URI, sklearn:NAME or module:function; a loop that reads "
        "its own data needs no `data`",
    },
    Objective: {
        "goal": "give minimize or maximize",
        "metric": "give the name of a metric that the trainer reports, such as valid-logloss",
    },
    LoopKeys: {"loop": "give a reference `module:attr` to a training loop"},
}


@functools.cache
def adapter(model: type) -> TypeAdapter[Any]:
    """Return pydantic's validator of a dataclass.

    The validator refuses a key for which the dataclass has no field.
    """
    # The configuration is the same for every section, so the models do not repeat it.
    model.__pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[attr-defined]
    return TypeAdapter(model)


@functools.cache
def fragments(model: type) -> Mapping[str, Fragment]:
    """Return the JSON Schema of each key of a section, by name.

    The keys are the fields of the dataclass. A field may have an alias, such as `from`.

    The type null is left out, because null stands for an absent key.
    """
    by_name: dict[str, Fragment] = {}
    for name, fragment in adapter(model).json_schema().get("properties", {}).items():
        forms = [form for form in fragment.pop("anyOf", ()) if form != {"type": "null"}]
        fragment.pop("title", None)
        if len(forms) == 1:
            fragment |= forms[0]
        elif forms:
            fragment["anyOf"] = forms
        by_name[name] = fragment
    return by_name


@functools.cache
def key_names(model: Any) -> tuple[str, ...]:
    """Return the keys of a section: the fields of its dataclass, or their aliases, such as `from`.

    `fragments` has the same names, but takes some milliseconds for each section.
    """
    hints = typing.get_type_hints(model, include_extras=True)
    names = []
    for field in dataclasses.fields(model):
        parts = getattr(hints[field.name], "__metadata__", ())  # the arguments of `Annotated`
        aliases = [part.alias for part in parts if getattr(part, "alias", None)]
        names.append(aliases[0] if aliases else field.name)
    return tuple(names)


def check(model: type[T], node: Node) -> T | None:
    """Validate a section, and return an instance of its dataclass.

    Return None if the section has a problem.

    Args:
        model: The dataclass of the section.
        node: The section. A null section is treated as an empty mapping, and a known key with the
            value null is treated as absent.
    """
    kind: type = model  # without T, which the cached functions below do not take
    names = key_names(kind)
    domains = report_domains(node)
    if not node.is_map and node.value is not None:
        node.wrong(f"must be a mapping with keys {', '.join(names)}, got {node.show()}")
        return None
    if node in domains:
        return None
    is_valid = not domains
    values: dict[str, Any] = {}
    for key, child in node.items():
        if key not in names:
            child.wrong_key(f"unknown key; {suggest(_section(node), key, names)}")
            is_valid = False
        elif child.value is not None:
            values[key] = child.plain()
    try:
        validated: T = adapter(kind).validate_python(values)
    except ValidationError as e:
        for error in e.errors(include_url=False):
            key = str(error["loc"][0])
            if error["type"] == "missing":
                meaning = fragments(kind)[key].get("description", "a value")
                advice = REQUIRED.get(model, {}).get(key) or f"set {key} to {meaning}"
                node.get(key).wrong(f"is required; {advice}", node.at)
            elif not domains_in(node.value[key]):  # a domain has its own problem
                _add_error(model, error, node)
        return None
    return validated if is_valid else None


def _section(node: Node) -> str:
    """Return the name of the section that a node belongs to."""
    return node.path.split(".")[0]


def _add_error(model: type, error: Any, node: Node) -> None:
    """Add a problem for one of pydantic's errors about a value."""
    # The place of the error: a key, and perhaps the indices of an item inside the key's value.
    key, *indices = error["loc"]
    child = node.value[key]
    fragment = fragments(model)[key]
    for index in indices:
        if child.is_list and isinstance(index, int):
            child = child.value[index]
            fragment = fragment["items"]
    if error["type"] == "value_error":
        text = f"{error['ctx']['error']}, got {child.show()}"
    elif error["type"] == "string_too_short":
        text = "must not be empty"
    elif "enum" in fragment:
        text = wrong_name(f"{_section(node)}.{key}", child, fragment["enum"])
    else:
        text = mismatch(fragment, child, tunable=False)
    child.wrong(text)


def wrong_name(place: str, node: Node, valid: Iterable[str]) -> str:
    """Return the message about a word that is not one of the valid words.

    Args:
        place: Dotted key of the word, such as `objective.goal`. If `key_suggestions.SUGGESTIONS`
            has an entry for this key, and the user wrote the name that another tool uses, the
            message suggests the name that sweeps uses.
        node: The word in the space file.
        valid: The valid words.
    """
    text = f"must be {rule_of({'enum': list(valid)})}, got {node.show()}"
    hint = suggest(place, node.value, valid, unmatched="")  # the text lists the valid words
    return f"{text}; {hint}" if hint else text


def domains_in(node: Node) -> list[Node]:
    """Return every domain in a part of the space file."""
    if domain_kind(node.value):
        return [node]
    return [domain for _, child in node.items() for domain in domains_in(child)]


def report_domains(node: Node) -> list[Node]:
    """Add a problem for every domain in a part of the space file whose values must be constants.

    An example is the section `limits`. Return the domains.
    """
    domains = domains_in(node)
    rule = "only values under `space:` can be tuned"
    if _section(node) == "data":
        rule = "only train, drop and rows of data can be tuned"
    for domain in domains:
        kind = domain_kind(domain.value)
        domain.wrong(f"cannot be tuned (`{kind}`); {rule}", domain.value[kind].at)
    return domains

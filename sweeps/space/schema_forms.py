"""Parts of the JSON Schema of space files: mappings, alternatives, sections, parameters and options."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from sweeps.core import docstrings, references
from sweeps.core.parameter_schema import (
    COMMAND_FORMAT,
    REFERENCE_FORMAT,
    Fragment,
    allows,
    types_of,
)
from sweeps.space.problems import fragments

Schema = dict[str, Any]

TEXT: Schema = {"type": "string", "minLength": 1}
REFERENCE: Schema = {"type": "string", "pattern": references.PATTERN}
NULL: Schema = {"type": "null"}
ANY_OPTIONS: Schema = {"type": ["object", "null"]}
# Keys of a fragment that describe a key of the space file and do not say which values it has.
ANNOTATIONS = ("default", "description", "examples")
MOST_OPTIONS = 3  # the largest number of options in an example of `choice`


def mapping(properties: Mapping[str, Any], **rules: Any) -> Schema:
    """Return the schema of a mapping that has only these keys."""
    return {"type": "object", "properties": dict(properties), "additionalProperties": False} | rules


def any_of(*forms: Any, **rules: Any) -> Schema:
    """Return a schema that allows a value if at least one of the forms allows it."""
    return {"anyOf": list(forms), **rules}


def ref(name: str, **rules: Any) -> Schema:
    """Return a reference to a schema in `$defs`."""
    return {"$ref": f"#/$defs/{name}", **rules}


def section(model: type, **rules: Any) -> Schema:
    """Return the schema of a dataclass: of a section, of the options of a plug-in, or of a form of a split.

    Descriptions come from the section `Attributes` of the dataclass's docstring, or from the
    fields. Examples come from the fields. A key that may be absent may also be null, which stands
    for its default.
    """
    descriptions = docstrings.section(model.__doc__, "Attributes")
    required = [
        f.name
        for f in dataclasses.fields(model)
        if f.default is f.default_factory is dataclasses.MISSING
    ]
    properties = {}
    for name, fragment in fragments(model).items():
        text = descriptions.get(name) or fragment.get("description", "")
        shown = {"description": sentence(text), **_examples(fragment)}
        inside = without_annotations(fragment)
        if name in required:
            properties[name] = inside | shown
        else:
            default = fragment.get("default")
            properties[name] = any_of(
                *inside.get("anyOf", [inside]),
                NULL,
                default=default if allows(inside, default) else None,
                **shown,
            )
    return mapping(properties, required=required, **rules)


def sentence(text: str) -> str:
    """Return a text with a capital letter at the beginning and a period at the end."""
    return text[:1].upper() + text[1:] + "." * (not text.endswith("."))


def without_annotations(fragment: Fragment) -> Schema:
    """Return the rules of a fragment: the fragment without its description, default and examples."""
    return {key: value for key, value in fragment.items() if key not in ANNOTATIONS}


def option(fragment: Fragment) -> Schema:
    """Return the schema of an option of a trainer: a constant that `fragment` allows, or null if the option is not required."""
    shown = _annotations(fragment)
    if fragment.get("format") == REFERENCE_FORMAT:
        forms = [REFERENCE]
    elif fragment.get("format") == COMMAND_FORMAT:
        forms = [{"type": "array", "items": {"type": ["string", "number"]}, "minItems": 1}]
    else:
        forms = [
            {key: value for key, value in without_annotations(fragment).items() if key != "format"}
        ]
    if "default" in fragment:
        return any_of(*forms, NULL, **shown) if forms[0] else shown
    return forms[0] | {key: value for key, value in shown.items() if key != "default"}


def parameter(fragment: Fragment, required: bool = False) -> Schema:
    """Return the schema of a parameter: a constant that `fragment` allows, null, or a domain.

    A parameter without a default of its own has the default null: the trainer or the step then
    chooses a value.
    """
    shown = _annotations(fragment, tunable=True)
    if required:
        del shown["default"]
    inside = (
        REFERENCE if fragment.get("format") == REFERENCE_FORMAT else without_annotations(fragment)
    )
    if not inside:
        return shown
    numeric = {"integer", "number"} & set(types_of(fragment))
    return any_of(inside, NULL, ref("domain" if numeric else "branch"), **shown)


def _annotations(fragment: Fragment, tunable: bool = False) -> Schema:
    text = fragment.get("description")
    described = {} if text is None else {"description": sentence(text)}
    return {**described, "default": fragment.get("default"), **_examples(fragment, tunable)}


def _examples(fragment: Fragment, tunable: bool = False) -> Schema:
    """Return the examples of a fragment.

    Where the fragment has none, an enum or a boolean gives an example.
    """
    examples = list(fragment.get("examples", ()))
    options = (
        [True, False] if types_of(fragment) == ("boolean",) else list(fragment.get("enum", ()))
    )
    if options and not examples:
        others = [option for option in options if option != fragment.get("default")] or options
        examples = [{"choice": options[:MOST_OPTIONS]} if tunable else others[0]]
    return {"examples": examples} if examples else {}

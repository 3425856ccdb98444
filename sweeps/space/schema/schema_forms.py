"""Forms of JSON Schema for the keys of a space file."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from sweeps.core.plugins import references
from sweeps.space.parse.section_checks import fragments

from . import docstrings
from .parameter_schema import Fragment, allows, types_of

Schema = dict[str, Any]
TEXT: Schema = {"type": "string", "minLength": 1}
REFERENCE: Schema = {"type": "string", "pattern": references.PATTERN}
NULL: Schema = {"type": "null"}
# A text that contains an environment variable
VARIABLE: Schema = {"type": "string", "pattern": r"\$\{"}
ANY_OPTIONS: Schema = {"type": ["object", "null"]}
# Keys of a fragment that do not say which values are allowed. sweeps has formats of its own.
ANNOTATIONS = ("default", "description", "format")


def mapping(properties: Mapping[str, Schema], **rules: Any) -> Schema:
    """Return the schema of a mapping that has only these keys."""
    return {"type": "object", "properties": dict(properties), "additionalProperties": False} | rules


def any_of(*forms: Fragment, **rules: Any) -> Schema:
    """Return a schema that allows a value if at least one of the forms allows it."""
    return {"anyOf": list(forms), **rules}


def ref(name: str) -> Schema:
    """Return a reference to a schema in `$defs`."""
    return {"$ref": f"#/$defs/{name}"}


def value(fragment: Fragment, *others: Schema) -> Schema:
    """Return the schema of a value that a fragment allows, or a variable, or another form."""
    rules = {key: rule for key, rule in fragment.items() if key not in ANNOTATIONS}
    annotations = {key: fragment[key] for key in ("default", "description") if key in fragment}
    if "description" in annotations:
        annotations["description"] = sentence(annotations["description"])
    if not rules:  # any value is allowed
        return annotations
    return any_of(*rules.get("anyOf", [rules]), VARIABLE, *others, **annotations)


def parameter(fragment: Fragment, *others: Schema) -> Schema:
    """Return the schema of a parameter.

    It is a constant that `fragment` allows, null, a domain, or another form.
    """
    is_number = {"integer", "number"} & set(types_of(fragment))
    return value(fragment, NULL, ref("domain" if is_number else "branch"), *others)


def section(model: type, **rules: Any) -> Schema:
    """Return the schema of a dataclass: of a section, of the options of a plug-in, or of a split.

    Descriptions come from the section `Attributes` of the dataclass's docstring, or from the
    fields. A key that may be absent may also be null, which stands for its default.
    """
    descriptions = docstrings.section(model.__doc__, "Attributes")
    required = [  # the fields without a default
        field.name
        for field in dataclasses.fields(model)
        if field.default is field.default_factory is dataclasses.MISSING
    ]
    properties = {}
    for name, fragment in fragments(model).items():
        text = descriptions.get(name) or fragment.get("description", "")
        described = {**fragment, "description": text}
        if not allows(fragment, fragment.get("default")):  # such as 0 for an absent number
            described["default"] = None
        optional = [] if name in required else [NULL]
        properties[name] = value(described, *optional)
    return mapping(properties, required=required, **rules)


def enum_of(names: Mapping[str, str]) -> Schema:
    """Return the schema of one of some names, each with a description."""
    return {"enum": list(names), "enumDescriptions": list(names.values())}


def sentence(text: str) -> str:
    """Return a text with a capital letter at the beginning and a period at the end."""
    return text[:1].upper() + text[1:] + "." * (not text.endswith("."))

"""Complete the JSON Schema of space files for editors.

`yaml-language-server` checks a file with the schema, and shows parts of it. These functions add
what it needs. Other editors ignore the keys that they do not know. The functions are pure.

- A value may be a text with an environment variable, such as `${N}` or `${N:-3}`, where a number,
  an enum or a pattern is expected.
- Alternatives of different types become one schema. The editor then reports the one rule that a
  value breaks.
- A wrong value gets a message in words.
- The text for a key shows the key's default, and a domain with which the key can be tuned.
- A domain that is an example of a parameter becomes a completion, and a constant from the domain
  becomes the example.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from sweeps.core.parameter_schema import rule_of, types_of
from sweeps.space.domains import BRANCHING, DOMAINS, RULES
from sweeps.space.schema_forms import ANNOTATIONS, Schema

VARIABLE = r"\$\{"  # A text with this pattern may contain an environment variable.
_OBJECTS = ("domain", "branch", "when", "step")  # the schemas in `$defs` that allow mappings only
_MAPS = ("properties", "patternProperties", "$defs")
_ONE = ("items", "additionalProperties", "then", "else")
_SEVERAL = ("anyOf", "allOf")


def with_editor_hints(schema: Schema) -> Schema:
    """Return a schema with the hints for editors, at all depths.

    Conditions (`if`) stay as they are.
    """
    made: Schema = {}
    for key, value in schema.items():
        if key in _MAPS:
            made[key] = {name: with_editor_hints(inner) for name, inner in value.items()}
        elif key in _ONE and isinstance(value, dict):
            made[key] = with_editor_hints(value)
        elif key in _SEVERAL:
            made[key] = [with_editor_hints(inner) for inner in value]
        else:
            made[key] = value
    return _with_texts(_with_snippets(_merged(_with_variables(made))))


def _with_variables(schema: Schema) -> Schema:
    """Return a schema that also allows a text with an environment variable, if it allows scalars but not every text."""
    types = types_of(schema)
    if "enum" in schema:
        inside = {key: value for key, value in schema.items() if key not in ANNOTATIONS}
        outside = {key: value for key, value in schema.items() if key in ANNOTATIONS}
        return {"anyOf": [inside, {"type": "string", "pattern": VARIABLE}], **outside}
    if "string" in types and "pattern" in schema:
        return schema | {"pattern": f"(?:{schema['pattern']})|{VARIABLE}"}
    if {"integer", "number", "boolean"} & set(types) and "string" not in types:
        return schema | {
            "type": [*types, "string"],
            "pattern": VARIABLE,
            "errorMessage": _message(schema),
        }
    return schema


def _message(schema: Schema) -> str:
    """Return the message for a text in place of a number or a boolean."""
    return f"Must be {rule_of(schema)}, or a variable such as ${{NAME}}."


def _merged(schema: Schema) -> Schema:
    """Return a schema whose alternatives of different types are one schema, as far as this is possible."""
    if "anyOf" not in schema or any(
        "required" in form and "type" not in form for form in schema["anyOf"]
    ):
        return schema
    forms = list(_flat(schema["anyOf"]))
    claimed = [name for form in forms for name in set(_types(form))]
    alone = [
        form
        for form in forms
        if _types(form) and all(claimed.count(name) == 1 for name in _types(form))
    ]
    others = [form for form in forms if form not in alone]
    if len(alone) < 2:
        return schema | {"anyOf": forms}
    one = _one_schema(alone)
    outside = {key: value for key, value in schema.items() if key != "anyOf"}
    if not others:
        return one | outside
    # Mappings are checked outside `anyOf`, so that the editor reports what is wrong in a mapping,
    # and not that it is no name.
    moved = () if any(map(_may_be_mapping, others)) else ("if", "then")
    rule = {key: value for key, value in one.items() if key in moved}
    one = {key: value for key, value in one.items() if key not in moved}
    return outside | {"anyOf": [*others, one | {"title": "another value"}], **rule}


def _flat(forms: Iterable[Schema]) -> Iterable[Schema]:
    """Yield the alternatives of a schema.

    In place of an alternative that is nothing but alternatives, yield these.
    """
    for form in forms:
        if form.keys() == {"anyOf"}:
            yield from _flat(form["anyOf"])
        else:
            yield form


def _types(form: Schema) -> tuple[str, ...]:
    """Return the types of the values that a form allows; () if they are not known.

    An integer is a number.
    """
    if form.get("$ref", "").removeprefix("#/$defs/") in _OBJECTS:
        return ("object",)
    if form.keys() & {"enum", "const", "anyOf", "allOf", "$ref"}:
        return ()
    return tuple("number" if each == "integer" else each for each in types_of(form))


def _may_be_mapping(form: Schema) -> bool:
    """Return whether a form may allow a mapping."""
    return "enum" not in form and (not types_of(form) or "object" in types_of(form))


def _one_schema(forms: list[Schema]) -> Schema:
    """Return one schema for forms of different types."""
    made: Schema = {"type": []}
    for form in forms:
        if "$ref" in form:
            made |= {"if": {"type": "object"}, "then": form}
            made["type"].append("object")
        else:
            made["type"] += types_of(form)
            made |= {key: value for key, value in form.items() if key != "type"}
    if "then" in made and "errorMessage" in made:
        made["errorMessage"] = made["errorMessage"].replace(
            ", or a variable", ", a domain, or a variable"
        )
    # An editor inserts the defaults of keys whose first type is a scalar, when it completes the key
    # of a section.
    made["type"].sort(key=lambda name: name != "null")
    return made


def _with_snippets(schema: Schema) -> Schema:
    """Return a schema whose examples are constants.

    Each domain among the examples becomes a completion of its own.
    """
    domains = [example for example in schema.get("examples", ()) if is_domain(example)]
    if not domains:
        return schema
    constants = [
        _constant_of(example) if is_domain(example) else example for example in schema["examples"]
    ]
    snippets = [
        {"label": yaml_text(example), "body": yaml_text(example), "description": "Tune this value."}
        for example in domains
    ]
    return schema | {"examples": constants, "defaultSnippets": snippets}


def is_domain(example: Any) -> bool:
    """Return whether an example is a domain, such as `{"uniform": [0, 1]}`."""
    return isinstance(example, dict) and len(example) == 1 and next(iter(example)) in DOMAINS


def _constant_of(domain: Mapping[str, Any]) -> Any:
    """Return a typical value of a domain: the first option, or a number in the middle, rounded to one or two digits."""
    ((kind, args),) = domain.items()
    if kind in BRANCHING:
        return args[0]
    lower, upper = args[0], args[1]
    if RULES[kind].integer:
        return math.isqrt(lower * upper) if RULES[kind].log else (lower + upper) // 2
    return float(
        f"{math.sqrt(lower * upper):.1g}" if RULES[kind].log else f"{(lower + upper) / 2:.2g}"
    )


def _with_texts(schema: Schema) -> Schema:
    """Return a schema whose description, as Markdown, also shows the default and a domain."""
    if "enumDescriptions" in schema:
        schema = schema | {"markdownEnumDescriptions": schema["enumDescriptions"]}
    if "description" not in schema:
        return schema
    parts = [schema["description"]]
    if schema.get("default") is not None:
        parts.append(f"Default: `{yaml_text(schema['default'])}`")
    elif "default" in schema and "default" not in schema["description"].lower():
        parts.append("Default: none")
    if snippets := [
        snippet["label"]
        for snippet in schema.get("defaultSnippets", ())
        if snippet["label"].startswith("{")
    ]:
        parts.append(f"Tune it: `{snippets[0]}`")
    return schema | {"markdownDescription": "\n\n".join(parts)}


def yaml_text(value: Any) -> str:
    """Return a value as YAML on one line.

    >>> yaml_text({"choice": ["a", True, None]})
    '{choice: [a, true, null]}'
    """
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {yaml_text(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(yaml_text, value)) + "]"
    if isinstance(value, str) and value.replace("_", "").replace("-", "").isalnum():
        return value
    return json.dumps(value, ensure_ascii=False)

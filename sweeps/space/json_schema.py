"""JSON Schema of the space file, for editors: keys, types, descriptions, domains, and the parameters of our trainers and steps.

The schema accepts some files that `load` refuses, because a schema cannot compare two values. For example, it accepts a lower bound above
the upper bound, and a `when` that names an unknown dimension.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from sweeps.core import docstrings, registry
from sweeps.core.parameter_schema import Fragment, allows, types_of
from sweeps.space import section_models
from sweeps.space.auto_algorithm import AUTO
from sweeps.space.conditions import COMPARISONS
from sweeps.space.domains import BRANCHING, RULES
from sweeps.space.problems import fragments
from sweeps.space.search_sections import option_names
from sweeps.space.space_sections import AMOUNT, SCALING
from sweeps.space.step_names import RAY_STEPS
from sweeps.space.trainer_definition import TrainerDefinition, definition_of
from sweeps.space.trainer_section import PACKAGE, trainer_names

DRAFT = "https://json-schema.org/draft/2020-12/schema"
Schema = dict[str, Any]
REFERENCE = r"^[^\W\d][\w.]*:[^\W\d][\w.]*$"

_TEXT: Schema = {"type": "string", "minLength": 1}
_SHARE: Schema = {"type": "number", "exclusiveMinimum": 0, "maximum": 1}
_FRACTION: Schema = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}
_COMPARISON: Schema = {"type": "string", "pattern": rf"^\s*({'|'.join(COMPARISONS)})\s*\S+\s*$"}


def schema() -> Schema:
    """Return the JSON Schema (2020-12) of the space file, as plain data."""
    trainers = {name: definition_of(f"{PACKAGE}.{name}") for name in trainer_names()}
    sections = {
        "objective": _section(section_models.Objective),
        "search": _search(),
        "limits": _section(section_models.Limits),
        "repeats": _section(section_models.Repeats),
    }
    properties: Schema = {
        "name": {"type": "string", "pattern": r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}$"},
        "trainer": {"anyOf": [_TEXT | {"examples": list(trainers)}, _section(section_models.LoopKeys)]},
        "data": _data(),
        "objective": {"anyOf": [sections["objective"], {"type": "array", "items": sections["objective"], "minItems": 1}]},
        "constraints": {"type": "object", "additionalProperties": _COMPARISON},
        "search": sections["search"],
        "scheduler": _scheduler(),
        "repeats": {"anyOf": [{"type": "integer", "minimum": 1}, sections["repeats"]]},
        "limits": sections["limits"],
        "checkpoints": _section(section_models.Checkpoints),
        "trackers": _trackers(),
        "space": _space(),
    }
    may_be_empty = {"trackers", "search", "scheduler", "limits", "space", "repeats", "constraints", "checkpoints"}
    return {
        "$schema": DRAFT,
        "title": "sweeps: a space file",
        "type": "object",
        "properties": {name: {"anyOf": [inner, {"type": "null"}]} if name in may_be_empty else inner for name, inner in properties.items()},
        "required": ["trainer", "objective"],
        # a user's loop may read its own data
        "anyOf": [{"required": ["data"]}, {"properties": {"trainer": {"type": "object"}}}],
        "additionalProperties": False,
        "allOf": [_parameters_apply(name) for name in trainers],
        "$defs": _definitions() | {f"params.{name}": _parameters(name, definition) for name, definition in trainers.items()},
    }


def _parameters_apply(trainer: str) -> Schema:
    """Return a rule for files that name a trainer: `space.params` must have the parameters of this trainer."""
    params = {"properties": {"params": {"anyOf": [_ref(f"params.{trainer}"), _ref("branch"), {"type": "null"}]}}}
    return {"if": {"properties": {"trainer": {"const": trainer}}}, "then": {"properties": {"space": params}}}


def _parameters(trainer: str, definition: TrainerDefinition) -> Schema:
    """Return the schema of the parameters of a trainer, from its `TRAINER` literal."""
    return {
        "type": "object",
        "description": f"Parameters of the trainer {trainer}.",
        "properties": {name: _parameter(fragment) for name, fragment in definition.parameters.items()},
        "additionalProperties": definition.additional_parameters,
    }


def _steps() -> Schema:
    """Return the schema of a step: its name, or a mapping of its name to parameters."""
    any_parameters: Schema = {"type": ["object", "null"]}
    named: dict[str, Schema] = {}
    for step, parameters in RAY_STEPS.items():
        columns = {"description": "Columns: numeric, categorical, all, a name, a pattern, or a list of these."}
        properties = {name: _parameter(fragment) for name, fragment in parameters.items()}
        own = {"type": "object", "properties": {"columns": columns, **properties}, "additionalProperties": False}
        named[step] = {"anyOf": [own, _ref("branch"), {"type": "null"}]}
    mapping = {
        "type": "object",
        "properties": {**named, **{kind: {} for kind in BRANCHING}, "when": _ref("when")},
        "patternProperties": {REFERENCE: any_parameters},
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 2,
    }
    return {"anyOf": [{"type": "string", "description": "A step of Ray Data, or module:attr.", "examples": sorted(RAY_STEPS)}, mapping]}


def _section(model: type) -> Schema:
    """Return the schema of a dataclass: pydantic's, with the descriptions of `Attributes` in its docstring."""
    descriptions = docstrings.section(model.__doc__, "Attributes")
    properties = {}
    for name, fragment in fragments(model).items():
        shown = {key: value for key, value in fragment.items() if key != "default" or (value is not None and allows(fragment, value))}
        if text := descriptions.get(name):
            shown["description"] = text[0].upper() + text[1:]
        properties[name] = shown
    required = [f.name for f in dataclasses.fields(model) if f.default is f.default_factory is dataclasses.MISSING]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def model_properties(model: type) -> dict[str, Schema]:
    """Return the schema of each option of a plug-in's class."""
    properties: dict[str, Schema] = _section(model)["properties"]
    return properties


def _trackers() -> Schema:
    """Return the schema of the list of trackers: built-in names, references, and mappings of one name to its options."""
    options = {name: registry.built_in("tracker", name).Options for name in registry.names("tracker")}
    needed = {name for name, model in options.items() if _section(model)["required"]}
    reference = {"type": "string", "pattern": r"^[\w.]+:[\w.]+$", "description": "module:attr of a class of your own"}
    with_options = {
        "type": "object",
        "properties": {name: _section(model) for name, model in options.items()},
        "patternProperties": {reference["pattern"]: {"type": ["object", "null"]}},
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
    }
    names = {"enum": [name for name in options if name not in needed]}
    return {"type": "array", "items": {"anyOf": [names, reference, with_options]}}


def _search() -> Schema:
    """Return the schema of `search`. Names of options are checked only for built-in algorithms."""
    section = _section(section_models.Search)
    reference = {"type": "string", "pattern": REFERENCE}
    algorithm = section["properties"]["algorithm"] | {"anyOf": [{"enum": [AUTO, *registry.names("sampler")]}, reference]}
    for rule in ("type", "minLength"):
        algorithm.pop(rule, None)
    own = {"properties": {"algorithm": reference}, "required": ["algorithm"]}
    known = sorted({name for algorithm in registry.names("sampler") for name in option_names("sampler", algorithm)})
    built_in = {"properties": {"options": {"propertyNames": {"enum": known}}}}
    return section | {"properties": section["properties"] | {"algorithm": algorithm}, "if": own, "else": built_in}


def _scheduler() -> Schema:
    """Return the schema of `scheduler`: a built-in scheduler with its options, or a user's scheduler with any options."""
    forms = []
    for name in registry.names("scheduler"):
        options = _section(registry.built_in("scheduler", name))
        properties = {"name": {"const": name}, **options["properties"]}
        forms.append(options | {"properties": properties, "required": ["name", *options["required"]]})
    own = {"type": "object", "properties": {"name": {"type": "string", "pattern": REFERENCE}}, "required": ["name"]}
    return {"anyOf": [*forms, own]}


def _data() -> Schema:
    """Return the schema of `data`."""
    made = _section(section_models.DataKeys)
    call = {"type": "object", "minProperties": 1, "maxProperties": 1, "additionalProperties": {"type": ["object", "null"]}}
    source = {"anyOf": [_TEXT, call]}
    forms = [_section(form) for form in (section_models.ByColumn, section_models.ByTime, section_models.ByGroup)]
    split = {"anyOf": [_FRACTION, source, *forms]}
    columns = {"type": "array", "items": {"anyOf": [_TEXT, _ref("branch")]}}
    tuned = {"train": _or_branch(source), "drop": _or_branch(columns), "rows": {"anyOf": [_SHARE, _ref("domain")]}}
    properties = made["properties"]
    for key, form in {"valid": split, "test": split, **tuned}.items():
        described = {name: properties[key][name] for name in ("description", "default") if name in properties[key]}
        properties[key] = form | described
    return made


def _space() -> Schema:
    """Return the schema of `space`. The parameters of the named trainer are added by `_parameters_apply`."""
    values = {key: _parameter(fragment) for key, fragment in SCALING.items()}
    values["resources_per_worker"] = _parameter({**SCALING["resources_per_worker"], "additionalProperties": _parameter(AMOUNT)})
    scaling = {"type": "object", "properties": values, "additionalProperties": False}
    sections = {
        "preprocessor": _ref("chain"),
        "scaling": _or_branch(scaling),
        "params": {"type": "object"},
    }
    nullable = {name: {"anyOf": [inner, {"type": "null"}]} for name, inner in sections.items()}
    return {"type": "object", "properties": nullable, "additionalProperties": False}


def _parameter(fragment: Fragment) -> Schema:
    """Return the schema of a parameter: a constant that the fragment allows, null, or a domain."""
    outside = {key: fragment[key] for key in ("default", "description") if fragment.get(key) is not None}
    inside = {key: value for key, value in fragment.items() if key not in ("default", "description")}
    if not inside:
        return outside
    numeric = {"integer", "number"} & set(types_of(fragment))
    return {"anyOf": [inside, {"type": "null"}, _ref("domain" if numeric else "branch")], **outside}


def _ref(name: str) -> Schema:
    """Return a reference to a schema in `$defs`."""
    return {"$ref": f"#/$defs/{name}"}


def _or_branch(inner: Schema) -> Schema:
    """Return a schema that allows a value, or a grid or a choice."""
    return {"anyOf": [inner, _ref("branch")]}


def _definitions() -> dict[str, Schema]:
    """Return the schemas of domains, conditions and chains, which other schemas refer to."""
    numbers = {
        kind: {
            "type": ["array", "null"] if not rule.needed else "array",
            "items": {"type": "integer" if rule.integer else "number"},
            "minItems": rule.needed,
            "maxItems": len(rule.args),
            "description": f"[{', '.join(rule.args)}]: {rule.text}",
        }
        for kind, rule in RULES.items()
    }
    options = {kind: {"type": "array", "minItems": 1} for kind in BRANCHING}

    def one_of(domains: dict[str, Schema]) -> Schema:
        forms = [
            {"type": "object", "properties": {kind: inner, "when": _ref("when")}, "required": [kind], "additionalProperties": False}
            for kind, inner in domains.items()
        ]
        return {"anyOf": forms}

    scalar = {"type": ["string", "number", "boolean", "null"]}
    step = _steps()
    return {
        "domain": one_of({**options, **numbers}),
        "branch": one_of(options),
        "when": {
            "type": "object",
            "minProperties": 1,
            "additionalProperties": {"anyOf": [scalar, {"type": "array", "items": scalar, "minItems": 1}]},
            "description": "Earlier dimensions, and the values that they must have: a value, a list, or a comparison such as > 3.",
        },
        "chain": {"anyOf": [step, {"type": "array", "items": {"anyOf": [step, {"type": "null"}]}}]},
    }

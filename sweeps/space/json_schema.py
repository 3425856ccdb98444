"""JSON Schema of the space file, for editors: keys, types, descriptions, domains, and the parameters of built-in trainers and steps.

The schema accepts some files that `load` refuses, because JSON Schema cannot compare two values of a file. For example, it accepts a lower
bound above the upper bound, and a `when` that names an unknown dimension.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from sweeps.core import docstrings, references, registry
from sweeps.core.parameter_schema import COMMAND_FORMAT, REFERENCE_FORMAT, Fragment, allows, types_of
from sweeps.core.resources import ELASTIC
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
REFERENCE = references.PATTERN

# Descriptions of the top-level keys, which the reference page of the space file shows as well.
TOP_LEVEL = {
    "name": "The name of the sweep. The sweep's folder and its MLflow experiment also have this name. The default is the file's name.",
    "trainer": "The training loop: the name of a built-in trainer, or a mapping that names your own loop.",
    "data": "The data and its splits. Leave this section out if your own loop reads its own data.",
    "objective": "The metric to optimize: one mapping, or a list of mappings for several objectives.",
    "constraints": 'Conditions that the metrics of a feasible trial satisfy, such as `{latency_ms: "<= 5"}`.',
    "search": "The sampler, its seed, and configurations to start with.",
    "scheduler": "The rule that stops trials early. A step is one report of the loop.",
    "repeats": "How often each configuration is trained. Each time, the trial has another seed.",
    "limits": "Limits of trials, time, cost and failures. Some limits end the sweep, others end a trial.",
    "checkpoints": "The rules that decide which checkpoints of ended trials are kept.",
    "runtime_env": "The environment of the workers: variables, packages, modules, an image. Ray sets it up.",
    "trackers": "The trackers that record the sweep. The default is `[mlflow]`.",
    "space": "The dimensions to tune, and constants: the preprocessor, the workers (`scaling`), and the trainer's parameters (`params`).",
}
# Descriptions of the keys of the section `space`.
IN_SPACE = {
    "preprocessor": "A step, a list of steps, or a domain of these.",
    "scaling": "The number of workers of a trial, and the resources of each worker; or a domain of such mappings.",
    "params": "The parameters that the loop gets as `config`. Mappings and lists may be nested.",
}

_TEXT: Schema = {"type": "string", "minLength": 1}
_REFERENCE: Schema = {"type": "string", "pattern": REFERENCE}
_NULL: Schema = {"type": "null"}
_ANY_OPTIONS: Schema = {"type": ["object", "null"]}
_COMPARISON: Schema = {"type": "string", "pattern": rf"^\s*({'|'.join(COMPARISONS)})\s*\S+\s*$"}


def _object(properties: Mapping[str, Any], **rules: Any) -> Schema:
    """Return the schema of a mapping that has only these keys."""
    return {"type": "object", "properties": dict(properties), "additionalProperties": False} | rules


def _any(*forms: Any, **rules: Any) -> Schema:
    """Return a schema that allows a value if at least one of the forms allows it."""
    return {"anyOf": list(forms), **rules}


def _ref(name: str) -> Schema:
    """Return a reference to a schema in `$defs`."""
    return {"$ref": f"#/$defs/{name}"}


def schema() -> Schema:
    """Return the JSON Schema (2020-12) of the space file, as dicts and lists."""
    trainers = {name: definition_of(f"{PACKAGE}.{name}") for name in trainer_names()}
    objective = _section(section_models.Objective)
    required: Schema = {
        "name": {"type": "string", "pattern": r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}$"},
        "trainer": _any(
            _TEXT | {"examples": list(trainers)},
            _section(section_models.LoopKeys),
            *(_options(name, definition) for name, definition in trainers.items()),
        ),
        "data": _data(),
        "objective": _any(objective, {"type": "array", "items": objective, "minItems": 1}),
    }
    may_be_null = {
        "constraints": {"type": "object", "additionalProperties": _COMPARISON},
        "search": _search(),
        "scheduler": _scheduler(),
        "repeats": _any({"type": "integer", "minimum": 1}, _section(section_models.Repeats)),
        "limits": _section(section_models.Limits),
        "checkpoints": _section(section_models.Checkpoints),
        "runtime_env": _section(section_models.RuntimeEnv),
        "trackers": _trackers(),
        "space": _space(),
    }
    rules = {
        "required": ["trainer", "objective"],
        # a user's loop may read its own data
        "anyOf": [{"required": ["data"]}, {"properties": {"trainer": {"type": "object"}}}],
        "allOf": [_parameters_apply(name, definition.selected_by) for name, definition in trainers.items()],
        "$defs": _definitions() | {f"params.{name}": _parameters(name, definition) for name, definition in trainers.items()},
    }
    properties = required | {name: _any(section, _NULL) for name, section in may_be_null.items()}
    properties = {name: section | {"description": TOP_LEVEL[name]} for name, section in properties.items()}
    return {"$schema": DRAFT, "title": "sweeps: a space file", **_object(properties, **rules)}


def _options(trainer: str, definition: TrainerDefinition) -> Schema:
    """Return the schema of the section `trainer` as a mapping that names a built-in trainer and gives its options."""
    keys = _section(section_models.TrainerKeys)["properties"] | {"name": {"const": trainer}}
    required = [name for name, fragment in definition.options.items() if "default" not in fragment]
    options = {name: _option(fragment) for name, fragment in definition.options.items()}
    if definition.selected_by is None:
        required.append("name")
    return _object({**keys, **options}, required=required)


def _option(fragment: Fragment) -> Schema:
    """Return the schema of an option: a constant that `fragment` allows, or null."""
    shown = {key: fragment[key] for key in ("default", "description") if fragment.get(key) is not None}
    if fragment.get("format") == REFERENCE_FORMAT:
        return _any(_REFERENCE, _NULL, **shown)
    if fragment.get("format") == COMMAND_FORMAT:
        return {"type": "array", "items": {"type": ["string", "number"]}, "minItems": 1, **shown}
    inside = {key: value for key, value in fragment.items() if key not in ("default", "description", "format")}
    return _any(inside, _NULL, **shown) if inside else shown


def _parameters_apply(trainer: str, selected_by: str | None) -> Schema:
    """Return a rule (`if`, `then`) that checks `space.params` against a trainer's parameters if the file names this trainer."""
    forms = [{"const": trainer}, {"type": "object", "properties": {"name": {"const": trainer}}, "required": ["name"]}]
    if selected_by is not None:
        forms.append({"type": "object", "required": [selected_by]})
    params = {"properties": {"params": _any(_ref(f"params.{trainer}"), _ref("branch"), _NULL)}}
    return {"if": {"properties": {"trainer": _any(*forms)}}, "then": {"properties": {"space": params}}}


def _parameters(trainer: str, definition: TrainerDefinition) -> Schema:
    """Return the schema of a built-in trainer's parameters, as the dict `TRAINER` in the trainer's module describes them."""
    properties = {name: _parameter(fragment) for name, fragment in definition.parameters.items()}
    description = f"Parameters of the trainer {trainer}."
    return _object(properties, description=description, additionalProperties=definition.additional_parameters)


def _parameter(fragment: Fragment) -> Schema:
    """Return the schema of a parameter in a space file: a constant that `fragment` allows, null, or a domain."""
    outside = {key: fragment[key] for key in ("default", "description") if fragment.get(key) is not None}
    inside = {key: value for key, value in fragment.items() if key not in ("default", "description")}
    if not inside:
        return outside
    numeric = {"integer", "number"} & set(types_of(fragment))
    return _any(inside, _NULL, _ref("domain" if numeric else "branch"), **outside)


def _steps() -> Schema:
    """Return the schema of a step: its name, or a mapping of its name to parameters."""
    columns = {"description": "Columns: `numeric`, `categorical`, `all`, a name, a pattern such as `pixel_*`, or a list of these."}
    properties: dict[str, Schema] = {kind: {} for kind in BRANCHING} | {"when": _ref("when")}
    for step, parameters in RAY_STEPS.items():
        own = {"columns": columns} | {name: _parameter(fragment) for name, fragment in parameters.items()}
        properties[step] = _any(_object(own), _ref("branch"), _NULL)
    mapping = _object(properties, patternProperties={REFERENCE: _ANY_OPTIONS}, minProperties=1, maxProperties=2)
    return _any(
        {
            "type": "string",
            "description": "Name of a preprocessor of Ray Data, or `module:attr` of a class of your own.",
            "examples": sorted(RAY_STEPS),
        },
        mapping,
    )


def _section(model: type) -> Schema:
    """Return pydantic's schema of a dataclass, with the descriptions from the section `Attributes` of the dataclass's docstring."""
    descriptions = docstrings.section(model.__doc__, "Attributes")
    properties = {}
    for name, fragment in fragments(model).items():
        shown = {key: value for key, value in fragment.items() if key != "default" or (value is not None and allows(fragment, value))}
        if text := descriptions.get(name):
            shown["description"] = text[0].upper() + text[1:]
        properties[name] = shown
    required = [f.name for f in dataclasses.fields(model) if f.default is f.default_factory is dataclasses.MISSING]
    return _object(properties, required=required)


def model_properties(model: type) -> dict[str, Schema]:
    """Return the JSON Schema of each option of a plug-in, by name. The options are the fields of the dataclass `model`."""
    properties: dict[str, Schema] = _section(model)["properties"]
    return properties


def _trackers() -> Schema:
    """Return the schema of the list of trackers: built-in names, references, and mappings of one name to its options."""
    options = {name: _section(registry.built_in("tracker", name).Options) for name in registry.names("tracker")}
    reference = _REFERENCE | {"description": "`module:attr` of a class of your own"}
    with_options = _object(options, patternProperties={REFERENCE: _ANY_OPTIONS}, minProperties=1, maxProperties=1)
    names = {"enum": [name for name, section in options.items() if not section["required"]]}
    return {"type": "array", "items": _any(names, reference, with_options)}


def _search() -> Schema:
    """Return the schema of `search`. The names of its options are checked only if the algorithm is built in."""
    section = _section(section_models.Search)
    described = {key: value for key, value in section["properties"]["algorithm"].items() if key not in ("type", "minLength")}
    section["properties"]["algorithm"] = _any({"enum": [AUTO, *registry.names("sampler")]}, _REFERENCE, **described)
    own = {"properties": {"algorithm": _REFERENCE}, "required": ["algorithm"]}
    options = sorted({name for algorithm in registry.names("sampler") for name in option_names("sampler", algorithm)})
    built_in = {"properties": {"options": {"propertyNames": {"enum": options}}}}
    return section | {"if": own, "else": built_in}


def _scheduler() -> Schema:
    """Return the schema of `scheduler`: a built-in scheduler with its options, or a user's scheduler with any options."""
    forms = []
    for name in registry.names("scheduler"):
        options = _section(registry.built_in("scheduler", name))
        forms.append(_object({"name": {"const": name}, **options["properties"]}, required=["name", *options["required"]]))
    own = {"type": "object", "properties": {"name": _REFERENCE}, "required": ["name"]}
    return _any(*forms, own)


def _data() -> Schema:
    section = _section(section_models.DataKeys)
    properties = section["properties"]
    call = {"type": "object", "minProperties": 1, "maxProperties": 1, "additionalProperties": _ANY_OPTIONS}
    source = _any(_TEXT, call)
    forms = [_section(form) for form in (section_models.ByColumn, section_models.ByTime, section_models.ByGroup)]
    split = _any({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, source, *forms)
    cross_validation = [_section(form) for form in (section_models.ByFolds, section_models.ByRolling)]
    columns = {"type": "array", "items": _any(_TEXT, _ref("branch"))}
    rows = {key: value for key, value in properties["rows"].items() if key not in ("default", "description")}
    tuned = {
        "train": _any(source, _ref("branch")),
        "drop": _any(columns, _ref("branch")),
        "rows": _any(rows, _ref("domain")),
        "weight": _any(_TEXT, _NULL, _ref("branch")),
        "class_weight": _any({"const": "balanced"}, _NULL, _ref("branch")),
    }
    for key, form in {"valid": _any(*split["anyOf"], *cross_validation), "test": split, **tuned}.items():
        described = {name: properties[key][name] for name in ("description", "default") if name in properties[key]}
        properties[key] = form | described
    return section


def _space() -> Schema:
    """Return the schema of `space`. The parameters of the named trainer are added by `_parameters_apply`."""
    scaling = {key: _parameter(fragment) for key, fragment in SCALING.items()}
    forms = scaling["num_workers"]["anyOf"]
    bounds = {"type": "array", "items": forms[0], "minItems": 2, "maxItems": 2}
    text = "The smallest and the largest number of workers of a trial. The number may change while the trial runs."
    forms.insert(0, _object({ELASTIC: {**bounds, "description": text}}, required=[ELASTIC]))
    scaling["resources_per_worker"] = _parameter({**SCALING["resources_per_worker"], "additionalProperties": _parameter(AMOUNT)})
    sections = {"preprocessor": _ref("chain"), "scaling": _any(_object(scaling), _ref("branch")), "params": {"type": "object"}}
    return _object({name: _any(inner, _NULL, description=IN_SPACE[name]) for name, inner in sections.items()})


def _definitions() -> dict[str, Schema]:
    """Return the schemas of domains, conditions and chains, which other schemas refer to."""
    options = {kind: {"type": "array", "minItems": 1} for kind in BRANCHING}
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
    scalar = {"type": ["string", "number", "boolean", "null"]}
    step = _steps()
    return {
        "domain": _one_of({**options, **numbers}),
        "branch": _one_of(options),
        "when": {
            "type": "object",
            "minProperties": 1,
            "additionalProperties": _any(scalar, {"type": "array", "items": scalar, "minItems": 1}),
            "description": "Earlier dimensions, and the values that they must have: a value, a list of values, or text such as `> 3`.",
        },
        "chain": _any(step, {"type": "array", "items": _any(step, _NULL)}),
    }


def _one_of(domains: Mapping[str, Schema]) -> Schema:
    """Return the schema of a mapping with one domain and an optional condition."""
    return _any(*(_object({kind: inner, "when": _ref("when")}, required=[kind]) for kind, inner in domains.items()))

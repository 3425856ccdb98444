"""JSON Schema of the space file, for editors: keys, types, defaults, descriptions, and parameters.

The schema accepts some files that `load` refuses, because JSON Schema cannot compare two values of
a file. For example, it accepts a lower bound above the upper bound, and a `when` that names an
unknown dimension. A text such as `${N}` is accepted wherever a value is checked.

Four functions of `schema_forms` make most of the schema. `mapping` is for a mapping with certain
keys, and `section` for the mapping that a dataclass describes. `value` is for a constant, or a text
such as `${N}`. `parameter` is for a constant that may be tuned: it also allows null and a domain.
"""

import ast
from collections.abc import Iterator, Mapping

from sweeps.core.best_step import COMPARISONS
from sweeps.core.plugins import plugin_registry, references
from sweeps.core.resources import ELASTIC
from sweeps.space.model.domains import BRANCHING, DESCRIPTIONS, RULES
from sweeps.space.model.step_names import (
    BUILTIN_STEPS,
    NONE,
    STEP_DESCRIPTIONS,
    required_parameters,
)
from sweeps.space.parse.top_level_keys import TOP_LEVEL
from sweeps.space.sections import data_models, search_models, trainer_models
from sweeps.space.sections.auto_algorithm import AUTO
from sweeps.space.sections.built_in_trainers import PACKAGE, trainer_definitions
from sweeps.space.sections.space_sections import AMOUNT, SCALING, SECTION_DESCRIPTIONS
from sweeps.space.sections.trainer_choice import LABEL
from sweeps.space.sections.trainer_definition import TrainerDefinition

from . import docstrings
from .schema_forms import (
    ANY_OPTIONS,
    NULL,
    REFERENCE,
    TEXT,
    Schema,
    any_of,
    enum_of,
    mapping,
    parameter,
    ref,
    section,
    sentence,
    value,
)

DRAFT = "https://json-schema.org/draft/2020-12/schema"

# Descriptions of the parts of a chain, and of a condition.
COLUMNS = (
    "Columns: `numeric`, `categorical`, `all`, a name, a pattern such as `pixel_*`, or a list of "
    "these. By default, the step decides."
)
WHEN = (
    "Earlier dimensions, and the values that they must have: a value, a list of values, or text "
    "such as `> 3`."
)

_COMPARISON: Schema = {"type": "string", "pattern": rf"^\s*({'|'.join(COMPARISONS)})\s*\S+\s*$"}
_IS_NAME: Schema = {"properties": {"trainer": {"type": "string"}}, "required": ["trainer"]}


def schema() -> Schema:
    """Return the JSON Schema (2020-12) of the space file, as dicts and lists."""
    trainers = trainer_definitions()
    objective = section(search_models.Objective)
    name = {"type": "string", "pattern": r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}$"}
    required: Schema = {
        "trainer": _trainer(trainers),
        "data": _data(),
        "objective": any_of(objective, {"type": "array", "items": objective, "minItems": 1}),
    }
    optional = {
        "name": value(name),
        "constraints": {"type": "object", "additionalProperties": value(_COMPARISON)},
        "search": _search(),
        "scheduler": _scheduler(),
        "repeats": value({"type": "integer", "minimum": 1}, section(search_models.Repeats)),
        "limits": section(search_models.Limits),
        "checkpoints": section(search_models.Checkpoints),
        "bundle": section(search_models.BundleKeys),
        "runtime_env": section(trainer_models.RuntimeEnv),
        "trackers": _trackers(),
        "space": _space(),
    }
    properties = required | {key: any_of(form, NULL) for key, form in optional.items()}
    described = {key: {**properties[key], "description": text} for key, text in TOP_LEVEL.items()}
    rules = {
        "required": ["trainer", "objective"],
        # a user's loop, which a mapping names, may read its own data
        "allOf": [{"if": _IS_NAME, "then": {"required": ["data"]}}, *_parameter_rules(trainers)],
        "$defs": _definitions() | _plug_ins() | _parameters(trainers),
    }
    return {"$schema": DRAFT, "description": "A space file of sweeps."} | mapping(
        described, **rules
    )


# ---- the trainer and its parameters


def _trainer(trainers: Mapping[str, TrainerDefinition]) -> Schema:
    """Return the schema of `trainer`: one trainer, or a grid or choice of several trainers.

    One trainer is a name, or a mapping with the options of any trainer.
    """
    keys = {
        **section(trainer_models.TrainerKeys)["properties"],
        **section(trainer_models.LoopKeys)["properties"],
    }
    for definition in trainers.values():
        for key, fragment in definition.options.items():
            keys.setdefault(key, {"description": sentence(fragment.get("description", ""))})
    names = [enum_of({name: _trainer_summary(name) for name in trainers}), TEXT]
    label = TEXT | {"description": "The name of this trainer among several trainers."}
    labeled = {"type": "object", "properties": {LABEL: label, **keys}}
    options = {"type": "array", "minItems": 1, "items": any_of(*names, labeled)}
    branches = {kind: options | {"description": DESCRIPTIONS[kind]} for kind in BRANCHING}
    return any_of(*names, {"type": "object", "properties": {**keys, **branches}})


def _trainer_summary(trainer: str) -> str:
    """Return the first sentence of the docstring of a trainer's module, which is not imported."""
    path = references.source_of(f"{PACKAGE}.{trainer}")
    tree = None if path is None else references.parse_source(path)
    return docstrings.summary(None if tree is None else ast.get_docstring(tree))


def _parameters(trainers: Mapping[str, TrainerDefinition]) -> dict[str, Schema]:
    """Return the schema of the parameters of each trainer, such as `params.xgboost`."""
    return {
        f"params.{name}": mapping(
            {key: parameter(fragment) for key, fragment in definition.parameters.items()},
            additionalProperties=definition.additional_parameters,
        )
        for name, definition in trainers.items()
    }


def _parameter_rules(trainers: Mapping[str, TrainerDefinition]) -> Iterator[Schema]:
    """Yield a rule for each trainer, which checks `space.params` if the file names the trainer."""
    is_domain = any_of(*({"required": [kind]} for kind in BRANCHING))
    for name, definition in trainers.items():
        named = {"properties": {"name": {"const": name}}, "required": ["name"]}
        forms: list[Schema] = [{"const": name}, {"type": "object", **named}]
        # For example, `trainer: {command: python train.py}` selects the trainer `command`.
        if definition.selected_by is not None:
            forms.append({"type": "object", "required": [definition.selected_by]})
        params = {"if": {"type": "object", "not": is_domain}, "then": ref(f"params.{name}")}
        yield {
            "if": {"properties": {"trainer": any_of(*forms)}, "required": ["trainer"]},
            "then": {"properties": {"space": {"properties": {"params": params}}}},
        }
        # One of several trainers has a block of its own.
        lists = [
            {
                "type": "object",
                "properties": {kind: {"contains": {"const": name}}},
                "required": [kind],
            }
            for kind in BRANCHING
        ]
        block = {"properties": {name: params}}
        yield {
            "if": {"properties": {"trainer": any_of(*lists)}, "required": ["trainer"]},
            "then": {"properties": {"space": {"properties": {"params": block}}}},
        }


# ---- samplers, schedulers and trackers


def _search() -> Schema:
    """Return the schema of `search`, whose options depend on the algorithm."""
    form = section(search_models.Search)
    description = form["properties"]["algorithm"]["description"]
    names = {AUTO: "Choose a sampler that suits the space and the limits.", **_summaries("sampler")}
    form["properties"]["algorithm"] = value(
        enum_of(names) | {"description": description}, REFERENCE, NULL
    )
    rules = []
    for name in plugin_registry.names("sampler"):
        options = any_of(ref(f"search.options.{name}"), NULL)
        rules.append(_rule("algorithm", name, then={"properties": {"options": options}}))
    return form | {"allOf": rules, "dependentRequired": {"options": ["algorithm"]}}


def _scheduler() -> Schema:
    """Return the schema of `scheduler`, whose other keys depend on the name."""
    text = "The scheduler. `module:attr` names a class of your own."
    name = value(enum_of(_summaries("scheduler")) | {"description": text}, REFERENCE)
    names = plugin_registry.names("scheduler")
    rules = [_rule("name", scheduler, then=ref(f"scheduler.{scheduler}")) for scheduler in names]
    return {"type": "object", "properties": {"name": name}, "required": ["name"], "allOf": rules}


def _rule(key: str, name: str, then: Schema) -> Schema:
    """Return the schema of a mapping that must fit `then` if a key has a certain value."""
    return {"if": {"properties": {key: {"const": name}}, "required": [key]}, "then": then}


def _plug_ins() -> dict[str, Schema]:
    """Return the schemas of the options of samplers and schedulers, such as `scheduler.asha`."""
    schemas = {
        f"search.options.{name}": section(plugin_registry.built_in("sampler", name))
        for name in plugin_registry.names("sampler")
    }
    for name in plugin_registry.names("scheduler"):
        form = section(plugin_registry.built_in("scheduler", name))
        form["properties"]["name"] = {"const": name}
        schemas[f"scheduler.{name}"] = form
    return schemas


def _trackers() -> Schema:
    """Return the schema of the list of trackers: names, references, and names with options."""
    options = {
        name: any_of(mapping({}), NULL, description=text)
        for name, text in _summaries("tracker").items()
    }
    with_options = mapping(
        options,
        patternProperties={REFERENCE["pattern"]: ANY_OPTIONS},
        minProperties=1,
        maxProperties=1,
    )
    names = value(enum_of(_summaries("tracker")), REFERENCE, with_options)
    return {"type": "array", "items": names}


def _summaries(kind: str) -> dict[str, str]:
    """Return the first paragraph of the docstring of each built-in plug-in of a kind."""
    return {
        name: docstrings.summary(plugin_registry.built_in(kind, name).__doc__)
        for name in plugin_registry.names(kind)
    }


# ---- the data and the space


def _data() -> Schema:
    """Return the schema of `data`, in which some keys have several forms, or may be tuned."""
    form = section(data_models.DataKeys)
    loader = {REFERENCE["pattern"]: ANY_OPTIONS}
    source = any_of(TEXT, mapping({}, patternProperties=loader, minProperties=1))
    by_rows = [section(data_models.ByColumn), section(data_models.ByTime)]
    share = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}
    split = any_of(share, source, *by_rows)
    folds = [section(data_models.ByFolds), section(data_models.ByRolling)]
    columns = {"type": "array", "items": any_of(TEXT, ref("branch"))}
    forms = {
        "train": any_of(source, ref("branch")),
        "valid": any_of(split, *folds),
        "test": any_of(split, NULL),
        "read": any_of(section(data_models.ReadKeys), NULL),
        "drop": any_of(columns, NULL, ref("branch")),
        "rows": parameter({"type": "number", "exclusiveMinimum": 0, "maximum": 1}),
        "weight": any_of(TEXT, NULL, ref("branch")),
        "class_weight": parameter({"enum": ["balanced"]}),
    }
    for key, forms_of_key in forms.items():
        description = form["properties"][key]["description"]
        form["properties"][key] = {**forms_of_key, "description": description}
    return form


def _space() -> Schema:
    """Return the schema of `space`. `_parameter_rules` checks the parameters."""
    scaling = {key: parameter(fragment) for key, fragment in SCALING.items()}
    workers = {"type": "integer", "minimum": 1}
    bounds = {"type": "array", "items": workers, "minItems": 2, "maxItems": 2}
    text = "The smallest and the largest number of workers, which may change as a trial runs."
    elastic = mapping({ELASTIC: bounds | {"description": text}}, required=[ELASTIC])
    scaling["num_workers"] = parameter(SCALING["num_workers"], elastic)
    amounts = {**SCALING["resources_per_worker"], "additionalProperties": parameter(AMOUNT)}
    scaling["resources_per_worker"] = parameter(amounts)
    sections = {
        "preprocessor": ref("chain"),
        "scaling": any_of(mapping(scaling), ref("branch")),
        "params": {"type": "object"},
    }
    described = {
        name: any_of(form, NULL, description=SECTION_DESCRIPTIONS[name])
        for name, form in sections.items()
    }
    return mapping(described)


def _definitions() -> dict[str, Schema]:
    """Return the schemas of domains, conditions and chains, which other schemas refer to."""
    options: dict[str, Schema] = {kind: {"type": "array", "minItems": 1} for kind in BRANCHING}
    numbers: dict[str, Schema] = {}
    for kind, rule in RULES.items():
        numbers[kind] = {
            "type": "array" if rule.needed else ["array", "null"],
            "items": value({"type": "integer" if rule.integer else "number"}),
            "minItems": rule.needed,
            "maxItems": len(rule.args),
        }
    scalar = {"type": ["string", "number", "boolean", "null"]}
    scalars = {"type": "array", "items": scalar, "minItems": 1}
    names = {**dict(sorted(STEP_DESCRIPTIONS.items())), NONE: "A chain without steps."}
    chain = [value(enum_of(names)), REFERENCE, ref("step")]
    columns = {"type": "array", "items": any_of(TEXT, ref("branch")), "minItems": 1}
    return {
        "domain": _one_of({**options, **numbers}),
        "branch": _one_of(options),
        "when": {
            "type": "object",
            "minProperties": 1,
            "additionalProperties": any_of(scalar, scalars),
            "description": WHEN,
        },
        "step": _step(),
        "columns": any_of(TEXT, columns, NULL, ref("branch"), description=COLUMNS),
        "chain": any_of(*chain, {"type": "array", "items": any_of(*chain, NULL)}),
    }


def _one_of(domains: Mapping[str, Schema]) -> Schema:
    """Return the schema of a mapping with one domain and an optional condition."""
    properties = {
        kind: form | {"description": DESCRIPTIONS[kind]} for kind, form in domains.items()
    }
    return mapping(
        {**properties, "when": ref("when")},
        oneOf=[{"required": [kind]} for kind in domains],
        maxProperties=2,
    )


def _step() -> Schema:
    """Return the schema of a step with parameters, or of a domain whose options are chains."""
    properties: dict[str, Schema] = {kind: {} for kind in BRANCHING}
    for step, parameters in BUILTIN_STEPS.items():
        own = {name: parameter(fragment) for name, fragment in parameters.items()}
        needed = required_parameters(step)
        form = mapping({"columns": ref("columns"), **own}, required=needed)
        others = [ref("branch"), *([] if needed else [NULL])]
        properties[step] = any_of(form, *others, description=STEP_DESCRIPTIONS[step])
    return mapping(
        {**properties, "when": ref("when")},
        patternProperties={REFERENCE["pattern"]: ANY_OPTIONS},
        minProperties=1,
        maxProperties=2,
    )

"""JSON Schema of the space file, for editors: keys, types, descriptions, domains, and the parameters of built-in trainers and steps.

The schema accepts some files that `load` refuses, because JSON Schema cannot compare two values of
a file. For example, it accepts a lower bound above the upper bound, and a `when` that names an
unknown dimension.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sweeps.core import docstrings, registry
from sweeps.core.best_step import COMPARISONS
from sweeps.core.resources import ELASTIC
from sweeps.space import section_models
from sweeps.space.auto_algorithm import AUTO, AUTO_CANDIDATES
from sweeps.space.domains import BRANCHING, RULES, domain_description
from sweeps.space.editor_hints import with_editor_hints
from sweeps.space.schema_forms import (
    ANY_OPTIONS,
    NULL,
    REFERENCE,
    TEXT,
    Schema,
    any_of,
    mapping,
    parameter,
    ref,
    section,
)
from sweeps.space.space_sections import AMOUNT, SCALING
from sweeps.space.step_names import NONE, RAY_STEPS, STEP_DESCRIPTIONS, required_parameters
from sweeps.space.trainer_schema import TrainerSchemas

DRAFT = "https://json-schema.org/draft/2020-12/schema"

# Descriptions of the top-level keys, which the reference page of the space file shows as well.
TOP_LEVEL = {
    "name": "The name of the sweep. The sweep's folder and its MLflow experiment also have this name. "
    "The default is the file's name.",
    "trainer": "The training loop: the name of a built-in trainer, or a mapping that names your own loop.",
    "data": "The data and its splits. Leave this section out if your own loop reads its own data.",
    "objective": "The metric to optimize: one mapping, or a list of mappings for several objectives.",
    "constraints": 'Conditions that the metrics of a feasible trial satisfy, such as `{latency_ms: "<= 5"}`.',
    "search": "The sampler, its seed, and configurations to start with.",
    "scheduler": "The rule that stops trials early. A step is one report of the loop.",
    "repeats": "How often each configuration is trained. Each time, the trial has another seed.",
    "limits": "Limits of trials, time, cost and failures. Some limits end the sweep, others end a trial.",
    "checkpoints": "The rules that decide which checkpoints of ended trials are kept.",
    "bundle": "The model that the sweep exports at its end.",
    "runtime_env": "The environment of the workers: variables, packages, modules, an image. Ray sets it up.",
    "trackers": "The trackers that record the sweep. The default is `[mlflow]`.",
    "space": "The dimensions to tune, and constants: the preprocessor, the workers (`scaling`), and "
    "the trainer's parameters (`params`).",
}
# Descriptions of the keys of the section `space`.
IN_SPACE = {
    "preprocessor": "A step, a list of steps, or a domain of these.",
    "scaling": "The number of workers of a trial, and the resources of each worker; or a domain of such "
    "mappings.",
    "params": "The parameters that the loop gets as `config`. Mappings and lists may be nested.",
}

# Descriptions of the parts of a chain, and of a condition.
COLUMNS = (
    "Columns: `numeric`, `categorical`, `all`, a name, a pattern such as `pixel_*`, or a list of "
    "these. By default, the step decides."
)
WHEN = (
    "Earlier dimensions, and the values that they must have: a value, a list of values, or text "
    "such as `> 3`."
)
# An example of each top-level key, of each key of the section `space`, and of the arguments of each
# domain.
EXAMPLES: Mapping[str, Any] = {
    "name": "churn",
    "data": {"train": "churn.csv", "valid": 0.2, "label": "churn"},
    "objective": {"metric": "valid-logloss", "goal": "minimize"},
    "constraints": {"latency_ms": "<= 5"},
    "search": {"algorithm": "gp", "seed": 1},
    "scheduler": {"name": "asha", "max_t": 100},
    "repeats": 3,
    "limits": {"max_trials": 50, "timeout": "1h"},
    "checkpoints": {"top": 5},
    "bundle": {"train_on": "all"},
    "runtime_env": {"env_vars": {"OMP_NUM_THREADS": 1}},
    "trackers": ["mlflow", "jsonl"],
    "space": {"params": {"eta": {"loguniform": [0.01, 0.3]}}},
    "preprocessor": ["SimpleImputer", "StandardScaler"],
    "scaling": {"num_workers": 2},
    "params": {"max_depth": {"randint": [3, 10]}},
    "grid": ["a", "b"],
    "choice": [16, 32, 64],
    "uniform": [0.5, 1.0],
    "quniform": [0.1, 0.9, 0.1],
    "loguniform": [0.0001, 0.1],
    "qloguniform": [0.001, 0.1, 0.001],
    "randint": [3, 10],
    "qrandint": [32, 256, 32],
    "lograndint": [16, 512],
    "qlograndint": [16, 512, 16],
    "randn": [0, 1],
    "qrandn": [0, 1, 0.1],
    "when": {"params.booster": "dart"},
}

_COMPARISON: Schema = {"type": "string", "pattern": rf"^\s*({'|'.join(COMPARISONS)})\s*\S+\s*$"}
_IS_NAME: Schema = {"properties": {"trainer": {"type": "string"}}, "required": ["trainer"]}


def schema(own_trainers: Sequence[str] = ()) -> Schema:
    """Return the JSON Schema (2020-12) of the space file, as dicts and lists, with what editors need to help.

    Args:
        own_trainers: Names of the user's own trainers, which are not refused as misspelt names of
            built-in trainers.
    """
    return with_editor_hints(plain_schema(own_trainers))


def plain_schema(own_trainers: Sequence[str] = ()) -> Schema:
    """Return the JSON Schema without the parts for editors: messages, Markdown, and texts with environment variables."""
    trainers = TrainerSchemas(own_trainers)
    objective = section(section_models.Objective, title="objective")
    required: Schema = {
        "trainer": trainers.section(),
        "data": _data(),
        "objective": any_of(objective, {"type": "array", "items": objective, "minItems": 1}),
    }
    optional = {
        "name": {"type": "string", "pattern": r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}$"},
        "constraints": {"type": "object", "additionalProperties": _COMPARISON},
        "search": _search(),
        "scheduler": _scheduler(),
        "repeats": any_of({"type": "integer", "minimum": 1}, section(section_models.Repeats)),
        "limits": section(section_models.Limits),
        "checkpoints": section(section_models.Checkpoints),
        "bundle": section(section_models.BundleKeys),
        "runtime_env": section(section_models.RuntimeEnv),
        "trackers": _trackers(),
        "space": _space(),
    }
    rules = {
        "required": ["trainer", "objective"],
        # a user's loop, which a mapping names, may read its own data
        "allOf": [{"if": _IS_NAME, "then": {"required": ["data"]}}, *trainers.rules()],
        "$defs": _definitions() | _plug_ins() | trainers.definitions(),
    }
    properties = {
        **required,
        **{name: any_of(form, NULL, default=None) for name, form in optional.items()},
    }
    shown = {
        name: {"examples": [EXAMPLES[name]]} if name in EXAMPLES else {} for name in properties
    }
    described = {
        name: {**properties[name], "description": text, **shown[name]}
        for name, text in TOP_LEVEL.items()
    }
    return {
        "$schema": DRAFT,
        "description": "A space file of sweeps.",
        **mapping(described, **rules),
    }


def _search() -> Schema:
    """Return the schema of `search`. The options depend on the algorithm.

    They are not checked for an algorithm of the user's own.
    """
    form = section(section_models.Search)
    algorithm = form["properties"]["algorithm"]
    described = {key: algorithm[key] for key in ("description", "default", "examples")}
    names = {AUTO: "Choose a sampler that suits the space and the limits.", **_summaries("sampler")}
    form["properties"]["algorithm"] = any_of(_enum(names), REFERENCE, NULL, **described)
    not_named = {
        "anyOf": [
            {"not": {"required": ["algorithm"]}},
            {"properties": {"algorithm": any_of({"const": AUTO}, NULL)}},
        ]
    }
    rules = [{"if": not_named, "then": _options_of(AUTO)}]
    for name in registry.names("sampler"):
        is_named = {"properties": {"algorithm": {"const": name}}, "required": ["algorithm"]}
        rules.append({"if": is_named, "then": _options_of(name)})
    return form | {"allOf": rules}


def _options_of(algorithm: str) -> Schema:
    return {"properties": {"options": any_of(ref(f"search.options.{algorithm}"), NULL)}}


def _scheduler() -> Schema:
    """Return the schema of `scheduler`. The other keys depend on the name.

    They are not checked for a scheduler of the user's own.
    """
    text = "The scheduler. `module:attr` names a class of your own."
    name = any_of(_enum(_summaries("scheduler")), REFERENCE, description=text, examples=["asha"])
    rules = [
        {
            "if": {"properties": {"name": {"const": each}}, "required": ["name"]},
            "then": ref(f"scheduler.{each}"),
        }
        for each in registry.names("scheduler")
    ]
    return {"type": "object", "properties": {"name": name}, "required": ["name"], "allOf": rules}


def _plug_ins() -> dict[str, Schema]:
    """Return the schemas of the options of samplers and schedulers, by names such as `scheduler.asha`."""
    made: dict[str, Schema] = {}
    for name, text in _summaries("sampler").items():
        made[f"search.options.{name}"] = section(
            registry.built_in("sampler", name), title=f"options of {name}", description=text
        )
    options = [made[f"search.options.{name}"]["properties"] for name in AUTO_CANDIDATES]
    made[f"search.options.{AUTO}"] = mapping(
        {key: inner for one in options for key, inner in one.items()}, title=f"options of {AUTO}"
    )
    for name, text in _summaries("scheduler").items():
        keys = section(registry.built_in("scheduler", name))
        own = {
            "name": {"const": name, "description": text, "examples": [name]},
            **keys["properties"],
        }
        made[f"scheduler.{name}"] = mapping(
            own, required=["name", *keys["required"]], title=name, description=text
        )
    return made


def _trackers() -> Schema:
    """Return the schema of the list of trackers: built-in names, references, and mappings of one name to its options."""
    texts = _summaries("tracker")
    options = {
        name: section(registry.built_in("tracker", name).Options, description=text)
        for name, text in texts.items()
    }
    needs_options = {name for name, form in options.items() if form["required"]}
    names = _enum({name: text for name, text in texts.items() if name not in needs_options})
    reference = REFERENCE | {"description": "`module:attr` of a class of your own"}
    keys = {name: form | {"examples": [_example_of(form)]} for name, form in options.items()}
    keys = {
        name: form
        if name in needs_options
        else any_of(form, NULL, default=None, **_annotations(form))
        for name, form in keys.items()
    }
    with_options = mapping(
        keys,
        patternProperties={REFERENCE["pattern"]: ANY_OPTIONS},
        minProperties=1,
        maxProperties=1,
    )
    return {"type": "array", "items": any_of(names, reference, with_options)}


def _annotations(form: Schema) -> Schema:
    return {key: form.pop(key) for key in ("description", "examples")}


def _example_of(form: Schema) -> Any:
    """Return a mapping with the required keys of a form, each with its example."""
    return {key: form["properties"][key]["examples"][0] for key in form["required"]}


def _enum(names: Mapping[str, str]) -> Schema:
    """Return the schema of one of some names, each with a description."""
    return {"enum": list(names), "enumDescriptions": list(names.values())}


def _summaries(kind: str) -> dict[str, str]:
    """Return the first paragraph of the docstring of each built-in plug-in of a kind."""
    return {
        name: docstrings.summary(registry.built_in(kind, name).__doc__)
        for name in registry.names(kind)
    }


def model_properties(model: type) -> dict[str, Schema]:
    """Return the JSON Schema of each option of a plug-in, by name.

    The options are the fields of the dataclass `model`.
    """
    properties: dict[str, Schema] = section(model)["properties"]
    return properties


def _data() -> Schema:
    form = section(section_models.DataKeys)
    properties = form["properties"]
    call = mapping(
        {}, patternProperties={REFERENCE["pattern"]: ANY_OPTIONS}, minProperties=1, title="loader"
    )
    source = any_of(TEXT, call)
    by_rows = {
        "by column": section_models.ByColumn,
        "by time": section_models.ByTime,
    }
    by_folds = {"folds": section_models.ByFolds, "folds in time": section_models.ByRolling}
    forms = [section(model, title=title) for title, model in by_rows.items()]
    split = [{"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, TEXT, call, *forms]
    cross_validation = [section(model, title=title) for title, model in by_folds.items()]
    columns = {"type": "array", "items": any_of(TEXT, ref("branch"))}
    rows = {"exclusiveMinimum": 0, "maximum": 1, "type": "number"}
    tuned = {
        "train": any_of(source, ref("branch")),
        "drop": any_of(columns, NULL, ref("branch")),
        "rows": any_of(rows, NULL, ref("domain")),
        "weight": any_of(TEXT, NULL, ref("branch")),
        "class_weight": any_of({"enum": ["balanced"]}, NULL, ref("branch")),
    }
    for key, value in {
        "valid": any_of(*split, *cross_validation),
        "test": any_of(*split, NULL),
        "read": any_of(section(section_models.ReadKeys, title="read"), NULL),
        **tuned,
    }.items():
        shown = {
            name: properties[key][name]
            for name in ("description", "default", "examples")
            if name in properties[key]
        }
        properties[key] = value | shown
    return form


def _space() -> Schema:
    """Return the schema of `space`.

    The parameters of the named trainer are added by `TrainerSchemas.rules`.
    """
    scaling = {key: parameter(fragment) for key, fragment in SCALING.items()}
    forms = scaling["num_workers"]["anyOf"]
    bounds = {
        "type": "array",
        "items": forms[0],
        "minItems": 2,
        "maxItems": 2,
        "examples": [[1, 4]],
    }
    text = (
        "The smallest and the largest number of workers of a trial. The number may change while "
        "the trial runs."
    )
    forms.insert(
        0, mapping({ELASTIC: {**bounds, "description": text}}, required=[ELASTIC], title=ELASTIC)
    )
    amounts = {**SCALING["resources_per_worker"], "additionalProperties": parameter(AMOUNT)}
    scaling["resources_per_worker"] = parameter(amounts)
    sections = {
        "preprocessor": ref("chain"),
        "scaling": any_of(mapping(scaling), ref("branch")),
        "params": {"type": "object"},
    }
    return mapping(
        {
            name: any_of(
                form, NULL, description=IN_SPACE[name], default=None, examples=[EXAMPLES[name]]
            )
            for name, form in sections.items()
        }
    )


def _definitions() -> dict[str, Schema]:
    """Return the schemas of domains, conditions and chains, which other schemas refer to."""
    options = {kind: {"type": "array", "minItems": 1} for kind in BRANCHING}
    numbers = {
        kind: {
            "type": ["array", "null"] if not rule.needed else "array",
            "items": {"type": "integer" if rule.integer else "number"},
            "minItems": rule.needed,
            "maxItems": len(rule.args),
        }
        for kind, rule in RULES.items()
    }
    scalar = {"type": ["string", "number", "boolean", "null"]}
    chain = [*_step_names(), ref("step")]
    return {
        "domain": _one_of({**options, **numbers}, "domain"),
        "branch": _one_of(options, "grid or choice"),
        "when": {
            "type": "object",
            "minProperties": 1,
            "additionalProperties": any_of(
                scalar, {"type": "array", "items": scalar, "minItems": 1}
            ),
            "description": WHEN,
            "examples": [EXAMPLES["when"]],
        },
        "step": _step(),
        "columns": _columns(),
        "chain": any_of(*chain, {"type": "array", "items": any_of(*chain, NULL)}),
    }


def _one_of(domains: Mapping[str, Schema], title: str) -> Schema:
    """Return the schema of a mapping with one domain and an optional condition."""
    shown = {
        kind: {"description": domain_description(kind), "examples": [EXAMPLES[kind]]}
        for kind in domains
    }
    properties = {
        **{kind: form | shown[kind] for kind, form in domains.items()},
        "when": ref("when"),
    }
    one = {"minProperties": 1, "maxProperties": 1}
    return mapping(
        properties,
        title=title,
        **{
            "if": {"required": ["when"]},
            "then": {"minProperties": 2, "maxProperties": 2},
            "else": one,
        },
    )


def _step_names() -> Iterator[Schema]:
    """Yield the schemas of a step without parameters: a name, and a reference to the user's code."""
    text = "Unknown step. Write a preprocessor of Ray Data, or `module:attr` of yours."
    yield _enum({**dict(sorted(STEP_DESCRIPTIONS.items())), NONE: "A chain without steps."}) | {
        "errorMessage": text
    }
    yield REFERENCE | {"patternErrorMessage": text, "title": "a step of yours"}


def _columns() -> Schema:
    """Return the schema of the columns that a step changes."""
    columns = any_of(
        TEXT,
        {"type": "array", "items": any_of(TEXT, ref("branch")), "minItems": 1},
        NULL,
        ref("branch"),
    )
    return columns | {
        "description": COLUMNS,
        "default": None,
        "examples": ["numeric", ["age", "price_*"]],
    }


def _step() -> Schema:
    """Return the schema of a step with parameters: a mapping of its name to the parameters, or a domain whose options are chains."""
    branches = {
        kind: {"description": domain_description(kind), "examples": [EXAMPLES["preprocessor"]]}
        for kind in BRANCHING
    }
    branches["when"] = ref("when")
    properties = {**branches}
    for step, parameters in RAY_STEPS.items():
        needed = required_parameters(step)
        own = {
            name: parameter(fragment, required=name in needed)
            for name, fragment in parameters.items()
        }
        form = mapping({"columns": ref("columns"), **own}, required=needed, title=step)
        shown = {
            "description": STEP_DESCRIPTIONS[step],
            "examples": [{"columns": "numeric", **_example_of(form)}],
        }
        properties[step] = (
            any_of(form, ref("branch"), **shown) if needed else _one_mapping(form, branches) | shown
        )
    return mapping(
        properties,
        patternProperties={REFERENCE["pattern"]: ANY_OPTIONS},
        minProperties=1,
        maxProperties=2,
        title="step",
    )


def _one_mapping(form: Schema, branches: Mapping[str, Schema]) -> Schema:
    """Return the schema of the parameters of a step, which may also be a domain of such mappings or null.

    The parameters and the domains are keys of one mapping, so that an editor completes a step's
    name in a list as a name and as a mapping.
    """
    is_domain = {"type": "object", **any_of(*({"required": [kind]} for kind in BRANCHING))}
    tuned = {
        "if": is_domain,
        "then": ref("branch"),
        "else": {"not": {"type": "object", "required": ["when"]}},
    }
    return {
        **form,
        "type": ["null", "object"],
        "properties": {**form["properties"], **branches},
        "default": None,
        **tuned,
    }

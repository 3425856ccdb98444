"""JSON Schema of the section `trainer`, of the parameters of built-in trainers, and of the metrics that these trainers report."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sweeps.core import docstrings, metrics, references
from sweeps.core.near_misses import near_misses, refused
from sweeps.core.parameter_schema import Fragment
from sweeps.core.resources import COSTS
from sweeps.space import section_models
from sweeps.space.domains import BRANCHING
from sweeps.space.schema_forms import (
    TEXT,
    Schema,
    any_of,
    mapping,
    option,
    parameter,
    ref,
    section,
    sentence,
)
from sweeps.space.synonyms import SUGGESTIONS
from sweeps.space.trainer_definition import TrainerDefinition, definition_of, has_definition
from sweeps.space.trainer_section import PACKAGE, trainer_names

SPLIT_PREFIXES = ("valid-", "train-")
# If `params` has one of these keys, the trainer may report other metrics than `TRAINER` lists.
CUSTOM_METRIC_KEYS = ("objective", "eval_metric")
# The keys of a mapping that names any trainer.
SHARED_KEYS = ("backend", "load", "reuse")
USUAL_METRICS = (
    "valid-logloss",
    "valid-accuracy",
    "valid-auc",
    "valid-rmse",
    "valid-mae",
    "valid-loss",
)


class TrainerSchemas:
    """The JSON Schemas that follow from the `TRAINER` literals of the built-in trainers.

    Args:
        own_trainers: Names of the user's own trainers, which are not refused as misspelt names of
            built-in trainers.
    """

    def __init__(self, own_trainers: Sequence[str] = ()) -> None:
        self._own = own_trainers
        self._definitions = {name: definition_of(f"{PACKAGE}.{name}") for name in trainer_names()}
        self._summaries = {name: _summary(name) for name in self._definitions}
        self._selected = {
            d.selected_by: name for name, d in self._definitions.items() if d.selected_by
        }

    def section(self) -> Schema:
        """Return the schema of the section `trainer`: a name, or a mapping whose keys depend on the trainer."""
        names = [_refuse_misspelling(name, self._own) for name in self._definitions]
        forms = [
            {"if": condition, "then": ref(f"trainer.{form}")}
            for form, condition in self._conditions()
        ]
        any_name = {"type": ["string", "object"], "minLength": 1, "allOf": [*names, *forms]}
        built_in = {
            "enum": list(self._summaries),
            "enumDescriptions": list(self._summaries.values()),
        }
        return any_of(any_name, built_in, examples=["xgboost", "my_trainer", "sklearn.svm:SVC"])

    def definitions(self) -> dict[str, Schema]:
        """Return the schemas to which the section and the rules refer, by name."""
        keys = section(section_models.TrainerKeys)["properties"]
        made = {f"trainer.keys.{key}": keys[key] for key in SHARED_KEYS}
        made["trainer.loop"] = section(section_models.LoopKeys, title="your own loop")
        made["trainer.own"] = self._keys_of_your_trainer(keys["name"])
        made["trainer.any"] = self._keys_of_any_trainer(keys["name"])
        for name, definition in self._definitions.items():
            made[f"trainer.{name}"] = self._keys(name, definition)
            made[f"params.{name}"] = self._parameters(name, definition)
            if _lists_metrics(definition):
                made[f"metrics.{name}"] = _metrics(name, definition)
        return made

    def rules(self) -> Iterator[Schema]:
        """Yield the rules (`if`, `then`) that check `space.params` and metrics if a space file names a built-in trainer."""
        for name, definition in self._definitions.items():
            forms: list[Schema] = [{"const": name}, _with_name(name)]
            if definition.selected_by is not None:
                forms.append({"type": "object", "required": [definition.selected_by]})
            params = {
                "if": {"type": "object"},
                "then": {"if": _IS_BRANCH, "then": ref("branch"), "else": ref(f"params.{name}")},
            }
            is_trainer = {"properties": {"trainer": any_of(*forms)}, "required": ["trainer"]}
            yield {
                "if": is_trainer,
                "then": {"properties": {"space": {"properties": {"params": params}}}},
            }
            if f"metrics.{name}" in self.metric_names():
                metric = {"properties": {"metric": ref(f"metrics.{name}")}}
                names = {
                    "if": {"type": "object"},
                    "then": {"type": "object", "propertyNames": ref(f"metrics.{name}")},
                }
                named = {
                    "properties": {"objective": metric | {"items": metric}, "constraints": names}
                }
                yield {"if": {"allOf": [is_trainer, {"not": _CUSTOM_METRICS}]}, "then": named}

    def metric_names(self) -> list[str]:
        """Return the names of the schemas of metrics, such as `metrics.xgboost`."""
        return [
            f"metrics.{name}"
            for name, definition in self._definitions.items()
            if _lists_metrics(definition)
        ]

    def _conditions(self) -> Iterator[tuple[str, Schema]]:
        """Yield the name of each schema of a mapping, and the condition under which it applies."""
        yield "loop", {"type": "object", "required": ["loop"]}
        without_loop = {"type": "object", "not": {"required": ["loop"]}}
        for name in self._definitions:
            yield name, without_loop | _with_name(name)
        own = {"type": "string", "not": {"enum": list(self._definitions)}}
        yield "own", without_loop | {"properties": {"name": own}, "required": ["name"]}
        for key, name in self._selected.items():
            yield (
                name,
                {
                    "type": "object",
                    "required": [key],
                    "not": any_of({"required": ["loop"]}, {"required": ["name"]}),
                },
            )
        keys = ("loop", "name", *self._selected)
        yield "any", {"type": "object", "not": any_of(*({"required": [key]} for key in keys))}

    def _keys(self, trainer: str, definition: TrainerDefinition) -> Schema:
        """Return the schema of a mapping that names a built-in trainer and gives its options."""
        required = [
            name for name, fragment in definition.options.items() if "default" not in fragment
        ]
        name = {"const": trainer, "description": self._summaries[trainer], "examples": [trainer]}
        options = {
            key: option(with_example(fragment, key, definition))
            for key, fragment in definition.options.items()
        }
        required += ["name"] * (definition.selected_by is None)
        properties = {"name": name, **options, **_shared_keys()}
        return mapping(
            properties, required=required, title=trainer, description=self._summaries[trainer]
        )

    def _keys_of_your_trainer(self, name: Schema) -> Schema:
        """Return the schema of a mapping that names the user's own trainer, whose options are not known."""
        form = mapping(
            {"name": TEXT | _described(name), **_shared_keys()},
            required=["name"],
            title="your own trainer",
        )
        return form | {"additionalProperties": True}

    def _keys_of_any_trainer(self, name: Schema) -> Schema:
        """Return the schema of a mapping that names no trainer yet, so that an editor can complete the keys that name one."""
        keys = section(section_models.LoopKeys)["properties"]
        definitions = {key: self._definitions[trainer] for key, trainer in self._selected.items()}
        chosen = {
            key: option(with_example(definition.options[key], key, definition))
            for key, definition in definitions.items()
        }
        properties = {
            "name": TEXT | _described(name),
            "loop": keys["loop"],
            **chosen,
            **_shared_keys(),
        }
        return mapping(properties, required=["name"], title="trainer")

    def _parameters(self, trainer: str, definition: TrainerDefinition) -> Schema:
        """Return the schema of a built-in trainer's parameters."""
        fragments = {
            name: with_example(fragment, name, definition)
            for name, fragment in definition.parameters.items()
        }
        properties = {
            name: parameter(_with_default_in_words(fragment))
            for name, fragment in fragments.items()
        }
        description = f"Parameters of the trainer {trainer}."
        return mapping(
            properties,
            description=description,
            title=trainer,
            additionalProperties=definition.additional_parameters,
        )


def with_example(fragment: Fragment, name: str, definition: TrainerDefinition) -> Schema:
    """Return the fragment of an option or a parameter with its example, if it has one."""
    return {
        **fragment,
        **({"examples": [definition.examples[name]]} if name in definition.examples else {}),
    }


def _with_default_in_words(fragment: Schema) -> Schema:
    """Return a fragment whose description says what applies without the parameter, if the fragment has no default."""
    text = fragment.get("description", "")
    if "default" in fragment or "default" in text.lower():
        return fragment
    alias = re.match(r"Alias of (`\w+`)", text)
    default = f"Default: as for {alias[1]}." if alias else "By default, the trainer decides."
    return fragment | {"description": f"{sentence(text)} {default}"}


def reported(definition: TrainerDefinition) -> list[str]:
    """Return the metrics that a built-in trainer reports, for all tasks together, and the costs of a trial."""
    listed = [name for names in definition.metrics.values() for name in expand(names)]
    computed = [f"valid-{name}" for name in metrics.METRICS] if definition.all_metrics else []
    return [*dict.fromkeys([*listed, *computed]), *COSTS]


def expand(names: Sequence[str]) -> list[str]:
    """Return the full names of metrics.

    A name without a prefix gives two full names, with `valid-` and with `train-`.
    """
    return [
        prefix + name
        for name in names
        for prefix in (("",) if name.startswith(SPLIT_PREFIXES) else SPLIT_PREFIXES)
    ]


def _summary(trainer: str) -> str:
    """Return the first sentence of the docstring of a trainer's module, which is not imported."""
    path = references.source_of(f"{PACKAGE}.{trainer}")
    tree = None if path is None else references.parse_source(path)
    return docstrings.summary(None if tree is None else ast.get_docstring(tree))


def own_trainers(folder: Path) -> list[str]:
    """Return the names of the trainers in a folder that look like misspelt names of built-in trainers, such as `torch2`."""
    expressions = [_misspelt(name) for name in trainer_names()]
    names = sorted(
        {file.stem for file in folder.glob("*.py")}
        | {file.parent.name for file in folder.glob("*/__init__.py")}
    )
    return [
        name
        for name in names
        if any(re.search(each, name) for each in expressions) and has_definition(name, [folder])
    ]


def _refuse_misspelling(name: str, accepted: Sequence[str]) -> Schema:
    """Return a rule that refuses misspellings of a trainer's name, except the names in `accepted`."""
    return {
        "pattern": refused(_misspelt(name), accepted),
        "patternErrorMessage": f"Unknown trainer. Did you mean `{name}`?",
    }


def _misspelt(name: str) -> str:
    """Return a regular expression that matches misspellings of a built-in trainer's name, and other words for the trainer."""
    return near_misses(
        name, [word for word, ours in SUGGESTIONS["trainer.name"].items() if ours == name]
    )


def _with_name(trainer: str) -> Schema:
    return {"type": "object", "properties": {"name": {"const": trainer}}, "required": ["name"]}


def _described(key: Mapping[str, Any]) -> Schema:
    return {"description": key["description"], "examples": key["examples"]}


def _shared_keys() -> dict[str, Schema]:
    return {key: ref(f"trainer.keys.{key}") for key in SHARED_KEYS}


def _lists_metrics(definition: TrainerDefinition) -> bool:
    """Return whether all metrics that a trainer can report are known."""
    return bool(definition.metrics) and not definition.additional_metrics


def _metrics(trainer: str, definition: TrainerDefinition) -> Schema:
    """Return the schema of a metric that a trainer reports.

    A name with `@` has an argument, and a name with `:` is the user's function.
    """
    text = f"The trainer {trainer} reports no such metric."
    return any_of(
        {"enum": reported(definition), "errorMessage": text},
        {"type": "string", "pattern": "[@:]", "patternErrorMessage": text},
    )


# A mapping that is a `grid` or a `choice` of mappings.
_IS_BRANCH: Schema = {"type": "object", **any_of(*({"required": [kind]} for kind in BRANCHING))}
_CUSTOM_METRICS: Schema = {
    "properties": {
        "space": {
            "properties": {
                "params": any_of(
                    *({"required": [key]} for key in (*CUSTOM_METRIC_KEYS, *BRANCHING))
                )
            },
            "required": ["params"],
        }
    },
    "required": ["space"],
}

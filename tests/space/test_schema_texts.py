"""Each key, domain, step, trainer, parameter and algorithm in the JSON Schema has a description, a
default and an example.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from sweeps.core import registry
from sweeps.space.domains import DOMAINS
from sweeps.space.json_schema import schema
from sweeps.space.step_names import RAY_STEPS, required_parameters
from sweeps.space.trainer_definition import definition_of
from sweeps.space.trainer_section import PACKAGE, trainer_names

jsonschema = pytest.importorskip("jsonschema")
FORMS = ("items", "additionalProperties")


@dataclass(frozen=True)
class Key:
    """A key of the space file, as the schema describes it.

    Attributes:
        path: The place of the key in the schema, such as `limits.max_trials` or
            `params.xgboost.eta`.
        fragment: The schema of the key's value. References are resolved.
        required: True if the mapping must have the key.
    """

    path: str
    fragment: dict[str, Any]
    required: bool


SCHEMA = schema()


def resolved(fragment: dict[str, Any]) -> dict[str, Any]:
    """Return a fragment in which a reference is replaced by the definition."""
    if "$ref" not in fragment:
        return fragment
    return SCHEMA["$defs"][fragment["$ref"].rpartition("/")[2]] | {
        key: value for key, value in fragment.items() if key != "$ref"
    }


def keys_in(fragment: dict[str, Any], path: str) -> Iterator[Key]:
    """Yield each key in a fragment, at all depths.

    Rules (`allOf`) name no new keys, and `keys` visits each definition once.
    """
    for name, inner in fragment.get("properties", {}).items():
        yield Key(f"{path}{name}", resolved(inner), name in fragment.get("required", ()))
        yield from keys_in(inner, f"{path}{name}.")
    for form in (
        *(fragment[name] for name in FORMS if isinstance(fragment.get(name), dict)),
        *(form for form in fragment.get("anyOf", ()) if "type" in form),
    ):
        yield from keys_in(form, path)


def keys() -> list[Key]:
    """Return all keys of the schema."""
    found = list(keys_in(SCHEMA, ""))
    for name, fragment in SCHEMA["$defs"].items():
        found += keys_in(fragment, f"{name}.")
    return found


KEYS = keys()
SELECTING = {
    "torch": "model",
    "sklearn": "estimator",
    "command": "command",
    "trainable": "trainable",
}


def without_default(key: Key) -> str | None:
    """Return why a key has no default; None if the key needs one."""
    section, _, name = key.path.rpartition(".")
    if key.required:
        return "The mapping must have this key."
    if key.path == "data":
        return "Only a loop that reads its own data can leave this key out."
    if name in DOMAINS:
        return "The key chooses a domain."
    if name == "when":
        return "Without this key there is no condition."
    if section.startswith("trainer.") and name in ("name", "loop", *SELECTING.values()):
        return "One of these keys must name the trainer."
    if section == "step" and required_parameters(name):
        return "The step has parameters without a default."
    if section == "trackers" and name == "webhook":
        return "The tracker has an option without a default."
    return None


def test_all_keys_are_visited():
    paths = [key.path for key in KEYS]
    expected = {
        "limits.max_trials",
        "data.valid.column",
        "search.initial_points",
        "space.scaling.num_workers.elastic",
    }
    expected |= {
        "trackers.webhook.url",
        "scheduler.asha.reduction_factor",
        "search.options.gp.n_startup_trials",
        "trainer.keras.model",
    }
    expected |= {
        "params.xgboost.eta",
        "params.torch_tabular.lr",
        "step.SimpleImputer.strategy",
        "domain.loguniform",
        "data.valid.folds",
    }
    assert expected <= set(paths)
    assert {f"step.{step}" for step in RAY_STEPS} <= set(paths)
    assert len(paths) > 500


def test_each_key_has_a_description():
    assert [key.path for key in KEYS if not key.fragment.get("description")] == []


def test_descriptions_are_sentences():
    texts = {key.path: key.fragment["description"] for key in KEYS}
    assert {path: text for path, text in texts.items() if text[0].islower()} == {}
    assert {path: text for path, text in texts.items() if not text.endswith(".")} == {}


def test_each_key_has_an_example():
    assert [key.path for key in KEYS if not key.fragment.get("examples")] == []


def test_each_key_has_a_default_or_a_reason_to_have_none():
    assert [
        key.path for key in KEYS if "default" not in key.fragment and without_default(key) is None
    ] == []


def test_a_required_key_has_no_default():
    assert [key.path for key in KEYS if key.required and "default" in key.fragment] == []


def test_the_text_says_what_applies_if_the_default_is_null():
    """Null stands for the default, so that a key whose default is null needs words."""
    nulls = [key for key in KEYS if key.fragment.get("default", 0) is None]
    assert [
        key.path for key in nulls if "default" not in key.fragment["markdownDescription"].lower()
    ] == []
    assert [
        key.path
        for key in nulls
        if key.path.startswith("params.") and "default" not in key.fragment["description"].lower()
    ] == []


def test_examples_and_defaults_are_valid():
    whole = {"$schema": SCHEMA["$schema"], "$defs": SCHEMA["$defs"]}
    wrong = []
    for key in KEYS:
        validator = jsonschema.Draft202012Validator({**whole, **key.fragment})
        values = [
            *key.fragment["examples"],
            *([key.fragment["default"]] if "default" in key.fragment else []),
        ]
        wrong += [(key.path, value) for value in values if not validator.is_valid(value)]
    assert wrong == []


def test_completions_of_domains_are_valid():
    from sweeps.space.yaml12 import parse

    whole = {"$schema": SCHEMA["$schema"], "$defs": SCHEMA["$defs"]}
    snippets = [
        (key, snippet) for key in KEYS for snippet in key.fragment.get("defaultSnippets", ())
    ]
    assert len(snippets) > 100
    wrong = []
    for key, snippet in snippets:
        value = parse(f"value: {snippet['body']}", "snippet").plain()["value"]
        if not jsonschema.Draft202012Validator({**whole, **key.fragment}).is_valid(value):
            wrong.append((key.path, snippet["body"]))
    assert wrong == []


def listed(fragment: Any) -> Iterator[dict[str, str]]:
    """Yield the names of each list with a description of each name."""
    if isinstance(fragment, dict):
        if "enumDescriptions" in fragment:
            yield dict(zip(fragment["enum"], fragment["enumDescriptions"], strict=True))
        for inner in fragment.values():
            yield from listed(inner)
    elif isinstance(fragment, list):
        for inner in fragment:
            yield from listed(inner)


@pytest.mark.parametrize("kind", ["sampler", "scheduler", "tracker"])
def test_each_plug_in_has_a_description(kind):
    found = {name: text for names in listed(SCHEMA) for name, text in names.items()}
    assert all(found.get(name) for name in registry.names(kind) if name != "webhook")


def test_each_trainer_and_step_has_a_description():
    assert all(SCHEMA["$defs"][f"trainer.{name}"]["description"] for name in trainer_names())
    found = {name: text for names in listed(SCHEMA) for name, text in names.items()}
    assert all(found[name] for name in (*RAY_STEPS, *trainer_names()))


@pytest.mark.parametrize("trainer", trainer_names())
def test_each_example_belongs_to_a_parameter_or_an_option(trainer):
    definition = definition_of(f"{PACKAGE}.{trainer}")
    assert definition.examples.keys() <= {*definition.parameters, *definition.options}


def test_the_schema_is_small_enough_for_an_editor():
    """The language server reads the schema once, and walks through it at each key stroke."""
    assert len(json.dumps(SCHEMA)) < 350_000

"""Each key, domain, step, trainer, parameter and algorithm in the JSON Schema has a description."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema

from sweeps.core.plugins import plugin_registry
from sweeps.space.model.step_names import BUILTIN_STEPS
from sweeps.space.schema.json_schema import schema
from sweeps.space.sections.built_in_trainers import trainer_names

SCHEMA = schema()
FORMS = ("items", "additionalProperties")


def keys_in(fragment: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the path and the schema of each key in a fragment, at all depths."""
    for name, inner in fragment.get("properties", {}).items():
        target = SCHEMA["$defs"].get(inner.get("$ref", "").rpartition("/")[2], {})
        yield f"{path}{name}", target | inner
        yield from keys_in(inner, f"{path}{name}.")
    for form in (
        *(fragment[name] for name in FORMS if isinstance(fragment.get(name), dict)),
        *fragment.get("anyOf", ()),
    ):
        yield from keys_in(form, path)


KEYS = dict(keys_in(SCHEMA, ""))
for name, fragment in SCHEMA["$defs"].items():
    KEYS |= dict(keys_in(fragment, f"{name}."))


def test_all_keys_have_a_description_that_is_a_sentence() -> None:
    expected = {"limits.max_trials", "data.valid.column", "space.scaling.num_workers.elastic"}
    expected |= {"scheduler.asha.max_t", "trainer.model"}
    expected |= {"params.torch_tabular.lr", "step.SimpleImputer.strategy", "domain.loguniform"}
    assert expected <= KEYS.keys() and len(KEYS) > 300
    nameless = ("scheduler.", "step.grid", "step.choice", "domain.when", "branch.when", "step.when")
    texts = {
        path: fragment.get("description", "")
        for path, fragment in KEYS.items()
        if not (path.endswith(".name") and path.startswith("scheduler.")) and path not in nameless
    }
    assert {
        path: text for path, text in texts.items() if text[:1].islower() or text[-1:] != "."
    } == {}


def test_defaults_are_valid() -> None:
    whole = {"$schema": SCHEMA["$schema"], "$defs": SCHEMA["$defs"]}
    wrong = [
        path
        for path, fragment in KEYS.items()
        if "default" in fragment
        and not jsonschema.Draft202012Validator({**whole, **fragment}).is_valid(fragment["default"])
    ]
    assert wrong == []


def test_each_name_has_a_description() -> None:
    def listed(fragment: Any) -> Iterator[tuple[str, str]]:
        if isinstance(fragment, dict):
            if "enumDescriptions" in fragment:
                yield from zip(fragment["enum"], fragment["enumDescriptions"], strict=True)
            for inner in fragment.values():
                yield from listed(inner)
        elif isinstance(fragment, list):
            for inner in fragment:
                yield from listed(inner)

    descriptions = dict(listed(SCHEMA))
    plug_ins = [
        name for kind in ("sampler", "scheduler", "tracker") for name in plugin_registry.names(kind)
    ]
    assert all(descriptions[name] for name in (*plug_ins, *BUILTIN_STEPS, *trainer_names()))


def test_the_schema_is_small_enough_for_an_editor() -> None:
    assert len(json.dumps(SCHEMA)) < 350_000

"""The hints for editors: texts with variables, alternatives of one schema, messages, and examples."""

from __future__ import annotations

import pytest

from sweeps.space.editor_hints import VARIABLE, with_editor_hints

NUMBER = {"type": "number", "minimum": 0}


def test_alternatives_of_different_types_become_one_schema():
    made = with_editor_hints({"anyOf": [NUMBER, {"type": "null"}, {"$ref": "#/$defs/domain"}]})
    assert (
        made.pop("errorMessage")
        == "Must be a number of at least 0, a domain, or a variable such as ${NAME}."
    )
    rule = {"if": {"type": "object"}, "then": {"$ref": "#/$defs/domain"}}
    assert made == {
        "type": ["null", "number", "string", "object"],
        "minimum": 0,
        "pattern": VARIABLE,
        **rule,
    }


def test_alternatives_of_one_type_stay_apart():
    forms = [{"type": "object", "required": ["a"]}, {"type": "object", "required": ["b"]}]
    assert with_editor_hints({"anyOf": forms}) == {"anyOf": forms}


def test_a_mapping_beside_an_enum_is_checked_outside_the_alternatives():
    made = with_editor_hints(
        {"anyOf": [{"enum": ["a", "b"]}, {"type": "null"}, {"$ref": "#/$defs/branch"}]}
    )
    assert made["anyOf"][0] == {"enum": ["a", "b"]} and made["then"] == {"$ref": "#/$defs/branch"}
    assert (
        made["anyOf"][1]["type"] == ["null", "string", "object"]
        and made["anyOf"][1]["pattern"] == VARIABLE
    )


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "minLength": 1},
        {"type": "array"},
        {"type": "object", "additionalProperties": False},
    ],
)
def test_texts_lists_and_mappings_need_no_variable(schema):
    assert with_editor_hints(schema) == schema


def test_a_condition_stays_as_it_is():
    schema = {
        "if": {"properties": {"name": {"const": "asha"}, "n": NUMBER}},
        "then": {"$ref": "#/$defs/x"},
    }
    assert with_editor_hints(schema) == schema


@pytest.mark.parametrize(
    ("domain", "constant", "shown"),
    [
        ({"loguniform": [0.01, 0.3]}, 0.05, "{loguniform: [0.01, 0.3]}"),
        ({"uniform": [0.98, 0.999]}, 0.99, "{uniform: [0.98, 0.999]}"),
        ({"randint": [3, 12]}, 7, "{randint: [3, 12]}"),
        ({"lograndint": [16, 256]}, 64, "{lograndint: [16, 256]}"),
        ({"choice": ["a b", None]}, "a b", '{choice: ["a b", null]}'),
    ],
)
def test_a_domain_is_offered_and_a_constant_from_it_is_the_example(domain, constant, shown):
    made = with_editor_hints({"description": "Text.", "default": 1, "examples": [domain]})
    assert made["examples"] == [constant] and made["defaultSnippets"][0]["body"] == shown
    assert made["markdownDescription"] == f"Text.\n\nDefault: `1`\n\nTune it: `{shown}`"


def test_the_text_says_that_there_is_no_default():
    assert (
        with_editor_hints({"description": "Text.", "default": None})["markdownDescription"]
        == "Text.\n\nDefault: none"
    )
    assert (
        with_editor_hints({"description": "By default, 3.", "default": None})["markdownDescription"]
        == "By default, 3."
    )

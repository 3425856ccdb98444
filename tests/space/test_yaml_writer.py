"""Values written as YAML are read back as the same values."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sweeps.space.yaml.yaml12 import parse
from sweeps.space.yaml.yaml_writer import WIDTH, block, flow

CHARACTERS = st.characters(exclude_categories=["Cs"])
TEXTS = st.text(CHARACTERS, max_size=20)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


def types(value: Any) -> Any:
    """Return a value together with the types of its parts, so that 1, 1.0 and True differ."""
    if isinstance(value, dict):
        return {key: types(inner) for key, inner in value.items()}
    return [types(inner) for inner in value] if isinstance(value, list) else (type(value), value)


@given(st.dictionaries(TEXTS | st.integers(), VALUES, max_size=4))
@example(
    {
        "no": "1e-4",
        "<<": "~",
        "": "2019-01-01",
        "a": {"grid": ["\u2028", "# x", "a: b", "${HOME}"], "when": {}},
    }
)
def test_a_mapping_is_read_back(mapping: dict[Any, Any]) -> None:
    for text in (block(mapping), flow(mapping)):
        assert types(parse(text, "written").plain()) == types(mapping)


@given(VALUES)
def test_any_value_is_read_back(value: Any) -> None:
    assert types(parse(flow(value), "written", override=True).plain()) == types(value)


def test_nan_is_read_back() -> None:
    assert math.isnan(parse(flow(math.nan), "written").plain())


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"limits": {"max_trials": 8}}, "limits: {max_trials: 8}\n"),
        ({"space": {"params": {}}}, "space: {params: {}}\n"),
        (
            {"space": {"params": {"eta": {"grid": [1]}}}},
            "space:\n  params:\n    eta: {grid: [1]}\n",
        ),
        (
            {"data": {"train": "x" * WIDTH, "label": "y"}},
            f"data:\n  train: {'x' * WIDTH}\n  label: y\n",
        ),
    ],
)
def test_the_layout(value: dict[str, Any], text: str) -> None:
    assert block(value) == text


@pytest.mark.parametrize("length", [WIDTH, WIDTH + 1])
def test_a_mapping_is_on_one_line_if_it_fits(length: int) -> None:
    text = "x" * (length - len("a: {b: }"))
    one_line = f"a: {{b: {text}}}\n"
    expected = one_line if length <= WIDTH else f"a:\n  b: {text}\n"
    assert len(one_line) == length + 1 and block({"a": {"b": text}}) == expected

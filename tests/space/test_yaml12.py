"""YAML 1.2: scalars by the core schema, positions, and files that are none, refused at once."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.core.errors import InputError
from sweeps.space import load
from sweeps.space.parse.nodes import Mark
from sweeps.space.yaml.scalars import scalar
from sweeps.space.yaml.yaml12 import MAX_DEPTH, parse
from tests.space.conftest import HEAD


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *[(word, None) for word in ("", "~", "null", "Null", "NULL")],
        *[(word, True) for word in ("true", "True", "TRUE")],
        *[(word, False) for word in ("false", "False", "FALSE")],
        *[
            (word, word)
            for word in ("no", "yes", "on", "off", "y", "n", "tRue", "nULL", "none", "None")
        ],
        *[
            ("12", 12),
            ("-7", -7),
            ("+3", 3),
            ("012", 12),
            ("0o14", 12),
            ("0x1F", 31),
            ("0b1", "0b1"),
            ("0", 0),
        ],
        *[
            ("1_000", "1_000"),
            ("1:30", "1:30"),
            ("2019-01-01", "2019-01-01"),
            ("0o9", "0o9"),
            ("-0x1", "-0x1"),
        ],
        *[
            ("1e-4", 1e-4),
            ("1E5", 1e5),
            ("1.", 1.0),
            (".5", 0.5),
            ("-.5e1", -5.0),
            ("+1.5", 1.5),
            ("685.230_15e+03", "685.230_15e+03"),
        ],
        *[
            (".inf", math.inf),
            ("-.Inf", -math.inf),
            ("+.INF", math.inf),
            (".", "."),
            ("e5", "e5"),
            ("1e", "1e"),
            ("-", "-"),
            ("inf", "inf"),
        ],
    ],
)
def test_core_schema(text: str, value: object) -> None:
    value_read = scalar(text)
    assert value_read == value and type(value_read) is type(value)


def test_nan_and_numbers_too_large() -> None:
    for word in (".nan", ".NaN", ".NAN"):
        assert math.isnan(scalar(word))  # type: ignore[arg-type]
    for text in ("1e400", "9" * 5000, "0x" + "f" * 5000):
        with pytest.raises(ValueError, match="too large"):
            scalar(text)


@given(st.integers() | st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_round_trip(number: int | float) -> None:
    number_read = scalar(repr(number))
    assert number_read == number and type(number_read) is type(number)


def test_positions_and_values() -> None:
    root = parse("# first\na: 1\nb:\n  - x\n  - {c: 'no', d: no}\ne: |\n  two\n  lines\n", "f")
    assert root.plain() == {"a": 1, "b": ["x", {"c": "no", "d": "no"}], "e": "two\nlines\n"}
    assert root.mark[1:3] == (2, 1)
    inner = root.value["b"].value[1]
    assert inner.mark[1:3] == (5, 5)
    assert inner.value["d"].at == Mark("f", 5, 15) and inner.value["d"].mark == Mark("f", 5, 18)
    assert str(inner.value["d"].mark) == "f:5:18"
    assert inner.show() == "{c: 'no', d: no}"


def test_an_alias_is_what_it_stands_for() -> None:
    root = parse("a: &x {lr: 0.1}\nb: *x\nc: &n [&m 2]\nd: [*n, *m]\n", "f")
    assert root.plain() == {"a": {"lr": 0.1}, "b": {"lr": 0.1}, "c": [2], "d": [[2], 2]}


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 9)
)
TOWER = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 2000))

INVALID = [
    ("", "1:1", "empty"),
    ("# only a comment\n", "1:1", "empty"),
    ("a: 1\na: 2\n", "2:1", "duplicate key `a`; the key is already on line 1"),
    ("a: {b: 1, b: 2}\n", "1:11", "duplicate key `b`"),
    ("a: 1\n'a': 2\n", "2:1", "duplicate key"),
    ("a: !!python/object:os.system {}\n", "1:4", "tag `!!python/object:os.system`"),
    ("a: !!str 1\n", "1:4", "tag `!!str`"),
    ("a: !mine 1\n", "1:4", "tag `!mine`"),
    ("a: ! 1\n", "1:4", "tag `!`"),
    ("!!map {a: 1}\n", "1:1", "tag"),
    ("%YAML 1.1\n---\na: no\n", "2:1", "YAML 1.2"),
    ("a: *x\n", "1:4", "no anchor `&x`"),
    (TOWER, f"{MAX_DEPTH}:12", "deep"),
    ("a:\n\tb: 1\n", "2:1", "tab"),
    ("- a\nb: c\n", "2:1", "indentation"),
    ("a: @x\n", "1:4", "'@'"),
    ("<<: {a: 1}\n", "1:1", "merge keys"),
    ("a: 1e999\n", "1:4", "too large"),
    # written as a bare byte 0xff
    ("a: 1\nb: \x00\n", "2:4", "U+0000"),
    ("\x7fELF\x02\x01", "1:1", "U+007F"),
    ('a: "\\ud800"\n', "1:4", "surrogate"),
    ("x" * 1_000_001, "1:1", "1 MB"),
    ("just text\n", "1:1", "mapping"),
    ("- a\n- b\n", "1:1", "mapping"),
]


@pytest.mark.parametrize(
    ("text", "place", "piece"), INVALID, ids=[piece for _, _, piece in INVALID]
)
def test_one_clear_line_and_quickly(lines: Any, text: str, place: str | None, piece: str) -> None:
    start = time.process_time()
    problems = lines(text)
    assert time.process_time() - start < 5, "a bad file is refused as soon as it is seen to be bad"
    assert len(problems) == 1 and "\n" not in problems[0]
    assert piece in problems[0]
    assert place is None or problems[0].startswith(place + ": ")


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, piece in (
        (".", "directory"),
        ("absent.yaml", "no such file"),
        ("pipe", "must be a regular file"),
        ("a\0b", "cannot be read"),
    ):
        path = f"{tmp_path}/{name}"
        with pytest.raises(InputError) as e:
            load(path)
        assert str(e.value).startswith(f"{path}:1:1: ") and piece in str(e.value)


def test_crlf_and_byte_order_mark(write: Any) -> None:
    text = "\ufeff" + f"{HEAD}space: {{params: {{}}}}\n".replace("\n", "\r\n")
    assert load(write(text)).objective.metric == "valid-logloss"


@given(st.binary(max_size=200))
def test_junk_never_crashes(tmp_path_factory: pytest.TempPathFactory, junk: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "junk.yaml"
    path.write_bytes(junk)
    with pytest.raises(InputError):
        load(path)


@given(st.text(alphabet="ab:-[]{},?&*!|>'\"#% \n\t0.", max_size=60))
def test_yaml_like_junk_never_crashes(text: str) -> None:
    try:
        parse(text, "f").show()
    except InputError as e:
        assert len(e.problems) == 1

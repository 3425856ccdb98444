"""Damaged space files: each is valid, or refused with lines that name a place."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.core.errors import InputError
from sweeps.space import load
from tests.commands import REPO
from tests.fuzz.harness import damage, damaged, fuzzed, held

FILES = sorted((REPO / "search_spaces").glob("*.yaml"))

leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=12),
    st.sampled_from(["1e-4", "no", "0x10", "{a: b}", "*a", "&a"]),
)
keys = st.one_of(
    st.text(max_size=8),
    st.sampled_from(
        [
            "uniform",
            "choice",
            "grid",
            "randint",
            "loguniform",
            "when",
            "params",
            "scaling",
            "preprocessor",
            "data",
            "limits",
            "name",
        ]
    ),
)
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(keys, inner, max_size=4)),
    max_leaves=12,
)


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_damaged_files(file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    whole = file.read_bytes()

    @fuzzed
    @given(damage)
    def check(how: list[tuple[float, int, bytes]]) -> None:
        (folder / file.name).write_bytes(damaged(whole, how))
        outcome = held(folder, lambda: load(folder / file.name))
        if isinstance(outcome, InputError):
            assert all(problem.place for problem in outcome.problems)

    check()


@pytest.mark.parametrize(
    "section",
    [
        "space",
        "space.params",
        "space.scaling",
        "space.preprocessor",
        "data",
        "limits",
        "search",
        "scheduler",
        "objective",
    ],
)
def test_trees_of_any_shape(section: str, tmp_path: Path) -> None:
    import json

    folder = tmp_path / "in"
    folder.mkdir()
    base = (
        "name: a\ntrainer: xgboost\ndata: {train: x.csv, label: y, valid: 0.2}\n"
        "objective: {metric: valid-logloss, goal: minimize}\n"
    )
    base += "limits: {max_trials: 2}\nspace: {params: {eta: 0.1}}\n"
    (folder / "space.yaml").write_text(base)

    @fuzzed
    @given(trees)
    def check(tree: object) -> None:
        held(folder, lambda: load(folder / "space.yaml", (f"{section}={json.dumps(tree)}",)))

    check()

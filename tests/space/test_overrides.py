"""`--set`: keys of a file that are changed before anything is checked."""

from __future__ import annotations

from typing import Any

import pytest

from sweeps.space import load
from tests.space.conftest import HEAD


def test_overrides_are_applied_before_anything_is_checked(write: Any) -> None:
    path = write(
        HEAD + "limits: {max_trials: 0}\nspace:\n  params: {eta: {uniform: [1, 0]}, l: [1, {grid: "
        "[a, b]}]}\n"
    )
    space = load(
        path,
        (
            "limits.max_trials=8",
            "space.params.eta={loguniform: [1e-4, 1e-1]}",
            "space.params.l.1=c",
            "space.scaling.num_workers=2",
            "name=other",
            "data.test=0.1",
            "search.seed=1",
            "search.seed=2",
        ),
    )
    assert (space.limits.max_trials, space.name, space.search.seed) == (8, "other", 2)
    assert [dim.kind for dim in space.dimensions] == ["loguniform"]
    assert space.fill(lambda dim: 0.01)["params"] == {"eta": 0.01, "l": [1, "c"]}
    assert space.shapes[0].workers == 2
    assert space.overrides[0] == "limits.max_trials=8" and "max_trials: 0" in space.text


def test_an_override_changes_one_place_of_an_alias(write: Any) -> None:
    path = write(HEAD + "space:\n  params: {a: &x {lr: 1}, b: *x}\n")
    space = load(path, ("space.params.b.lr=2",))
    assert space.fill(lambda dim: pytest.fail(dim.name))["params"] == {
        "a": {"lr": 1},
        "b": {"lr": 2},
    }


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("=3", "--set =3: must be key.path=value"),
        ("a..b=3", "--set a..b=3: must be key.path=value"),
        (
            "limts.max_trials=1",
            "--set limts.max_trials=1: limts: unknown key; did you mean `limits`?",
        ),
        (
            "limits.max_trils=1",
            "--set limits.max_trils=1: limits.max_trils: unknown key; did you mean `max_trials`?",
        ),
        (
            "space.params.l.7=1",
            (
                "--set space.params.l.7=1: space.params.l is a list of 2 values, so `7` must be "
                "an "
                "index from 0 to 1"
            ),
        ),
        ("search.seed=!!int 3", "--set search.seed=!!int 3: tag `!!int`"),
    ],
)
def test_problems_of_overrides(lines: Any, override: str, line: str) -> None:
    (only_line,) = lines(HEAD + "space:\n  params: {l: [1, 2]}\n", override)
    assert line in only_line

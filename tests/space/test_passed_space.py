"""Search spaces that Python scripts pass as dicts: the same record as a file, and messages with key
paths.
"""

from __future__ import annotations

import enum
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import sweeps
from sweeps.core.errors import InputError
from sweeps.space import Space, load
from sweeps.space.model.domains import DOMAINS
from sweeps.space.python.passed_space import script_path
from tests import user_loops
from tests.shipped_spaces import loadable

SPACE: dict[str, Any] = {
    "name": "passed",
    "trainer": "xgboost",
    "data": {"train": "d.csv", "valid": 0.2, "label": "y"},
    "objective": {"metric": "valid-logloss", "goal": "minimize"},
    "limits": {"max_trials": 50},
    "space": {"params": {"eta": sweeps.loguniform(1e-4, 1)}},
}


def with_params(**params: Any) -> dict[str, Any]:
    return {**SPACE, "space": {"params": params}}


def in_python(value: Any) -> Any:
    """Return plain values of a file with the functions of `sweeps` in place of the domains."""
    if isinstance(value, list):
        return [in_python(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    inside = {key: in_python(inner) for key, inner in value.items()}
    kinds = [key for key in inside if key != "when"]
    if len(kinds) == 1 and (kind := kinds[0]) in DOMAINS:
        arguments = inside[kind] or []
        return getattr(sweeps, kind)(
            *([arguments] if kind in ("grid", "choice") else arguments), when=inside.get("when")
        )
    return inside


def same(one: Space, other: Space) -> bool:
    """Return whether two spaces differ only in where they come from."""
    return (
        replace(one, path=other.path, text=other.text, overrides=other.overrides, name=other.name)
        == other
    )


# ---- the same record as a file


@pytest.mark.parametrize("file", loadable(), ids=lambda file: file.stem)
def test_a_file_that_ships_becomes_the_same_yaml_from_python(file: Path, tmp_path: Path) -> None:
    of_file = load(file)
    of_dict = load(in_python(of_file.tree_with_overrides.plain()), base=file.parent)
    assert of_dict.to_yaml() == of_dict.text == of_file.to_yaml()
    assert same(of_dict, of_file)
    written = tmp_path / file.name
    written.write_text(of_dict.to_yaml())
    assert same(load(written, base=file.parent), of_file)


def test_the_domains_are_those_of_the_space_file() -> None:
    assert set(DOMAINS) <= set(sweeps.__all__)
    assert sweeps.choice(["a", "b"], when={"params.x": 1}) == {
        "choice": ["a", "b"],
        "when": {"params.x": 1},
    }
    assert (
        sweeps.randn() == {"randn": []}
        and sweeps.randn(sd=2.0) == {"randn": [0.0, 2.0]}
        and sweeps.randn(1.0) == {"randn": [1.0]}
    )
    assert sweeps.qrandint(0, 4) == {"qrandint": [0, 4]}


def test_values_of_python_become_plain() -> None:
    class Booster(enum.StrEnum):
        TREE = "gbtree"

    params = {
        "a": np.float64(0.5),
        "b": sweeps.grid(np.array([1, 2])),
        "c": range(3),
        "d": (1, np.bool_(True)),
        "e": Path("x/y"),
        "f": Booster.TREE,
    }
    text = load(
        with_params(eta=sweeps.uniform(0, 1), **params) | {"trainer": user_loops.plain}
    ).text
    lines = [line.strip() for line in text.splitlines()]
    assert {
        "a: 0.5",
        "b: {grid: [1, 2]}",
        "c: [0, 1, 2]",
        "d: [1, true]",
        "e: x/y",
        "f: gbtree",
    } <= set(lines)


def test_overrides_apply_to_a_dict_and_to_a_space() -> None:
    space = load(SPACE, ("limits.max_trials=8",))
    assert (
        space.limits.max_trials == 8
        and "max_trials: 50" in space.text
        and "max_trials: 8" in space.to_yaml()
    )
    changed = load(space, ("search.seed=3",))
    assert (
        changed.overrides == ("limits.max_trials=8", "search.seed=3")
        and changed.limits.max_trials == 8
        and changed.search.seed == 3
    )


def test_a_script_takes_the_place_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert script_path() == tmp_path / "sweep", "pytest is no script of the user's"
    script = tmp_path / "scripts" / "tune.py"
    script.parent.mkdir()
    script.touch()
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(script), raising=False)
    space = load({key: value for key, value in SPACE.items() if key != "name"})
    assert (space.name, space.path, space.data.base) == ("tune", script, script.parent)
    monkeypatch.delattr(sys.modules["__main__"], "__file__")
    assert script_path() == tmp_path / "sweep"


# ---- functions, classes and tables


def test_functions_and_classes_of_modules_are_named() -> None:
    from sklearn.svm import SVC

    space = load({**SPACE, "trainer": {"loop": user_loops.plain, "load": user_loops.wait_for}})
    assert (space.trainer.loop, space.trainer.load) == (
        "tests.user_loops:plain",
        "tests.user_loops:wait_for",
    )
    assert space.functions is None and not space.notes
    space = load(
        {
            **SPACE,
            "trainer": SVC,
            "objective": {"metric": "valid-accuracy", "goal": "maximize"},
            "space": {"params": {"C": sweeps.uniform(1, 2)}},
        }
    )
    assert 'trainer: {estimator: "sklearn.svm:SVC"}\n' in space.text


def test_tables_of_the_section_data_are_taken_out() -> None:
    frame = pd.DataFrame({"x": [1], "y": [0]})
    space = load({**SPACE, "data": {"train": frame, "valid": 0.5, "label": "y"}})
    assert dict(space.tables) == {"train": frame} and "data: {valid: 0.5, label: y}\n" in space.text
    assert load(space).tables["train"] is frame


# ---- messages


def message(space: Any, *overrides: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        load(space, overrides)
    return str(caught.value).splitlines()


def test_messages_name_the_key_path() -> None:
    wrong = with_params(eta=sweeps.loguniform(0, 1), depth=sweeps.choice([1, 1])) | {
        "objective": {"goal": "minimise"},
        "limitz": 3,
    }
    wrong["limits"] = {"max_trials": "8"}
    assert message(wrong, "limits.timeout=7q") == [
        (
            "objective.metric: is required; give the name of a metric that the trainer reports, "
            "such "
            "as valid-logloss"
        ),
        "objective.goal: must be minimize or maximize, got minimise; did you mean `minimize`?",
        "limits.max_trials: must be an integer of at least 1, got '8'; write it without quotes",
        "space.params.eta.loguniform: loguniform needs 0 < lower < upper, got [0, 1]",
        "space.params.depth.choice.1: choice has the same option twice: 1 (options 1 and 2)",
        "limitz: unknown key; did you mean `limits`?",
        (
            "--set limits.timeout=7q: limits.timeout: must be a time above 0 such as 90s, 30m, "
            "1h30m "
            "or a number of seconds, got 7q"
        ),
    ]


def test_missing_sections_are_named() -> None:
    problems = message({})
    assert [line.partition(": ")[0] for line in problems] == [
        "data.train",
        "data.valid",
        "objective.goal",
        "objective.metric",
        "space",
        "trainer",
    ]


DEEP: Any = 1
for _ in range(60):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (
            {1, 2},
            (
                "is an object of set, but must be a number, a text, a list, a dict, a domain such "
                "as "
                "sweeps.loguniform(1e-4, 1), a function "
            ),
        ),
        (pd.DataFrame(), "is an object of pandas.DataFrame, but must be"),
        (
            DEEP,
            "the values are nested too deep; at most 50 levels are allowed",
        ),
    ],
    ids=["set", "frame", "deep"],
)
def test_other_objects_are_refused(value: Any, text: str) -> None:
    (line,) = message(with_params(eta=sweeps.uniform(0, 1), other=value))
    assert line.startswith("space.params.other") and text in line


def test_a_key_that_yaml_lacks_is_refused() -> None:
    (line,) = message(with_params(other={("a", "b"): 1}))
    assert (
        line
        == "space.params.other: the key ('a', 'b') must be a text, a number, a function or a class"
    )


def test_a_space_that_no_command_could_read_again_is_refused() -> None:
    (line,) = message(with_params(one="x" * 600_000, other="x" * 600_000))
    assert line.startswith("space: has more than 1,000,000 bytes as YAML")


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ([[0.25] * 40] * 9000, "about 2.2 MB"),
        (np.zeros((200, 100)), "about 0.1 MB"),
        ("x" * 3_000_000, "about 3.0 MB"),
        ({"table": tuple(range(20_000))}, "about 0.1 MB"),
    ],
)
def test_a_large_constant_is_named_with_its_size(value: Any, size: str) -> None:
    (line,) = message(with_params(other=value))
    assert line.startswith("space.params.other") and size in line and "`data`" in line


def test_a_long_text_with_commas_is_no_list() -> None:
    load(with_params(other="a, " * 50_000))


def test_domains_of_other_tools_are_refused() -> None:
    import optuna

    (line,) = message(with_params(eta=optuna.distributions.FloatDistribution(0, 1)))
    assert line == (
        "space.params.eta: is a domain of another tool (optuna.distributions.FloatDistribution); "
        "write a domain of sweeps, such as "
        "sweeps.loguniform(1e-4, 1)"
    )


def test_an_object_is_no_space() -> None:
    assert message(3) == [
        "space: must be the path of a space file, a dict or a sweeps.Space, or a table and "
        "`label=`, got int"
    ]

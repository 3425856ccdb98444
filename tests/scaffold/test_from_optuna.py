"""`sweeps init` from a study of Optuna."""

from __future__ import annotations

import ast
import math
import re
import sqlite3
from typing import Any

import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from sweeps.core.errors import InputError
from sweeps.scaffold.from_optuna import parameters_of, params_lines
from sweeps.scaffold.optuna_study import best_points, open_study
from sweeps.scaffold.yaml_text import comment_lines, line
from sweeps.space import load
from sweeps.space.model.conditions import Key
from sweeps.space.yaml.yaml12 import parse
from tests import postgres
from tests.scaffold.init_command import refused, run

pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")


OBJECTIVE = """\
import optuna

def objective(trial):
    lr = trial.suggest_float("lr", 1e-4, 1e-1, log=True)
    depth = trial.suggest_int("depth", 1, 8)
    booster = trial.suggest_categorical("booster", ["gbtree", "dart"])
    if booster == "dart":
        trial.suggest_float("drop", 0.0, 0.5)
    else:
        trial.suggest_int("gamma", 0, 10, step=5)
    for step in range(5):
        trial.report(lr * depth / (step + 1), step)
        if trial.should_prune():
            raise optuna.TrialPruned
    return lr * depth
"""


def test_a_choice_decides_which_trials_have_a_parameter() -> None:
    booster = CategoricalDistribution(["a", "b", "c"])
    own = FloatDistribution(0, 1)
    trials: list[tuple[dict[str, Key], dict[str, BaseDistribution]]] = [
        (
            {"k": k, **({"x": 0.5} if k != "a" else {})},
            {"k": booster, **({"x": own} if k != "a" else {})},
        )
        for k in "abcab"
    ]
    dimensions, notes = parameters_of(trials)
    assert dimensions[1].when == ("k", ("b", "c")) and not notes
    assert params_lines(dimensions) == [
        "    k: {choice: [a, b, c]}",
        "    x: {uniform: [0.0, 1.0], when: {params.k: [b, c]}}",
    ]
    trials.append(({"k": "a", "x": 0.1}, {"k": booster, "x": own}))
    dimensions, notes = parameters_of(trials)
    assert dimensions[1].when is None and "no single choice decides which" in notes[0]


def test_options_that_yaml_cannot_hold() -> None:
    options: Any = [(1, 2)]
    trials: Any = [({"a": (1, 2)}, {"a": CategoricalDistribution(options)})]
    with pytest.raises(InputError, match="the option \\(1, 2\\) is no text, number or boolean"):
        params_lines(parameters_of(trials)[0])


@pytest.mark.parametrize("kind", ["journal", "sqlite"])
def test_a_study(here: Any, kind: str) -> None:
    (here / "own_objective.py").write_text(OBJECTIVE)
    from own_objective import objective

    if kind == "journal":
        storage: JournalStorage | str = JournalStorage(JournalFileBackend("study"))
    else:
        storage = "sqlite:///study"
    study = optuna.create_study(
        storage=storage,
        study_name="churn",
        direction="maximize",
        sampler=optuna.samplers.RandomSampler(seed=0),
    )
    study.optimize(objective, n_trials=6)
    output = run("--from-optuna", "study")
    assert (
        "wrote space.yaml and space_loop.py\nnext: move your objective into space_loop.py, then "
        "sweeps plan space.yaml, then" in output
    )
    assert "\nnext: sweeps plan space.yaml, then" in run("--from-optuna", "study", "--force")
    assert " Its 3 best trials are run first." in (here / "space.yaml").read_text().replace(
        "\n# ", " "
    )
    space = load("space.yaml")
    assert {dim.name: [term.name for term in dim.when] for dim in space.dimensions} == {
        "params.lr": [],
        "params.depth": [],
        "params.booster": [],
        "params.drop": ["params.booster"],
        "params.gamma": ["params.booster"],
    }
    assert space.objective.goal == "maximize"
    best = sorted(study.trials, key=lambda trial: trial.values, reverse=True)[:3]
    assert [point.keys["params.lr"] for point in space.search.initial_points] == [
        trial.params["lr"] for trial in best
    ]
    assert "has no study `chrun`; did you mean `churn`" in refused(
        "other.yaml", "--from-optuna", "study", "--study", "chrun"
    )


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 9), st.floats(-5, 5), st.floats(-1, 1)), max_size=9),
    st.sampled_from(["minimize", "maximize"]),
)
def test_the_best_points_are_the_best_feasible_trials(rows: Any, direction: Any) -> None:
    study = optuna.create_study(direction=direction)
    for n, value, violation in rows:
        trial = optuna.create_trial(
            params={"n": n}, distributions={"n": IntDistribution(1, 9)}, value=value
        )
        trial.set_constraint("c", violation)
        study.add_trial(trial)
    points = [point["n"] for point in best_points(study, {"n": IntDistribution(2, 9)})]
    sign = 1 if direction == "minimize" else -1
    ranked = [
        n
        for n, _, violation in sorted(rows, key=lambda row: sign * row[1])
        if n >= 2 and violation <= 0
    ]
    assert points == list(dict.fromkeys(ranked))[:3]


# A stranger's name, which ends strings and lines, names a variable, and controls a terminal.
NAME = '\x1b[31m"""\nraise SystemExit\n# \u2028}]: ${HOME} LOOP_MODULE \ufffe <a> `x`'


def write_study(
    here: Any, params: Any, distributions: Any, name: str = "s", metrics: Any = ("loss",)
) -> None:
    """Write a study with one trial into the journal `study`."""
    storage = JournalStorage(JournalFileBackend(str(here / "study")))
    study = optuna.create_study(
        storage=storage, study_name=name, directions=["minimize"] * len(metrics)
    )
    study.set_metric_names(list(metrics))
    study.add_trial(
        optuna.trial.create_trial(
            params=params, distributions=distributions, values=[1.0] * len(metrics)
        )
    )


def test_texts_of_a_stranger_stay_texts_in_both_files(here: Any) -> None:
    params = {NAME: 0.5, "k": NAME}
    distributions = {
        NAME: FloatDistribution(0, 1),
        "k": CategoricalDistribution([NAME, "${HOME}", math.inf, None]),
    }
    write_study(here, params, distributions, name=NAME, metrics=[NAME, "b"])
    run("--from-optuna", "study")
    space = load("space.yaml")
    assert [dim.name for dim in space.dimensions] == [f"params.{NAME}", "params.k"]
    assert [option.value for option in space.dimensions[1].options] == [
        NAME,
        "${HOME}",
        math.inf,
        None,
    ]
    assert [o.metric for o in space.objectives] == [NAME, "b"]
    assert space.search.initial_points[0].keys == {f"params.{NAME}": 0.5, "params.k": NAME}
    written = (here / "space.yaml").read_text() + (here / "space_loop.py").read_text()
    assert all(c.isprintable() or c == "\n" for c in written)
    tree = ast.parse((here / "space_loop.py").read_text())
    assert [type(node) for node in tree.body] == [ast.Import, ast.FunctionDef]


@settings(max_examples=50, deadline=None)
@given(st.text(st.characters(exclude_categories=()), max_size=12), st.text(max_size=5))
def test_a_comment_is_one_line_that_yaml_and_python_accept(text: Any, word: Any) -> None:
    written = "\n".join([*comment_lines(f"{text} {word}"), line("a: 1", text)])
    assert parse(written, "").plain() == {"a": 1}
    assert compile("\n".join(comment_lines(text)), "", "exec").co_names == ()


def test_a_wide_range_with_a_step_stays_a_range(here: Any) -> None:
    distributions = {
        "n": IntDistribution(1, 10**9, step=3),
        "x": FloatDistribution(0.05, 10**6 + 0.05, step=0.1),
    }
    write_study(here, {"n": 7, "x": 0.05 + 0.1 * 3}, distributions)
    run("--from-optuna", "study")
    texts = {
        dim.name: (dim.kind, dim.lower, dim.upper, dim.q) for dim in load("space.yaml").dimensions
    }
    assert texts == {
        "params.n": ("qrandint", 1, 10**9, 3),
        "params.x": ("quniform", 0.05, 10**6 + 0.05, 0.1),
    }
    assert len((here / "space.yaml").read_text()) < 1000


def test_an_initial_point_has_no_constants_and_no_rounding_errors(here: Any) -> None:
    distributions = {
        "n": IntDistribution(3, 3),
        "k": CategoricalDistribution(["only"]),
        "x": FloatDistribution(0, 1, step=0.1),
    }
    write_study(here, {"n": 3, "k": "only", "x": 0.1 * 3}, distributions)
    run("--from-optuna", "study")
    (point,) = load("space.yaml").search.initial_points
    assert point.keys == {"params.x": 0.3}


@pytest.mark.parametrize(
    ("name", "distribution", "message"),
    [
        ("when", IntDistribution(0, 5), "`when` is allowed only beside a domain"),
        ("\ud800", IntDistribution(0, 5), "half a surrogate pair"),
        ("x", IntDistribution(0, 2**70), "upper must be within 64 bits"),
        ("x", FloatDistribution(-math.inf, 1), "lower must be finite, got [-.inf, 1.0]"),
        ("x", CategoricalDistribution(range(20_000)), "too many values"),
    ],
)
def test_a_file_that_would_not_be_valid_is_not_written(
    here: Any, name: str, distribution: Any, message: str
) -> None:
    write_study(here, {name: 1}, {name: distribution}, name="a\nb")
    (here / "space.yaml").write_text("old")
    (shown,) = refused("--from-optuna", "study", "--force").splitlines()
    assert message in shown
    assert (here / "space.yaml").read_text() == "old"
    assert sorted(path.name for path in here.iterdir()) == ["space.yaml", "study"]


@pytest.mark.parametrize(
    "storage",
    [
        "missing.db",
        "sqlite:///missing.db",
        "sqlite:///file:missing.db?mode=rwc&uri=true",
    ],
)
def test_a_missing_database_is_not_created(here: Any, storage: str) -> None:
    assert refused("--from-optuna", storage) == "--from-optuna: missing.db: there is no such file\n"
    assert not list(here.iterdir())


@pytest.mark.parametrize(
    "storage",
    [
        "study.db",
        "sqlite:///study.db",
        "sqlite:///file:study.db?mode=rwc&uri=true",
    ],
)
def test_a_database_is_opened_for_reading(here: Any, storage: str) -> None:
    optuna.create_study(storage="sqlite:///study.db", study_name="s")
    study = open_study(storage, None)
    with pytest.raises(optuna.exceptions.StorageInternalError) as caught:
        study.set_user_attr("a", 1)
    assert "readonly database" in str(caught.value.__cause__)


@pytest.mark.integration
def test_a_postgresql_database_is_opened_for_reading(here: Any) -> None:
    with postgres.server() as url:
        message = refused("--from-optuna", url)
        assert (
            'relation "version_info" does not exist' in message and postgres.PASSWORD not in message
        )
        optuna.create_study(storage=url.replace(":", "+psycopg2:", 1), study_name="s")
        with pytest.raises(optuna.exceptions.StorageInternalError) as caught:
            open_study(url, None).set_user_attr("a", 1)
        assert "read-only transaction" in str(caught.value.__cause__)


def test_storages_that_cannot_be_read(here: Any) -> None:
    assert "nothing.db: there is no such file" in refused("--from-optuna", "nothing.db")
    sqlite3.connect(here / "other.db").execute("create table t (x int)").connection.close()
    before = (here / "other.db").read_bytes()
    assert "other.db cannot be read: no such table" in refused("--from-optuna", "other.db")
    assert "oracle is no database of Optuna" in refused("--from-optuna", "oracle://host/study")
    assert (here / "other.db").read_bytes() == before
    (here / "text.log").write_text("hello\n")
    assert re.search("text.log (cannot be read|has no study)", refused("--from-optuna", "text.log"))

"""`sweeps init` from a W&B sweep, an Optuna study and an Optuna objective."""

from __future__ import annotations

import re
import sqlite3
import sys

import optuna
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from sweeps.cli import main
from sweeps.core.errors import InputError
from sweeps.scaffold.from_objective import suggestions_in
from sweeps.scaffold.from_optuna import best_points, domain, parameters_of, params_lines
from sweeps.scaffold.from_wandb import space_text
from sweeps.space import load
from sweeps.space.yaml12 import parse


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in ("own_objective", "space_loop"):
        sys.modules.pop(name, None)


def run(*arguments):
    done = CliRunner().invoke(main, ["init", *map(str, arguments)])
    assert done.exit_code == 0, done.output
    return done.output


def refused(*arguments):
    done = CliRunner().invoke(main, ["init", *map(str, arguments)])
    assert done.exit_code == 2, done.output
    return done.output


# ---- W&B

SWEEP = """\
program: fit.py
method: bayes
metric: {name: loss, goal: minimize}
early_terminate: {type: hyperband, min_iter: 5, max_iter: 27, s: 2, eta: 3}
run_cap: 40
parameters:
  lr: {distribution: log_uniform_values, min: 0.0001, max: 0.1}
  old: {distribution: log_uniform, min: -9.2, max: -2.3}
  layers: {min: 1, max: 8}
  dropout: {min: 0.0, max: 0.5}
  optimizer: {values: [adam, sgd]}
  epochs: {value: 27}
  net:
    parameters:
      width: {distribution: q_uniform, min: 8, max: 64, q: 8}
"""


def test_a_wandb_sweep(here):
    (here / "fit.py").write_text("")
    (here / "sweep.yaml").write_text(SWEEP)
    assert run("--from-wandb", "sweep.yaml").startswith("wrote space.yaml\n")
    space = load("space.yaml")
    params = {
        dim.name.removeprefix("params."): (dim.kind, dim.lower, dim.upper)
        for dim in space.dimensions
    }
    assert params == {
        "lr": ("loguniform", 0.0001, 0.1),
        "old": ("loguniform", pytest.approx(0.000101, rel=0.01), pytest.approx(0.100259, rel=0.01)),
        "layers": ("randint", 1, 9),
        "dropout": ("uniform", 0.0, 0.5),
        "optimizer": ("choice", None, None),
        "net.width": ("quniform", 8, 64),
    }
    assert space.sections["params"]["epochs"] == 27
    assert (space.search.algorithm, space.limits.max_trials, space.scheduler.name) == (
        "gp",
        40,
        "hyperband",
    )
    assert {
        key: space.scheduler.options[key] for key in ("max_t", "grace_period", "reduction_factor")
    } == {
        "max_t": 27,
        "grace_period": 5,
        "reduction_factor": 3,
    }


def test_a_grid_and_a_command_with_variables(here, monkeypatch):
    monkeypatch.setenv("DATA", "d")
    (here / "fit.py").write_text("")
    (here / "sweep.yaml").write_text(
        "method: grid\ncommand: ['${env}', python3, fit.py, --data, '${envvar:DATA}', '${args_no_hyphens}']\n"
        "parameters: {a: {values: [1, 2]}, b: {values: [x]}}\n"
    )
    run("--from-wandb", "sweep.yaml")
    space = load("space.yaml")
    assert space.trainer.options["command"] == ["python3", "fit.py", "--data", "d", "{args}"]
    assert [dim.kind for dim in space.dimensions] == ["grid"] and space.limits.max_trials == 2
    text = (here / "space.yaml").read_text()
    assert "`${args_no_hyphens}` became" in text and "replace `loss` by the metric" in text


def test_a_distribution_without_counterpart_is_named():
    text = "parameters: {a: {distribution: inv_log_uniform, min: 1, max: 2}, b: 3}\n"
    with pytest.raises(InputError) as caught:
        space_text(parse(text, "w.yaml"), "w.yaml")
    first, second = map(str, caught.value.problems)
    assert (
        first.startswith("w.yaml:1:")
        and "parameters.a: the distribution `inv_log_uniform` has no counterpart" in first
    )
    assert "parameters.b: must be a mapping" in second
    with pytest.raises(InputError, match="is not a W&B sweep"):
        space_text(parse("a: 1", "w.yaml"), "w.yaml")


# ---- Optuna

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

DISTRIBUTIONS = (
    st.tuples(st.integers(-50, 50), st.integers(1, 50), st.sampled_from([1, 2, 5])).map(
        lambda t: IntDistribution(t[0], t[0] + t[1] * t[2], step=t[2])
    )
    | st.tuples(st.integers(1, 50), st.integers(1, 50)).map(
        lambda t: IntDistribution(t[0], t[0] + t[1], log=True)
    )
    | st.tuples(st.floats(-10, 10), st.floats(0.1, 10)).map(
        lambda t: FloatDistribution(t[0], t[0] + t[1])
    )
    | st.tuples(st.floats(1e-6, 1), st.floats(1.5, 100)).map(
        lambda t: FloatDistribution(t[0], t[0] * t[1], log=True)
    )
    | st.tuples(st.integers(-20, 20), st.integers(1, 20)).map(
        lambda t: FloatDistribution(t[0] / 4, (t[0] + t[1]) / 4, step=0.25)
    )
    | st.lists(
        st.text("abc 1", max_size=4) | st.integers(-5, 5) | st.booleans() | st.none(),
        min_size=1,
        max_size=4,
        unique_by=repr,
    ).map(CategoricalDistribution)
)


@given(DISTRIBUTIONS)
def test_every_distribution_is_a_valid_domain_with_the_same_ends(distribution):
    from sweeps.space.domains import RULES, argument_problems

    read = parse(f"a: {domain(distribution)}", "").value["a"]
    if not read.is_map:
        assert distribution.single()
        return
    ((kind, arguments),) = read.plain().items()
    if kind == "choice":
        return
    assert list(argument_problems(kind, arguments)) == []
    high = arguments[1] - 1 if kind in ("randint", "lograndint") else arguments[1]
    assert (arguments[0], high) == (distribution.low, distribution.high)
    assert RULES[kind].log == bool(distribution.log)


def test_a_choice_decides_which_trials_have_a_parameter():
    booster = CategoricalDistribution(["a", "b", "c"])
    own = FloatDistribution(0, 1)
    trials = [
        (
            {"k": k, **({"x": 0.5} if k != "a" else {})},
            {"k": booster, **({"x": own} if k != "a" else {})},
        )
        for k in "abcab"
    ]
    found, notes = parameters_of(trials)
    assert found[1].when == ("k", ("b", "c")) and not notes
    assert params_lines(found) == [
        "    k: {choice: [a, b, c]}",
        "    x: {uniform: [0.0, 1.0], when: {params.k: [b, c]}}",
    ]
    trials.append(({"k": "a", "x": 0.1}, {"k": booster, "x": own}))
    found, notes = parameters_of(trials)
    assert found[1].when is None and "no single choice decides which" in notes[0]


def test_options_that_yaml_cannot_hold():
    with pytest.raises(InputError, match="the option \\(1, 2\\) is no text, number or boolean"):
        params_lines(parameters_of([({"a": (1, 2)}, {"a": CategoricalDistribution([(1, 2)])})])[0])


@pytest.mark.parametrize("kind", ["journal", "sqlite"])
def test_a_study(here, kind):
    (here / "own_objective.py").write_text(OBJECTIVE)
    from own_objective import objective

    if kind == "journal":
        storage = optuna.storages.JournalStorage(
            optuna.storages.journal.JournalFileBackend("study")
        )
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
        "wrote space.yaml and space_loop.py\nnext: move your objective into space_loop.py, then sweeps plan space.yaml, then"
        in output
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
    best = sorted(study.trials, key=lambda trial: -trial.value)[:3]
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
def test_the_best_points_are_the_best_feasible_trials(rows, direction):
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


def test_storages_that_cannot_be_read(here):
    assert "nothing.db: there is no such file" in refused("--from-optuna", "nothing.db")
    sqlite3.connect(here / "other.db").execute("create table t (x int)").connection.close()
    before = (here / "other.db").read_bytes()
    assert "other.db cannot be read" in refused("--from-optuna", "other.db")
    assert (here / "other.db").read_bytes() == before
    (here / "text.log").write_text("hello\n")
    assert re.search("text.log (cannot be read|has no study)", refused("--from-optuna", "text.log"))


def test_an_objective(here, monkeypatch):
    (here / "own_objective.py").write_text(OBJECTIVE)
    output = run("--from-objective", "own_objective:objective")
    assert "wrote space.yaml and space_loop.py" in output
    space = load("space.yaml")
    assert [dim.name for dim in space.dimensions][:3] == [
        "params.lr",
        "params.depth",
        "params.booster",
    ]
    missing = {"drop", "gamma"} - {dim.name.removeprefix("params.") for dim in space.dimensions}
    text = (here / "space.yaml").read_text()
    assert all(f"{name} (line " in text for name in missing) and len(missing) == 1
    assert space.scheduler.options["max_t"] == 6

    import ray.train

    reports = []
    monkeypatch.setattr(ray.train, "report", reports.append)
    from space_loop import train

    train({"lr": 0.01, "depth": 2, "booster": "gbtree", "gamma": 5, "drop": 0.1})
    assert [report["objective"] for report in reports] == pytest.approx(
        [0.02, 0.01, 0.02 / 3, 0.005, 0.004, 0.02]
    )


def test_several_values(here):
    (here / "own_objective.py").write_text(
        "def objective(trial):\n    x = trial.suggest_float('x', 0, 1)\n    return x, 1 - x\n"
    )
    assert "returned 2 values; give `--direction minimize` or" in refused(
        "--from-objective", "own_objective:objective"
    )
    run(
        "--from-objective",
        "own_objective:objective",
        "--direction",
        "minimize",
        "--direction",
        "maximize",
    )
    assert [(o.metric, o.goal) for o in load("space.yaml").objectives] == [
        ("objective_0", "minimize"),
        ("objective_1", "maximize"),
    ]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def objective(trial):\n    return 1.0\n", "suggested no parameter"),
        (
            "def objective(trial):\n    trial.suggest_int('n', 1, 2)\n    raise KeyError('gone')\n",
            "raised KeyError: 'gone' (own_objective.py, line 3)",
        ),
        (
            "def objective(trial):\n    trial.suggest_int('n', 1, 2)\n    return 'good'\n",
            "returned 'good', but must return a number",
        ),
        (
            "import optuna\nimport nowhere\nobjective = 3\n",
            "No module named 'nowhere' (own_objective.py, line 2)",
        ),
        (
            "def objective(trial):\n    return (\n",
            "cannot be imported: SyntaxError: '(' was never closed (own_objective.py, line 2)",
        ),
        ("import json\njson.loads('{')\nobjective = 3\n", "cannot be imported: JSONDecodeError: "),
        (
            "import sys\nsys.exit(3)\nobjective = 3\n",
            "cannot be imported: SystemExit: 3 (own_objective.py, line 2)",
        ),
        ("objective = 3\n", "has the type int, but must be a function"),
        ("other = 3\n", "has no `objective`"),
    ],
)
def test_objectives_that_cannot_be_recorded(here, code, message):
    (here / "own_objective.py").write_text(code)
    (line,) = refused("--from-objective", "own_objective:objective").splitlines()
    assert line.startswith("--from-objective: ") and message in line
    assert not (here / "space.yaml").exists()


def test_a_file_instead_of_a_module(here):
    (here / "own_objective.py").write_text(OBJECTIVE)
    assert (
        "no module `own_objective.py`; write `own_objective:objective`, without `.py`"
        in refused("--from-objective", "own_objective.py:objective")
    )
    assert "is not a reference; write `sub.fit:train`" in refused(
        "--from-objective", "./sub/fit.py:train"
    )
    run("opt.yaml", "--from-objective", "own_objective:objective")
    assert load("opt.yaml").name == "opt"


def test_suggestions_in_a_source():
    source = "def f(t):\n    t.suggest_int('a', 1, 2)\n    if x:\n        t.suggest_float(name='b', low=0, high=1)\n    t.suggest_int(n, 1, 2)\n"
    assert suggestions_in(source) == [("a", 2), ("b", 4)]
    assert suggestions_in("def") == []

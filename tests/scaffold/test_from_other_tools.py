"""`sweeps init` from a W&B sweep, an Optuna study and an Optuna objective."""

from __future__ import annotations

import ast
import json
import math
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
from sweeps.scaffold.from_optuna import parameters_of, params_lines
from sweeps.scaffold.from_wandb import space_text
from sweeps.scaffold.optuna_study import best_points, open_study
from sweeps.scaffold.yaml_text import comment_lines, line
from sweeps.space import load
from sweeps.space.yaml.yaml12 import parse
from tests import postgres

pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")


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
        "net.width": ("qrandint", 8, 64),
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
        "method: grid\ncommand: ['${env}', python3, fit.py, '{\"], a: b', '${envvar:DATA}', "
        "'${args_no_hyphens}']\n"
        "parameters: {a: {values: [1, 2]}, b: {values: [x]}}\n"
    )
    run("--from-wandb", "sweep.yaml")
    space = load("space.yaml")
    assert space.trainer.options["command"] == ["python3", "fit.py", '{"], a: b', "d", "{args}"]
    assert [dim.kind for dim in space.dimensions] == ["grid"] and space.limits.max_trials == 2
    text = (here / "space.yaml").read_text()
    assert "`${args_no_hyphens}` became" in text and "replace `loss` by the metric" in text


def test_each_key_that_is_not_translated_is_named(here):
    (here / "fit.py").write_text("")
    (here / "sweep.yaml").write_text(
        "program: fit.py\nmethod: random\nrun_cap: 2\nproject: p\nearly_terminate: hyperband\n"
        "metric: {name: loss, target: 0.0, impute: worst}\n"
        "parameters:\n  a: {values: [1, 2], probabilities: [0.1, 0.9]}\n"
        "  net: {parameters: {width: {min: 0.5, max: 1.0, note: wide}}}\n"
        "  e: {distribution: log_uniform, min: 2, max: 5}\n"
    )
    run("--from-wandb", "sweep.yaml")
    text = " ".join((here / "space.yaml").read_text().replace("#", "").split())
    assert (
        "left out: project, early_terminate, metric.impute, parameters.a.probabilities, "
        "parameters.net.parameters.width.note." in text
    )
    assert "metric.target: add `target: 0.0` to `limits`" in text
    assert "parameters.e: the bounds are computed (e^2, e^5)" in text
    dim = load("space.yaml").dimensions[-1]
    assert (dim.kind, dim.lower, dim.upper) == ("loguniform", 7.38906, 148.413)


def test_a_program_elsewhere_is_a_note(here):
    (here / "sweep.yaml").write_text("program: far.py\nparameters: {a: {values: [1, 2]}}\n")
    shown = run("--from-wandb", "sweep.yaml")
    assert shown.startswith("wrote space.yaml\n") and "no file `far.py`" in shown
    assert (here / "space.yaml").exists()


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


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("run_cap", "5}\nname: evil", "limits.max_trials: must be an integer"),
        ("metric", {"name": "a", "goal": "minimize}\nname: evil"}, "objective.goal: must be"),
        ("method", "a\nb", "method: must be grid, random, bayes, got a b"),
        (
            "parameters",
            {"x": {"distribution": "q_log_uniform", "min": 0, "max": 2, "q": "1]}\ny: 1"}},
            "the distribution `q_log_uniform` has no counterpart",
        ),
        (
            "parameters",
            {"x": {"distribution": "log_uniform", "min": 0, "max": 1000}},
            "write {loguniform: [lower, upper]} with 0 < lower < upper",
        ),
    ],
)
def test_texts_of_a_wandb_sweep_do_not_become_keys(here, key, value, message):
    (here / "fit.py").write_text("")
    sweep = {"program": "fit.py", "parameters": {"x": {"min": 0.0, "max": 1.0}}, key: value}
    (here / "sweep.yaml").write_text(json.dumps(sweep))
    (shown,) = refused("--from-wandb", "sweep.yaml").splitlines()
    assert message in shown and not (here / "space.yaml").exists()


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
    dimensions, notes = parameters_of(trials)
    assert dimensions[1].when == ("k", ("b", "c")) and not notes
    assert params_lines(dimensions) == [
        "    k: {choice: [a, b, c]}",
        "    x: {uniform: [0.0, 1.0], when: {params.k: [b, c]}}",
    ]
    trials.append(({"k": "a", "x": 0.1}, {"k": booster, "x": own}))
    dimensions, notes = parameters_of(trials)
    assert dimensions[1].when is None and "no single choice decides which" in notes[0]


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


# A stranger's name, which ends strings and lines, names a variable, and controls a terminal.
NAME = '\x1b[31m"""\nraise SystemExit\n# \u2028}]: ${HOME} LOOP_MODULE \ufffe <a> `x`'


def write_study(here, params, distributions, name="s", metrics=("loss",)):
    """Write a study with one trial into the journal `study`."""
    storage = optuna.storages.JournalStorage(
        optuna.storages.journal.JournalFileBackend(str(here / "study"))
    )
    study = optuna.create_study(
        storage=storage, study_name=name, directions=["minimize"] * len(metrics)
    )
    study.set_metric_names(list(metrics))
    study.add_trial(
        optuna.trial.create_trial(
            params=params, distributions=distributions, values=[1.0] * len(metrics)
        )
    )


def test_texts_of_a_stranger_stay_texts_in_both_files(here):
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
def test_a_comment_is_one_line_that_yaml_and_python_accept(text, word):
    written = "\n".join([*comment_lines(f"{text} {word}"), line("a: 1", text)])
    assert parse(written, "").plain() == {"a": 1}
    assert compile("\n".join(comment_lines(text)), "", "exec").co_names == ()


def test_a_wide_range_with_a_step_stays_a_range(here):
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


def test_an_initial_point_has_no_constants_and_no_rounding_errors(here):
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
def test_a_file_that_would_not_be_valid_is_not_written(here, name, distribution, message):
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
def test_a_missing_database_is_not_created(here, storage):
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
def test_a_database_is_opened_for_reading(here, storage):
    optuna.create_study(storage="sqlite:///study.db", study_name="s")
    study = open_study(storage, None)
    with pytest.raises(optuna.exceptions.StorageInternalError) as caught:
        study.set_user_attr("a", 1)
    assert "readonly database" in str(caught.value.__cause__)


@pytest.mark.integration
def test_a_postgresql_database_is_opened_for_reading(here):
    with postgres.server() as url:
        message = refused("--from-optuna", url)
        assert (
            'relation "version_info" does not exist' in message and postgres.PASSWORD not in message
        )
        optuna.create_study(storage=url.replace(":", "+psycopg2:", 1), study_name="s")
        with pytest.raises(optuna.exceptions.StorageInternalError) as caught:
            open_study(url, None).set_user_attr("a", 1)
        assert "read-only transaction" in str(caught.value.__cause__)


def test_storages_that_cannot_be_read(here):
    assert "nothing.db: there is no such file" in refused("--from-optuna", "nothing.db")
    sqlite3.connect(here / "other.db").execute("create table t (x int)").connection.close()
    before = (here / "other.db").read_bytes()
    assert "other.db cannot be read: no such table" in refused("--from-optuna", "other.db")
    assert "oracle is no database of Optuna" in refused("--from-optuna", "oracle://host/study")
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
    assert len(space.dimensions) == 4  # the run has suggested either `drop` or `gamma`
    assert space.scheduler.options["max_t"] == 6

    import ray.train

    reports = []
    monkeypatch.setattr(ray.train, "report", reports.append)
    from space_loop import train

    end = train({"lr": 0.01, "depth": 2, "booster": "gbtree", "gamma": 5, "drop": 0.1})
    assert [report["value"] for report in (*reports, end)] == pytest.approx(
        [0.02, 0.01, 0.02 / 3, 0.005, 0.004, 0.02]
    )


@pytest.mark.parametrize(
    "code", ["study.optimize(objective, n_trials=1)", "study.tell(study.ask(), 1.0)"]
)
def test_a_study_at_import_is_noted(here, code):
    head = "import optuna\n\ndef objective(trial):\n    return trial.suggest_float('x', 0, 1)\n\n"
    (here / "own_objective.py").write_text(f"{head}study = optuna.create_study()\n{code}\n")
    note = "The import of `own_objective` runs a study"
    assert note in run("--from-objective", "own_objective:objective")
    assert note in (here / "space.yaml").read_text()


@pytest.mark.parametrize("reference", ["own_objective:train", "own_objective:Trial.run"])
def test_an_objective_with_a_name_of_the_written_module(here, reference):
    (here / "own_objective.py").write_text(
        "import os\n\ndef train(trial):\n    os.chdir('/')\n"
        "    return trial.suggest_float('x', 0, 1)\n\n"
        "class Trial:\n    run = staticmethod(train)\n"
    )
    run("--from-objective", reference)  # the paths refer to the folder in which the command started
    assert load("space.yaml").dimensions[0].name == "params.x"

    from space_loop import train

    assert train({"x": 0.25}) == {"value": 0.25}


def test_the_module_of_the_objective_is_not_overwritten(here):
    (here / "space_loop.py").write_text(OBJECTIVE)
    (shown,) = refused("--from-objective", "space_loop:objective", "--force").splitlines()
    assert shown.startswith("--from-objective: space_loop.py would be overwritten")
    assert (here / "space_loop.py").read_text() == OBJECTIVE


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
        ("value_0", "minimize"),
        ("value_1", "maximize"),
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

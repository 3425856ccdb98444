"""`sweeps init` from a sweep of W&B."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sweeps.core.errors import InputError
from sweeps.scaffold.from_wandb import space_text
from sweeps.space import load
from sweeps.space.yaml.yaml12 import parse
from tests.scaffold.init_command import refused, run

pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")


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


def test_a_wandb_sweep(here: Any) -> None:
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
    constants = space.sections["params"]
    assert isinstance(constants, dict) and constants["epochs"] == 27
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


def test_a_grid_and_a_command_with_variables(here: Any, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_each_key_that_is_not_translated_is_named(here: Any) -> None:
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


def test_a_program_elsewhere_is_a_note(here: Any) -> None:
    (here / "sweep.yaml").write_text("program: far.py\nparameters: {a: {values: [1, 2]}}\n")
    shown = run("--from-wandb", "sweep.yaml")
    assert shown.startswith("wrote space.yaml\n") and "no file `far.py`" in shown
    assert (here / "space.yaml").exists()


def test_a_distribution_without_counterpart_is_named() -> None:
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
def test_texts_of_a_wandb_sweep_do_not_become_keys(
    here: Any, key: str, value: Any, message: str
) -> None:
    (here / "fit.py").write_text("")
    sweep = {"program": "fit.py", "parameters": {"x": {"min": 0.0, "max": 1.0}}, key: value}
    (here / "sweep.yaml").write_text(json.dumps(sweep))
    (shown,) = refused("--from-wandb", "sweep.yaml").splitlines()
    assert message in shown and not (here / "space.yaml").exists()

"""`trainer` as a dimension: several trainers in one sweep, each with parameters of its own."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sweeps.core.errors import InputError
from sweeps.core.trial import Trial
from sweeps.search.first_points import first_points
from sweeps.space import Dimension, Space, load
from sweeps.space.model.conditions import Term
from sweeps.space.model.templates import conditions_of
from sweeps.space.parse.enqueued_point import parse_point
from sweeps.study.trial_building import build_trial
from tests.space.conftest import Write

TREES = '{as: trees, name: sklearn, estimator: "sklearn.ensemble:ExtraTreesClassifier"}'
HEAD = f"""
trainer: {{choice: [xgboost, {TREES}]}}
data: {{train: d.csv, label: y, valid: 0.2}}
objective: {{metric: valid-logloss, goal: minimize}}
limits: {{max_trials: 12}}
"""
SPACE = """
space:
  preprocessor: {choice: [none, StandardScaler], when: {trainer: trees}}
  params:
    xgboost: {eta: {loguniform: [0.005, 0.3]}, booster: {choice: [gbtree, dart]},
      rate_drop: {uniform: [0, 1], when: {params.xgboost.booster: dart}}, max_depth: 6}
    trees: {max_features: {uniform: [0.2, 1]}, n_estimators: 50}
"""


def drawn(space: Space, seed: int) -> Trial:
    """Return a trial with random values."""
    rng = random.Random(seed)

    def choose(dimension: Dimension) -> Any:
        if dimension.options:
            return rng.choice(dimension.options).key
        assert dimension.lower is not None and dimension.upper is not None
        return rng.uniform(dimension.lower, dimension.upper)

    return build_trial(space, seed, choose)


@pytest.mark.parametrize("kind", ["choice", "grid"])
def test_a_trial_has_the_parameters_of_its_trainer(write: Write, kind: str) -> None:
    space = load(write(HEAD.replace("choice", kind) + SPACE))
    assert [dim.name for dim in space.dimensions][:2] == ["trainer", "preprocessor"]
    assert len(space.cells) == (2 if kind == "grid" else 1)
    trainers = set()
    for seed in range(40):
        trial = drawn(space, seed)
        trainers.add(trial.trainer)
        trainer = space.trainer_of(trial.labels)
        assert trainer.label == trial.trainer
        assert trial.shape.backend == trainer.backend
        assert trial.params_key == trainer.params_key == f"params.{trial.trainer}"
        own = [name for name in trial.labels if name.startswith("params.")]
        assert all(name.startswith(f"{trial.params_key}.") for name in own)
        values = {name.removeprefix(f"{trial.params_key}."): trial.labels[name] for name in own}
        if trial.trainer == "xgboost":
            assert trial.params == values | {"max_depth": 6}
            assert ("rate_drop" in values) == (values["booster"] == "dart")
            assert trial.preprocessor == ()
        else:
            assert trial.params == values | {"n_estimators": 50}
    assert trainers == {"xgboost", "trees"}


def test_a_block_has_an_implied_condition(write: Write) -> None:
    space = load(write(HEAD + SPACE))
    conditions = conditions_of(space.sections)
    chosen = Term("trainer", keys=("xgboost",))
    assert conditions["params.xgboost.eta"] == (chosen,)
    assert conditions["params.xgboost.rate_drop"][0] == chosen
    assert conditions["params.trees.max_features"] == (Term("trainer", keys=("trees",)),)
    assert [dim.name for dim in space.always] == ["trainer"]


def test_a_trainer_without_a_block_has_its_defaults(write: Write) -> None:
    text = HEAD + "space: {params: {trees: {max_features: {uniform: [0.2, 1]}}}}"
    space = load(write(text))
    trial = build_trial(space, 0, lambda dim: "xgboost")
    assert trial.params == {} and trial.labels == {"trainer": "xgboost"}


def test_one_trainer_has_no_label(write: Write) -> None:
    space = load(
        write(HEAD.replace("{choice: [xgboost, " + TREES + "]}", "xgboost")), ["space.params.eta=1"]
    )
    trial = build_trial(space, 0, lambda dim: None)
    assert list(space.trainers) == [""] and trial.trainer == "" and trial.params_key == "params"
    assert space.trainer_of(trial.labels) is space.trainer


def test_each_trainer_begins_with_its_default(write: Write) -> None:
    space = load(write(HEAD + SPACE), ["search.portfolio=xgboost"])
    points = first_points(space)
    assert points[0] == {
        "trainer": "xgboost",
        "params.xgboost.eta": 0.3,
        "params.xgboost.booster": "gbtree",
    }
    assert points[1]["trainer"] == "trees"
    portfolio = points[2:]
    assert len(portfolio) == 4  # a third of the trials
    assert {point["trainer"] for point in portfolio} == {"xgboost"}
    assert all("params.xgboost.eta" in point for point in portfolio)


WRONG = [
    ("trainer.choice=[]", "trainer: choice needs a list with at least one option"),
    ("trainer={uniform: [0, 1]}", "must be one trainer, or a grid or choice of several trainers"),
    ("trainer={choice: [xgboost], name: x}", "`choice` must be the only key of `trainer`"),
    ("trainer.choice=[xgboost, xgboost]", "two trainers are called `xgboost`; give one of them"),
    ("trainer.choice=[xgboost, {loop: 'json:load'}]", "`json:load` is your own loop, so it needs"),
    ("trainer.choice=[{name: xgboost, as: 'a.b'}]", "trainer.choice.0.as: must have 1 to 40"),
    ("trainer.choice=[{name: xgboost, foo: 1}]", "trainer.choice.0.foo: unknown key"),
    ("trainer={choice: [xgboost], when: {a: 1}}", "`choice` must be the only key of `trainer`"),
    ("space.params.eta=1", "params.eta: `params` has a block for each trainer, and this key"),
    ("space.params.eta=1", "it is a parameter of xgboost; move it to `space.params.xgboost`"),
    ("space.params.tree={}", "did you mean `trees`?"),
    ("space.params=3", "must be a mapping with a block for each trainer (xgboost, trees), got 3"),
    ("space.params.xgboost=3", "params.xgboost: must be a mapping such as {eta: 0.1}, got 3"),
    ("space.params.xgboost.etta=1", "is not a parameter of xgboost; did you mean `eta`?"),
    ("space.params.xgboost.eta.when={trainer: trees}", "`when` names `trainer`, with which these"),
    ("scheduler={name: asha, max_t: 9}", "asha compares trials at the same step, and steps of"),
    (
        "scheduler={name: pbt, max_t: 9, perturbation_interval: 3}",
        "pbt compares trials at the same step, and steps of",
    ),
    ("data.ingest=stream", "trainer.choice.0: `xgboost` needs the whole table in memory"),
    ("data.label=null", "is required by `trees`"),
]


@pytest.mark.parametrize(("override", "text"), WRONG)
def test_wrong_files_are_refused(lines: Callable[..., list[str]], override: str, text: str) -> None:
    problems = lines(HEAD + SPACE, override)
    assert any(text in line for line in problems), problems
    assert not any("unknown dimension" in line for line in problems)


@pytest.mark.parametrize(
    "changes",
    [
        ["scheduler={name: asha, max_t: 9, resource: data.rows}"],
        ["scheduler={name: asha, max_t: 5}", "data.valid={folds: 5}"],
        ["scheduler={name: none}"],
    ],
)
def test_comparable_steps_are_allowed(write: Write, changes: list[str]) -> None:
    assert load(write(HEAD + SPACE), changes)


def test_a_parameter_of_another_trainer_is_named_with_its_place(
    lines: Callable[..., list[str]],
) -> None:
    text = HEAD.replace(TREES, "lightgbm") + "space: {params: {xgboost: {num_leaves: 3}}}"
    (line,) = lines(text)
    assert line.endswith(
        "params.xgboost.num_leaves: is not a parameter of xgboost; it is a parameter of lightgbm; "
        "move it to `space.params.lightgbm`"
    )


def test_conflicting_environments_are_refused(lines: Callable[..., list[str]]) -> None:
    options = [
        f"{{name: keras, model: 'json:load', as: {name}, framework: {framework}}}"
        for name, framework in (("a", "torch"), ("b", "tensorflow"))
    ]
    problems = lines(
        HEAD.replace(f"xgboost, {TREES}", ", ".join(options))
        + "space: {params: {a: {lr: {uniform: [0, 1]}}}}"
    )
    assert any(
        "`b` sets KERAS_BACKEND to `tensorflow`, but `a` sets it to `torch`" in line
        for line in problems
    )


def test_short_names_of_an_enqueued_point(write: Write) -> None:
    space = load(write(HEAD + SPACE))
    assert parse_point(space, {"trainer": "xgboost", "eta": 0.1}) == {
        "trainer": "xgboost",
        "params.xgboost.eta": 0.1,
    }
    assert parse_point(space, {"trainer": "trees", "params.max_features": 0.5}) == {
        "trainer": "trees",
        "params.trees.max_features": 0.5,
    }
    with pytest.raises(InputError, match="has no dimension `max_features`"):
        parse_point(space, {"trainer": "xgboost", "max_features": 0.5})
    with pytest.raises(InputError, match="give a value for `trainer`, too"):
        parse_point(space, {"params.xgboost.eta": 0.1})


def first_loop(config: dict[str, Any]) -> float:
    return float(config["x"])


def test_functions_of_a_script_may_be_several_trainers(tmp_path: Path) -> None:
    space = load(
        {
            "name": "passed",
            "trainer": {"choice": [first_loop, {"as": "other", "loop": first_loop}]},
            "objective": {"metric": "value", "goal": "minimize"},
            "limits": {"max_trials": 4},
            "space": {
                "params": {
                    "first_loop": {"x": {"uniform": [0, 1]}},
                    "other": {"x": {"uniform": [1, 2]}},
                }
            },
        }
    )
    assert list(space.trainers) == ["first_loop", "other"]
    assert [dim.name for dim in space.dimensions] == [
        "trainer",
        "params.first_loop.x",
        "params.other.x",
    ]


def test_parameter_of_another_trainer_is_refused_where_others_are_allowed(write: Write) -> None:
    head = HEAD.replace(f"[xgboost, {TREES}]", "[xgboost, catboost]")
    params = "{xgboost: {depth: 4, eta: 0.1}, catboost: {depth: 4, eta: 0.1}}"
    with pytest.raises(InputError) as raised:
        load(write(f"{head}\nspace: {{params: {params}}}\n"))
    (problem,) = raised.value.problems
    assert problem.text.startswith("params.xgboost.depth: is not a parameter of xgboost; ")
    assert problem.text.endswith(
        "it is a parameter of catboost; move it to `space.params.catboost`"
    )

"""Learn from earlier sweeps: the translation of their trials, the first configurations, and the
prior of `gp`.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.distributions import FloatDistribution, IntDistribution
from pydantic import JsonValue

from sweeps.core.errors import InputError
from sweeps.search import earlier_trials
from sweeps.search.earlier_configurations import OutsideDomain, translate
from sweeps.search.earlier_trials import EarlierSweep, EarlierTrial
from sweeps.search.samplers.sampler import SamplerContext
from sweeps.search.samplers.warm_start import (
    prior_weights,
    starting_points,
)
from sweeps.search.search_loop import SearchLoop
from sweeps.space.model.enumeration import any_key
from sweeps.study.distributions import distribution_of
from sweeps.study.trial_building import build_trial
from tests.search.next_trial import next_trial
from tests.search.test_samplers import BODY, run

NUMBERS = "params: {x: {uniform: [0.0, 1.0]}, y: {uniform: [0.0, 1.0]}}"
MANY = """
preprocessor: {grid: [StandardScaler, MinMaxScaler]}
params:
  x: {uniform: [0.0, 1.0]}
  q: {quniform: [0.0, 1.0, 0.1]}
  l: {loguniform: [1e-3, 1.0]}
  n: {randn: [3, 2]}
  depth: {lograndint: [1, 9]}
  kind: {choice: [a, b, {name: c, inside: {uniform: [0, 1]}}]}
  drop: {uniform: [0, 1], when: {params.kind: b}}
"""


def with_from(space: Any) -> Any:
    import dataclasses

    return dataclasses.replace(
        space, search=dataclasses.replace(space.search, earlier=("earlier",))
    )


def configuration(space: Any, rng: np.random.RandomState) -> Any:
    """A random configuration of a space: its keys, and the constants of its trial."""
    keys = {}

    def choose(dimension: Any) -> Any:
        distribution = distribution_of(dimension)
        if dimension.options:
            keys[dimension.name] = dimension.options[rng.randint(len(dimension.options))].key
        elif dimension.is_integer:
            assert isinstance(distribution, IntDistribution)
            keys[dimension.name] = int(rng.randint(distribution.low, distribution.high + 1))
        else:
            assert isinstance(distribution, FloatDistribution)
            key = float(rng.uniform(distribution.low, distribution.high))
            keys[dimension.name] = dimension.value(key) if dimension.q else key
        return keys[dimension.name]

    trial = build_trial(space, 0, choose)
    return keys, {"params": trial.params, "scaling": trial.shape.scaling, "data": trial.data}


def values_of(trial: EarlierTrial) -> tuple[float, ...]:
    assert trial.values is not None
    return trial.values


def sweep_of(
    space: Any, value: Any, count: int = 30, seed: int = 0, name: str = "earlier"
) -> EarlierSweep:
    """An earlier sweep with random configurations, whose values are given by a function of their
    parameters.
    """
    rng, trials = np.random.RandomState(seed), []
    for _ in range(count):
        keys, constants = configuration(space, rng)
        result = float(value(constants["params"]))
        trials.append(EarlierTrial(keys, {1: result + 1, 3: result + 1 / 3}, (result,)))
    return EarlierSweep(name, f"/runs/{name}", tuple(trials))


# ---- translation


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_a_configuration_of_an_equal_space_stays_the_same(make_space_once: Any, seed: Any) -> None:
    space = make_space_once(MANY)
    keys, constants = configuration(space, np.random.RandomState(seed))
    translated = translate(space, space, keys, constants=constants)
    assert translated.keys() == keys.keys()
    for name, key in keys.items():
        assert translated[name] == (pytest.approx(key) if isinstance(key, float) else key)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**6),
    st.floats(0.05, 0.95),
    st.sampled_from(["uniform: [0, {}]", "quniform: [0, 1, 0.25]", "choice: [0.0, 0.5]"]),
)
def test_a_translated_configuration_is_in_the_new_space_or_is_left_out(
    make_space_once: Any, seed: Any, high: Any, domain: Any
) -> None:
    earlier = make_space_once(MANY)
    changed = MANY.replace("uniform: [0.0, 1.0]", domain.format(high), 1).replace(
        "kind: {choice: [a, b,", "kind: {choice: [b,"
    )
    new = make_space_once(changed + "  added: {uniform: [0, 1]}\n")
    keys, constants = configuration(earlier, np.random.RandomState(seed))
    try:
        translated = translate(earlier, new, keys, constants=constants)
    except OutsideDomain as e:
        assert e.reason in ("outside the domain of params.x", "outside the domain of params.kind")
        return
    assert "params.added" not in translated
    asked = []

    def choose(dimension: Any) -> Any:
        asked.append(dimension.name)
        key = translated.get(dimension.name, any_key(dimension))
        assert distribution_of(dimension)._contains(
            distribution_of(dimension).to_internal_repr(key)
        )
        return key

    new.fill(choose)
    missing = set(asked) - set(translated) - {"params.added"}
    assert set(translated) <= set(asked)
    assert missing <= {"params.kind.choice.1.inside"}, "the option has another number"


@pytest.fixture(scope="module")
def make_space_once(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Load a space from its body. A body that was loaded before is not loaded again."""
    from functools import cache

    from sweeps.space import load

    @cache
    def make(body: str) -> Any:
        head = (
            'name: made\ntrainer: xgboost\ndata: {train: "sklearn:iris", label: target, valid: '
            "0.2}\n"
        )
        head += "objective: {metric: loss, goal: minimize}\nlimits: {max_trials: 40}\nspace:"
        file = tmp_path_factory.mktemp("made") / "made.yaml"
        file.write_text(head + body.replace("\n", "\n  ").rstrip() + "\n")
        return load(file)

    return make


CHANGES = [
    ("{uniform: [0, 1]}", 0.5, "{uniform: [0, 0.6]}", 0.5),
    ("{uniform: [0, 1]}", 0.7, "{uniform: [0, 0.6]}", None),
    ("{uniform: [0, 1]}", 0.52, "{quniform: [0, 1, 0.1]}", 0.5),
    ("{uniform: [0, 1]}", 0.52, "{quniform: [0.03, 1.03, 0.1]}", 0.53),
    ("{loguniform: [0.01, 1]}", 0.5, "{uniform: [0, 1]}", 0.5),
    ("{choice: [16, 32]}", 32, "{lograndint: [8, 65]}", 32),
    ("{choice: [16, 32]}", 32, "{choice: [64, 32]}", 32),
    ("{choice: [16, 32]}", 16, "{choice: [64, 32]}", None),
    ("{choice: [a, 32]}", "a", "{lograndint: [8, 65]}", None),
    ("{randint: [1, 9]}", 4, "{choice: [2, 4]}", 4),
    ("{randint: [1, 9]}", 4, "{randn: [4, 2]}", 0.5),
    ("{randn: [4, 2]}", 0.5, "{uniform: [0, 9]}", 4.0),
    ("{grid: [a, b]}", "b", "{choice: [b, c]}", "b"),
    ("6", None, "{randint: [1, 9]}", 6),
    ("6", None, "{choice: [2, 4]}", "missing"),
    ("null", None, "{randint: [1, 9]}", "missing"),
]


@pytest.mark.parametrize(("before", "key", "after", "expected"), CHANGES)
def test_the_domain_of_a_dimension_changes(
    make_space_once: Any, before: Any, key: Any, after: Any, expected: Any
) -> None:
    body = "\nparams:\n  other: {uniform: [0, 1]}\n  d: "
    earlier, new = make_space_once(body + before), make_space_once(body + after)
    keys = {"params.other": 0.5} | ({} if key is None else {"params.d": key})
    params: dict[str, JsonValue] = {"other": 0.5}
    if key is None:
        params["d"] = 6 if before == "6" else None
    constants: dict[str, JsonValue] = {"params": params}
    if expected is None:
        with pytest.raises(OutsideDomain, match=r"params\.d"):
            translate(earlier, new, keys, constants=constants)
    elif expected == "missing":
        assert translate(earlier, new, keys, constants=constants) == {"params.other": 0.5}
    else:
        assert translate(earlier, new, keys, constants=constants) == {
            "params.other": 0.5,
            "params.d": pytest.approx(expected),
        }


def test_a_dimension_that_depends_on_a_missing_one_is_missing_too(make_space_once: Any) -> None:
    earlier = make_space_once("\nparams: {drop: {uniform: [0, 1]}, x: {uniform: [0, 1]}}")
    new = make_space_once(
        "\nparams: {kind: {choice: [b, a]}, drop: {uniform: [0, 1], when: {params.kind: b}}, x: "
        "{uniform: [0, 1]}}"
    )
    assert translate(earlier, new, {"params.drop": 0.2, "params.x": 0.3}, constants={}) == {
        "params.x": 0.3
    }


def test_a_key_that_the_earlier_space_lacks_is_no_value(make_space_once: Any) -> None:
    earlier = make_space_once("\nparams: {y: {uniform: [0, 1]}, x: 0.7}")
    new = make_space_once("\nparams: {x: {uniform: [0, 1]}}")
    constants: dict[str, JsonValue] = {"params": {"x": 0.7}}
    assert translate(earlier, new, {"params.x": 0.3}, constants) == {"params.x": 0.7}


# ---- the file


def test_the_saved_trials_are_read_back(tmp_path: Path, make_space: Any) -> None:
    space = make_space(BODY)
    sweep = EarlierSweep(
        "a",
        "/runs/a",
        sweep_of(space, lambda p: p["x"]).trials,
        {"without a value": 2},
        ("params.new",),
    )
    odd = (
        EarlierTrial({"params.x": 0.5}, {1: 2.0}),
        EarlierTrial({"params.x": 0.1}, {1: math.inf}, violation=math.inf),
    )
    earlier_trials.save(tmp_path, [sweep, EarlierSweep("b", "s3://bucket/b", odd)])
    first, second = earlier_trials.read(tmp_path, space)
    assert first == sweep
    assert second.trials == odd
    assert (
        str(first)
        == "30 of 32 configurations of a; left out: 2 without a value; it has no values for "
        "params.new"
    )


TRIAL = '[{"name": "a", "place": "b", "trials": [{"keys": KEYS, "rungs": RUNGS}]}]'
DAMAGED = [
    *("", "[3]", '{"sweeps": 3}', '[{"name": "a"}]'),
    TRIAL.replace("KEYS", '{"params.x": 2.0}').replace("RUNGS", "{}"),
    TRIAL.replace("KEYS", '{"params.z": 0.5}').replace("RUNGS", "{}"),
    TRIAL.replace("KEYS", "{}").replace("RUNGS", '{"x": 2.0}'),
]


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_file_is_one_clear_error(tmp_path: Path, make_space: Any, text: Any) -> None:
    (tmp_path / "earlier_trials.json").write_text(text)
    with pytest.raises(InputError, match=r"earlier_trials\.json: .*restore"):
        SearchLoop.open(tmp_path, with_from(make_space(NUMBERS)))


# ---- the first configurations


def test_first_trials_are_a_suggestion_and_earlier_best_trials(make_space: Any) -> None:
    space = make_space(NUMBERS)
    sweep = sweep_of(space, lambda p: (p["x"] - 0.3) ** 2 + (p["y"] - 0.3) ** 2, 40)
    maximized = make_space(NUMBERS, objective="{metric: loss, goal: maximize}")
    best = sorted(sweep.trials, key=values_of)

    def points(*sweeps: Any, space: Any = space) -> Any:
        return starting_points(SamplerContext(space, sweeps))

    assert points(sweep) == [{}, dict(best[0].keys)]
    assert points(sweep, space=maximized) == [{}, dict(best[-1].keys)]
    several = [sweep_of(space, lambda p: p["x"], seed=i, name=str(i)) for i in range(5)]
    assert len(points(*several, several[0])) == 6, "no configuration starts twice"
    assert points(EarlierSweep("none", "", ())) == []


@pytest.mark.timeout(60)
@pytest.mark.parametrize("algorithm", ["tpe", "gp", "random", "qmc", "nsga2"])
def test_every_algorithm_starts_with_points_and_repeats_itself(
    make_space: Any, tmp_path: Path, algorithm: str
) -> None:
    space = with_from(make_space(BODY, 40, algorithm))
    sweep = sweep_of(space, lambda p: (p["x"] - 0.3) ** 2)
    best = min(sweep.trials, key=values_of)
    asked = []
    for again in (False, True):
        folder = tmp_path / str(again)
        folder.mkdir()
        earlier_trials.save(folder, [sweep])
        loop = SearchLoop.open(folder, space)
        first = run(loop, 2)
        if again:
            loop = SearchLoop.open(folder, space)
        rest = run(loop, 8)
        if again:
            loop = SearchLoop.open(folder, space)
        asked.append([*first, *rest, next_trial(loop), next_trial(loop)])
    assert [t.labels for t in asked[0]] == [t.labels for t in asked[1]]
    assert asked[0][1].params["x"] == best.keys["params.x"] != asked[0][0].params["x"]


# ---- the prior of gp


def test_the_weight_of_an_earlier_sweep_shows_how_well_it_agrees() -> None:
    rng = np.random.RandomState(0)
    predicted = rng.normal(size=(40, 2))
    y = predicted[:, 0] + 0.1 * rng.normal(size=40)
    agrees, other = prior_weights(predicted, y)
    assert agrees > 0.9 and other < 0.1
    assert prior_weights(-predicted[:, :1], y) == pytest.approx([0.0]), (
        "a sweep that contradicts has no weight"
    )
    assert prior_weights(np.empty((0, 2)), np.empty(0)) == pytest.approx([0.25, 0.25])


def test_gp_transfers_from_related_task_only(make_space: Any, tmp_path: Path) -> None:
    space = make_space(NUMBERS, 40, "gp", scheduler="{name: none}")
    values_of_task = {}
    for name, center in (("related", 0.8), ("unrelated", 0.2)):
        folder = tmp_path / name
        folder.mkdir()
        sweep = sweep_of(space, lambda p, c=center: (p["x"] - c) ** 2 + (p["y"] - c) ** 2, 40)
        earlier_trials.save(folder, [sweep])
        asked = run(
            SearchLoop.open(folder, with_from(space)),
            20,
            lambda t: (t.params["x"] - 0.85) ** 2 + (t.params["y"] - 0.75) ** 2,
        )
        values = [(t.params["x"] - 0.85) ** 2 + (t.params["y"] - 0.75) ** 2 for t in asked]
        values_of_task[name] = min(values[:14]), min(values)
    assert values_of_task["related"][0] < 0.01, values_of_task
    assert values_of_task["unrelated"][1] < 0.01, values_of_task

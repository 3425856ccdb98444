"""Dimensions under `data`: sources, dropped columns and fractions of the rows."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sweeps.core.errors import InputError
from sweeps.space import Dimension, Split, known_fits, load
from sweeps.space.model.conditions import Key
from sweeps.space.model.space_model import user_references

HEAD = "trainer: xgboost\nobjective: {metric: m, goal: minimize}\nlimits: {max_trials: 12}\n"


def data(text: str, space: str = "{params: {}}") -> str:
    text = text if "label:" in text else text.removesuffix("}") + ", label: y}"
    return f"{HEAD}data: {text}\nspace: {space}\n"


def key_of(keys: dict[str, Key], dim: Dimension) -> Key:
    """Return the key of a dimension. Dimensions without a key get the key 1."""
    return keys.get(dim.name, 1)


def test_sources_columns_and_rows_are_dimensions(write: Any) -> None:
    text = data(
        "{label: y, train: {grid: [a.csv, b.csv]}, valid: v.csv, drop: {choice: [[], [a], [a, "
        "b]]}, rows: {uniform: [0.1, 1.0]}}"
    )
    space = load(write(text))
    assert [(d.name, d.kind) for d in space.dimensions] == [
        ("data.train", "grid"),
        ("data.drop", "choice"),
        ("data.rows", "uniform"),
    ]
    assert [option.key for option in space.dimensions[1].options] == ["[]", "[a]", "[a, b]"]
    assert space.cells == ({"data.train": "a.csv"}, {"data.train": "b.csv"})
    assert (space.data.train, space.data.drop, space.data.rows, space.data.label) == (
        "a.csv",
        (),
        1.0,
        "y",
    )
    keys: dict[str, Key] = {"data.train": "b.csv", "data.drop": "[a, b]", "data.rows": 0.5}
    filled = space.fill(lambda dim: keys[dim.name])
    assert filled["data"] == {"train": "b.csv", "drop": ("a", "b"), "rows": 0.5}
    variant = space.variant(filled["data"])
    assert (variant.train, variant.drop, variant.rows, variant.valid) == (
        "b.csv",
        ("a", "b"),
        0.5,
        space.data.valid,
    )
    assert [(v.train, v.drop, v.rows) for v in space.variants] == [
        (train, drop, 1.0) for train in ("a.csv", "b.csv") for drop in ((), ("a",), ("a", "b"))
    ]


def test_without_a_dimension_there_is_one_variant(write: Any) -> None:
    space = load(write(data("{train: d.csv, valid: 0.2, drop: [a], rows: 0.25}")))
    assert space.variants == (space.data,) and (space.data.drop, space.data.rows) == (("a",), 0.25)
    assert space.fill(lambda dim: pytest.fail(dim.name))["data"] == {}
    assert "data" not in space.sections
    assert space.variant({}) == space.data


def test_functions_with_arguments_are_sources_too(write: Any, tmp_path: Path) -> None:
    (tmp_path / "my.py").write_text("def rows(n): ...\ndef more(): ...\n")
    space = load(
        write(
            data(
                '{train: {grid: [{"my:rows": {n: 3}}, {"my:rows": {n: 4}}, "my:more"]}, valid: '
                "v.csv}"
            )
        )
    )
    assert [(v.train, v.args) for v in space.variants] == [
        ("my:rows", {"n": 3}),
        ("my:rows", {"n": 4}),
        ("my:more", {}),
    ]
    assert [option.key for option in space.dimensions[0].options] == [
        "{my:rows: {n: 3}}",
        "{my:rows: {n: 4}}",
        "my:more",
    ]
    assert {"my:rows", "my:more"} <= set(user_references(space))


def test_conditions_on_data_and_of_data(write: Any) -> None:
    text = data(
        "{train: {grid: [a.csv, b.csv]}, valid: v.csv, rows: {choice: [0.1, 1.0], when: "
        "{data.train: b.csv}},"
        " drop: [c, {choice: [d, e], when: {data.rows: 0.1}}]}",
        "{params: {depth: {randint: [1, 9], when: {data.train: a.csv}}}}",
    )
    space = load(write(text))
    filled = space.fill(lambda dim: {"data.train": "a.csv"}.get(dim.name, 3))
    assert (filled["data"], filled["params"]) == ({"train": "a.csv", "drop": ("c",)}, {"depth": 3})
    assert space.variant(filled["data"]).rows == 1.0, "without rows all of them are there"
    keys: dict[str, Key] = {"data.train": "b.csv", "data.rows": 0.1, "data.drop.1": "e"}
    filled = space.fill(lambda dim: keys[dim.name])
    assert (filled["data"], filled["params"]) == (
        {"train": "b.csv", "rows": 0.1, "drop": ("c", "e")},
        {},
    )


def test_what_is_known_before_a_trial_is_sampled(write: Any) -> None:
    grid = "{preprocessor: {grid: [StandardScaler, none]}}"
    space = load(write(data("{train: {grid: [a.csv, b.csv]}, valid: v.csv}", grid)))
    fits = [(fit["train"], [step.name for step in chain]) for fit, chain in known_fits(space)]
    assert sorted(fits) == [
        ("a.csv", []),
        ("a.csv", ["StandardScaler"]),
        ("b.csv", []),
        ("b.csv", ["StandardScaler"]),
    ]
    assert (
        known_fits(load(write(data("{train: {choice: [a.csv, b.csv]}, valid: v.csv}", grid)))) == []
    )


INVALID = [
    (
        "{train: {grid: [a.csv, a.csv]}, valid: v.csv}",
        "data.train: grid has the same option twice: a.csv",
    ),
    (
        "{train: a.csv, valid: 0.1, rows: {randint: [1, 9]}}",
        "data.rows: must be a fraction of the rows, a grid, a choice or a range of fractions",
    ),
    (
        "{train: a.csv, valid: 0.1, rows: {randn: [0, 1]}}",
        "data.rows: must be a fraction of the rows, a grid, a choice or a range of fractions",
    ),
    (
        (
            "{train: {grid: [a.csv, b.csv], when: {data.rows: 1}}, valid: v.csv, rows: {choice: "
            "[1, "
            "0.5]}}"
        ),
        "`when` may name only earlier dimensions; `data.rows` comes later",
    ),
    (
        (
            "{rows: {grid: [1, 0.5]}, train: {grid: [a.csv, b.csv], when: {data.rows: 1}}, valid: "
            "v.csv}"
        ),
        "data.train: is always needed, so it cannot have a `when`",
    ),
]


@pytest.mark.parametrize(("text", "piece"), INVALID, ids=[piece[:60] for _, piece in INVALID])
def test_one_clear_line(lines: Any, text: str, piece: str) -> None:
    matching = [line for line in lines(data(text)) if piece in line]
    assert len(matching) == 1 and matching[0].startswith("4:")


def test_too_many_variants(lines: Any) -> None:
    columns = ", ".join(f"{{choice: [a{i}, b{i}]}}" for i in range(12))
    assert (
        "data: makes more than 1000 variants; give fewer options"
        in lines(data(f"{{train: d.csv, valid: 0.2, drop: [{columns}]}}"))[0]
    )


def test_data_comes_before_everything_that_rests_on_it(write: Any) -> None:
    text = (
        "space: {params: {a: {choice: [1], when: {data.rows: '< 0.5'}}}}\n"
        + HEAD
        + "data: {train: d.csv, valid: 0.2, label: y, rows: {uniform: [0.1, 1]}}\n"
    )
    space = load(write(text))
    rng = random.Random(0)
    for _ in range(20):
        rows = rng.uniform(0.1, 1)
        keys: dict[str, Key] = {"data.rows": rows}
        filled = space.fill(partial(key_of, keys))
        assert ("a" in filled["params"]) == (rows < 0.5)


def own(rest: str = "", trainer: str = '{loop: "json:dumps"}') -> str:
    return (
        f"trainer: {trainer}\nobjective: {{metric: m, goal: minimize}}\n"
        f"limits: {{max_trials: 12}}\n{rest}"
    )


@pytest.mark.parametrize(
    "rest",
    [
        "space: {params: {}}",
        "space: {params: {x: {uniform: [0, 1]}}}",
        "space: {preprocessor: none}",
    ],
)
def test_a_loop_of_ones_own_needs_no_data(write: Any, rest: str) -> None:
    space = load(write(own(rest)))
    assert (
        not space.data.is_named
        and space.variants == (space.data,)
        and space.data.base == space.path.parent
    )
    assert user_references(space) == ["json:dumps"] and known_fits(space) == [({}, ())]
    assert load(write(own(rest) + "\ndata: {train: d.csv, valid: 0.2}\n")).data.is_named


@pytest.mark.parametrize(
    ("text", "places"),
    [
        (
            own("space: {params: {}}", "xgboost"),
            ["1:1: data.label", "1:1: data.train", "1:1: data.valid"],
        ),
        (own("data:\nspace: {params: {}}"), ["4:1: data.train", "4:1: data.valid"]),
        (own("data: {train: d.csv}\nspace: {params: {}}"), ["4:1: data.valid"]),
        (own("space: {preprocessor: StandardScaler}"), ["4:9: preprocessor"]),
        (own("space: {preprocessor: {choice: [none, StandardScaler]}}"), ["4:9: preprocessor"]),
    ],
)
def test_what_needs_data_says_so(lines: Any, text: Any, places: Any) -> None:
    assert [": ".join(line.split(": ")[:2]) for line in lines(text)] == places


CROSS = """\
trainer: xgboost
data: {{train: d.csv, label: y, valid: {valid}{more}}}
objective: {{metric: valid-rmse, goal: minimize}}
scheduler: {scheduler}
limits: {{max_trials: 2}}
space: {{params: {{eta: {{uniform: [0.1, 0.3]}}}}}}
"""


def crossed(tmp_path: Path, valid: Any, more: str = "", scheduler: str = "{name: none}") -> Any:
    (tmp_path / "space.yaml").write_text(CROSS.format(valid=valid, more=more, scheduler=scheduler))
    return load(tmp_path / "space.yaml").data


def test_valid_can_be_a_cross_validation(tmp_path: Path) -> None:
    assert crossed(tmp_path, "{folds: 5}").valid == Split("folds", folds=5)
    assert crossed(tmp_path, "{folds: 3}", ", group: who").valid == Split(
        "folds", column="who", folds=3
    )
    rolling = crossed(
        tmp_path,
        "{rolling: day}",
        more=", test: 0.1",
        scheduler="{name: asha, max_t: 5, grace_period: 2}",
    )
    assert rolling.valid == Split("rolling", column="day", folds=5) and rolling.folds == 5


@pytest.mark.parametrize(
    ("valid", "more", "scheduler", "expected"),
    [
        (
            "{folds: 3, groups: a}",
            "",
            "{name: none}",
            "data.valid.groups: unknown key; use `data.group`",
        ),
        (
            "0.2",
            ", test: {folds: 3}",
            "{name: none}",
            "data.test: cannot be a cross-validation, because the test rows must stay the same",
        ),
        (
            "{folds: 3}",
            "",
            "{name: asha, max_t: 9}",
            (
                "scheduler.max_t: must be at most 3, because each step of a trial is one of the 3 "
                "folds"
            ),
        ),
        (
            "{folds: 3}",
            "",
            "{name: pbt, max_t: 3, perturbation_interval: 1}",
            "scheduler.name: pbt copies models between trials",
        ),
    ],
)
def test_a_cross_validation_that_cannot_work_is_refused(
    tmp_path: Path, valid: str, more: str, scheduler: str, expected: str
) -> None:
    with pytest.raises(InputError) as e:
        crossed(tmp_path, valid, more, scheduler)
    assert any(expected in str(problem) for problem in e.value.problems), e.value


def test_weights_can_be_tuned(write: Any) -> None:
    text = data(
        "{train: d.csv, valid: v.csv, label: y, weight: {choice: [w, v, null]}, class_weight: "
        "{grid: [balanced, null]}}"
    )
    space = load(write(text))
    assert (space.data.weight, space.data.class_weight, space.data.weight_columns) == (
        None,
        None,
        ("w", "v"),
    )
    assert {(v.weight, v.class_weight) for v in space.variants} == {
        (w, c) for w in ("w", "v", None) for c in ("balanced", None)
    }
    assert not space.data.weighted and space.variant({"weight": "v"}).weighted
    fixed = load(
        write(
            data(
                "{train: d.csv, valid: v.csv, label: y, weight: w, class_weight: balanced}",
                "{params: {eta: {grid: [0.1]}}}",
            )
        )
    ).data
    assert (fixed.weight, fixed.class_weight, fixed.weight_columns) == ("w", "balanced", ("w",))


def test_a_label_can_have_several_columns(write: Any) -> None:
    spec = load(write(data("{train: d.csv, valid: v.csv, label: [u, v]}"))).data
    assert spec.label == ("u", "v") == spec.labels


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "{train: a.csv, valid: 0.1, label: [y, z], drop: [z]}",
            "data.drop: must not contain the label, `z`",
        ),
        (
            "{train: a.csv, valid: 0.1, label: [y, z], weight: z}",
            "data.weight: must be another column than the label, `z`",
        ),
        (
            "{train: a.csv, valid: 0.1, label: [y, z], task: multiclass}",
            "data.task: multiclass needs a label of one column",
        ),
    ],
)
def test_a_label_of_several_columns_that_cannot_work_is_refused(
    write: Any, text: str, expected: str
) -> None:
    with pytest.raises(InputError) as e:
        load(write(data(text)))
    assert any(expected in str(problem) for problem in e.value.problems), e.value


@pytest.mark.parametrize("trainer", ["lightgbm", "catboost", "torch_tabular"])
def test_a_trainer_that_predicts_one_column_refuses_several(write: Any, trainer: str) -> None:
    text = data("{train: a.csv, valid: 0.1, label: [y, z]}").replace("xgboost", trainer)
    with pytest.raises(
        InputError,
        match=f"data.label: `{trainer}` predicts one column, but the label has 2; .* several: "
        "command, sklearn, torch",
    ):
        load(write(text))


RANKED = """\
trainer: {trainer}
data: {{train: d.csv, label: grade, valid: 0.2{more}}}
objective: {{metric: "valid-ndcg@5", goal: maximize}}
limits: {{max_trials: 2}}
space: {{params: {params}}}
"""


@pytest.mark.parametrize(
    ("trainer", "params", "key"),
    [
        ("xgboost", "{objective: 'rank:ndcg'}", "objective"),
        ("xgboost", "{objective: {choice: ['rank:map', 'reg:squarederror']}}", "objective"),
        ("lightgbm", "{objective: lambdarank}", "objective"),
        ("lightgbm", "{objective: rank_xendcg}", "objective"),
        ("catboost", "{loss_function: YetiRank}", "loss_function"),
        ("catboost", "{loss_function: 'QueryRMSE'}", "loss_function"),
        ("catboost", "{loss_function: 'PairLogitPairwise:max_pairs=5'}", "loss_function"),
    ],
)
def test_a_ranking_objective_needs_groups_and_predicts_scores(
    tmp_path: Path, trainer: str, params: str, key: str
) -> None:
    def read(more: Any) -> Any:
        text = RANKED.format(trainer=trainer, params=params, more=more)
        (tmp_path / "space.yaml").write_text(text)
        return load(tmp_path / "space.yaml").data

    for more in ("", ", group: query, weight: w"):
        with pytest.raises(InputError, match=rf"params.{key}: .* needs `data.group`"):
            read(more)
    data = read(", group: query")
    assert (data.task, data.queries, data.group) == ("regression", True, "query")


def test_other_objectives_need_no_groups(tmp_path: Path) -> None:
    text = RANKED.format(trainer="catboost", params="{loss_function: MAPE}", more="")
    (tmp_path / "space.yaml").write_text(text)
    data = load(tmp_path / "space.yaml").data
    assert (data.task, data.queries) == (None, False)

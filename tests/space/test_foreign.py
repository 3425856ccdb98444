"""Mappings that other tools take for a distribution are refused with our domain; every domain that
is suggested is accepted.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from sweeps.core.errors import InputError
from sweeps.space import load
from sweeps.space.parse.foreign_syntax import translate_mapping
from sweeps.space.yaml.yaml12 import parse

WRITTEN = {
    "{min: 0.0, max: 1}": "{uniform: [0.0, 1]}",
    "{min: 1, max: 8}": "{randint: [1, 9]}",
    "{min: 0, max: 1, q: 0.25}": "{quniform: [0, 1, 0.25]}",
    "{min: 2, max: 8, step: 2}": "{qrandint: [2, 8, 2]}",
    "{values: [a, b]}": "{choice: [a, b]}",
    "{value: 3}": "3",
    "{distribution: log_uniform_values, min: 1e-4, max: 0.1}": "{loguniform: [1e-4, 0.1]}",
    "{distribution: q_uniform, min: 0, max: 1, q: 0.1}": "{quniform: [0, 1, 0.1]}",
    "{distribution: int_uniform, min: 1, max: 4}": "{randint: [1, 5]}",
    "{distribution: normal, mu: 1, sigma: 2}": "{randn: [1, 2]}",
    "{distribution: categorical, values: [1, 2]}": "{choice: [1, 2]}",
    "{distribution: constant, value: x}": "x",
    "{lower: 0.5, upper: 2}": "{uniform: [0.5, 2]}",
    "{type: float, low: 1e-5, high: 0.1, log: true}": "{loguniform: [1e-5, 0.1]}",
    "{type: int, low: 1, high: 1024, log: true}": "{lograndint: [1, 1025]}",
    "{type: categorical, choices: [relu, tanh]}": "{choice: [relu, tanh]}",
    "{mu: 0, sigma: 1}": "{randn: [0, 1]}",
    "{_type: choice, _value: [1, 2]}": "{choice: [1, 2]}",
    "{type: loguniform, min_value: -3, max_value: 2}": "{loguniform: [0.0497871, 7.38906]}",
    "{distribution: log_uniform, min: -2.0, max: 0.5}": "{loguniform: [0.135335, 1.64872]}",
    "{distribution: q_uniform, min: 4, max: 64, q: 4}": "{qrandint: [4, 64, 4]}",
    "{distribution: q_uniform, min: 3, max: 50, q: 7}": "{qrandint: [7, 49, 7]}",
    "{distribution: q_log_uniform, min: 1, max: 4, q: 5}": "{qlograndint: [5, 50, 5]}",
    "{type: float, low: 0.1, high: 1, step: 0.4}": "{quniform: [0.1, 0.9, 0.4]}",
    "{type: int, low: 1, high: 12, step: 5}": "{qrandint: [1, 11, 5]}",
    "{type: loguniform, min_value: 1, max_value: 2}": "{loguniform: [2.71828, 7.38906]}",
    "{type: qloguniform, min_value: 1, max_value: 5, q: 2}": "{qlograndint: [4, 148, 2]}",
    "{space: loguniform, lower: 0.001, upper: 0.1}": "{loguniform: [0.001, 0.1]}",
    "{space: choice, categories: [1, 2]}": "{choice: [1, 2]}",
    "{distribution: q_uniform, min: 1, max: 10, q: 3}": "{qrandint: [3, 9, 3]}",
}
# Ordinary values of a loop.
CONSTANTS = (
    *(
        "{type: adam, lr: 0.1}",
        "{type: adam}",
        "{name: adam}",
        "{value: 3, other: 4}",
        "{min: 1}",
        "{min: a, max: b}",
        "{step: 3}",
    ),
    *(
        "{mean: 0, std: 1}",
        "{type: linear, min: 0, max: 1}",
        "{distribution: poisson, link: log}",
        "{scale: 2, shift: 1}",
        "{}",
    ),
    *(
        "{type: float}",
        "{low: 1}",
        "{options: [a]}",
        "{list: [a]}",
        "{log: true}",
        "{min: 0, max: 1, clip: true}",
        "{1: 2}",
    ),
)


@pytest.mark.parametrize(("theirs", "ours"), WRITTEN.items())
def test_the_domain_is_computed_from_the_values(
    space: Any, lines: Any, theirs: str, ours: str
) -> None:
    assert ours in str(translate_mapping(parse(theirs, "")))
    with pytest.raises(InputError) as e:
        space(f"params: {{x: {theirs}}}")
    (problem,) = e.value.problems
    assert (
        problem.place == "space.yaml:6:15"
        and problem.text.startswith("params.x: ")
        and ours in problem.text
    )
    space(f"params: {{x: {ours}}}")
    assert (
        space(f"params: {{x: {{grid: [{theirs}]}}}}").sections["params"]["x"].options[0].value
        == parse(theirs, "").plain()
    )


@pytest.mark.parametrize(
    ("theirs", "ours"),
    {
        "tune.uniform(0, 1)": "{uniform: [0, 1]}",
        "ray.tune.choice([adam, sgd])": "{choice: [adam, sgd]}",
        "hp.choice('opt', 2)": "{choice: [...]}",
        "trial.suggest_int('depth', 1, 8)": "{randint: [lower, upper]}",
        "np.random.poisson(3)": "another domain",
        "hp.loguniform('lr', -3, 2)": "{loguniform: [lower, upper]}",
        "hp.uniform('x', 0, 1)": "{uniform: [lower, upper]}",
        "choice(relu, tanh)": "{choice: [relu, tanh]}",
        "loguniform(1e-4, 1e-1)": "{loguniform: [1e-4, 1e-1]}",
        "quniform(0, 1, 0.25)": "{quniform: [0, 1, 0.25]}",
    }.items(),
)
def test_a_call_as_text_is_refused_with_our_domain(space: Any, theirs: str, ours: str) -> None:
    with pytest.raises(InputError) as e:
        space(f'params: {{x: "{theirs}"}}')
    (problem,) = e.value.problems
    assert problem.text.startswith("params.x: ") and ours in problem.text
    assert (
        space(f'params: {{x: {{grid: ["{theirs}"]}}}}').sections["params"]["x"].options[0].value
        == theirs
    )


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("tune.uniform", "uniform"),
        ("suggest_float", "uniform"),
        ("int", "randint"),
        ("tune.quniform", "quniform"),
    ],
)
def test_the_name_of_another_tools_domain_is_refused_with_ours(
    space: Any, theirs: str, ours: str
) -> None:
    with pytest.raises(InputError) as e:
        space(f"params: {{x: {{{theirs}: [0, 1]}}}}")
    (problem,) = e.value.problems
    assert (
        problem.text.startswith("params.x: ")
        and theirs in problem.text
        and f"`{ours}`" in problem.text
    )


def test_a_list_of_no_options_is_not_suggested() -> None:
    assert "[]" not in str(translate_mapping(parse("{values: []}", "")))


def test_integers_may_mean_either() -> None:
    text = translate_mapping(parse("{min: 0, max: 1}", ""))
    assert text is not None and re.findall(r"\{.*?\}", text) == [
        "{randint: [0, 2]}",
        "{uniform: [0, 1]}",
    ]


@pytest.mark.parametrize(
    "theirs",
    [
        "{min: 3, max: 1}",
        "{min: 0, max: 1, log: true}",
        "{distribution: log_uniform, min: 0, max: 9999}",
    ],
)
def test_bounds_that_break_our_rule_are_not_suggested(theirs: str) -> None:
    assert "[lower, upper]" in str(translate_mapping(parse(theirs, "")))


@pytest.mark.parametrize(
    "theirs",
    [
        "{type: randint, upper: 10}",
        "{parameterType: double, feasibleSpace: {min: '1', max: '3', distribution: normal}}",
        "{min_value: 0.1, max_value: 1, sampling: reverse_log}",
        "{distribution: log_normal, mu: 0, sigma: 1}",
        "{distribution: inv_log_uniform, min: 0, max: 1}",
        "{distribution: foo, min: 0, max: 1}",
        "{distribution: log_uniform, min: -2, max: 0}",
        "{type: log, minval: -4, maxval: 0, base: 10}",
        "{name: lr, parameterType: double, feasibleSpace: {min: '0.01', max: '0.03'}}",
        "{name: lr, type: range, bounds: [1e-6, 0.4], log_scale: true}",
        "{type: log, base: 10, minval: -5, maxval: -2}",
        "{type: double, minval: 0.1, maxval: 8, count: 3}",
        "{min_value: 1, max_value: 10, step: 2, sampling: log}",
        "{values: [1, 2], probabilities: [0.3, 0.7]}",
        "{_type: loguniform, _value: [1e-4, 0.1]}",
        "{name: opt, parameterType: categorical, feasibleSpace: {list: [sgd, adam]}}",
    ],
)
def test_what_has_no_domain_of_ours_is_refused_too(space: Any, theirs: str) -> None:
    with pytest.raises(InputError) as e:
        space(f"params: {{x: {theirs}}}")
    assert [p.text.startswith("params.x: ") for p in e.value.problems] == [True]


@pytest.mark.parametrize("constant", CONSTANTS)
def test_an_ordinary_mapping_is_a_constant(space: Any, constant: str) -> None:
    assert (
        space(f"params: {{x: {constant}}}").sections["params"]["x"] == parse(constant, "").plain()
    )


def test_parameters_and_arguments_may_have_these_names(space: Any, write: Any) -> None:
    loaded = space(
        "params: {min: 0, max: 1, values: [1], value: 3}\n"
        "preprocessor: {'json:load': {min: 0, max: 1}}"
    )
    assert loaded.sections["params"] == {"min": 0, "max": 1, "values": [1], "value": 3}


def test_a_condition_is_kept(space: Any) -> None:
    head = "params:\n  a: {choice: [x, y]}\n"
    for theirs, ours in (
        ("{value: 3, when: {params.a: x}}", "{choice: [3]}"),
        ("{min: 0.5, max: 1, when: {params.a: x}}", "{uniform: [0.5, 1]}"),
    ):
        with pytest.raises(InputError) as e:
            space(f"{head}  b: {theirs}")
        (problem,) = e.value.problems
        assert (
            problem.text.startswith("params.b: ")
            and ours in problem.text
            and "`when`" in problem.text
        )


@pytest.mark.parametrize(
    ("section", "key", "ours"),
    [
        ("scaling: {num_workers: {min: 1, max: 2}}", "scaling.num_workers", "{randint: [1, 3]}"),
        (
            "scaling: {use_gpu: {values: [true, false]}}",
            "scaling.use_gpu",
            "{choice: [true, false]}",
        ),
        (
            "preprocessor: {values: [none, StandardScaler]}",
            "preprocessor",
            "{choice: [none, StandardScaler]}",
        ),
        (
            "preprocessor: {SimpleImputer: {strategy: {values: [mean]}}}",
            "preprocessor.SimpleImputer.strategy",
            "{choice: [mean]}",
        ),
        ("params: {a: {b: {min: 0.5, max: 1}}}", "params.a.b", "{uniform: [0.5, 1]}"),
        (
            "params: {a: {grid: [{b: {min: 0.5, max: 1}}]}}",
            "params.a.grid.0.b",
            "{uniform: [0.5, 1]}",
        ),
        ("params: {a: [{min: 0.5, max: 1}]}", "params.a.0", "{uniform: [0.5, 1]}"),
    ],
)
def test_wherever_a_domain_may_stand(space: Any, section: str, key: str, ours: str) -> None:
    with pytest.raises(InputError) as e:
        space(section)
    (problem,) = e.value.problems
    assert problem.text.startswith(f"{key}: ") and ours in problem.text


def test_under_data(lines: Any) -> None:
    head = (
        "trainer: xgboost\nobjective: {metric: m, goal: minimize}\n"
        "limits: {max_trials: 9}\nspace: {params: {}}\n"
    )
    (line,) = lines(head + "data: {train: d.csv, label: y, valid: 0.2, rows: {min: 0.1, max: 1}}\n")
    assert "data.rows: " in line and "{uniform: [0.1, 1]}" in line
    (line,) = lines(head + "data: {train: {values: [a.csv, b.csv]}, label: y, valid: 0.2}\n")
    assert "data.train: " in line and "{choice: [a.csv, b.csv]}" in line


@pytest.mark.parametrize("text", ["mean(x)", "int(5)", "f(1)", "normal", "a choice (of two)"])
def test_other_texts_stay_constants(space: Any, text: str) -> None:
    assert space(f'params: {{x: "{text}"}}').sections["params"]["x"] == text


@pytest.mark.parametrize(
    ("text", "tool"),
    [
        (
            (
                "apiVersion: kubeflow.org/v1beta1\nkind: Experiment\n"
                "spec: {objective: {type: maximize}}"
            ),
            "Katib",
        ),
        (
            "apiVersion: v1\nkind: Experiment\nspec: {command: ['--lr=${trialParameters.rate}']}",
            "Katib",
        ),
        ("defaults: [_self_]\nhydra: {sweeper: {params: {lr: 'interval(0, 1)'}}}", "Hydra"),
        ("name: n\nsearcher: {name: grid}\nhyperparameters: {lr: 0.1}", "Determined"),
        (
            "type: sweep\nsampling_algorithm: random\nsearch_space: {lr: {type: uniform}}",
            "Azure ML",
        ),
        ("searchSpace: {lr: {_type: uniform}}\ntrialCommand: python t.py", "NNI"),
        ("studySpec: {metrics: []}\ntrialJobSpec: {}", "Vertex AI"),
        ("program: t.py\nmethod: grid\nparameters: {lr: {value: 1}}", "--from-wandb"),
        ("tune_config: {num_samples: 2}\nparam_space: {lr: 1}", "Ray Tune"),
    ],
)
def test_a_file_of_another_tool_gets_one_line_with_the_tool(
    tmp_path: Path, text: str, tool: str
) -> None:
    file = tmp_path / "other.yaml"
    file.write_text(text + "\n")
    with pytest.raises(InputError) as e:
        load(file)
    (problem,) = e.value.problems
    assert tool in problem.text and "not a space file" in problem.text


@pytest.mark.parametrize(
    "bound", ["'{params.low}'", "params.low", "low", "'low * 2'", "'{low}'", "'${params.low}'"]
)
def test_a_bound_that_names_a_dimension_gets_a_way_out(space: Any, bound: str) -> None:
    bound = bound.replace("${", "$${")
    with pytest.raises(InputError) as e:
        space(f"params: {{low: {{randint: [1, 9]}}, high: {{randint: [{bound}, 20]}}}}")
    (problem,) = e.value.problems
    assert "params.high" in problem.text and "lower + fraction * (upper - lower)" in problem.text


def test_a_constant_or_an_option_that_names_a_dimension_gets_a_note(space: Any) -> None:
    loaded = space(
        "params: {heads: {choice: [2, 4]}, width: '{params.heads} * 16', deep: {size: "
        "['{heads}']}, other: '{free}', "
        "text: 'params.heads * 2', tried: {choice: ['{params.heads}', 3]}, plain: {choice: [a, "
        "b]}}"
    )
    assert [note.split(":")[0] for note in loaded.notes] == [
        "space.params.width",
        "space.params.deep",
        "space.params.text",
        "space.params.tried",
    ]

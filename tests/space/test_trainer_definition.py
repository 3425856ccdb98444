"""The `TRAINER` literal of a trainer's module: how it is read, what is refused, and what follows
from it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sweeps.core.errors import InputError
from sweeps.space import load
from sweeps.space.schema.parameter_schema import allows, fragment_problem, rule_of
from sweeps.space.sections.built_in_trainers import trainer_names
from sweeps.space.sections.trainer_definition import definition_of

SPACE = """\
trainer: {trainer}
data: {{train: d.csv, label: y, valid: 0.2}}
objective: {{metric: valid-loss, goal: minimize}}
limits: {{max_trials: 2}}
space: {{params: {params}}}
"""
MODULE = """\
raise SystemExit("imported")
TRAINER = {
    "backend": "torch",
    "load": "load",
    "resume_files": ["optimizer.pt"],
    "parameters": {"lr": {"type": "number", "exclusiveMinimum": 0, "maximum": 1}, \
"depth": {"type": "integer", "minimum": 1}},
    "needs_label": True,
}
def train_func(config): ...
def load(folder): ...
"""


def written(
    folder: Path, module: str = MODULE, trainer: str = "my", params: str = "{lr: {uniform: [0, 1]}}"
) -> Path:
    (folder / "my.py").write_text(module)
    (folder / "space.yaml").write_text(SPACE.format(trainer=trainer, params=params))
    return folder / "space.yaml"


def problems(file: Path) -> list[str]:
    with pytest.raises(InputError) as e:
        load(file)
    return [str(problem).removeprefix(f"{file.parent}/") for problem in e.value.problems]


def test_a_module_with_a_literal_is_a_trainer(tmp_path: Path) -> None:
    space = load(written(tmp_path))
    assert (space.trainer.name, space.trainer.loop, space.trainer.backend, space.trainer.load) == (
        None,
        "my:train_func",
        "torch",
        "my:load",
    )
    assert space.trainer.definition.resume_files == ("optimizer.pt",) and space.notes == ()


def test_a_mapping_takes_from_the_literal_what_it_does_not_say(tmp_path: Path) -> None:
    trainer = load(written(tmp_path, trainer='{loop: "my:train_func"}')).trainer
    assert (trainer.backend, trainer.load) == ("torch", "my:load")
    trainer = load(written(tmp_path, trainer='{loop: "my:train_func", backend: none}')).trainer
    assert trainer.backend == "none"


def test_a_literal_with_a_type_is_read(tmp_path: Path) -> None:
    written(tmp_path, MODULE.replace("TRAINER =", "TRAINER: dict[str, object] ="))
    assert definition_of("my", (tmp_path,)).backend == "torch"


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            '"torch"',
            '"gloo"',
            (
                "my.py:3:5: TRAINER.backend: 'gloo' is not allowed; the value must be torch, "
                "xgboost, "
                "lightgbm, "
            ),
        ),
        (
            '"backend"',
            '"backnd"',
            "my.py:3:5: TRAINER.backnd: unknown key; did you mean `backend`?",
        ),
        (
            '"needs_label": True',
            '"needs_label": "often"',
            (
                "my.py:7:5: TRAINER.needs_label: 'often' is not allowed; the value must be true "
                "or "
                "false"
            ),
        ),
        (
            '"minimum": 1',
            '"minimum": "1"',
            "my.py:6:5: TRAINER.parameters: `depth`: `minimum` must be a number",
        ),
        (
            '"minimum": 1',
            '"at_least": 1',
            (
                "my.py:6:5: TRAINER.parameters: `depth`: has the unknown key `at_least`; valid "
                "keys: "
                "type, enum, "
            ),
        ),
        (
            '"minimum": 1',
            '"minimum": 1, "default": 0',
            "`depth`: the default 0 is not allowed; the default must be an integer of at least 1",
        ),
        ('"torch"', "TORCH", "my.py:2:11: TRAINER: must be a literal; write `TRAINER = "),
    ],
)
def test_a_literal_that_breaks_a_rule(tmp_path: Path, old: str, new: str, problem: str) -> None:
    (only_problem,) = problems(written(tmp_path, MODULE.replace(old, new)))
    assert problem in only_problem


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        (
            "{lr: fast}",
            "space.yaml:5:22: params.lr: must be a number greater than 0 and at most 1, got fast",
        ),
        (
            "{lr: {choice: [0.1, 2]}}",
            "space.yaml:5:37: params.lr: must be a number greater than 0 and at most 1, got 2",
        ),
        (
            "{lr: {uniform: [0.1, 2]}}",
            (
                "space.yaml:5:22: params.lr: must be a number greater than 0 and at most 1, got "
                "{uniform: [0.1, 2]}"
            ),
        ),
        (
            "{depth: {uniform: [1, 4]}}",
            (
                "params.depth: must be an integer of at least 1, but `uniform` also gives "
                "fractions; "
                "use randint"
            ),
        ),
        (
            "{dept: 3}",
            (
                "space.yaml:5:18: params.dept: is not a parameter of my:train_func; did you mean "
                "`depth`?"
            ),
        ),
    ],
)
def test_parameters_are_checked_by_name(tmp_path: Path, params: str, problem: str) -> None:
    (only_problem,) = problems(written(tmp_path, params=params))
    assert problem in only_problem


def test_steps_from_a_fraction_are_no_integers(tmp_path: Path) -> None:
    (problem,) = problems(written(tmp_path, params="{depth: {quniform: [1.5, 4.5, 1]}}"))
    assert "`quniform` also gives fractions" in problem


@pytest.mark.parametrize(
    "params",
    [
        "{depth: 3.0}",
        "{depth: null}",
        "{depth: {quniform: [1, 4, 1]}}",
        "{lr: {uniform: [0, 1]}}",
        "{lr: {randn: null}}",
    ],
)
def test_values_that_are_allowed(tmp_path: Path, params: str) -> None:
    assert load(written(tmp_path, params=params)).sections["params"]


def test_a_module_without_a_literal_says_what_to_add(tmp_path: Path) -> None:
    (problem,) = problems(written(tmp_path, "def train_func(config): ...\n"))
    assert (
        problem
        == "space.yaml:1:10: trainer: module `my` has no `TRAINER` literal; add this literal, or "
        'write {loop: "my:train_func"}'
    )


def test_another_value_of_the_name_is_ignored(tmp_path: Path) -> None:
    module = "TRAINER = make_trainer()\ndef train_func(config): ...\n"
    assert load(written(tmp_path, module, '{loop: "my:train_func"}')).trainer.backend == "none"


def test_our_trainers_describe_every_parameter() -> None:
    for name in trainer_names():
        definition = definition_of(f"sweeps.trainers.{name}")
        assert definition.load == (None if name in ("command", "trainable") else "load")
        for parameter, fragment in definition.parameters.items():
            assert fragment_problem(fragment) is None and fragment["description"], parameter


@pytest.mark.parametrize(
    ("fragment", "rule", "good", "bad"),
    [
        ({"type": "integer"}, "an integer", [1, 2.0, None], [1.5, True, "1"]),
        ({"type": ["number", "array"]}, "a number or a list", [1.5, [1]], ["x", False]),
        ({"type": "boolean"}, "true or false", [True, False], [1, "yes"]),
        ({"enum": [1, "a", True]}, "1, a or true", [1, "a", True], [2, "b", False]),
        (
            {"type": "number", "minimum": 0, "exclusiveMaximum": 1},
            "a number of at least 0 and less than 1",
            [0, 0.5],
            [1, -0.1],
        ),
    ],
)
def test_fragments(fragment: Any, rule: str, good: Any, bad: Any) -> None:
    assert rule_of(fragment) == rule
    assert all(allows(fragment, value) for value in good) and not any(
        allows(fragment, value) for value in bad
    )

"""Checks of the command in the section `trainer`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest

from sweeps.core.errors import InputError
from sweeps.space import load
from sweeps.space.model.space_model import command_files
from sweeps.space.schema import json_schema

SPACE = """\
trainer: {{command: {command}}}
objective: {{metric: loss, goal: minimize}}
limits: {{max_trials: 2}}
space:
  params:
    lr: {{uniform: [0, 1]}}
    net:
      choice:
        - {{kind: small}}
        - {{kind: large, depth: {{randint: [1, 9]}}}}
"""
GOOD = '[python, train.py, --lr, "{params.lr}", "{params.net.kind}", "{params.net.depth}"]'


def written(folder: Path, command: str) -> Path:
    (folder / "train.py").write_text("import helpers\nraise SystemExit('imported')\n")
    (folder / "helpers.py").write_text("")
    (folder / "space.yaml").write_text(SPACE.format(command=command))
    return folder / "space.yaml"


def problems(file: Path) -> list[str]:
    with pytest.raises(InputError) as e:
        load(file)
    return [str(problem).removeprefix(f"{file.parent}/") for problem in e.value.problems]


@pytest.mark.parametrize(
    "command",
    [GOOD, '[python, -u, train.py, "{args}"]', '[python, -m, train, "--config={params}"]'],
)
def test_a_command_selects_the_trainer(tmp_path: Path, command: Any) -> None:
    file = written(tmp_path, command)
    space = load(file)
    assert (space.trainer.name, space.trainer.load, space.trainer.options["grace_seconds"]) == (
        "command",
        None,
        10,
    )
    assert command_files(space, (tmp_path,)) == {tmp_path / "train.py": tmp_path}
    jsonschema.Draft202012Validator(json_schema.schema()).validate(
        {
            "trainer": {"command": space.trainer.options["command"]},
            "objective": {"metric": "loss", "goal": "minimize"},
        }
    )


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (
            '[python, train.py, "{args}", "{params.rl}"]',
            ["1:49: trainer.command.3: unknown placeholder `{params.rl}`; did you"],
        ),
        (
            '[python, train.py, "{params.net}"]',
            ["6:5: params.lr: `trainer.command` does not use this parameter"],
        ),
        (
            '[python, train.py, "{params.lr}", "{params.net.kind}"]',
            ["7:5: params.net.depth: `trainer.command` does not use"],
        ),
        ('[python, trian.py, "{args}"]', ["1:29: trainer.command.1: no file `trian.py` in "]),
        ("'python fit.py {args}'", ['; write [python, fit.py, "{args}"]']),
        (
            "python train.py",
            [
                "1:20: trainer.command: must be a list of texts and numbers",
                "; write [python, train.py]",
            ],
        ),
        (
            "[python, train.py, {params.lr}]",
            ['put quotes around a placeholder, such as "{params.lr}"'],
        ),
        ("[]", ["trainer.command: must be a list of texts and numbers"]),
    ],
)
def test_a_mistake_in_the_command_is_a_problem_with_its_place(
    tmp_path: Path, command: str, expected: Any
) -> None:
    lines = problems(written(tmp_path, command))
    assert len(lines) == 1 and all(text in lines[0] for text in expected), lines


def test_a_missing_script_names_the_most_similar_file(tmp_path: Path) -> None:
    (problem,) = problems(written(tmp_path, '[python, trian.py, "{args}"]'))
    assert problem.endswith("did you mean `train.py`?")

"""Notes about spaces that are valid, but seldom what the user wants."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sweeps import cli
from sweeps.core.metrics import METRICS, usual_goal
from sweeps.space.parse.notes import goal_notes, list_notes
from sweeps.space.sections.search_models import Objective

FILE = """\
trainer: {{loop: "json:load"}}
objective: {{metric: {metric}, goal: {goal}}}
limits: {{max_trials: 2}}
space: {{params: {params}}}
"""


@pytest.mark.parametrize(
    ("metric", "goal"),
    [
        *(
            ("valid-mlogloss", "minimize"),
            ("train-rmse", "minimize"),
            ("error@0.7", "minimize"),
            ("valid_mae", "minimize"),
        ),
        *(
            ("valid-auc", "maximize"),
            ("ndcg@3", "maximize"),
            ("valid-neg_log_loss", "maximize"),
            ("r2", "maximize"),
        ),
        *(
            ("loss", None),
            ("profit", None),
            ("my_mod:rmse", None),
            ("gamma", None),
            ("seconds", None),
        ),
    ],
)
def test_the_direction_of_a_metric_is_known_or_left_open(metric: Any, goal: Any) -> None:
    assert usual_goal(metric) == goal


def test_every_metric_of_ours_has_a_direction() -> None:
    assert [name for name in METRICS if usual_goal(name) is None] == []


def test_the_worst_value_of_a_known_metric_is_noted() -> None:
    assert (
        goal_notes([Objective("valid-mlogloss", "minimize"), Objective("profit", "minimize")]) == ()
    )
    (note,) = goal_notes([Objective("valid-mlogloss", "maximize")])
    assert (
        note == "objective.goal: a lower `valid-mlogloss` is usually better, but the goal is "
        "`maximize`; write `goal: minimize`"
    )
    (note,) = goal_notes([Objective("loss", "minimize"), Objective("accuracy", "minimize")])
    assert note.startswith("objective.1.goal: a higher `accuracy` is usually better, ")


def test_a_list_is_noted_if_its_elements_could_be_options() -> None:
    (note,) = list_notes({"a": [1, 2, 3], "b": 1, "c": [1], "d": [[1], [2]], "e": "text"})
    assert (
        note
        == "space.params.a: this list is one value, and nothing is tuned; to try each element, "
        "write `{choice: [1, 2, 3]}`"
    )
    (note,) = list_notes({"a": "32,64", "b": "a sentence, in words", "c": "1,"})
    assert note.endswith("write `{choice: [32, 64]}`")
    assert list_notes(None) == list_notes({}) == ()


@pytest.mark.parametrize("verb", ["validate", "plan"])
def test_the_commands_print_the_notes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    monkeypatch.chdir(tmp_path)

    def said(metric: str, goal: str, params: str) -> list[str]:
        (tmp_path / "space.yaml").write_text(FILE.format(metric=metric, goal=goal, params=params))
        done = CliRunner().invoke(cli.main, [verb, "space.yaml"], prog_name="sweeps")
        assert done.exit_code == 0
        return done.stderr.splitlines()

    goal, lists = said("rmse", "maximize", "{a: [x, y]}")
    assert goal.startswith("note: objective.goal: a lower `rmse` ") and lists.endswith(
        'write `{choice: ["x", "y"]}`'
    )
    assert said("rmse", "minimize", "{a: [x, y], b: {choice: [1, 2]}}") == []

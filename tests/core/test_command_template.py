"""Placeholders and files of a command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sweeps.core.plugins.command_template import code_files, fill, folder_of, problems, unused

PARAMS = {
    "lr": 0.01,
    "net": {"depth": 2, "dropout": None},
    "flag": True,
    "sizes": [1, 2],
    "a.b": "x y",
}


@pytest.mark.parametrize(
    ("argument", "filled"),
    [
        ("{params.lr}", "0.01"),
        ("--lr={params.lr}", "--lr=0.01"),
        ("{params.net.depth}-{params.lr}", "2-0.01"),
        ("{params.net}", '{"depth": 2, "dropout": null}'),
        ("{params.flag}", "True"),
        ("{params.sizes}", "[1, 2]"),
        ("{params.a.b}", "x y"),
        ("{seed}", "7"),
        ("{{params.lr}}", "{params.lr}"),
        ('{"a": {"b": 1}}', '{"a": {"b": 1}}'),
        ("awk '{print $1}'", "awk '{print $1}'"),
        ("{}", "{}"),
        (3, "3"),
    ],
)
def test_a_placeholder_is_replaced_by_its_value(argument: int | str, filled: str) -> None:
    assert fill(["run", argument], PARAMS, {"seed": 7}) == ["run", filled]


def test_args_gives_every_parameter_that_is_no_mapping() -> None:
    assert fill(["run", "{args}"], PARAMS, {}) == [
        *(
            "run",
            "--lr=0.01",
            "--net.depth=2",
            "--net.dropout=None",
            "--flag=True",
            "--sizes=[1, 2]",
            "--a.b=x y",
        )
    ]


@pytest.mark.parametrize(
    ("command", "filled"),
    [
        (
            ["run", "--momentum", "{params.momentum}", "--lr", "{params.lr}"],
            ["run", "--lr", "0.01"],
        ),
        (["run", "--momentum={params.momentum}"], ["run"]),
        (["run", "--verbose", "m={params.momentum}"], ["run", "--verbose"]),
    ],
)
def test_an_argument_with_a_parameter_that_the_trial_lacks_is_left_out(
    command: Any, filled: Any
) -> None:
    assert fill(command, PARAMS, {}) == filled


@pytest.mark.parametrize(
    ("argument", "text"),
    [
        (
            "{lr}",
            (
                "unknown placeholder `{lr}`; did you mean `{params.lr}`? For the text {lr}, write "
                "{{lr}}"
            ),
        ),
        ("x{params.lrr}", "unknown placeholder `{params.lrr}`; did you mean `{params.lr}`?"),
        ("{sed}", "did you mean `{seed}`?"),
        ("x={args}", "`{args}` must be an argument of its own"),
    ],
)
def test_an_unknown_placeholder_is_a_problem_with_a_hint(argument: str, text: str) -> None:
    ((index, text_of_problem),) = problems(["run", argument], ["lr"])
    assert index == 1 and text in text_of_problem


def test_a_parameter_is_used_by_itself_its_mapping_or_all_arguments() -> None:
    names = ["lr", "net", "net.depth", "net.width"]
    assert unused(["run", "{params.lr}", "{params.net.depth}"], names) == ["net.width"]
    assert unused(["run", "{params.lr}", "{params.net}"], names) == []
    assert unused(["run", "{args}"], names) == unused(["run", "--config={params}"], names) == []
    assert unused(["run"], names) == ["lr", "net.depth", "net.width"]


def test_files_of_command_are_scripts_and_modules_beside_space(tmp_path: Path) -> None:
    package, elsewhere = tmp_path / "pkg", tmp_path / "elsewhere"
    package.mkdir()
    elsewhere.mkdir()
    for file in (package / "__init__.py", package / "train.py", tmp_path / "run.sh"):
        file.touch()
    assert code_files(["bash", "run.sh", "--x", "{params.x}"], tmp_path) == [tmp_path / "run.sh"]
    assert code_files(["python", "-m", "pkg.train"], tmp_path) == [package / "train.py"]
    assert code_files(["python", "-m", "json.tool"], tmp_path) == []
    assert folder_of(["bash", "run.sh"], [elsewhere, tmp_path]) == tmp_path
    assert folder_of(["true"], [elsewhere, tmp_path]) == elsewhere

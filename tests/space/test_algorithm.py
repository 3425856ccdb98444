"""`search.algorithm: auto`: which algorithm it stands for, and that a sweep keeps the one it began
with.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sweeps import cli
from sweeps.core.files.sweep_folder import ORIGIN
from sweeps.plan import plan
from sweeps.search.search_loop import SearchLoop
from sweeps.space import load
from sweeps.space.model.settings_texts import settings_of
from sweeps.space.python.saved_space import resumed_space, save_space

SPACE = """\
name: own
trainer: {{loop: "tests.user_loops:plain", backend: none}}
data: {{train: "sklearn:iris", label: target, valid: 0.2}}
objective: {{metric: loss, goal: minimize}}
{search}
limits: {{max_trials: {trials}}}
space:
  params: {{{params}}}
"""
TPE = "search: {algorithm: tpe}"


def space_file(
    tmp_path: Path, search: str = "", trials: int = 9, params: str = "x: {uniform: [0.0, 1.0]}"
) -> Path:
    file = tmp_path / "own.yaml"
    file.write_text(SPACE.format(search=search, trials=trials, params=params))
    return file


@pytest.mark.parametrize(
    ("search", "trials", "params", "algorithm"),
    [
        ("", 9, "x: {uniform: [0, 1]}", "gp"),
        ("search: {algorithm: auto, seed: 3}", 9, "x: {uniform: [0, 1]}", "gp"),
        (TPE, 9, "x: {uniform: [0, 1]}", "tpe"),
        ("", 10_000, "x: {uniform: [0, 1]}", "gp"),
        ("", 10_001, "x: {uniform: [0, 1]}", "tpe"),
        ("", 9, "x: {choice: [a, b]}, y: {uniform: [0, 1], when: {params.x: a}}", "gp"),
        ("", 9, "x: {choice: [a, {y: {uniform: [0, 1]}}]}", "gp"),
        ("", 9, "x: {grid: [a, b]}", "grid"),
    ],
)
def test_a_file_without_an_algorithm_is_searched_by_the_chosen_one(
    tmp_path: Path, search: Any, trials: int, params: str, algorithm: str
) -> None:
    space = load(space_file(tmp_path, search, trials, params))
    assert space.search.algorithm == algorithm
    assert bool(space.algorithm_reason) == (search != TPE)
    planned = plan(space, {"CPU": 2}).to_json()["algorithm"]
    assert planned == {"name": algorithm, "reason": space.algorithm_reason}
    assert settings_of(space)["search.algorithm"] == algorithm
    shown = (
        CliRunner()
        .invoke(cli.main, ["plan", str(tmp_path / "own.yaml")], prog_name="sweeps")
        .output
    )
    assert any(line.split()[:1] == ["search"] and algorithm in line for line in shown.splitlines())


def test_a_sweep_keeps_the_algorithm_that_it_began_with(tmp_path: Path) -> None:
    space = load(space_file(tmp_path))
    folder = tmp_path / "root" / "own-1"
    folder.mkdir(parents=True)
    save_space(folder, space, 0.0)
    SearchLoop.open(folder, space)
    assert json.loads((folder / ORIGIN).read_text())["algorithm"] == "gp"
    again = resumed_space(folder, (), add_trials=1000)
    assert (again.search.algorithm, again.limits.max_trials) == ("gp", 1009)
    again = resumed_space(folder, ("limits.max_trials=700",), 0)
    assert (again.search.algorithm, again.limits.max_trials) == ("gp", 700)
    shown = json.loads(
        CliRunner()
        .invoke(cli.main, ["ls", "--dir", str(tmp_path / "root"), "--json"], prog_name="sweeps")
        .output
    )
    assert shown[0]["algorithm"] == "gp"
    text = CliRunner().invoke(cli.main, ["show", str(folder)], prog_name="sweeps").output
    assert any(line.split()[:2] == ["search", "gp"] for line in text.splitlines())

"""The built-in trainers are imported as `sweeps.trainers`, so a project may have its own package
`trainers`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from sweeps.space.sections.built_in_trainers import trainer_names
from sweeps.space.sections.trainer_definition import definition_of
from tests.commands import REPO, command

SPACE = """\
name: own
trainer: {trainer}
data: {{train: "sklearn:iris", label: target, valid: 0.2}}
objective: {{metric: valid-mlogloss, goal: minimize}}
limits: {{max_trials: 1}}
space: {{preprocessor: "trainers:Half", params: {{{params}}}}}
"""
# A module named like one of ours, and a step, so that the package is imported in the workers.
OWN = """\
class Half:
    def fit(self, frame):
        return self

    def transform(self, frame):
        return frame / 2
"""


@pytest.mark.parametrize("name", trainer_names())
def test_a_trainer_that_computes_metrics_computes_all(name: Any) -> None:
    definition = definition_of(f"sweeps.trainers.{name}")
    assert definition.all_metrics or not definition.metrics, (
        "compute the metrics with `measure` of trainers/_metrics.py"
    )


@pytest.mark.integration
@pytest.mark.extended
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("trainer", "params"), [("xgboost", "num_boost_round: 2"), ("torch_tabular", "epochs: 2")]
)
def test_a_project_with_a_package_trainers_runs_ours(
    tmp_path: Path, trainer: str, params: str
) -> None:
    package = tmp_path / "trainers"
    package.mkdir()
    (package / "__init__.py").write_text(OWN)
    (package / "xgboost.py").write_text(
        "raise RuntimeError('the trainer of the project was imported in place of ours')\n"
    )
    (tmp_path / "own.yaml").write_text(SPACE.format(trainer=trainer, params=params))
    process = command("run", tmp_path / "own.yaml", "--dir", tmp_path / "root", "--json")
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    assert json.loads(out)["trials"]["completed"] == 1


@pytest.mark.integration
@pytest.mark.extended
@pytest.mark.timeout(240)
def test_the_wheel_installs_no_package_trainers(tmp_path: Path) -> None:
    built = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", tmp_path, REPO],
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    ours = {f"sweeps/trainers/{file.name}" for file in (REPO / "trainers").glob("*.py")}
    assert ours <= set(names) and not [name for name in names if name.startswith("trainers/")]


@pytest.mark.integration
@pytest.mark.extended
@pytest.mark.timeout(400)
def test_mypy_knows_the_types_of_our_trainers(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(
        "from sweeps.trainers.xgboost import load\n\nanswer: int = load('folder')\n"
    )
    checked = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--config-file",
            REPO / "pyproject.toml",
            tmp_path / "wrong.py",
        ],
        cwd=REPO,
        capture_output=True,
        text=True,
        timeout=360,
    )
    assert (
        checked.returncode == 1 and "wrong.py:3" in checked.stdout and '"Model"' in checked.stdout
    ), checked.stdout + checked.stderr

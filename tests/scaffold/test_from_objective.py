"""`sweeps init` from an objective of Optuna."""

from __future__ import annotations

from typing import Any

import pytest

from sweeps.space import load
from tests.scaffold.init_command import refused, run
from tests.scaffold.test_from_optuna import OBJECTIVE

pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")


def test_an_objective(here: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "own_objective.py").write_text(OBJECTIVE)
    output = run("--from-objective", "own_objective:objective")
    assert "wrote space.yaml and space_loop.py" in output
    space = load("space.yaml")
    assert [dim.name for dim in space.dimensions][:3] == [
        "params.lr",
        "params.depth",
        "params.booster",
    ]
    assert len(space.dimensions) == 4  # the run has suggested either `drop` or `gamma`
    assert space.scheduler.options["max_t"] == 6

    import ray.train

    reports: list[dict[str, float]] = []
    monkeypatch.setattr(ray.train, "report", reports.append)
    from space_loop import train

    end = train({"lr": 0.01, "depth": 2, "booster": "gbtree", "gamma": 5, "drop": 0.1})
    assert [report["value"] for report in (*reports, end)] == pytest.approx(
        [0.02, 0.01, 0.02 / 3, 0.005, 0.004, 0.02]
    )


@pytest.mark.parametrize(
    "code", ["study.optimize(objective, n_trials=1)", "study.tell(study.ask(), 1.0)"]
)
def test_a_study_at_import_is_noted(here: Any, code: str) -> None:
    head = "import optuna\n\ndef objective(trial):\n    return trial.suggest_float('x', 0, 1)\n\n"
    (here / "own_objective.py").write_text(f"{head}study = optuna.create_study()\n{code}\n")
    note = "The import of `own_objective` runs a study"
    assert note in run("--from-objective", "own_objective:objective")
    assert note in (here / "space.yaml").read_text()


@pytest.mark.parametrize("reference", ["own_objective:train", "own_objective:Trial.run"])
def test_an_objective_with_a_name_of_the_written_module(here: Any, reference: str) -> None:
    (here / "own_objective.py").write_text(
        "import os\n\ndef train(trial):\n    os.chdir('/')\n"
        "    return trial.suggest_float('x', 0, 1)\n\n"
        "class Trial:\n    run = staticmethod(train)\n"
    )
    run("--from-objective", reference)  # the paths refer to the folder in which the command started
    assert load("space.yaml").dimensions[0].name == "params.x"

    from space_loop import train

    assert train({"x": 0.25}) == {"value": 0.25}


def test_the_module_of_the_objective_is_not_overwritten(here: Any) -> None:
    (here / "space_loop.py").write_text(OBJECTIVE)
    (shown,) = refused("--from-objective", "space_loop:objective", "--force").splitlines()
    assert shown.startswith("--from-objective: space_loop.py would be overwritten")
    assert (here / "space_loop.py").read_text() == OBJECTIVE


def test_several_values(here: Any) -> None:
    (here / "own_objective.py").write_text(
        "def objective(trial):\n    x = trial.suggest_float('x', 0, 1)\n    return x, 1 - x\n"
    )
    assert "returned 2 values; give `--direction minimize` or" in refused(
        "--from-objective", "own_objective:objective"
    )
    run(
        "--from-objective",
        "own_objective:objective",
        "--direction",
        "minimize",
        "--direction",
        "maximize",
    )
    assert [(o.metric, o.goal) for o in load("space.yaml").objectives] == [
        ("value_0", "minimize"),
        ("value_1", "maximize"),
    ]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def objective(trial):\n    return 1.0\n", "suggested no parameter"),
        (
            "def objective(trial):\n    trial.suggest_int('n', 1, 2)\n    raise KeyError('gone')\n",
            "raised KeyError: 'gone' (own_objective.py, line 3)",
        ),
        (
            "def objective(trial):\n    trial.suggest_int('n', 1, 2)\n    return 'good'\n",
            "returned 'good', but must return a number",
        ),
        (
            "import optuna\nimport nowhere\nobjective = 3\n",
            "No module named 'nowhere' (own_objective.py, line 2)",
        ),
        (
            "import sys\nsys.exit(3)\nobjective = 3\n",
            "cannot be imported: SystemExit: 3 (own_objective.py, line 2)",
        ),
        ("objective = 3\n", "has the type int, but must be a function"),
        ("other = 3\n", "has no `objective`"),
    ],
)
def test_objectives_that_cannot_be_recorded(here: Any, code: str, message: str) -> None:
    (here / "own_objective.py").write_text(code)
    (line,) = refused("--from-objective", "own_objective:objective").splitlines()
    assert line.startswith("--from-objective: ") and message in line
    assert not (here / "space.yaml").exists()

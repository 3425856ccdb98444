"""A sweep whose space, trainer and data are Python objects: it runs, and every command works on its
folder without the script.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import sweeps
from sweeps.core.files import trust
from sweeps.core.files.sweep_folder import SweepFolder
from tests.commands import invoke

pytestmark = [pytest.mark.integration, pytest.mark.slow]

ROWS = pd.DataFrame({"a": np.arange(40.0), "y": np.arange(40) / 4})


def notebook_cells(offset: float) -> dict[str, Any]:
    """Return what the cells of a notebook define: no module has these functions and classes."""
    cells: dict[str, Any] = {"__name__": "__main__", "offset": offset}
    exec(
        """
import pickle
from pathlib import Path


class Mean:
    def __init__(self, value):
        self.value = value

    def predict(self, rows):
        import numpy

        return numpy.full(len(rows), self.value)


def train(config):
    import tempfile
    import ray.train

    for step in range(1, 4):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "mean.pkl").write_bytes(pickle.dumps(Mean(config["x"] + offset)))
            ray.train.report({"loss": config["x"] / step}, \
checkpoint=ray.train.Checkpoint.from_directory(folder))


def load(folder):
    return pickle.loads(Path(folder, "mean.pkl").read_bytes())
""",
        cells,
    )
    return cells


def moved_sweep(tmp_path: Path, trials: int) -> tuple[sweeps.SweepResult, Path]:
    """Run a sweep from notebook cells, and move its folder.

    Return the result, whose paths are those before, and the folder.
    """
    cells = notebook_cells(offset=10.0)
    space = {
        "name": "cells",
        "trainer": {"loop": cells["train"], "load": cells["load"], "backend": "none"},
        "data": {"train": ROWS, "label": "y", "valid": 0.25},
        "objective": {"metric": "loss", "goal": "minimize"},
        "limits": {"max_trials": trials, "max_concurrent_trials": 1},
        "space": {"params": {"x": sweeps.uniform(0.1, 1)}},
    }
    result = sweeps.run(space, dir=tmp_path / "runs")
    return result, Path(shutil.move(result.dir, tmp_path / "moved"))


@pytest.mark.timeout(240)
@pytest.mark.extended
def test_a_trial_of_a_sweep_from_python_is_run_again(
    clean_ray: Any, checked_in_this_process: Any, tmp_path: Path
) -> None:
    _, sweep = moved_sweep(tmp_path, 1)
    rerun = invoke("rerun", sweep, "0")
    assert rerun.exit_code == 0 and "bit-identical" in rerun.stdout, rerun.output


@pytest.mark.timeout(240)
def test_a_sweep_from_python_works_without_the_script(
    clean_ray: Any, checked_in_this_process: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, sweep = moved_sweep(tmp_path, 2)
    assert result.trials == {"completed": 2, "pruned": 0, "failed": 0}
    assert result.best is not None
    expected = result.best["params"]["x"] + 10
    assert sweeps.load_bundle(sweep / "bundle").predict(ROWS.head(2))["prediction"].tolist() == [
        expected,
        expected,
    ]
    monkeypatch.chdir(tmp_path)
    assert "2 completed of 2" in invoke("show", sweep).stdout
    resumed = invoke("resume", sweep, "--add-trials", "1", "--json")
    assert json.loads(resumed.stdout)["trials"]["completed"] == 3, resumed.output
    exported = invoke("export", sweep, "--trial", "0")
    assert exported.exit_code == 0, exported.output
    (module,) = SweepFolder(sweep).functions.glob("*.py")
    module.write_text(module.read_text() + "\n")
    for command in (
        ("rerun", sweep, "0"),
        ("resume", sweep, "--add-trials", "1"),
        ("export", sweep, "--trial", "1"),
    ):
        refused = invoke(*command)
        assert (
            refused.exit_code == 2 and f"{module}: was not written with your key" in refused.output
        )
    assert invoke("show", sweep).exit_code == 0
    assert trust.read(module, trust=True)

"""The examples of the manual run as a user copies them: own loops, own steps and own data, from the
space file to the bundle.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import sweeps
from tests.commands import command
from tests.documents import block_beginning

pytestmark = [pytest.mark.integration, pytest.mark.extended, pytest.mark.timeout(300)]


def run(folder: Path, space: str, *modules: str, options: tuple[str, ...] = ()) -> Any:
    """Write a space file and the modules of the manual into a folder, run the sweep, and return its
    result.
    """
    for module in modules:
        (folder / module).write_text(block_beginning(f"# {module}"))
    (folder / "space.yaml").write_text(block_beginning(f"name: {space}"))
    process = command("run", folder / "space.yaml", "--dir", folder / "runs", "--json", *options)
    out, err = process.communicate(timeout=290)
    assert process.returncode == 0, err
    result = json.loads(out)
    assert result["trials"]["failed"] == 0
    return result


def predictions(result: Any) -> pd.DataFrame:
    """Return what the bundle predicts for its own example rows."""
    rows = pd.read_parquet(Path(result["bundle"], "data", "sweep", "check.parquet"))
    return sweeps.load_bundle(result["bundle"]).predict(rows)


def test_the_torch_loop_on_two_workers_runs_and_its_bundle_predicts(tmp_path: Path) -> None:
    result = run(tmp_path, "digits", "digits.py", options=("--set", "limits.max_trials=2"))
    assert (
        result["best"]["value"] < 2.3 and result["best"]["scaling"]["num_workers"] == 2
    )  # ln 10 is the loss of a guess
    predicted = predictions(result)
    assert set(predicted["prediction"]) <= set(range(10)) and "probability_9" in predicted


def test_the_ridge_loop_runs_and_its_bundle_predicts(tmp_path: Path) -> None:
    result = run(tmp_path, "ridge", "ridge.py", options=("--set", "limits.max_trials=2"))
    assert 40 < result["best"]["value"] < 90
    assert predictions(result)["prediction"].between(0, 400).all()


def test_steps_of_the_user_run(tmp_path: Path) -> None:
    result = run(tmp_path, "clipped", "features.py", options=("--set", "limits.max_trials=2"))
    assert "Clip" in result["best"]["preprocessor"]


def test_a_loop_that_reads_its_own_data_runs(tmp_path: Path) -> None:
    np.savetxt(tmp_path / "rows.csv", np.arange(60.0).reshape(20, 3), delimiter=",")
    result = run(
        tmp_path,
        "own_data",
        "own_data.py",
        options=("--set", f"space.params.file={tmp_path / 'rows.csv'}"),
    )
    assert result["trials"]["completed"] == 8

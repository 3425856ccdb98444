"""The loop around scikit-learn of the manual, as a user copies it; and a category that training did
not have.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pandas as pd
import pytest

import sweeps
from tests.commands import command, invoke
from tests.documents import block_beginning

pytestmark = [pytest.mark.integration, pytest.mark.extended, pytest.mark.timeout(300)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the `forest.py` of the manual and the space that runs it."""
    loop, space = block_beginning("# forest.py"), block_beginning("name: forest")
    (tmp_path / "forest.py").write_text(loop)
    (tmp_path / "forest.yaml").write_text(space)
    return tmp_path


def test_the_loop_of_the_manual_around_scikit_learn_runs_and_its_bundle_predicts(folder):
    process = command("run", folder / "forest.yaml", "--dir", folder / "runs", "--json")
    out, err = process.communicate(timeout=290)
    assert process.returncode == 0, err
    result = json.loads(out)
    assert result["trials"] == {"completed": 4, "pruned": 0, "failed": 0}
    assert 0 < result["best"]["value"] < 1 and 0 < result["best"]["test"] < 1
    rows = pd.read_parquet(Path(result["bundle"], "data", "sweep", "check.parquet"))
    found = sweeps.load_bundle(result["bundle"]).predict(rows)
    assert list(found.columns) == [
        "prediction",
        "probability_0",
        "probability_1",
        "probability_2",
    ] and len(found) == len(rows)


def test_a_category_that_training_did_not_have_fails_with_the_step_that_takes_it(
    clean_ray, folder, monkeypatch
):
    monkeypatch.setattr(
        sys, "path", [*sys.path]
    )  # the folder of the space file is put there, and its module is imported
    monkeypatch.delitem(sys.modules, "forest", raising=False)
    loop = (folder / "forest.py").read_text()  # a forest reads missing values; this model does not
    loop = loop.replace(
        "from sklearn.ensemble import RandomForestClassifier",
        "from sklearn.linear_model import LogisticRegression",
    )
    loop = loop.replace(
        "RandomForestClassifier(**config, n_jobs=current.threads, random_state=current.seed)",
        "LogisticRegression(**config)",
    )
    (folder / "forest.py").write_text(loop)
    rows = pd.DataFrame({"age": range(20), "plan": ["a", "b"] * 10, "target": [0, 1, 1, 0] * 5})
    rows.to_csv(folder / "train.csv", index=False)
    rows.assign(plan="unseen").to_csv(folder / "valid.csv", index=False)
    (folder / "forest.yaml").write_text(
        "trainer: {loop: 'forest:train_func', load: 'forest:load'}\n"
        "data: {train: train.csv, label: target, valid: valid.csv}\n"
        "objective: {metric: valid-mlogloss, goal: minimize}\n"
        "limits: {max_trials: 1}\n"
        "space: {preprocessor: [SimpleImputer, OrdinalEncoder], params: {C: 1.0}}\n"
    )
    run = ("run", folder / "forest.yaml", "--dir", folder / "runs", "--json")
    failed = invoke(*run)
    assert failed.exit_code == 1
    (line,) = (
        line for line in failed.stderr.splitlines() if line.startswith("space.preprocessor: ")
    )
    assert "`plan` in valid" in line and "unknown_value" in line
    step = line[line.index('{"sklearn') :]
    done = invoke(*run, "--set", f"space.preprocessor=[SimpleImputer, {step}]")
    assert done.exit_code == 0 and json.loads(done.stdout)["trials"]["completed"] == 1, done.stderr

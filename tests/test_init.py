"""Files that `sweeps init` writes run without changes: from a dirty table, and from Optuna."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from sweeps.data.prepared_store import load_summary
from tests.commands import command, invoke
from tests.scaffold.tables import dirty

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


@pytest.mark.extended
def test_a_dirty_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = dirty()
    rows.to_parquet("rows.parquet")
    assert invoke("init", "--data", "rows.parquet", "--label", "y").exit_code == 0
    # Without `same`, which is constant.
    drop = "data.drop=[customer id, row, empty, leak, age, huge, vector]"
    changes = [drop, "limits.max_trials=2", "scheduler.max_t=4", "scheduler.grace_period=2"]
    process = command(
        "run",
        "space.yaml",
        "--dir",
        "runs",
        *(part for change in changes for part in ("--set", change)),
    )
    _, err = process.communicate(timeout=280)
    assert process.returncode == 0, err
    (line,) = (line for line in err.splitlines() if line.startswith("data: "))
    assert line.startswith("data: 630 rows, 10 features (") and line.endswith(
        "; y 1 54 %, 0 46 % (positive: 1)"
    ), line
    warnings = [line for line in err.splitlines() if line.startswith("warning: ")]
    assert warnings == [
        "warning: `city [EU]` has more than 30 different texts; if these are no categories, add it "
        "to data.drop",
        "warning: `same` has the same value in all rows; add it to data.drop",
    ]
    (folder,) = (tmp_path / "runs").glob("rows-*/")
    summary = load_summary(folder)
    assert summary is not None and summary.rows == {"train": 630}
    assert "<h2>Data</h2>" in (folder / "report.html").read_text()
    raw = rows.head(20).drop(columns=["y", "vector"])
    raw.to_csv("raw.csv", index=False)  # as text: `$1,234.50` and `31/01/2025`
    done = invoke("predict", folder / "bundle", "raw.csv", "-o", "out.csv")
    assert done.exit_code == 0, done.output
    assert len(pd.read_csv("out.csv")) == 20
    raw.assign(price=["soon", *raw.price[1:]]).to_csv("raw.csv", index=False)
    assert (
        "column `price` holds 'soon' in row 1, but must fit the rule number"
        in invoke("predict", folder / "bundle", "raw.csv").output
    )


@pytest.mark.extended
def test_an_objective_of_optuna(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_objective.py").write_text(
        "def objective(trial):\n"
        "    x = trial.suggest_float('x', -1, 1)\n"
        "    for step in range(3):\n"
        "        trial.report(x**2 + 1 / (step + 1), step)\n"
        "    return x**2 + 1 / 3\n"
    )
    assert invoke("init", "--from-objective", "own_objective:objective").exit_code == 0
    process = command(
        "run", "space.yaml", "--dir", "runs", "--json", "--set", "limits.max_trials=3"
    )
    out, err = process.communicate(timeout=280)
    assert process.returncode == 0, err
    result = json.loads(out)
    assert result["trials"]["failed"] == 0
    assert result["best"]["value"] == pytest.approx(result["best"]["params"]["x"] ** 2 + 1 / 3)

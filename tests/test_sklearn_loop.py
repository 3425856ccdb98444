"""The loop around scikit-learn of the manual, as a user copies it; and a category that training did
not have.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import sweeps
from tests.commands import command
from tests.documents import block_beginning

pytestmark = [pytest.mark.integration, pytest.mark.extended, pytest.mark.timeout(300)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the `forest.py` of the manual and the space that runs it."""
    loop, space = block_beginning("# forest.py"), block_beginning("name: forest")
    (tmp_path / "forest.py").write_text(loop)
    (tmp_path / "forest.yaml").write_text(space)
    return tmp_path


def test_documented_sklearn_loop_runs_and_predicts(folder: Any) -> None:
    process = command("run", folder / "forest.yaml", "--dir", folder / "runs", "--json")
    out, err = process.communicate(timeout=290)
    assert process.returncode == 0, err
    result = json.loads(out)
    assert result["trials"] == {"completed": 4, "pruned": 0, "failed": 0}
    assert 0 < result["best"]["value"] < 1 and 0 < result["best"]["test"] < 1
    rows = pd.read_parquet(Path(result["bundle"], "data", "sweep", "check.parquet"))
    predicted = sweeps.load_bundle(result["bundle"]).predict(rows)
    assert list(predicted.columns) == [
        "prediction",
        "probability_0",
        "probability_1",
        "probability_2",
    ] and len(predicted) == len(rows)

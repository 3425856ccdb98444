"""Damaged CSV and Parquet files: the look before a sweep refuses them in lines, or passes them on
to who reads them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given

from sweeps.data.checks.preflight import check_data
from sweeps.space import load
from tests.fuzz.harness import damage, damaged, fuzzed, held

SPACE = """\
name: a
trainer: xgboost
data: {{train: {file}, label: y, valid: 0.25}}
objective: {{metric: valid-logloss, goal: minimize}}
limits: {{max_trials: 2}}
space: {{params: {{eta: 0.1}}}}
"""


@pytest.mark.parametrize("kind", ["csv", "tsv", "parquet", "csv.gz"])
def test_damaged_rows(kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    numbers = np.random.default_rng(0).normal(size=40).round(2)
    frame = pd.DataFrame({"a": numbers, "b": ["x", "y", None, "é"] * 10, "y": ["no", "yes"] * 20})
    file = folder / f"rows.{kind}"
    if kind == "parquet":
        frame.to_parquet(file)
    else:
        frame.to_csv(file, index=False, sep="\t" if kind == "tsv" else ",")
    whole = file.read_bytes()
    (folder / "space.yaml").write_text(SPACE.format(file=file.name))
    space = load(folder / "space.yaml")

    @fuzzed
    @given(damage)
    def check(how: list[tuple[float, int, bytes]]) -> None:
        file.write_bytes(damaged(whole, how))
        held(folder, lambda: check_data(space))

    check()

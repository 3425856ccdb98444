"""A table in place of a space file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sweeps.core.errors import InputError
from sweeps.data.load_data import load_splits
from sweeps.scaffold.table_space import TableRequest, request_of, table_space
from sweeps.space import load


def rows(n: int = 300) -> Any:
    rng = np.random.default_rng(0)
    x = rng.normal(size=n)
    y = np.where(x + rng.normal(size=n) > 0, "yes", "no")
    return pd.DataFrame({"id": range(n), "x": x, "y": y})


def test_a_file_is_named_by_its_absolute_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows().to_csv("rows.csv", index=False)
    space, tables = table_space("rows.csv", TableRequest("y"))
    assert space.data.train == str(tmp_path / "rows.csv") and not tables
    assert load_splits(space.data).classes == ("no", "yes")
    first, dropped = space.notes[:2]
    assert first.startswith("y ") and "(positive: yes): binary, valid-logloss" in first
    assert dropped == "dropped id (numbers the rows)"


def test_a_frame_and_its_file_have_the_same_space(tmp_path: Path) -> None:
    rows().to_parquet(tmp_path / "rows.parquet")
    of_file, _ = table_space(tmp_path / "rows.parquet", TableRequest("y"))
    of_frame, tables = table_space(rows(), TableRequest("y"))
    assert of_frame.data.train == "tables/train.parquet" and tables["train"].equals(rows())
    assert of_frame.dimensions == of_file.dimensions and of_frame.data.drop == of_file.data.drop


def test_overrides_apply_to_a_table(tmp_path: Path) -> None:
    rows().to_csv(tmp_path / "rows.csv", index=False)
    space, _ = table_space(tmp_path / "rows.csv", TableRequest("y"))
    changed = load(space, ["limits.max_trials=3", "space.params.xgboost.max_depth=2"])
    assert changed.limits.max_trials == 3 and len(changed.dimensions) == len(space.dimensions) - 1


def test_text_files_are_read_as_the_user_says(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a;y\n" + "".join(f"{i},5;{i % 2}\n" for i in range(99)))
    request = TableRequest("y", read='{separator: ";", decimal: ","}')
    space, _ = table_space(tmp_path / "rows.csv", request)
    assert space.data.read.separator == ";" and not space.data.parse


def test_table_needs_label_and_space_file_takes_no_table_options(tmp_path: Path) -> None:
    rows().to_csv(tmp_path / "rows.csv", index=False)
    others = {"task": None, "metric": None, "trainer": None, "read": None}
    with pytest.raises(InputError, match=r"--label: is required, because rows.csv is a table; .*y"):
        request_of(tmp_path / "rows.csv", None, **others)
    assert request_of("space.yaml", None, **others) is None
    assert request_of({"trainer": "xgboost"}, None, **others) is None
    with pytest.raises(InputError, match="--metric: needs a table and --label"):
        request_of("space.yaml", None, **{**others, "metric": "auc"})
    with pytest.raises(InputError, match="--label: is for a table; the label of the space file"):
        request_of("space.yaml", "y", **others)


def test_the_notes_say_that_the_latest_rows_compare_trials(tmp_path: Path) -> None:
    dated = rows().assign(day=pd.date_range("2024-01-01", periods=len(rows())))
    dated.to_csv(tmp_path / "rows.csv", index=False)
    space, _ = table_space(tmp_path / "rows.csv", TableRequest("y"))
    change = "for a random fifth: --set data.valid=0.2"
    assert f"trials are compared on the latest fifth by day ({change})" in space.notes


def test_something_that_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"data.train: is int, but must be a frame"):
        table_space(7, TableRequest("y"))


def test_trainers_that_are_not_installed_are_named_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sweeps.core.plugins import references

    source_of = references.source_of

    def without_catboost(name: str, *roots: Any) -> Any:
        return None if name == "catboost" else source_of(name, *roots)

    monkeypatch.setattr(references, "source_of", without_catboost)
    rows().to_csv(tmp_path / "rows.csv", index=False)
    space, _ = table_space(tmp_path / "rows.csv", TableRequest("y"))
    assert list(space.trainers) == ["xgboost", "lightgbm"]
    (note,) = [note for note in space.notes if "left out" in note]
    assert note == ("left out catboost, which is not installed: pip install 'sweeps-ray[catboost]'")
    alone, _ = table_space(tmp_path / "rows.csv", TableRequest("y", trainer="lightgbm"))
    assert list(alone.trainers) == [""] and not any("left out" in note for note in alone.notes)

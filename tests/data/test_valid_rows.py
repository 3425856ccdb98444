"""Facts about the rows of valid, to which the kept predictions belong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sweeps.data.load_data import load_splits
from sweeps.data.prepared_store import PreparedStore
from sweeps.data.splits.valid_rows import valid_rows
from sweeps.space import load

ROWS = 60


def splits_of(folder: Path, data: str, **columns: Any) -> Any:
    """Return the splits of a table with a label of two classes."""
    frame = pd.DataFrame({"x": np.arange(ROWS) % 56, "y": ["no", "yes"] * (ROWS // 2), **columns})
    frame.to_csv(folder / "rows.csv", index=False)
    text = f"""
name: rows
trainer: xgboost
data: {{train: rows.csv, label: y, {data}}}
objective: {{metric: valid-logloss, goal: minimize}}
limits: {{max_trials: 1}}
space: {{params: {{eta: 0.1}}}}
"""
    (folder / "space.yaml").write_text(text)
    return load_splits(load(folder / "space.yaml").data, 3)


def test_labels_stand_in_the_order_of_valid(tmp_path: Path) -> None:
    splits = splits_of(tmp_path, "valid: 0.25")
    rows = valid_rows(splits)
    assert rows is not None
    np.testing.assert_array_equal(rows.labels, splits.valid.column("y").to_numpy())
    assert not rows.folds.any() and rows.weights is rows.groups is rows.times is None


def test_rows_of_folds_follow_each_other(tmp_path: Path) -> None:
    splits = splits_of(tmp_path, "valid: {folds: 4}")
    rows = valid_rows(splits)
    assert rows is not None and len(rows.ids) == ROWS
    labels = splits.train.column("y").to_numpy()
    for number, (_, indices) in enumerate(splits.folds):
        np.testing.assert_array_equal(rows.labels[rows.folds == number], labels[indices])


def test_ids_do_not_depend_on_the_number_of_rows_that_are_hashed_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    splits = splits_of(tmp_path, "valid: {folds: 4}", text=[f"t{i % 9}" for i in range(ROWS)])
    whole = valid_rows(splits)
    monkeypatch.setattr("sweeps.data.splits.valid_rows.HASHED_ROWS", 7)
    parts = valid_rows(splits)
    assert whole is not None and parts is not None
    np.testing.assert_array_equal(whole.ids, parts.ids)


def test_copies_of_a_row_have_the_same_id_and_other_rows_do_not(tmp_path: Path) -> None:
    rows = valid_rows(splits_of(tmp_path, "valid: {folds: 4}"))
    assert rows is not None and len(set(rows.ids.tolist())) == 56


@pytest.mark.parametrize("rule", ["{folds: 4}", "0.3"])
def test_groups_are_kept(tmp_path: Path, rule: str) -> None:
    shops = [f"shop {i % 7}" for i in range(ROWS)]
    splits = splits_of(tmp_path, f"valid: {rule}, group: shop", shop=shops)
    rows = valid_rows(splits)
    assert rows is not None and rows.groups is not None
    table = splits.train if splits.folds else splits.valid
    order = np.concatenate([i for _, i in splits.folds]) if splits.folds else slice(None)
    shop_numbers = table.column("x").to_numpy()[order] % 7
    pairs = set(zip(rows.groups.tolist(), shop_numbers.tolist(), strict=True))
    assert len(pairs) == len(set(shop_numbers.tolist())) > 1, "one number for each group"


def test_times_and_weights_are_kept(tmp_path: Path) -> None:
    data = "valid: {time: day, last: 0.2}, weight: w"
    days = np.arange(ROWS)[::-1]
    splits = splits_of(tmp_path, data, day=days, w=np.arange(ROWS) + 1.0)
    rows = valid_rows(splits)
    assert rows is not None and rows.times is not None and rows.weights is not None
    np.testing.assert_array_equal(rows.times, splits.valid.column("day").to_numpy())
    np.testing.assert_array_equal(rows.weights, splits.valid.column("w").to_numpy())


def test_what_is_stored_is_loaded(tmp_path: Path) -> None:
    rows = valid_rows(splits_of(tmp_path, "valid: {folds: 4}"))
    store = PreparedStore(tmp_path)
    assert store.load_valid() is None
    store.save_valid(rows)
    store.save_valid(None, {"rows": 0.5})
    loaded = store.load_valid()
    assert loaded is not None and rows is not None and store.load_valid({"rows": 0.5}) is None
    for name, array in vars(rows).items():
        np.testing.assert_array_equal(getattr(loaded, name), array)


def test_data_without_a_label_has_no_facts(tmp_path: Path) -> None:
    import dataclasses

    splits = dataclasses.replace(splits_of(tmp_path, "valid: 0.25"), label=None)
    assert valid_rows(splits) is None

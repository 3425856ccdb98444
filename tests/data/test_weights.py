"""Weights of rows: what they are, where they come from, and that they are never features."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.utils.class_weight import compute_sample_weight

from sweeps.core.errors import InputError
from sweeps.data.columns import weights
from sweeps.data.load_data import load_splits
from sweeps.data.splits.split_tables import Splits, add_to_train, fold_of
from sweeps.data.splits.variants import DataVariants
from sweeps.space import DataSpec, Split

HALF = Split("fraction", fraction=0.5)
rng = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "a": rng.normal(size=60),
        "w": rng.integers(0, 4, 60) / 2,
        "y": ["no"] * 40 + ["yes"] * 15 + ["maybe"] * 5,
    }
)


FRAMES: dict[int, pd.DataFrame] = {}


def rows(number: int) -> pd.DataFrame:
    """Source of the rows in these tests."""
    return FRAMES[number]


def spec(frame: pd.DataFrame = FRAME, **changes: Any) -> DataSpec:
    FRAMES[id(frame)] = frame
    if "weight" in changes:
        changes["weight_columns"] = (changes["weight"],)
    given = DataSpec(
        train=f"{__name__}:rows",
        args={"number": id(frame)},
        label="y",
        valid=HALF,
        test=None,
        task=None,
        base=Path(),
    )
    return replace(given, **changes)


def weights_of(splits: Splits) -> np.ndarray:
    """Return the weights of the train rows, which must have weights."""
    row_weights = weights.row_weights(splits)
    assert row_weights is not None
    return row_weights


def test_a_column_of_weights_is_no_feature() -> None:
    splits = load_splits(spec(weight="w", test=Split("fraction", fraction=0.2)))
    assert splits.features == ("a",)
    assert splits.test is not None and "w" in splits.test.column_names, "a refit may train on test"
    expected = FRAME.set_index("a").loc[splits.train.column("a").to_pylist(), "w"].to_numpy()
    np.testing.assert_array_equal(weights.row_weights(splits), expected)
    assert weights.row_weights(load_splits(spec())) is None


def test_balanced_weights_are_those_of_scikit_learn() -> None:
    splits = load_splits(spec(class_weight="balanced"))
    row_weights = weights_of(splits)
    codes = splits.train.column("y").to_numpy()
    np.testing.assert_allclose(row_weights, compute_sample_weight("balanced", codes))
    assert np.ptp([row_weights[codes == code].sum() for code in range(3)]) < 1e-9, (
        "all classes have the same total weight"
    )
    both = weights_of(load_splits(spec(weight="w", class_weight="balanced")))
    np.testing.assert_allclose(both, row_weights * weights_of(load_splits(spec(weight="w"))))


def test_classes_are_counted_per_fold_and_in_rows_of_refit() -> None:
    whole = load_splits(spec(class_weight="balanced", valid=Split("folds", folds=3)))
    for number in range(3):
        fold = fold_of(whole, number, 1.0, 0)
        np.testing.assert_allclose(
            weights_of(fold),
            compute_sample_weight("balanced", fold.train.column("y").to_numpy()),
        )
    splits = load_splits(spec(weight="w", class_weight="balanced", test=Split("fraction", 0.2)))
    refit = add_to_train(splits, ["valid", "test"])
    assert refit.train.num_rows == len(FRAME)
    expected = FRAME.set_index("a").loc[refit.train.column("a").to_pylist()]
    np.testing.assert_allclose(
        weights_of(refit), expected["w"] * compute_sample_weight("balanced", expected["y"])
    )


def test_a_train_row_must_count() -> None:
    with pytest.raises(InputError, match="`w` is 0 in every train row of the train split"):
        load_splits(spec(FRAME.assign(w=0), weight="w"))
    late = FRAME.assign(w=[0] * 30 + [1] * 30, t=range(60))
    with pytest.raises(InputError, match="`w` is 0 in every train row of fold 1"):
        load_splits(spec(late, weight="w", valid=Split("rolling", column="t", folds=3)))


def test_tuned_weights_make_variants_with_the_same_rows_and_features() -> None:
    base = spec(weight_columns=("w",))
    datas = [
        {"weight": weight, "class_weight": balance}
        for weight in (None, "w")
        for balance in (None, "balanced")
    ]
    variants = DataVariants(base, [base], 0, ("weight", "class_weight"))
    splits_of_data = [variants.splits(data) for data in datas]
    assert len({splits.fingerprint for splits in splits_of_data}) == 4
    assert [splits.fingerprint for splits in splits_of_data] == [
        variants.fingerprint_of(data) for data in datas
    ]
    assert all(
        splits.features == ("a",) and splits.train.equals(splits_of_data[0].train)
        for splits in splits_of_data
    )
    assert weights.row_weights(splits_of_data[0]) is None
    fixed = load_splits(spec(weight="w", class_weight="balanced"))
    np.testing.assert_array_equal(
        weights.row_weights(splits_of_data[3]), weights.row_weights(fixed)
    )

"""The split of a row depends on its values and the seed only."""

from __future__ import annotations

import itertools
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeps.data.columns.hashing import SHARE_PURPOSE, VALID_PURPOSE, hash_mask

N = 5_000
COLUMNS = ["number", "text", "flag", "day"]


def rows(n: int = N) -> pa.Table:
    rng = np.random.default_rng(0)
    return pa.table(
        {
            "number": pa.array(rng.integers(0, 1000, n), mask=rng.random(n) < 0.1),
            "text": pa.array(
                [None if i % 7 == 0 else f"row {i % 500}" for i in range(n)], pa.large_string()
            ),
            "flag": pa.array([None if i % 5 == 0 else i % 2 == 0 for i in range(n)]),
            "day": pa.array([datetime(2026, 1, 1 + i % 28) for i in range(n)], pa.timestamp("us")),
            "list": pa.array([[i] for i in range(n)]),
        }
    )


@settings(max_examples=20)
@given(st.lists(st.integers(1, 99), max_size=4), st.integers(0, 2**32 - 1))
def test_the_mask_does_not_depend_on_the_blocks(cuts: Any, seed: Any) -> None:
    table = rows(100)
    whole = hash_mask(table, COLUMNS, 0.3, VALID_PURPOSE, seed)
    ends = [0, *sorted(set(cuts)), 100]
    parts = [
        hash_mask(table.slice(a, b - a), COLUMNS, 0.3, VALID_PURPOSE, seed)
        for a, b in itertools.pairwise(ends)
    ]
    assert (np.concatenate(parts) == whole).all()


def test_copies_of_a_row_stay_together() -> None:
    table = rows(200)
    mask = hash_mask(pa.concat_tables([table, table]), COLUMNS, 0.3, VALID_PURPOSE, 0)
    assert (mask[:200] == mask[200:]).all()


@pytest.mark.parametrize("share", [0.01, 0.2, 0.5])
def test_the_mask_has_about_the_share_and_depends_on_the_seed(share: float) -> None:
    table = rows().append_column("id", pa.array(np.arange(N)))
    masks = [
        hash_mask(table, [*COLUMNS, "id", "list"], share, VALID_PURPOSE, seed) for seed in (0, 1)
    ]
    limit = 5 * np.sqrt(share * (1 - share) / N)
    assert all(abs(mask.mean() - share) < limit for mask in masks)
    assert abs((masks[0] & masks[1]).mean() - share**2) < limit


def test_rows_of_the_share_are_independent_of_valid() -> None:
    table = pa.table({"id": np.arange(N)})
    valid, share = (
        hash_mask(table, ["id"], 0.5, purpose, 3) for purpose in (VALID_PURPOSE, SHARE_PURPOSE)
    )
    assert abs((valid & share).mean() - 0.25) < 0.02


def test_integers_with_and_without_missing_values_have_the_same_hash() -> None:
    full, holes = pa.table({"a": [1, 2, 3]}), pa.table({"a": [1, 2, 3, None]})
    assert (
        hash_mask(full, ["a"], 0.5, VALID_PURPOSE, 0)
        == hash_mask(holes, ["a"], 0.5, VALID_PURPOSE, 0)[:3]
    ).all()


@pytest.mark.parametrize(
    "values",
    [
        [[i, i % 3] for i in range(N)],
        [[float(i)] if i % 100 else None for i in range(N)],
        [b"image %d" % i for i in range(N)],
        [{"bytes": b"%d" % i, "shape": [i, 2]} for i in range(N)],
        [[[i], [2]] for i in range(N)],
        [["a", str(i)] for i in range(N)],
    ],
)
def test_values_of_every_type_decide(values: Any) -> None:
    """Otherwise all images of a class would be in the same split, because only the label would
    decide.
    """
    table = pa.table({"x": values, "label": [i % 2 for i in range(N)]})
    mask = hash_mask(table, ["x", "label"], 0.5, VALID_PURPOSE, 0)
    distinct = len({repr(value) for value in values})
    assert abs(mask.mean() - 0.5) < 5 / np.sqrt(distinct)
    parts = [
        hash_mask(table.slice(start, 1_000), ["x", "label"], 0.5, VALID_PURPOSE, 0)
        for start in range(0, N, 1_000)
    ]
    assert (np.concatenate(parts) == mask).all()


def test_values_of_tensors_decide() -> None:
    from ray.data.extensions import ArrowTensorArray

    table = pa.table({"x": ArrowTensorArray.from_numpy(np.arange(4 * N).reshape(N, 2, 2))})
    assert abs(hash_mask(table, ["x"], 0.5, VALID_PURPOSE, 0).mean() - 0.5) < 0.02

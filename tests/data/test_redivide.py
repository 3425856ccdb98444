"""Other random divisions of the rows of train and valid."""

from __future__ import annotations

import numpy as np
import pytest

from sweeps.data.splits.redivide import redivide
from sweeps.data.splits.split_tables import Splits
from sweeps.data.splits.variants import DataVariants
from sweeps.space import DataSpec, Split
from tests.data.test_variants import spec

QUARTER = Split("fraction", fraction=0.25)


def divided(data: DataSpec, number: int) -> tuple[Splits, Splits]:
    """Return the splits of the search, and those of another division."""
    splits = DataVariants(data, [data], seed=3).splits({})
    assert data.valid is not None
    return splits, redivide(splits, data.valid, 3, number)


@pytest.mark.parametrize("source", ["sklearn:wine", "sklearn:diabetes"])
def test_a_division_has_the_same_rows_in_other_splits(source: str) -> None:
    data = spec(source, valid=QUARTER, test=QUARTER)
    seen = []
    for number in (1, 2):
        before, after = divided(data, number)
        again = divided(data, number)[1]
        assert after.valid.equals(again.valid) and after.train.equals(again.train)
        assert after.test is not None and after.test.equals(before.test)
        assert after.rows == before.rows
        rows = [
            sorted(map(tuple, (*s.train.to_pandas().to_numpy(), *s.valid.to_pandas().to_numpy())))
            for s in (before, after)
        ]
        assert rows[0] == rows[1]
        seen.append(after.valid)
        assert not after.valid.equals(before.valid)
        if before.classes is not None:
            counts = [np.bincount(s.valid.column("target").to_numpy()) for s in (before, after)]
            assert np.abs(counts[0] - counts[1]).max() <= 1
    assert not seen[0].equals(seen[1])


def test_a_division_of_a_cross_validation_has_other_folds() -> None:
    before, after = divided(spec("sklearn:wine", valid=Split("folds", folds=4)), 1)
    assert after.train.equals(before.train) and len(after.folds) == 4
    rows = np.concatenate([valid for _, valid in after.folds])
    assert sorted(rows) == list(range(before.train.num_rows))
    assert [list(valid) for _, valid in after.folds] != [list(valid) for _, valid in before.folds]


def test_only_random_rows_can_be_divided_again() -> None:
    assert spec(valid=QUARTER).can_redivide and spec(valid=Split("folds", folds=3)).can_redivide
    for kind in ("time", "group", "rolling", "column", "path"):
        assert not spec(valid=Split(kind, column="x")).can_redivide
    assert not spec(valid=Split("folds", folds=3, column="group")).can_redivide
    assert not spec(valid=QUARTER, ingest="stream").can_redivide

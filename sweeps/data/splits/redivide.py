"""Divide the rows of train and valid at random once more."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from . import split
from .folds import assign_folds
from .split_tables import Splits, class_codes

if TYPE_CHECKING:
    from sweeps.space import Split


def redivide(splits: Splits, rule: Split, seed: int, number: int) -> Splits:
    """Return splits with other rows in valid, or with other folds. Test stays.

    Args:
        splits: The splits of the search.
        rule: The rule `data.valid`; see `DataSpec.can_redivide`.
        seed: Seed of the sweep.
        number: Number of the division, at least 1.
    """
    if rule.kind == "folds":
        codes = class_codes(splits.train, splits.label, splits.classes)
        # scikit-learn takes one number as a seed.
        folds_seed = int(np.random.default_rng([abs(int(seed)), number]).integers(2**32))
        folds = assign_folds(rule, splits.train.num_rows, None, codes, folds_seed)
        valid = splits.train.take(pa.array(folds[0][1]))
        return replace(splits, folds=folds, valid=valid, valid_groups=None, valid_times=None)
    rows = pa.concat_tables([splits.train, splits.valid.select(splits.train.column_names)])
    rng = np.random.default_rng([abs(int(seed)), split.VALID, number])
    codes = class_codes(rows, splits.label, splits.classes)
    chosen = split.sample_rows(rows.num_rows, splits.valid.num_rows, rng, codes)
    train, valid = rows.filter(pa.array(~chosen)), rows.filter(pa.array(chosen))
    return replace(splits, train=train, valid=valid)

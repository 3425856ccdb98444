"""Splits of a sweep in memory, and selections of their rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from sweeps.core.label_columns import GROUP_COLUMN, Classes, Label
from sweeps.data.checks.label_checks import missing_class_notes
from sweeps.data.columns.tables import Parts
from sweeps.data.summary.data_summary import DataSummary

if TYPE_CHECKING:
    from sweeps.data.columns.missing import Markers

    from .folds import Folds


@dataclass(frozen=True)
class Splits:
    """Raw rows of the train, valid and test splits.

    Attributes:
        train: Rows to train on. The label is encoded as int64 codes of `classes`, or as float64 for
            a regression. The columns are the features, the label, and columns of weights.
        valid: Rows to validate on, with the same columns.
        test: Rows to test on, without columns of weights. None if there is no test split.
        label: Name of the label column, or a tuple of the names of several columns. None if the
            data has no label.
        task: "binary", "multiclass" or "regression"; for several columns, "multilabel" or
            "multioutput". None if the data has no label.
        classes: Sorted original values of the label, indexed by code. None if the label has numbers
            or several columns, or there is no label. The columns of a multilabel task are encoded
            as 0 and 1.
        features: Names of all columns except the label, columns of weights, the columns in
            `data.drop`, and the columns of splits `{column: ..., value: ...}`.
        fingerprint: SHA-256 of the names, types and values of all columns in each split.
        notes: Notes for the user, such as the number of rows without a label that were dropped.
        folds: For a cross-validation, the train rows and the valid rows of each fold, as indices of
            the rows in `train`. `train` then has the rows of all folds, and `valid` has the valid
            rows of the first fold. See `fold_of`.
        weight: The column with the weights of the train rows. None if there is no such column.
        class_weight: "balanced" if classes are balanced in training. Otherwise None.
        parse: The rules of `data.parse` for the features, by column. The rows have the raw texts.
        summary: Summary of the raw rows of the source. None if the rows were not summarised.
        missing: The markers of missing values, by column; see
            `sweeps.data.columns.missing.remove_markers`.
        check: In a fold, the rows of valid of the first fold, of which the first ones check a
            bundle. Otherwise None.
        valid_groups: Number of each row's group if there is `data.group`; else None. These are the
            rows of valid, or with `folds` those of train.
        valid_times: For the same rows, a number that orders them, if `data.valid` splits by time.
            Otherwise None.
    """

    train: pa.Table
    valid: pa.Table
    test: pa.Table | None
    label: Label | None
    task: str | None
    classes: Classes | None
    features: tuple[str, ...]
    fingerprint: str
    notes: tuple[str, ...] = ()
    folds: Folds = ()
    weight: str | None = None
    class_weight: str | None = None
    parse: Mapping[str, str] = field(default_factory=dict)
    summary: DataSummary | None = None
    missing: Markers = field(default_factory=dict)
    check: pa.Table | None = None
    valid_groups: np.ndarray | None = None
    valid_times: np.ndarray | None = None

    @property
    def parts(self) -> Parts:
        """The rows by split."""
        parts = {"train": self.train, "valid": self.valid, "test": self.test}
        return {name: part for name, part in parts.items() if part is not None}

    @property
    def rows(self) -> dict[str, int]:
        """Number of rows by split."""
        return {name: part.num_rows for name, part in self.parts.items()}

    @property
    def class_notes(self) -> tuple[str, ...]:
        """A note for each split that lacks a class; see `missing_class_notes`."""
        return missing_class_notes(self.label, self.classes, self.parts)

    def first_valid(self, count: int) -> pa.Table:
        """Return the features of the first rows of valid, at most `count`."""
        return self.valid.slice(0, count).select(list(self.features))


def fold_of(splits: Splits, number: int, share: float, seed: int) -> Splits:
    """Return the splits of one fold of a cross-validation.

    Args:
        splits: Splits with folds.
        number: Number of the fold; the first is 0.
        share: Fraction of the fold's train rows to keep, above 0 and at most 1.
        seed: Seed of the sweep.
    """
    train_rows, valid_rows = splits.folds[number]
    train = splits.train.take(pa.array(train_rows))
    return replace(
        splits,
        train=subsample(train, splits.label, splits.classes, share, seed),
        valid=splits.train.take(pa.array(valid_rows)),
        check=splits.valid,
        folds=(),
    )


def add_to_train(splits: Splits, names: Sequence[str]) -> Splits:
    """Return the splits with the rows of the splits `names` added to train.

    The rows also stay in these splits.

    With the folds of a cross-validation, `train` has the rows of valid already.
    """
    added = [name for name in names if not (name == "valid" and splits.folds)]
    tables = [getattr(splits, name).select(splits.train.column_names) for name in added]
    train = pa.concat_tables([splits.train, *tables]).combine_chunks()
    return replace(splits, train=train, folds=())


def class_codes(rows: pa.Table, label: Label | None, classes: Classes | None) -> np.ndarray | None:
    """Return the class of each row; None if there are no classes."""
    if not isinstance(label, str) or classes is None:
        return None
    codes: np.ndarray = rows.column(label).to_numpy()
    return codes


def subsample(
    train: pa.Table, label: Label | None, classes: Classes | None, share: float, seed: int
) -> pa.Table:
    """Return a random part of the train split.

    If there are classes, each class keeps its share of the rows, and at least one row.

    Calls with the same seed return the same rows.

    Args:
        train: Rows with an encoded label.
        label: See `Splits.label`.
        classes: See `Splits.classes`.
        share: Fraction of the rows to keep, above 0 and at most 1.
        seed: Seed of the sweep.
    """
    from . import split

    n = train.num_rows
    if share >= 1:
        return train
    strata = class_codes(train, label, classes)
    size = split.rows_in_fraction(n, share)
    if strata is not None:
        size = max(size, len(np.unique(strata)))
    rng = np.random.default_rng([abs(int(seed)), split.TRAIN])
    if GROUP_COLUMN in train.column_names:  # groups are kept whole
        left_out = split.sample_groups(train.column(GROUP_COLUMN).to_numpy(), n - size, rng)
    else:
        left_out = split.sample_rows(n, n - size, rng, strata)
    return train.take(pa.array(np.flatnonzero(~left_out)))

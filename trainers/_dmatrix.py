"""Prepared rows as XGBoost's own type, and the names of their columns, which it is trained without."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import xgboost as xgb

from sweeps.trainers import require_numbers

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Columns:
    """What XGBoost knows of the columns that a matrix has or a model asks for."""

    names: Sequence[str] | None = None
    types: Sequence[str] | None = None

    def in_training(self) -> Columns:
        """Without the names; which values are categories, training has to know."""
        return Columns(None, self.types if "c" in (self.types or ()) else None)


def matrix(frame: pd.DataFrame, label: str | None = None, threads: int | None = None) -> xgb.DMatrix:
    """Features, and the label where one is named, as XGBoost's own type."""
    features = frame.drop(columns=[label]) if label else frame
    require_numbers(features, also="category")
    names = _names(features.columns)
    target = frame[label].to_numpy() if label else None
    return xgb.DMatrix(features.set_axis(names, axis=1), target, enable_categorical=True, nthread=threads)


def unnamed(matrix: xgb.DMatrix) -> tuple[xgb.DMatrix, Columns]:
    """The matrix without its names, and these: XGBoost's binding reads and compares all of them, one by one, in every round."""
    columns = Columns(matrix.feature_names, matrix.feature_types)
    named(matrix, columns.in_training())
    return matrix, columns


def named(what: xgb.DMatrix | xgb.Booster, columns: Columns) -> None:
    """Give a matrix or a model these columns in place of those it has."""
    what.feature_names = None  # types and names are held against each other as they are set
    what.feature_types = columns.types
    what.feature_names = columns.names


def _names(columns: Any) -> list[str]:
    """Column names as XGBoost accepts them: it refuses `[`, `]` and `<`, which a one-hot encoded `age_<30` has."""
    safe = [re.sub(r"[\[\]<]", "_", str(c)) for c in columns]
    return safe if len(set(safe)) == len(safe) else [f"{name}.{i}" for i, name in enumerate(safe)]

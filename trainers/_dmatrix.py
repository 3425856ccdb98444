"""Convert prepared rows to a `DMatrix`, and remove and restore column names."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import xgboost as xgb

from sweeps.core.label_columns import GROUP_COLUMN, label_columns

from . import Params, queries, require_numbers, safe_names

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class MatrixColumns:
    """Names and types of the columns in a matrix or a model.

    Each of the two is None if there are no names or no types. A type is "c" for categories, else
    "float".
    """

    names: Sequence[str] | None = None
    types: Sequence[str] | None = None

    def for_training(self) -> MatrixColumns:
        """Return the columns for training.

        They have no names, and they have types only if a column has categories.
        """
        return MatrixColumns(None, self.types if "c" in (self.types or ()) else None)


def matrix(
    frame: pd.DataFrame,
    label: str | list[str] | None = None,
    threads: int | None = None,
    weight: str | None = None,
) -> xgb.DMatrix:
    """Convert prepared rows to a `DMatrix` with the features.

    The `DMatrix` also has the labels and weights if `label` and `weight` are given.

    Args:
        frame: Prepared rows.
        label: Name of the label column, or a list of label columns. None if the rows have no label.
        threads: Number of threads that XGBoost uses. If None, XGBoost chooses the number.
        weight: Name of the column of weights. None if the rows have no weights.

    Raises:
        ValueError: A feature is not numeric, or has an infinite value, for which XGBoost would show
            a stack of C++.
    """
    features = frame.drop(columns=[*label_columns(label), weight, GROUP_COLUMN], errors="ignore")
    require_numbers(features, accepted_dtype="category")
    options: Params = {"enable_categorical": True, "nthread": threads}
    types = ["c" if dtype == "category" else "float" for dtype in features.dtypes]
    if "c" in types:
        options["feature_types"] = types
    features = with_codes(features)
    for name, values in features.items():
        if values.dtype.kind == "f" and (values.abs() > np.finfo(np.float32).max).any():
            raise ValueError(
                f"the column `{name}` holds an infinite value, or one too large for a 32-bit "
                "float; make it empty, or add the column to data.drop"
            )
    names = safe_names(features.columns, "[]<")
    target = frame[label].to_numpy() if label else None
    weights = frame[weight].to_numpy() if weight else None
    query = None if weight else queries(frame)  # XGBoost would take one weight for each query
    features = features.set_axis(names, axis=1)
    return xgb.DMatrix(features, target, weight=weights, qid=query, **options)


def with_codes(features: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with codes in place of categories. A missing category is NaN.

    The fitted preprocessor decides the codes, so that a model needs no names of categories. In the
    models of XGBoost 3.2, names with characters outside of ASCII are cut at wrong places.
    """
    names = [name for name, dtype in features.dtypes.items() if dtype == "category"]
    if not names:
        return features
    codes = {name: features[name].cat.codes for name in names}
    # pandas has the code -1 for a missing category.
    return features.assign(**{name: code.where(code >= 0) for name, code in codes.items()})


def require_category_support(params: Params, columns: MatrixColumns) -> None:
    """Raise an error if a column has categories, but the model of `params` cannot read them.

    Raises:
        ValueError: The model cannot read categories. The message names the parameter that chooses
            the model, and its other values.
    """
    for name, value, others in (
        ("tree_method", "exact", "hist or approx"),
        ("booster", "gblinear", "gbtree or dart"),
    ):
        if params.get(name) == value and "c" in (columns.types or ()):
            advice = f"write {others}, or use an encoder in place of `Categorizer`"
            raise ValueError(f"params.{name} is {value}, which cannot read categories; {advice}")


@contextlib.contextmanager
def equal_weights(matrix: xgb.DMatrix) -> Iterator[None]:
    """In the block, all rows of a matrix count equally.

    XGBoost would also use the weights to measure metrics.
    """
    weights = matrix.get_weight()
    if not len(weights):
        yield
        return
    matrix.set_weight(np.ones_like(weights))
    try:
        yield
    finally:
        matrix.set_weight(weights)


def remove_names(matrix: xgb.DMatrix) -> tuple[xgb.DMatrix, MatrixColumns]:
    """Remove the column names of a matrix, which is changed in place.

    If a matrix has names, XGBoost's Python binding compares all names in every round. Return the
    same matrix, and its previous names and types.
    """
    columns = MatrixColumns(matrix.feature_names, matrix.feature_types)
    set_columns(matrix, columns.for_training())
    return matrix, columns


def set_columns(target: xgb.DMatrix | xgb.Booster, columns: MatrixColumns) -> None:
    """Replace the column names and types of a matrix or a model."""
    target.feature_names = None  # XGBoost compares types and names when either is set
    target.feature_types = columns.types
    target.feature_names = columns.names

"""Portable steps are fitted steps that consist of plain numbers and names.

Most fitted steps of Ray and scikit-learn can be converted to portable steps. A step is converted
right after it is fitted, but only if the portable step gives identical results for rows of the
train split. Training and bundles then run the same code. For a portable step, a bundle needs
neither Ray, nor scikit-learn, nor a pickle.

`Columns` maps the name of each column to its values: an array of floats for numbers, a
`Categorical` of pandas for categories, and any iterable for text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from sweeps.data.columns import is_number

# Ray's encoders raise an error for missing values. Therefore, missing values are a separate
# category, in training and in prediction.
MISSING_TEXT = "__missing__"
MISSING_NUMBER = float(np.finfo(np.float64).max)

Columns = dict[str, Any]


def replace_arrays(columns: Columns, dropped: Iterable[str], new: Mapping[str, Any]) -> Columns:
    """Drop columns and add new ones.

    A new column takes the place of an old column with the same name. All other new columns are
    inserted at the first dropped column, or at the end if no column is dropped.
    """
    dropped = set(dropped)
    out: Columns = {}
    added = {n: v for n, v in new.items() if n not in columns}
    for name, values in columns.items():
        if name in dropped and added:
            out |= added
            added = {}
        if name in new:
            out[name] = new[name]
        elif name not in dropped:
            out[name] = values
    return out | added


def to_floats(values: Any) -> np.ndarray:
    """Convert a column of numbers to 64-bit floats. A column of 32-bit floats stays unchanged."""
    numbers = (
        np.asarray(values)
        if isinstance(getattr(values, "dtype", None), np.dtype)
        else values.to_numpy(np.float64, na_value=np.nan)
    )
    return numbers if numbers.dtype == np.float32 else numbers.astype(np.float64, copy=False)


def to_objects(values: Any) -> list[Any]:
    """Convert a column to a list of Python objects."""
    return list(
        values.to_numpy(object).tolist()
        if hasattr(values, "to_numpy")
        else np.asarray(values).tolist()
    )


def to_cells(values: Any) -> list[Any]:
    """Convert a column to a list: floats for numbers, Python objects for text and categories."""
    return to_floats(values).tolist() if is_number(values) else to_objects(values)


def column_array(series: pd.Series) -> Any:
    """Return the values of a frame's column: a NumPy array for numbers and booleans, otherwise the pandas array."""
    return (
        series.to_numpy()
        if isinstance(series.dtype, np.dtype) and series.dtype.kind in "iubf"
        else series.array
    )


class PortableStep:
    """Base class of the portable steps. `kind` is the step's name in `preprocessor.json`."""

    kind: ClassVar[str]

    def transform(self, columns: Columns) -> Columns:
        """Apply the step to columns, and return all columns after the step."""
        raise NotImplementedError

    def apply(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Apply the step to a frame, and return the new frame."""
        out = self.transform({n: column_array(frame[n]) for n in frame.columns})
        return pd.DataFrame(out, index=frame.index, copy=False)

    def to_json(self) -> dict[str, Any]:
        """Return the kind and the fields of the step, for `preprocessor.json`."""
        return {"kind": self.kind, **asdict(self)}  # type: ignore[call-overload]


@dataclass(frozen=True)
class Scale(PortableStep):
    """A scaler. It computes `(x - minus) / by` or `x * times + plus` for each column.

    Attributes:
        columns: maps each column to a dict, such as {"dtype": "float64", "minus": 2.0, "by": 0.5}.
            `dtype` is the dtype of the computation. The dtype of the result is `output`, or `dtype`
            if there is no `output`. A number that has no effect may be missing. If the result is
            the same for all rows, the dict has `constant` in place of the numbers. A constant is
            text, because JSON has no NaN.
        low: lower bound of the result; None if the result has no bounds.
        high: upper bound of the result; None if the result has no bounds.
    """

    kind = "scale"
    columns: dict[str, dict[str, Any]]
    low: float | None = None
    high: float | None = None

    def transform(self, columns: Columns) -> Columns:
        """Return the columns after scaling."""
        return columns | {
            name: self._scaled(to_floats(columns[name]), how) for name, how in self.columns.items()
        }

    def _scaled(self, x: np.ndarray, how: Mapping[str, Any]) -> np.ndarray:
        output = how.get("output", how["dtype"])
        x = x.astype(how["dtype"], copy=False)
        if how.get("constant") is not None:
            return np.full(len(x), float(how["constant"]), output)
        for key, operation in (
            ("minus", np.subtract),
            ("by", np.divide),
            ("times", np.multiply),
            ("plus", np.add),
        ):
            if how.get(key) is not None:
                x = operation(x, how[key])
        x = x if self.low is None else np.clip(x, self.low, self.high)
        return x.astype(output, copy=False)


@dataclass(frozen=True)
class Fill(PortableStep):
    """An imputer. It replaces each missing value by a constant.

    Attributes:
        columns: maps each column to a dict with the `value` that replaces missing values, and the
            `dtype` of the result. The dtypes "str" and "object" mean text.
    """

    kind = "fill"
    columns: dict[str, dict[str, Any]]

    def transform(self, columns: Columns) -> Columns:
        """Return the columns without missing values."""
        return columns | {
            name: self._filled(columns[name], **how) for name, how in self.columns.items()
        }

    @staticmethod
    def _filled(values: Any, value: Any, dtype: str) -> Any:
        if dtype in ("str", "object"):
            filled = [value if v is None or v is pd.NA or v != v else v for v in to_objects(values)]
            return (
                pd.array(filled, dtype="str")
                if dtype == "str"
                else np.array([*filled, None], dtype=object)[:-1]
            )
        x = to_floats(values).astype(dtype, copy=False)
        return np.where(np.isnan(x), np.asarray(value, dtype), x)


@dataclass(frozen=True)
class Encode(PortableStep):
    """An encoder.

    It replaces categories by codes, or by one column of ones and zeros for each category.

    Attributes:
        columns: maps each column to a dict with `keys`, `missing` and `names`. `keys` are the
            categories in the order of their codes. `missing` is the code of a missing value. If it
            is -1, a missing value is treated as an unseen category. `names` are the names of the
            new columns: one name for the codes, or one for each key.
        hot: True to create a column for each key. All of these are 0 for an unseen category. False
            to create one column of codes. The code of an unseen category is NaN.
        dtype: dtype of the new columns.
        keeps: True to keep the input columns.
    """

    kind = "encode"
    columns: dict[str, dict[str, Any]]
    hot: bool
    dtype: str
    keeps: bool = False

    def __post_init__(self) -> None:
        tables = {
            name: {key: i for i, key in enumerate(how["keys"])}
            for name, how in self.columns.items()
        }
        object.__setattr__(self, "_tables", tables)

    def transform(self, columns: Columns) -> Columns:
        """Return the columns with codes in place of categories."""
        new: Columns = {}
        for name, how in self.columns.items():
            table, missing = self._tables[name], how["missing"]  # type: ignore[attr-defined]
            cells = to_cells(columns[name])
            codes = np.array(
                [missing if v is None or v is pd.NA or v != v else table.get(v, -1) for v in cells],
                dtype=np.int64,
            )
            if self.hot:
                new |= {n: (codes == i).astype(self.dtype) for i, n in enumerate(how["names"])}
            else:
                new[how["names"][0]] = np.where(codes < 0, np.nan, codes).astype(self.dtype)
        return replace_arrays(columns, () if self.keeps else self.columns, new)


@dataclass(frozen=True)
class Categorize(PortableStep):
    """A step that turns columns into categories of pandas.

    Attributes:
        columns: maps each column to its categories, in sorted order. Missing and unseen values are
            missing. A column without categories becomes a column of numbers that are all missing.
    """

    kind = "categorize"
    columns: dict[str, list[Any]]

    def __post_init__(self) -> None:
        dtypes = {name: pd.CategoricalDtype(keys) for name, keys in self.columns.items()}
        object.__setattr__(self, "_dtypes", dtypes)

    def transform(self, columns: Columns) -> Columns:
        """Return the columns with categories in place of values."""
        dtypes: dict[str, Any] = self._dtypes  # type: ignore[attr-defined]
        return columns | {name: _categories(columns[name], kind) for name, kind in dtypes.items()}


def _categories(values: Any, dtype: pd.CategoricalDtype) -> Any:
    if not len(dtype.categories):
        return np.full(len(values), np.nan)
    codes = dtype.categories.get_indexer(to_cells(values))  # -1 for a value without a category
    return pd.Categorical.from_codes(codes, dtype=dtype)


KINDS: dict[str, Any] = {c.kind: c for c in (Scale, Fill, Encode, Categorize)}


def from_json(stored: Mapping[str, Any]) -> PortableStep:
    """Create a step from the result of its `to_json`.

    Raises:
        KeyError, TypeError: the data does not describe a step.
    """
    fields = dict(stored)
    step: PortableStep = KINDS[fields.pop("kind")](**fields)
    return step


def identical(one: pd.DataFrame, two: pd.DataFrame) -> bool:
    """Return whether two frames have the same column names, dtypes and values.

    Floats must be bit-identical, and NaN equals NaN.
    """
    if list(one.columns) != list(two.columns) or list(one.dtypes) != list(two.dtypes):
        return False
    for name in one.columns:
        a, b = one[name], two[name]
        if isinstance(a.dtype, np.dtype) and a.dtype.kind == "f":
            x, y = a.to_numpy(), b.to_numpy()
            bits = f"u{a.dtype.itemsize}"
            if not ((x.view(bits) == y.view(bits)) | (np.isnan(x) & np.isnan(y))).all():
                return False
        elif not a.equals(b):
            return False
    return True

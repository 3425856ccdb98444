"""Portable steps are fitted steps that consist of plain numbers and names.

The built-in steps are portable; see `builtin_steps`. For a portable step, a bundle needs neither
scikit-learn nor a pickle.

`Columns` maps the name of each column to its values: an array of floats for numbers, a
`Categorical` of pandas for categories, and any iterable for text.
"""

import functools
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, TypeAlias, TypedDict

import numpy as np
import pandas as pd
from pandas.api.extensions import ExtensionArray

from sweeps.data.columns.columns import is_number

# Parameters of a step, as the user gives them
Params = Mapping[str, Any]
# One value of a column
Cell = bool | int | float | str | None
Values: TypeAlias = "np.ndarray | ExtensionArray"
Columns = dict[str, Values]


def replace_arrays(columns: Columns, dropped: Iterable[str], new: Mapping[str, Values]) -> Columns:
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


def to_floats(values: Values) -> np.ndarray:
    """Convert a column of numbers to 64-bit floats. A column of 32-bit floats stays unchanged."""
    if not isinstance(values, np.ndarray):
        values = values.to_numpy(np.float64, na_value=np.nan)
    numbers: np.ndarray = values
    return numbers if numbers.dtype == np.float32 else numbers.astype(np.float64, copy=False)


def to_objects(values: Values) -> list[Cell]:
    """Convert a column to a list of Python objects."""
    return values.tolist() if hasattr(values, "tolist") else list(values)


def to_cells(values: Values) -> list[Cell]:
    """Convert a column to a list: floats for numbers, Python objects for text and categories."""
    return to_floats(values).tolist() if is_number(values) else to_objects(values)


def is_missing(value: Cell) -> bool:
    """Return whether a value of a column is missing."""
    return value is None or value is pd.NA or value is pd.NaT or value != value


def column_array(series: pd.Series) -> Values:
    """Return the values of a frame's column.

    Numbers and booleans are a NumPy array, and other values are the pandas array.
    """
    if isinstance(series.dtype, np.dtype) and series.dtype.kind in "iubf":
        return series.to_numpy()
    return series.array


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


class ScaledColumn(TypedDict):
    """Scaling of a column. If `minus` is None, the result is NaN for all rows."""

    minus: float | None
    by: float


class EncodedColumn(TypedDict):
    """The categories of a column in the order of their codes, and the names of the new columns.

    The key None is a missing value. There is one name for the codes, or one for each key.
    """

    keys: list[Cell]
    names: list[str]


@dataclass(frozen=True)
class Scale(PortableStep):
    """A scaler. It computes `(x - minus) / by` for each column.

    Attributes:
        columns: Maps each column to a dict such as {"minus": 2.0, "by": 0.5}.
    """

    kind = "scale"
    columns: dict[str, ScaledColumn]

    def transform(self, columns: Columns) -> Columns:
        """Return the columns after scaling."""
        out = dict(columns)
        for name, scaling in self.columns.items():
            x = to_floats(columns[name])
            minus = np.nan if scaling["minus"] is None else scaling["minus"]
            scaled = (x.astype(np.float64, copy=False) - minus) / scaling["by"]
            out[name] = scaled.astype(x.dtype, copy=False)
        return out


@dataclass(frozen=True)
class Power(PortableStep):
    """A power transformation, as scikit-learn's `PowerTransformer` defines it, with a given power.

    Attributes:
        columns: Names of the columns.
        power: The power, often named lambda.
        method: "yeo-johnson" or "box-cox".
    """

    kind = "power"
    columns: list[str]
    power: float
    method: str

    def transform(self, columns: Columns) -> Columns:
        """Return the columns after the transformation."""
        return columns | {
            name: self._transform_column(to_floats(columns[name])) for name in self.columns
        }

    def _transform_column(self, x: np.ndarray) -> np.ndarray:
        if self.method == "box-cox":
            return _box_cox(x, self.power)
        # Yeo-Johnson transforms x + 1 if x is not negative. Otherwise, it transforms 1 - x with
        # another power, and changes the sign.
        positive = _box_cox(np.maximum(x, 0) + 1, self.power)
        negative = -_box_cox(1 - np.minimum(x, 0), 2 - self.power)
        return np.where(x < 0, negative, positive)


def _box_cox(x: np.ndarray, power: float) -> np.ndarray:
    """Return the Box-Cox transformation of numbers; NaN for negative numbers."""
    with np.errstate(all="ignore"):
        return np.log(x) if power == 0 else (x**power - 1) / power


@dataclass(frozen=True)
class Normalize(PortableStep):
    """A step that divides the numbers of each row by their norm, without the missing ones.

    A row of zeros becomes NaN.

    Attributes:
        columns: Names of the columns.
        norm: "l1", "l2" or "max".
    """

    kind = "normalize"
    columns: list[str]
    norm: str

    def transform(self, columns: Columns) -> Columns:
        """Return the columns after the division."""
        rows = np.column_stack([to_floats(columns[name]) for name in self.columns])
        order = {"l1": 1, "l2": 2, "max": np.inf}[self.norm]
        with np.errstate(all="ignore"):
            rows /= np.linalg.norm(np.nan_to_num(rows), order, axis=1)[:, None]
        return columns | dict(zip(self.columns, rows.T, strict=True))


@dataclass(frozen=True)
class Fill(PortableStep):
    """An imputer. It replaces each missing value of a column by a constant.

    Attributes:
        columns: Maps each column to its constant: a number for numbers, or a text for texts.
    """

    kind = "fill"
    columns: dict[str, Cell]

    def transform(self, columns: Columns) -> Columns:
        """Return the columns without missing values."""
        return columns | {name: _fill(columns[name], value) for name, value in self.columns.items()}


def _fill(values: Values, value: Cell) -> Values:
    """Replace the missing values of a column by one value."""
    if isinstance(value, str):
        cells = to_objects(values)
        return pd.array([value if is_missing(cell) else cell for cell in cells], dtype="str")
    x = to_floats(values)
    return np.where(np.isnan(x), np.asarray(value, x.dtype), x)


@dataclass(frozen=True)
class Encode(PortableStep):
    """An encoder.

    It replaces categories by codes, or by one column of ones and zeros for each category.

    Attributes:
        columns: Maps each column to its categories and names.
        hot: True to create a column of uint8 for each key. All of these are 0 for an unseen
            category. False to create one column of codes. The code of an unseen category is NaN.
    """

    kind = "encode"
    columns: dict[str, EncodedColumn]
    hot: bool

    @functools.cached_property
    def codes(self) -> dict[str, dict[Cell, int]]:
        """The code of each category, by column."""
        return {
            name: {key: code for code, key in enumerate(encoded["keys"])}
            for name, encoded in self.columns.items()
        }

    def transform(self, columns: Columns) -> Columns:
        """Return the columns with codes in place of categories."""
        new: Columns = {}
        for name, encoded in self.columns.items():
            code_of = self.codes[name]
            keys = [None if is_missing(cell) else cell for cell in to_cells(columns[name])]
            codes = np.array([code_of.get(key, -1) for key in keys], np.int64)
            if self.hot:
                for code, new_name in enumerate(encoded["names"]):
                    new[new_name] = (codes == code).astype(np.uint8)
            else:
                new[name] = np.where(codes < 0, np.nan, codes)
        return replace_arrays(columns, self.columns, new)


@dataclass(frozen=True)
class Bin(PortableStep):
    """A step that replaces each number by the number of its bin, or by NaN outside of all bins.

    Attributes:
        columns: Maps each column to the edges of its bins. A bin contains its right edge.
    """

    kind = "bin"
    columns: dict[str, list[float]]

    def transform(self, columns: Columns) -> Columns:
        """Return the columns with bins in place of numbers."""
        out = dict(columns)
        for name, edges in self.columns.items():
            # 0 is below the first edge, and `len(edges)` is above the last one, or NaN.
            bins = np.searchsorted(edges, to_floats(columns[name])).astype(np.float64)
            out[name] = np.where((bins == 0) | (bins == len(edges)), np.nan, bins - 1)
        return out


@dataclass(frozen=True)
class HashTokens(PortableStep):
    """A step that counts the tokens of texts, by their hash.

    Attributes:
        columns: Maps each column of texts to the names of the columns that replace it.
    """

    kind = "hash"
    columns: dict[str, list[str]]

    def transform(self, columns: Columns) -> Columns:
        """Return the columns with counts in place of texts."""
        new: Columns = {}
        for name, names in self.columns.items():
            counts = np.zeros((len(names), len(columns[name])), dtype=np.float32)
            for row, text in enumerate(to_objects(columns[name])):
                if is_missing(text):
                    continue
                for token in str(text).split():
                    counts[zlib.crc32(token.encode()) % len(names), row] += 1
            new |= dict(zip(names, counts, strict=True))
        return replace_arrays(columns, self.columns, new)


@dataclass(frozen=True)
class Categorize(PortableStep):
    """A step that turns columns into categories of pandas.

    Attributes:
        columns: Maps each column to its categories, in sorted order. Missing and unseen values are
            missing. A column without categories becomes a column of numbers that are all missing.
    """

    kind = "categorize"
    columns: dict[str, list[Cell]]

    @functools.cached_property
    def dtypes(self) -> dict[str, pd.CategoricalDtype]:
        """The dtype of each column."""
        return {name: pd.CategoricalDtype(keys) for name, keys in self.columns.items()}

    def transform(self, columns: Columns) -> Columns:
        """Return the columns with categories in place of values."""
        new = {name: _categories(columns[name], dtype) for name, dtype in self.dtypes.items()}
        return columns | new


def _categories(values: Values, dtype: pd.CategoricalDtype) -> Values:
    """Convert a column to categories; to floats if there are no categories."""
    if not len(dtype.categories):
        return np.full(len(values), np.nan)
    codes = dtype.categories.get_indexer(to_cells(values))  # -1 for a value without a category
    return pd.Categorical.from_codes(codes, dtype=dtype)


KINDS: dict[str, Callable[..., PortableStep]] = {
    c.kind: c for c in (Scale, Power, Normalize, Fill, Encode, Bin, HashTokens, Categorize)
}


def from_json(stored: Mapping[str, Any]) -> PortableStep:
    """Create a step from the result of its `to_json`.

    Raises:
        KeyError, TypeError: The data does not describe a step.
    """
    fields = dict(stored)
    step: PortableStep = KINDS[fields.pop("kind")](**fields)
    return step

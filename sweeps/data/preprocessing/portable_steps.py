"""Fitted steps as plain numbers and names: what most steps of Ray's and scikit-learn's come to once they are fitted.

A step is taken over when it is fitted, and only if it then makes the same bits of rows of the train split as the step it stands
for. So training and a bundle run the same code, a bundle needs neither package, and nothing of it has to be unpickled.

Columns travel as a mapping of name -> array: of floats for a number, anything iterable for text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd

# Encoders of Ray raise on missing values: they get a category of their own, in training and prediction alike
MISSING_TEXT = "__missing__"
MISSING_NUMBER = float(np.finfo(np.float64).max)

Columns = dict[str, Any]


def replace_arrays(columns: Columns, dropped: Iterable[str], new: Mapping[str, Any]) -> Columns:
    """The columns with new ones: in place where the name is the same, else where the first dropped one stood."""
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
    """A number's column as floats: what is 32 bits wide stays so."""
    found = np.asarray(values) if isinstance(getattr(values, "dtype", None), np.dtype) else values.to_numpy(np.float64, na_value=np.nan)
    return found if found.dtype == np.float32 else found.astype(np.float64, copy=False)


def to_objects(values: Any) -> list[Any]:
    """A column as Python objects."""
    return values.to_numpy(object).tolist() if hasattr(values, "to_numpy") else np.asarray(values).tolist()


def column_array(series: pd.Series) -> Any:
    """A column of a frame as `Columns` has it."""
    return series.to_numpy() if isinstance(series.dtype, np.dtype) and series.dtype.kind in "iubf" else series.array


class PortableStep:
    """A step that plain data describes. `kind` is its name in a bundle's `preprocessor.json`."""

    kind: ClassVar[str]

    def transform(self, columns: Columns) -> Columns:
        """The columns after the step."""
        raise NotImplementedError

    def apply(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The same, of a frame."""
        out = self.transform({n: column_array(frame[n]) for n in frame.columns})
        return pd.DataFrame(out, index=frame.index, copy=False)

    def to_json(self) -> dict[str, Any]:
        """Its fields, for JSON."""
        return {"kind": self.kind, **asdict(self)}  # type: ignore[call-overload]


@dataclass(frozen=True)
class Scale(PortableStep):
    """`(x - minus) / by`, or `x * by + plus`, a column: a scaler.

    Attributes:
        columns: name -> `minus` and `by`, or `times` and `plus`, or a `constant` (in a text: JSON has no NaN); and the `dtype`
            of what comes of it.
        low, high: bounds of the result, if it is clipped.
    """

    kind = "scale"
    columns: dict[str, dict[str, Any]]
    low: float | None = None
    high: float | None = None

    def transform(self, columns: Columns) -> Columns:
        return columns | {name: self._scaled(to_floats(columns[name]), **how) for name, how in self.columns.items()}

    def _scaled(
        self,
        x: np.ndarray,
        dtype: str,
        minus: float | None = None,
        by: float | None = None,
        times: float | None = None,
        plus: float | None = None,
        constant: str | None = None,
    ) -> np.ndarray:
        x = x.astype(dtype, copy=False)
        if constant is not None:
            return np.full(len(x), float(constant), dtype)
        x = x if minus is None else x - minus
        x = x if by is None else x / by
        x = x if times is None else x * times
        x = x if plus is None else x + plus
        return x if self.low is None else np.clip(x, self.low, self.high)


@dataclass(frozen=True)
class Fill(PortableStep):
    """A value in the place of each that is missing: an imputer.

    Attributes:
        columns: name -> `value`, and the `dtype` of what comes of it: "str" and "object" are text.
    """

    kind = "fill"
    columns: dict[str, dict[str, Any]]

    def transform(self, columns: Columns) -> Columns:
        return columns | {name: self._filled(columns[name], **how) for name, how in self.columns.items()}

    @staticmethod
    def _filled(values: Any, value: Any, dtype: str) -> Any:
        if dtype in ("str", "object"):
            filled = [value if v is None or v is pd.NA or v != v else v for v in to_objects(values)]
            return pd.array(filled, dtype="str") if dtype == "str" else np.array([*filled, None], dtype=object)[:-1]
        x = to_floats(values).astype(dtype, copy=False)
        return np.where(np.isnan(x), np.asarray(value, dtype), x)


@dataclass(frozen=True)
class Encode(PortableStep):
    """Codes of categories, or a column of ones and zeros for each: an encoder.

    Attributes:
        columns: name -> `keys`, the categories in the order of their codes; `missing`, the code of a missing value, -1 for that of an
            unseen one; `names`, of the columns that are made: one for the codes themselves (NaN if unseen), or one for each key.
        hot: a column for each key.
        dtype: of what is made.
        keeps: the columns it reads stay.
    """

    kind = "encode"
    columns: dict[str, dict[str, Any]]
    hot: bool
    dtype: str
    keeps: bool = False

    def __post_init__(self) -> None:
        tables = {name: {key: i for i, key in enumerate(how["keys"])} for name, how in self.columns.items()}
        object.__setattr__(self, "_tables", tables)

    def transform(self, columns: Columns) -> Columns:
        made: Columns = {}
        for name, how in self.columns.items():
            table, missing = self._tables[name], how["missing"]  # type: ignore[attr-defined]
            values = columns[name]
            plain = to_floats(values).tolist() if _is_number(values) else to_objects(values)
            found = [missing if v is None or v is pd.NA or v != v else table.get(v, -1) for v in plain]
            codes = np.array(found, dtype=np.int64)
            if self.hot:
                made |= {n: (codes == i).astype(self.dtype) for i, n in enumerate(how["names"])}
            else:
                made[how["names"][0]] = np.where(codes < 0, np.nan, codes).astype(self.dtype)
        return replace_arrays(columns, () if self.keeps else self.columns, made)


def _is_number(values: Any) -> bool:
    return pd.api.types.is_numeric_dtype(values.dtype) or pd.api.types.is_bool_dtype(values.dtype)


KINDS: dict[str, Any] = {c.kind: c for c in (Scale, Fill, Encode)}


def from_json(stored: Mapping[str, Any]) -> PortableStep:
    """A step from what `to_json` gave; raises KeyError and TypeError for anything else."""
    fields = dict(stored)
    return KINDS[fields.pop("kind")](**fields)


def identical(one: pd.DataFrame, two: pd.DataFrame) -> bool:
    """Whether two frames are the same bits under the same names and dtypes; NaN equals NaN."""
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

"""A fitted chain of steps: raw rows in, prepared features out. What a bundle needs of `sweeps.data`, and no more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pandas as pd

from sweeps.core.errors import InputError, Problem
from sweeps.core.old_pickles import RenamedFields
from sweeps.data.columns import PREPROCESSOR_KEY, InputColumn, convert_column
from sweeps.data.preprocessing import fitted_steps, portable_steps


@dataclass(frozen=True)
class StepConfig:
    """A step as it was asked for. (Not `sweeps.space.Step`: a bundle must load without the reader of space files.)"""

    name: str
    columns: Any = None
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class FittedChain(RenamedFields):
    """A fitted chain. Picklable; `transform` starts and needs no Ray.

    Attributes:
        steps: what was asked for.
        label: the label's column, passed through untouched; None for none.
        inputs: the columns of the train split, without the label, as they were.
        stages: the fitted steps that do something.
        empty: no rows of the result: its columns and dtypes.
    """

    OLD_FIELDS: ClassVar = {"stages": "fitted_steps"}
    steps: tuple[StepConfig, ...]
    label: str | None
    inputs: tuple[InputColumn, ...]
    fitted_steps: tuple[fitted_steps.FittedStep, ...]
    empty: pd.DataFrame = field(repr=False)

    @property
    def columns_in(self) -> tuple[str, ...]:
        """The raw columns that `transform` needs."""
        return tuple(column.name for column in self.inputs)

    @property
    def columns_out(self) -> tuple[str, ...]:
        """The prepared columns, without the label."""
        return tuple(self.empty.columns)

    def transform(self, df: pd.DataFrame) -> pd.DataFrame:
        """Prepared features of raw rows.

        Every row is treated alike: the transform of some of the rows is some of the rows of the transform, to the bit. Without
        a step integers stay integers; with one they are floats, and so are codes of categories.

        Args:
            df: has the columns of `columns_in` in any order; others are ignored, but for the label, which comes back
                untouched as the last column.

        Returns:
            The columns of `columns_out`, in their order, with the index of `df`.

        Raises:
            InputError: a column is missing, or holds text where training had numbers.
        """
        missing = [name for name in self.columns_in if name not in df.columns]
        if missing:
            names = ", ".join(f"`{name}`" for name in missing)
            raise InputError(Problem("rows", f"missing column{'s' if len(missing) > 1 else ''} {names}"))
        out = convert_inputs(self.inputs, df, keep_integers=not self.fitted_steps)
        if self.fitted_steps:
            out = self.transform_columns({n: portable_steps.column_array(out[n]) for n in out.columns}, len(df))
        return self.with_label(out, df)

    def with_label(self, out: pd.DataFrame, df: pd.DataFrame) -> pd.DataFrame:
        """Prepared features with the index and the label of the rows they are of."""
        out = out.set_axis(df.index, axis=0)
        if self.label is not None and self.label in df.columns:
            out[self.label] = df[self.label]
        return out

    def transform_columns(self, columns: portable_steps.Columns, count: int) -> pd.DataFrame:
        """The same of columns that have the form which the first step sees, `count` values each: floats of `inputs`' dtype for a number.

        Raises:
            InputError: a step cannot do with them.
        """
        if not count:
            return self.empty.copy()
        try:
            for stage in self.fitted_steps:
                if isinstance(stage, portable_steps.PortableStep):
                    columns = stage.transform(columns)
                else:
                    frame = stage.apply(pd.DataFrame(columns, index=pd.RangeIndex(count)))
                    columns = {n: portable_steps.column_array(frame[n]) for n in frame.columns}
            return restore_dtypes(columns, self.empty, count)
        except InputError:
            raise
        except Exception as e:
            raise InputError(Problem("rows", one_line(e))) from e


def convert_inputs(inputs: tuple[InputColumn, ...], df: pd.DataFrame, keep_integers: bool) -> pd.DataFrame:
    """The rows as the first step sees them: columns in order, one form for each, rows numbered from 0."""
    given = df[[c.name for c in inputs]].reset_index(drop=True)
    return pd.DataFrame({c.name: convert_column(c, given[c.name], keep_integers) for c in inputs}, index=given.index)


def restore_dtypes(columns: portable_steps.Columns, empty: pd.DataFrame, count: int) -> pd.DataFrame:
    """The prepared columns in the order and dtypes of training."""
    missing = [n for n in empty.columns if n not in columns]
    if missing:
        raise InputError(Problem(PREPROCESSOR_KEY, f"a step made no column `{missing[0]}` of these rows, as it did in training"))
    found = {}
    for n, dtype in empty.dtypes.items():
        values = columns[str(n)]
        found[n] = values if values.dtype == dtype else pd.Series(values).astype(dtype).array
    return pd.DataFrame(found, index=pd.RangeIndex(count), copy=False)


def one_line(e: Exception) -> str:
    lines = [line.strip() for line in str(e).splitlines() if line.strip()]
    if hasattr(e, "as_instanceof_cause") and lines:  # Ray's, whose text is a traceback that ends in the error
        return lines[-1]
    return f"{type(e).__name__}: {lines[0] if lines else 'no message'}"

"""A fitted chain of steps: raw rows in, prepared features out. A bundle needs nothing else of `sweeps.data` to prepare rows."""

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
    """A step as it was requested. Not `sweeps.space.Step`, because a bundle must load without the reader of space files.

    Attributes:
        name: name of the step, or `module:attr` of a user's.
        columns: the selector, or None for the step's default.
        params: parameters of the step.
    """

    name: str
    columns: Any = None
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class FittedChain(RenamedFields):
    """A fitted chain of steps. It can be pickled, and `transform` needs no Ray.

    Attributes:
        steps: the requested steps.
        label: the label column, which passes through unchanged. None for none.
        inputs: columns of the train split without the label, as they were.
        fitted_steps: the fitted steps that do something.
        empty: a frame without rows that has the columns and dtypes of the result.
    """

    OLD_FIELDS: ClassVar = {"stages": "fitted_steps"}
    steps: tuple[StepConfig, ...]
    label: str | None
    inputs: tuple[InputColumn, ...]
    fitted_steps: tuple[fitted_steps.FittedStep, ...]
    empty: pd.DataFrame = field(repr=False)

    @property
    def columns_in(self) -> tuple[str, ...]:
        """Raw columns that `transform` needs."""
        return tuple(column.name for column in self.inputs)

    @property
    def columns_out(self) -> tuple[str, ...]:
        """Prepared columns, without the label."""
        return tuple(self.empty.columns)

    def transform(self, df: pd.DataFrame) -> pd.DataFrame:
        """Prepare raw rows.

        The result for a row does not depend on the other rows, not even in the last bit. Without a step, integers stay integers. With a
        step they become floats, and so do codes of categories.

        Args:
            df: n rows with the columns of `columns_in` in any order. Others are ignored, except the label, which is returned as the last
                column.

        Returns:
            n rows with the columns of `columns_out` in their order and the index of `df`.

        Raises:
            InputError: a column is missing, or has text where training had numbers.
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
        """Return prepared features with the index and the label of their raw rows."""
        out = out.set_axis(df.index, axis=0)
        if self.label is not None and self.label in df.columns:
            out[self.label] = df[self.label]
        return out

    def transform_columns(self, columns: portable_steps.Columns, count: int) -> pd.DataFrame:
        """Transform columns that already have the form which the first step sees.

        Args:
            columns: arrays by column. Numbers are floats with the dtype of `inputs`.
            count: number of rows.

        Raises:
            InputError: a step cannot transform the values.
        """
        if not count:
            return self.empty.copy()
        try:
            for step in self.fitted_steps:
                if isinstance(step, portable_steps.PortableStep):
                    columns = step.transform(columns)
                else:
                    frame = step.apply(pd.DataFrame(columns, index=pd.RangeIndex(count)))
                    columns = {n: portable_steps.column_array(frame[n]) for n in frame.columns}
            return restore_dtypes(columns, self.empty, count)
        except InputError:
            raise
        except Exception as e:
            raise InputError(Problem("rows", one_line(e))) from e


def convert_inputs(inputs: tuple[InputColumn, ...], df: pd.DataFrame, keep_integers: bool) -> pd.DataFrame:
    """Return rows as the first step sees them: columns in order, each in its canonical form, with a range index."""
    given = df[[c.name for c in inputs]].reset_index(drop=True)
    return pd.DataFrame({c.name: convert_column(c, given[c.name], keep_integers) for c in inputs}, index=given.index)


def restore_dtypes(columns: portable_steps.Columns, empty: pd.DataFrame, count: int) -> pd.DataFrame:
    """Return prepared columns in the order and with the dtypes of training.

    Raises:
        InputError: a step did not make a column that it made in training.
    """
    missing = [n for n in empty.columns if n not in columns]
    if missing:
        raise InputError(Problem(PREPROCESSOR_KEY, f"a step did not make column `{missing[0]}` from these rows, but did in training"))
    arrays = {}
    for n, dtype in empty.dtypes.items():
        values = columns[str(n)]
        arrays[n] = values if values.dtype == dtype else pd.Series(values).astype(dtype).array
    return pd.DataFrame(arrays, index=pd.RangeIndex(count), copy=False)


def one_line(e: Exception) -> str:
    """Return an error as one line."""
    lines = [line.strip() for line in str(e).splitlines() if line.strip()]
    if hasattr(e, "as_instanceof_cause") and lines:  # Ray's errors contain a traceback whose last line is the error
        return lines[-1]
    return f"{type(e).__name__}: {lines[0] if lines else 'no message'}"

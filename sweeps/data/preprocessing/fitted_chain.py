"""Apply a fitted chain of steps to raw rows. Bundles contain this module to preprocess rows."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pandas as pd

from sweeps.core.errors import InputError, first_line
from sweeps.core.label_columns import Label, label_columns
from sweeps.data.columns.columns import PREPROCESSOR_KEY, InputColumn, convert_column

from . import fitted_steps, portable_steps


@dataclass(frozen=True)
class StepConfig:
    """Configuration of a preprocessing step.

    The class is separate from `sweeps.space.Step`, because a bundle must load without the code that
    reads space files.

    Attributes:
        name: Name of the step, or `module:attr` of a user's step.
        columns: The columns to process: a keyword, a name or a pattern, or several of these. None
            for the step's default.
        params: Parameters of the step.
    """

    name: str
    columns: str | Sequence[str] | None = None
    params: portable_steps.Params = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class FittedChain:
    """A fitted chain of preprocessing steps.

    It can be pickled, and `transform` does not need a running Ray.

    Attributes:
        steps: The steps as they were configured in the space file.
        label: The label column, or a tuple of label columns, which `transform` returns unchanged.
            None if there is no label.
        inputs: The raw columns of the train split, without the label.
        fitted_steps: The fitted steps. Steps that selected no columns, and `LabelEncoder`, are left
            out.
        empty: A frame without rows that has the columns and dtypes of the result.
    """

    steps: tuple[StepConfig, ...]
    label: Label | None
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

    @property
    def known_values(self) -> dict[str, Iterable[portable_steps.Cell]]:
        """Values of each raw column of categories that an encoder or a model saw in training.

        The model is one that reads categories.
        """
        kinds = self.empty.dtypes.items()
        known = {str(name): kind.categories for name, kind in kinds if kind == "category"}
        for step in self.fitted_steps:
            if isinstance(step, portable_steps.Encode):
                known |= {
                    name: [key for key in encoded["keys"] if key is not None]
                    for name, encoded in step.columns.items()
                }
            elif isinstance(step, fitted_steps.FittedEstimator):
                # scikit-learn's encoders have one array of categories for each column.
                categories = getattr(step.estimator, "categories_", ())
                known |= {
                    name: [value for value in values if pd.notna(value)]
                    for name, values in zip(step.inputs, categories, strict=False)
                }
        return {name: known[name] for name in self.columns_in if name in known}

    def transform(self, df: pd.DataFrame, copy: bool = True) -> pd.DataFrame:
        """Preprocess raw rows.

        The result for a row does not depend on the other rows, not even in the last bit. If the
        chain has no fitted steps, integers stay integers. Otherwise integers become floats, and the
        codes of categories are floats, too.

        Args:
            df: n rows with at least the columns in `columns_in`, in any order. If the label is
                present, its columns are returned last. Other columns are ignored.
            copy: False to let columns of numbers share the memory of `df` where no step changes
                them.

        Returns:
            n rows with the columns `columns_out`, in this order, and then the label if `df` has it.
            The index is the index of `df`.

        Raises:
            InputError: A column is missing, a value does not fit its column, or a step fails.
        """
        missing = [name for name in self.columns_in if name not in df.columns]
        if missing:
            names = ", ".join(f"`{name}`" for name in missing)
            raise InputError("rows", f"missing column{'s' if len(missing) > 1 else ''} {names}")
        out = convert_inputs(self.inputs, df, keep_integers=not self.fitted_steps, copy=copy)
        if self.fitted_steps:
            out = self.transform_columns(
                {n: portable_steps.column_array(out[n]) for n in out.columns}, len(df)
            )
        return self.with_label(out, df)

    def with_label(self, out: pd.DataFrame, df: pd.DataFrame) -> pd.DataFrame:
        """Return the prepared rows `out` with the index of the raw rows `df`.

        If `df` has a label column, the result also has it.
        """
        out = out.set_axis(df.index, axis=0)
        for name in label_columns(self.label):
            if name in df.columns:
                out[name] = df[name]
        return out

    def transform_columns(self, columns: portable_steps.Columns, count: int) -> pd.DataFrame:
        """Apply the steps to columns that already have the dtypes of `inputs`.

        Args:
            columns: The array of each column, by name. Numbers are floats.
            count: Number of rows.

        Raises:
            InputError: A step cannot transform the values.
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
            raise InputError("rows", one_line(e)) from e


def convert_inputs(
    inputs: tuple[InputColumn, ...], df: pd.DataFrame, keep_integers: bool, copy: bool = True
) -> pd.DataFrame:
    """Return the rows that the first step gets.

    They have the columns in the order and with the dtypes of `inputs`, and a range index.

    Args:
        inputs: Names and types of the columns.
        df: Raw rows.
        keep_integers: See `convert_column`.
        copy: False to let columns of numbers share the memory of `df`.
    """
    raw = df[[c.name for c in inputs]].reset_index(drop=True)
    return pd.DataFrame(
        {c.name: convert_column(c, raw[c.name], keep_integers) for c in inputs},
        index=raw.index,
        copy=copy,
    )


def restore_dtypes(
    columns: portable_steps.Columns, empty: pd.DataFrame, count: int
) -> pd.DataFrame:
    """Return prepared columns in the order and with the dtypes of `empty`; see `FittedChain.empty`.

    Raises:
        InputError: A column of `empty` is missing, because a step created it in training but not
            for these rows.
    """
    missing = [n for n in empty.columns if n not in columns]
    if missing:
        raise InputError(
            PREPROCESSOR_KEY,
            f"a step did not create column `{missing[0]}` from these rows, although it did so in "
            "training",
        )
    arrays = {}
    for n, dtype in empty.dtypes.items():
        values = columns[str(n)]
        arrays[n] = values if values.dtype == dtype else pd.Series(values).astype(dtype).array
    return pd.DataFrame(arrays, index=pd.RangeIndex(count), copy=False)


def one_line(e: Exception) -> str:
    """Return a description of an error in one line, with its type."""
    line = first_line(e)
    # The last line of the traceback of a task of Ray has the type
    return line if hasattr(e, "as_instanceof_cause") else f"{type(e).__name__}: {line}"

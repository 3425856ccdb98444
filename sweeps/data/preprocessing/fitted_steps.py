"""Fit and apply steps that are estimators or functions.

`builtin_steps` has the other steps.

Each fitted step has a method `apply(frame) -> frame`. This method keeps the number and the order of
the rows, and its result for a row does not depend on other rows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pandas as pd

from .portable_steps import Params, replace_arrays

# Number of rows that an estimator transforms at a time. It is fixed, because linear algebra rounds
# differently for other numbers of rows
_ROWS_AT_ONCE = 4096


class FittedStep(Protocol):
    """Protocol of a fitted preprocessing step."""

    def apply(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Apply the step to a frame, and return the new frame."""


def replace_columns(
    frame: pd.DataFrame, dropped: tuple[str, ...], new: pd.DataFrame
) -> pd.DataFrame:
    """Drop columns of a frame and add new ones for the same rows; see `replace_arrays`."""
    new = new.set_axis(frame.index, axis=0)
    columns = replace_arrays(dict(frame.items()), dropped, dict(new.items()))
    return pd.DataFrame(columns, index=frame.index)


@dataclass(frozen=True)
class FittedEstimator:
    """Step that applies a fitted estimator of scikit-learn, or a user's object with `transform`.

    Attributes:
        estimator: The fitted estimator or object.
        inputs: Columns that the estimator reads. They are replaced by the outputs.
        outputs: Columns that the estimator returns.
        fixed_blocks: True to transform blocks of exactly `_ROWS_AT_ONCE` rows. The result for a row
            then does not depend on how many rows are transformed. It is True for scikit-learn.
    """

    estimator: Any
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    fixed_blocks: bool

    def apply(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return a frame in which the outputs of the estimator replace its inputs.

        The frame must have at least one row.
        """
        part = text_to_objects(frame[list(self.inputs)])
        size = _ROWS_AT_ONCE if self.fixed_blocks else max(1, len(part))
        results = []
        for start in range(0, len(part), size):
            block = part.iloc[start : start + size]
            rows = len(block)
            if rows < size:  # copies of the last row fill the last block
                block = pd.concat([block, block.iloc[[-1] * (size - rows)]], ignore_index=True)
            result = to_frame(self.estimator.transform(block), size, self.outputs)
            results.append(result.iloc[:rows])
        return replace_columns(frame, self.inputs, pd.concat(results))


def text_to_objects(part: pd.DataFrame) -> pd.DataFrame:
    """Convert columns of text to Python objects, and missing text to NaN.

    All estimators of scikit-learn accept these values.
    """
    texts = part.select_dtypes("str")
    return part.assign(**texts.astype(object).where(texts.notna(), np.nan))


def to_frame(result: Any, rows: int, names: tuple[str, ...] | None = None) -> pd.DataFrame:
    """Convert the result of a `transform` to a frame.

    Args:
        result: A DataFrame, a Series, an array or a sparse matrix.
        rows: Required number of rows.
        names: Names of the columns. None to keep the names in `result`, with any number of columns.

    Raises:
        ValueError: The number of rows or columns is wrong.
    """
    if hasattr(result, "toarray"):
        result = result.toarray()
    if isinstance(result, pd.Series):
        result = result.to_frame()
    if not isinstance(result, pd.DataFrame):
        result = np.asarray(result)
        result = pd.DataFrame(result.reshape(-1, 1) if result.ndim == 1 else result)
    if len(result) != rows:
        raise ValueError(f"the step returned {len(result)} rows for {rows} input rows")
    if names is not None:
        if result.shape[1] != len(names):
            raise ValueError(
                f"the step returned {result.shape[1]} columns, but {len(names)} columns when it "
                "was fitted"
            )
        result = result.set_axis(list(names), axis=1)
    return result.reset_index(drop=True)


@dataclass(frozen=True)
class FunctionStep:
    """Step that applies a user's function `f(frame, **params) -> frame`.

    The function's result replaces the input columns.
    """

    function: Callable[..., pd.DataFrame]
    inputs: tuple[str, ...]
    params: Params

    def apply(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return a frame in which the function's result replaces the input columns."""
        result = self.function(frame[list(self.inputs)].copy(), **self.params)
        if not isinstance(result, pd.DataFrame):
            raise ValueError(
                f"the step returned a {type(result).__name__}, but must return a DataFrame"
            )
        return replace_columns(frame, self.inputs, to_frame(result, len(frame)).rename(columns=str))

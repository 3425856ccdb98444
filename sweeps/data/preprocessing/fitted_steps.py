"""Fit and apply steps that are estimators or functions.

`builtin_steps` has the other steps.

Each fitted step has a method `apply(frame) -> frame`. This method keeps the number and the order of
the rows, and its result for a row does not depend on other rows.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pandas as pd

from sweeps.data.columns.columns import unique_names
from sweeps.data.preprocessing.portable_steps import Params, replace_arrays

if TYPE_CHECKING:
    from sweeps.data.streaming.streamed_fit import RowStream

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
        """Return a frame in which the outputs of the estimator replace its inputs."""
        part = text_to_objects(frame[list(self.inputs)])
        size = _ROWS_AT_ONCE if self.fixed_blocks else max(1, len(part))
        result = []
        for start in range(0, len(part), size):
            block = part.iloc[start : start + size]
            rows = len(block)
            if self.fixed_blocks and rows < size:
                block = pd.concat([block, block.iloc[[-1] * (size - rows)]], ignore_index=True)
            result.append(
                to_frame(self.estimator.transform(block), len(block), self.outputs).iloc[:rows]
            )
        return replace_columns(frame, self.inputs, pd.concat(result))


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
        if names is not None and len(names) == result.shape[1]:
            result.columns = list(names)
    if len(result) != rows:
        raise ValueError(f"the step returned {len(result)} rows for {rows} input rows")
    if names is not None and result.shape[1] != len(names):
        raise ValueError(
            f"the step returned {result.shape[1]} columns, but {len(names)} columns when it was "
            "fitted"
        )
    return (result if names is None else result.set_axis(list(names), axis=1)).reset_index(
        drop=True
    )


def fit_estimator(
    kind: type,
    frame: pd.DataFrame,
    inputs: tuple[str, ...],
    params: Params,
    target: np.ndarray | None,
    stream: RowStream | None = None,
) -> FittedEstimator:
    """Fit an estimator on some columns.

    If the estimator's `fit` takes labels, `target` is passed to it.

    If there is a stream, `frame` has its first rows, and the estimator is fitted part by part with
    `partial_fit`.

    Raises:
        ValueError: The estimator cannot be fitted on a stream.
    """
    estimator = kind(**{**_safe_defaults(kind), **params})
    part = text_to_objects(frame[list(inputs)])
    if stream is not None and hasattr(estimator, "fit") and _learns(estimator):
        if not hasattr(estimator, "partial_fit"):
            text = f"`{kind.__name__}` has no `partial_fit`, so it cannot be fitted on a stream"
            raise ValueError(
                f"{text}; use a built-in step or an estimator with `partial_fit`, or write "
                "`data.ingest: memory`"
            )
        for more in stream.results(operator.itemgetter(list(inputs))):
            estimator.partial_fit(text_to_objects(more))
    elif hasattr(estimator, "fit"):
        if target is not None and _takes_labels(estimator):
            estimator.fit(part, target)
        else:
            estimator.fit(part)
    head = part.iloc[: max(1, min(len(part), 8))]
    columns = to_frame(estimator.transform(head), len(head)).columns
    names = [str(name) for name in columns]
    if isinstance(columns, pd.RangeIndex):
        names = list(inputs)
        if len(columns) != len(inputs):
            numbered = [f"{kind.__name__.lower()}{i}" for i in columns]
            names = _output_names(estimator, inputs) or numbered
    if names != list(inputs):
        names = unique_names(names, [n for n in frame.columns if n not in inputs])
    return FittedEstimator(estimator, inputs, tuple(names), kind.__module__.startswith("sklearn."))


def _takes_labels(estimator: Any) -> bool:
    """Return whether the `fit` of an estimator has a parameter for labels."""
    takes = inspect.signature(estimator.fit).parameters.values()
    if any(p.name == "y" for p in takes):
        return True
    return len([p for p in takes if p.default is p.empty and p.kind < p.VAR_POSITIONAL]) > 1


def _learns(estimator: Any) -> bool:
    """Return whether the `fit` of an estimator learns from the rows.

    Scikit-learn marks estimators that do not, such as `Normalizer`.
    """
    tags = getattr(estimator, "__sklearn_tags__", None)
    return tags is None or bool(tags().requires_fit)


def _safe_defaults(kind: type) -> dict[str, str | float]:
    """Return parameters with which scikit-learn's encoders accept unseen categories.

    {} for other classes.
    """
    if kind.__module__.startswith("sklearn."):
        if kind.__name__ == "OneHotEncoder":
            return {"handle_unknown": "ignore"}
        if kind.__name__ == "OrdinalEncoder":
            return {"handle_unknown": "use_encoded_value", "unknown_value": np.nan}
    return {}


def _output_names(estimator: Any, inputs: tuple[str, ...]) -> list[str] | None:
    try:
        return [str(n) for n in estimator.get_feature_names_out(list(inputs))]
    except Exception:  # the method is optional, and estimators may raise anything
        return None


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


def check_rowwise(step: FittedStep, frame: pd.DataFrame, whole: pd.DataFrame) -> None:
    """Check that a step's result for a row does not depend on other rows.

    Otherwise, predictions would not match the training.

    Args:
        step: The fitted step.
        frame: The frame to which the step is applied.
        whole: The step's result for the whole frame.

    Raises:
        ValueError: The result for the first row alone, or for the first 50 rows alone, differs from
            `whole`.
    """
    for rows in sorted({1, min(len(frame), 50)}):
        try:
            alone = step.apply(frame.iloc[:rows])
            pd.testing.assert_frame_equal(
                alone,
                whole.iloc[:rows],
                check_dtype=False,
                check_categorical=False,
                check_column_type=False,
                rtol=1e-7,
            )
        except AssertionError as e:
            text = (
                f"the step returns other values for {rows} row{'s' * (rows > 1)} alone than for "
                f"all {len(frame)} rows together"
            )
            rule = (
                "a step must treat each row independently; a step that learns from rows must be a "
                "class with fit and transform"
            )
            raise ValueError(f"{text}; {rule}") from e

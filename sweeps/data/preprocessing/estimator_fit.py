"""Fit estimators as steps, and check that steps treat each row alone."""

from __future__ import annotations

import inspect
import operator
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from sweeps.data.columns.columns import unique_names

from .fitted_steps import (
    FittedEstimator,
    FittedStep,
    text_to_objects,
    to_frame,
)
from .portable_steps import Params

if TYPE_CHECKING:
    from sweeps.data.streaming.streamed_fit import RowStream


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
        for block in stream.results(operator.itemgetter(list(inputs))):
            estimator.partial_fit(text_to_objects(block))
    elif hasattr(estimator, "fit"):
        if target is not None and _takes_labels(estimator):
            estimator.fit(part, target)
        else:
            estimator.fit(part)
    head = part.iloc[:8]  # a few rows are enough to learn the names of the outputs
    columns = to_frame(estimator.transform(head), len(head)).columns
    names = [str(name) for name in columns]
    if isinstance(columns, pd.RangeIndex):  # an array, whose columns have no names
        names = list(inputs)
        if len(columns) != len(inputs):
            numbered = [f"{kind.__name__.lower()}{i}" for i in columns]
            names = _output_names(estimator, inputs) or numbered
    if names != list(inputs):
        names = unique_names(names, [n for n in frame.columns if n not in inputs])
    return FittedEstimator(
        estimator, inputs, tuple(names), fixed_blocks=kind.__module__.startswith("sklearn.")
    )


def _takes_labels(estimator: Any) -> bool:
    """Return whether the `fit` of an estimator has a parameter for labels.

    The parameter is named `y`, or is a second positional parameter without a default.
    """
    parameters = inspect.signature(estimator.fit).parameters.values()
    if any(p.name == "y" for p in parameters):
        return True
    return sum(p.default is p.empty and p.kind < p.VAR_POSITIONAL for p in parameters) > 1


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
    """Return the names that an estimator gives its outputs; None if it gives none."""
    try:
        return [str(n) for n in estimator.get_feature_names_out(list(inputs))]
    except Exception:  # the method is optional, and estimators may raise anything
        return None


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

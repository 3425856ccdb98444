"""Fitted steps of a chain: estimators with `fit` and `transform`, and plain functions. (Ray's: `ray_stages`.)

Each has one method, `apply(frame) -> frame`, which keeps the number and order of rows and treats every row alike, however
many there are.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import pandas as pd

from sweeps.core.old_pickles import RenamedFields
from sweeps.data.columns import unique_names

# Linear algebra rounds differently for different numbers of rows, so estimators always get this many
_ROWS_AT_ONCE = 4096


class FittedStep(Protocol):
    """A fitted step."""

    def apply(self, frame: pd.DataFrame) -> pd.DataFrame: ...


def replace_columns(frame: pd.DataFrame, dropped: tuple[str, ...], new: pd.DataFrame) -> pd.DataFrame:
    """The frame with new columns: in place where the name is the same, else where the first dropped one stood."""
    added = [n for n in new.columns if n not in frame.columns]
    order: list[str] = []
    for name in frame.columns:
        if name in dropped and added:
            order, added = [*order, *added], []
        if name in new.columns or name not in dropped:
            order.append(name)
    kept = [n for n in frame.columns if n not in new.columns and n not in dropped]
    return pd.concat([frame[kept], new], axis=1)[[*order, *added]]


@dataclass(frozen=True)
class FittedEstimator(RenamedFields):
    """An object with `transform`: of scikit-learn, or of the user.

    Attributes:
        made: the estimator, fitted.
        inputs: the columns it reads, which its own replace.
        names: of the columns it makes.
        fixed: give it blocks of a fixed number of rows; see `_ROWS_AT_ONCE`.
    """

    OLD_FIELDS: ClassVar = {"made": "estimator", "names": "outputs", "fixed": "fixed_blocks"}
    estimator: Any
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    fixed_blocks: bool

    def apply(self, frame: pd.DataFrame) -> pd.DataFrame:
        part = text_to_objects(frame[list(self.inputs)])
        size = _ROWS_AT_ONCE if self.fixed_blocks else max(1, len(part))
        found = []
        for start in range(0, len(part), size):
            block = part.iloc[start : start + size]
            rows = len(block)
            if self.fixed_blocks and rows < size:
                block = pd.concat([block, block.iloc[[-1] * (size - rows)]], ignore_index=True)
            found.append(to_frame(self.estimator.transform(block), len(block), self.outputs).iloc[:rows])
        new = pd.concat(found, ignore_index=True)
        return replace_columns(frame, self.inputs, new.set_axis(frame.index, axis=0))


def text_to_objects(part: pd.DataFrame) -> pd.DataFrame:
    """Text as Python objects with NaN for missing, which all of scikit-learn understands; a copy of the rest."""
    return part.apply(lambda s: s.astype(object).where(s.notna(), np.nan) if s.dtype == "str" else s.copy()) if len(part.columns) else part


def to_frame(found: Any, rows: int, names: tuple[str, ...] | None = None) -> pd.DataFrame:
    """What a `transform` returned as a frame.

    Raises:
        ValueError: it has another number of rows or columns than it should.
    """
    if hasattr(found, "toarray"):
        found = found.toarray()
    if isinstance(found, pd.Series):
        found = found.to_frame()
    if not isinstance(found, pd.DataFrame):
        found = np.asarray(found)
        found = pd.DataFrame(found.reshape(-1, 1) if found.ndim == 1 else found)
        if names is not None and len(names) == found.shape[1]:
            found.columns = list(names)
    if len(found) != rows:
        raise ValueError(f"it returned {len(found)} rows for {rows}")
    if names is not None and found.shape[1] != len(names):
        raise ValueError(f"it returned {found.shape[1]} columns, but {len(names)} when it was fitted")
    return (found if names is None else found.set_axis(list(names), axis=1)).reset_index(drop=True)


def fit_estimator(
    kind: type, frame: pd.DataFrame, inputs: tuple[str, ...], params: Mapping[str, Any], target: np.ndarray | None
) -> FittedEstimator:
    """Fit an estimator on some columns; it gets the label if its `fit` takes one."""
    made = kind(**{**_safe_defaults(kind), **params})
    part = text_to_objects(frame[list(inputs)])
    if hasattr(made, "fit"):
        takes = list(inspect.signature(made.fit).parameters.values())
        wants = any(p.name == "y" for p in takes) or len([p for p in takes if p.default is p.empty and p.kind < p.VAR_POSITIONAL]) > 1
        made.fit(part, target) if wants and target is not None else made.fit(part)
    head = part.iloc[: max(1, min(len(part), 8))]
    found = to_frame(made.transform(head), len(head))
    if found.shape[1] == len(inputs) and isinstance(found.columns, pd.RangeIndex):
        wanted = list(inputs)
    elif isinstance(found.columns, pd.RangeIndex):
        wanted = _output_names(made, inputs) or [f"{kind.__name__.lower()}{i}" for i in range(found.shape[1])]
    else:
        wanted = [str(n) for n in found.columns]
    names = unique_names(wanted, [n for n in frame.columns if n not in inputs]) if wanted != list(inputs) else wanted
    return FittedEstimator(made, inputs, tuple(names), kind.__module__.startswith("sklearn."))


def _safe_defaults(kind: type) -> dict[str, Any]:
    """scikit-learn's encoders raise on a category that they have not seen, unless told otherwise."""
    if kind.__module__.startswith("sklearn."):
        if kind.__name__ == "OneHotEncoder":
            return {"handle_unknown": "ignore"}
        if kind.__name__ == "OrdinalEncoder":
            return {"handle_unknown": "use_encoded_value", "unknown_value": np.nan}
    return {}


def _output_names(made: Any, inputs: tuple[str, ...]) -> list[str] | None:
    try:
        return [str(n) for n in made.get_feature_names_out(list(inputs))]
    except Exception:  # optional, and estimators fail in many ways when they cannot
        return None


@dataclass(frozen=True)
class FunctionStep:
    """A function `f(frame, **params) -> frame` of the user; what it returns replaces the columns it was given."""

    function: Callable[..., Any]
    inputs: tuple[str, ...]
    params: Mapping[str, Any]

    def apply(self, frame: pd.DataFrame) -> pd.DataFrame:
        found = self.function(frame[list(self.inputs)].copy(), **self.params)
        if not isinstance(found, pd.DataFrame):
            raise ValueError(f"it returned {type(found).__name__}, not a DataFrame")
        if len(found) != len(frame):
            raise ValueError(f"it returned {len(found)} rows for {len(frame)}")
        new = found.set_axis([str(n) for n in found.columns], axis=1).set_axis(frame.index, axis=0)
        return replace_columns(frame, self.inputs, new)


def check_rowwise(stage: FittedStep, frame: pd.DataFrame, whole: pd.DataFrame) -> None:
    """Refuse a step that makes something else of a row when other rows are with it: it would learn from what it predicts.

    Raises:
        ValueError: it does.
    """
    for rows in sorted({1, min(len(frame), 50)}):
        try:
            alone = stage.apply(frame.iloc[:rows])
            pd.testing.assert_frame_equal(
                alone, whole.iloc[:rows], check_dtype=False, check_categorical=False, check_column_type=False, rtol=1e-7
            )
        except AssertionError as e:
            text = f"it makes something else of {rows} rows alone than of {len(frame)} together"
            raise ValueError(f"{text}; a step works row by row, one that learns from rows is a class with fit and transform") from e

"""Fit the built-in steps of a chain. Each fitted step is a portable step.

A step learns from facts about columns. Rows in memory have one set of facts. A stream has one set
for each block, and these are merged.
"""

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.typing import SeriesGroupBy

from sweeps.data.checks.label_checks import as_text
from sweeps.data.columns.columns import is_number, unique_names

from .portable_steps import (
    Bin,
    Categorize,
    Cell,
    Encode,
    EncodedColumn,
    Fill,
    HashTokens,
    Normalize,
    Params,
    PortableStep,
    Power,
    Scale,
    ScaledColumn,
    is_missing,
    to_cells,
)

MISSING_TEXT = "__missing__"
# A column whose scale is below this value is not divided by it.
TINY = 1e-8
# Function that applies another function to all rows, or to each block of a stream, and returns its
# results: one for all rows, or one for each block
Collect = Callable[[Callable[[pd.DataFrame], Any]], Iterable[Any]]
# Number of rows of each value, by column
Counts = Mapping[str, Mapping[Cell, int]]


def fit_builtin(
    name: str,
    frame: pd.DataFrame,
    inputs: Sequence[str],
    params: Params,
    collect: Collect,
) -> PortableStep:
    """Fit a built-in step.

    Args:
        name: Name of the step.
        frame: All rows, or the first rows of a stream.
        inputs: Columns that the step changes.
        params: Parameters of the step.
        collect: See `Collect`.

    Raises:
        ValueError: There is no such step, or a parameter is missing.
    """
    columns = list(inputs)
    if name == "PowerTransformer":
        return Power(columns, params["power"], params.get("method", "yeo-johnson"))
    if name == "SimpleImputer":
        return _imputer(frame, columns, params, collect)
    if name == "RobustScaler":
        low, high = params.get("quantile_range", (0.25, 0.75))
        ends = frame[columns].astype("float64").quantile([low, 0.5, high])
        return _scale(ends.loc[0.5], ends.loc[high] - ends.loc[low])
    if name in ("OneHotEncoder", "OrdinalEncoder"):
        limits = _by_column(params.get("max_categories"), columns)
        counts = _counts(columns, collect)
        return _encoder(counts, limits, list(frame.columns), hot=name == "OneHotEncoder")
    if name == "Categorizer":
        counts = _counts(columns, collect)
        return Categorize({column: _sorted(counted) for column, counted in counts.items()})
    if name == "HashingVectorizer":
        taken = [name for name in frame.columns if name not in columns]
        new_names = {}
        for column in columns:
            numbered = (f"{column}_{i}" for i in range(params["num_features"]))
            new_names[column] = unique_names(numbered, taken)
            taken += new_names[column]
        return HashTokens(new_names)
    if name == "Normalizer":
        return Normalize(columns, params.get("norm", "l2"))
    return _scaler(name, columns, params, collect=collect)


def _scaler(name: str, columns: list[str], params: Params, collect: Collect) -> PortableStep:
    """Fit a step that learns from the moments of columns of numbers; see `fit_builtin`."""
    moments = merge_moments(collect(functools.partial(_moments, columns=columns)))
    low = moments["low"]
    high = moments["high"]
    if name == "UniformKBinsDiscretizer":
        bins = _by_column(params["bins"], columns)
        edges = {}
        for n in columns:
            _, bounds = pd.cut([low[n], high[n]], bins[n], retbins=True)
            edges[n] = bounds.tolist()
        return Bin(edges)
    if name == "StandardScaler":
        return _scale(moments["mean"], np.sqrt(moments["squares"] / moments["count"]))
    if name == "MinMaxScaler":
        return _scale(low, high - low)
    if name == "MaxAbsScaler":
        return _scale(low * 0.0, np.maximum(high, -low))
    raise ValueError(f"there is no built-in step `{name}`")


def _by_column(value: Any, columns: Sequence[str]) -> dict[str, Any]:
    """Return a parameter by column.

    `value` is a mapping from columns to values, or one value for all columns.
    """
    values = value if isinstance(value, Mapping) else dict.fromkeys(columns, value)
    return {name: values.get(name) for name in columns}


def _scale(center: pd.Series, width: pd.Series) -> Scale:
    """Return a scaler that subtracts the center of each column and divides by its width."""
    columns: dict[str, ScaledColumn] = {}
    for name in center.index:
        divisor = float(width[name]) if width[name] >= TINY else 1.0
        minus = None if np.isnan(center[name]) else float(center[name])
        columns[str(name)] = {"minus": minus, "by": divisor}
    return Scale(columns)


def _moments(frame: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """Return the count, mean, sum of squared deviations and ends of columns of numbers."""
    numbers = frame[columns].astype("float64")
    mean = numbers.mean()
    return pd.DataFrame(
        {
            "count": numbers.count(),
            "mean": mean,
            "squares": ((numbers - mean) ** 2).sum(),
            "low": numbers.min(),
            "high": numbers.max(),
        }
    )


def merge_moments(parts: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Return the moments of all rows from the moments of blocks."""
    blocks = list(parts)
    if len(blocks) == 1:
        return blocks[0]
    moments = pd.concat(blocks)  # one row for each block and column

    def by_column(values: pd.Series) -> SeriesGroupBy:
        return values.groupby(level=0, sort=False)

    count = by_column(moments["count"]).sum()
    mean = by_column(moments["count"] * moments["mean"]).sum(min_count=1) / count
    # The deviations of a block are from its own mean, which differs from the mean of all rows.
    gaps = moments["mean"] - mean.reindex(moments.index)
    return pd.DataFrame(
        {
            "count": count,
            "mean": mean,
            "squares": by_column(moments["squares"] + moments["count"] * gaps**2).sum(),
            "low": by_column(moments["low"]).min(),
            "high": by_column(moments["high"]).max(),
        }
    )


def _counts(columns: list[str], collect: Collect) -> dict[str, Counter[Cell]]:
    """Return the number of rows of each value of columns. Missing values have the key None."""
    totals = {name: Counter[Cell]() for name in columns}
    for part in collect(functools.partial(_count_values, columns=columns)):
        for name, counts in part.items():
            totals[name] += counts
    return totals


def _count_values(frame: pd.DataFrame, columns: list[str]) -> dict[str, Counter[Cell]]:
    """Return the counts of one block; see `_counts`."""
    counts = {}
    for name in columns:
        counted = frame[name].value_counts(dropna=False)
        cells = to_cells(counted.index.array)
        keys = [None if is_missing(cell) else cell for cell in cells]
        counts[name] = Counter(dict(zip(keys, counted.tolist(), strict=True)))
    return counts


def _sorted(values: Iterable[Cell]) -> list[Cell]:
    """Return values in sorted order, numbers before texts, without the missing value."""
    present = (value for value in values if value is not None)
    return sorted(present, key=lambda value: (isinstance(value, str), value))


def _encoder(
    counts: Counts, limits: Mapping[str, int | None], names: Sequence[str], hot: bool
) -> Encode:
    """Return an encoder. A missing value is a category of its own, the last one.

    If a column has more values than its limit, only the most frequent values are categories.

    Args:
        counts: The number of rows of each value by column.
        limits: The largest number of categories by column; None for no limit.
        names: Names of all columns of the frame.
        hot: See `Encode.hot`.
    """
    taken = [name for name in names if name not in counts or not hot]
    columns: dict[str, EncodedColumn] = {}
    for column, counted in counts.items():
        keys = _sorted(counted)
        if None in counted:
            keys.append(None)
        frequent = set(sorted(keys, key=lambda key: -counted[key])[: limits[column]])
        keys = [key for key in keys if key in frequent]
        new_names = [column]
        if hot:
            texts = ["missing" if key is None else as_text(key) for key in keys]
            new_names = unique_names((f"{column}_{text}" for text in texts), taken)
            taken += new_names
        columns[column] = {"keys": keys, "names": new_names}
    return Encode(columns, hot)


def _imputer(frame: pd.DataFrame, columns: list[str], params: Params, collect: Collect) -> Fill:
    """Return an imputer. A column without a value gets 0 or `MISSING_TEXT`."""
    strategy = params.get("strategy", "mean")
    if strategy == "constant":
        if params.get("fill_value") is None:
            raise ValueError("`strategy: constant` needs `fill_value`")
        return Fill(dict.fromkeys(columns, params["fill_value"]))
    if strategy == "mean":
        means = merge_moments(collect(functools.partial(_moments, columns=columns)))["mean"]
        return Fill({name: float(means.fillna(0.0)[name]) for name in columns})
    values = {}
    for name, counted in _counts(columns, collect).items():
        present = _sorted(counted)
        empty = 0.0 if is_number(frame[name]) else MISSING_TEXT
        values[name] = max(present, key=counted.__getitem__, default=empty)
    return Fill(values)

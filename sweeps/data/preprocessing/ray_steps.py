"""Fit and apply Ray Data's preprocessors as steps of a chain.

Some of Ray's preprocessors have problems that this module avoids. Encoders raise errors for missing
values. Imputers raise errors for empty columns. The dtypes of some results depend on the rows. Some
results are lists, which models cannot read. Comments below explain how each problem is avoided.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from sweeps.core import references
from sweeps.core.errors import InputError
from sweeps.core.step_kinds import EXPANDING, SCALERS
from sweeps.data.columns import PREPROCESSOR_KEY, is_number, unique_names
from sweeps.data.preprocessing.fitted_steps import replace_columns
from sweeps.data.preprocessing.portable_steps import MISSING_NUMBER, MISSING_TEXT
from sweeps.data.ray_data import quiet_ray_data

ENCODERS = ("OneHotEncoder", "OrdinalEncoder", "MultiHotEncoder")
BINNERS = ("CustomKBinsDiscretizer", "UniformKBinsDiscretizer")
NUMERIC = (*SCALERS, "Normalizer", "PowerTransformer", *BINNERS, "FeatureHasher", "Concatenator")
RAY_PACKAGE = "ray.data.preprocessors."
# Approximate number of rows in a block. Aggregations run block by block
ROWS_PER_BLOCK = 100_000


@dataclass(frozen=True)
class FittedRayPreprocessor:
    """A fitted preprocessor of Ray Data.

    Attributes:
        preprocessor: the fitted preprocessor.
        name: class name of the preprocessor.
        inputs: columns that the preprocessor reads.
        outputs: columns that the preprocessor writes.
        expanded: for each output column that holds lists, the names of the columns that replace it.
    """

    preprocessor: Any
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    expanded: Mapping[str, tuple[str, ...]]

    def apply(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Apply the preprocessor to a frame, and return the frame with the outputs of the preprocessor."""
        new: dict[str, Any] = {}
        for name, values in self.results_of_ray(frame).items():
            if name not in self.expanded:
                small = (
                    self.name in SCALERS
                    and name in frame.columns
                    and frame[name].dtype == np.float32
                )
                new[name] = np.asarray(values, np.float32) if small else values
                continue
            matrix = _matrix(
                values,
                len(self.expanded[name]),
                "uint8" if self.name == "OneHotEncoder" else "float32",
            )
            new |= {column: matrix[:, i] for i, column in enumerate(self.expanded[name])}
        dropped = (
            self.inputs
            if self.name == "Concatenator"
            else tuple(n for n in self.inputs if n in self.expanded)
        )
        return replace_columns(frame, dropped, pd.DataFrame(new, index=frame.index, copy=False))

    def results_of_ray(self, frame: pd.DataFrame) -> dict[str, Any]:
        """Return the values of each output column for the rows of a frame, with the dtypes of Ray."""
        return _transform(
            self.preprocessor,
            self.name,
            to_ray_input(frame[list(self.inputs)], self.name),
            self.outputs,
        )


def to_ray_input(part: pd.DataFrame, name: str) -> pd.DataFrame:
    """Convert columns to dtypes that Ray's preprocessors accept.

    For an encoder, missing values become a category.

    Columns of floats are not copied, because a change of the result does not change `part` (pandas'
    copy-on-write).
    """
    return pd.DataFrame(
        {n: _convert_values(part[n], name in ENCODERS) for n in part.columns},
        index=part.index,
        copy=False,
    )


def _convert_values(values: pd.Series, fill: bool) -> pd.Series:
    if isinstance(values.dtype, pd.CategoricalDtype):
        values = values.astype(
            values.cat.categories.dtype if values.cat.categories.dtype == "str" else object
        )
        if values.dtype == object and pd.api.types.is_numeric_dtype(
            pd.Index(values.dropna().unique()).infer_objects().dtype
        ):
            values = values.astype(np.float64)
    if is_number(values):
        values = values.astype(np.float64) if values.dtype.kind in "iub" else values
        return values.fillna(MISSING_NUMBER) if fill else values
    first = next(
        (v for v in values if not (v is None or v is pd.NA or v is np.nan or v is pd.NaT)), None
    )
    if isinstance(first, (list, tuple, np.ndarray)):
        return (
            values.map(lambda v: v if isinstance(v, (list, tuple, np.ndarray)) else [])
            if fill
            else values.copy()
        )
    if values.dtype.kind == "M" and not fill:
        return values.copy()
    values = values.astype("str")
    return values.fillna(MISSING_TEXT) if fill else values


def _transform(
    preprocessor: Any, name: str, part: pd.DataFrame, outputs: tuple[str, ...]
) -> dict[str, Any]:
    """Apply one of Ray's preprocessors. The dtypes of the outputs do not depend on the rows."""
    if name in ("OneHotEncoder", "OrdinalEncoder") and not any(
        _holds_lists(part[n]) for n in part.columns
    ):
        table = preprocessor.transform_batch(
            pa.Table.from_pandas(part, preserve_index=False).replace_schema_metadata(None)
        )
        if name == "OneHotEncoder":
            return {n: table.column(n) for n in outputs}
        # the code of an unseen category is NaN, so all codes are floats
        return {n: table.column(n).cast(pa.float64()).to_numpy() for n in outputs}
    # NumPy sums the columns of a single row with another algorithm, and the last bits differ. So a
    # single row is doubled.
    single = len(part) == 1
    arguments = (
        pd.concat([part, part], ignore_index=True) if single else part.reset_index(drop=True)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out = preprocessor.transform_batch(arguments)
    result = {}
    for n in outputs:
        values = out[n].iloc[:1] if single else out[n]
        result[n] = (
            values.to_numpy(dtype=np.float64, na_value=np.nan)
            if name in BINNERS and is_number(values)
            else values.array
        )
    return result


def _holds_lists(values: pd.Series) -> bool:
    return values.dtype == object and isinstance(
        values.iloc[0] if len(values) else None, (list, tuple, np.ndarray)
    )


def _matrix(values: Any, width: int, dtype: str) -> np.ndarray:
    """Convert lists of equal length to a column-major array of shape (n, width).

    A row without a list becomes NaN.
    """
    if isinstance(values, pa.ChunkedArray):
        joined = values.combine_chunks()
        rows = joined.flatten().to_numpy(zero_copy_only=False).reshape(len(values), width)
    else:
        rows = np.array(
            [v if isinstance(v, (list, tuple, np.ndarray)) else [np.nan] * width for v in values],
            dtype=np.float64,
        )
        rows = rows.reshape(len(values), width)
    return np.asfortranarray(rows, dtype=dtype)


def fit_ray(
    kind: type,
    name: str,
    frame: pd.DataFrame,
    inputs: tuple[str, ...],
    params: Mapping[str, Any],
    stream: Any = None,
) -> FittedRayPreprocessor:
    """Fit a preprocessor of Ray Data on the columns `inputs` of a frame, or of a stream whose first rows are this frame.

    Raises:
        ValueError: the preprocessor cannot be fitted on a stream.
    """
    arguments = _constructor_arguments(name, params, inputs)
    if "columns" in inspect.signature(kind).parameters:
        arguments["columns"] = list(inputs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        preprocessor = kind(**arguments)
        part = to_ray_input(frame[list(inputs)], name)
        if name == "RobustScaler":
            if stream is not None:
                raise ValueError(
                    "needs all rows in memory; use StandardScaler or MinMaxScaler, or write "
                    "`data.ingest: memory`"
                )
            _fit_robust_scaler(preprocessor, part)
        elif preprocessor.fit_status() != preprocessor.FitStatus.NOT_FITTABLE:
            with quiet_ray_data():
                preprocessor = preprocessor.fit(
                    _dataset_to_fit(part, name, kind.__module__.startswith(RAY_PACKAGE), stream)
                )
        if name == "SimpleImputer":
            _fill_empty_columns(preprocessor, part)
        outputs = _output_columns(preprocessor, name, part, inputs, params)
        expanded: dict[str, tuple[str, ...]] = {}
        # Each of these returns one list per row. Each element becomes a column, because models
        # cannot read lists.
        if name in EXPANDING:
            source = dict(zip(outputs, inputs, strict=False))
            taken = [n for n in frame.columns if n not in inputs or n not in outputs]
            for output in outputs:
                names = unique_names(
                    (f"{output}_{e}" for e in _element_names(preprocessor, name, source[output])),
                    taken,
                )
                expanded[output] = tuple(names)
                taken += names
    return FittedRayPreprocessor(preprocessor, name, inputs, outputs, expanded)


def _dataset_to_fit(part: pd.DataFrame, name: str, own: bool, stream: Any) -> Any:
    """Return the rows on which a preprocessor is fitted: a Ray Dataset, or an object with the methods that Ray's own preprocessors call."""
    if stream is None:
        return _in_memory_dataset(part) if own else ray_dataset(part)
    frames = stream.frames(functools.partial(_input_of, columns=list(part.columns), name=name))
    return frames if own else frames.dataset


def _input_of(frame: pd.DataFrame, columns: list[str], name: str) -> pd.DataFrame:
    return to_ray_input(frame[columns], name)


def ray_dataset(part: pd.DataFrame) -> Any:
    """Convert a frame to a Ray Dataset.

    A user's preprocessor needs a real Dataset, because it may call any method.
    """
    import ray.data

    return ray.data.from_arrow(_blocks(part))


def _in_memory_dataset(part: pd.DataFrame) -> Any:
    from sweeps.data.preprocessing.in_memory_dataset import InMemoryDataset

    return InMemoryDataset(_blocks(part))


def _blocks(part: pd.DataFrame) -> list[pa.Table]:
    table = pa.Table.from_pandas(part, preserve_index=False).replace_schema_metadata(None)
    blocks = max(1, round(table.num_rows / ROWS_PER_BLOCK))
    each = -(-table.num_rows // blocks)
    return [table.slice(start, each) for start in range(0, max(1, table.num_rows), each)]


def _constructor_arguments(
    name: str, params: Mapping[str, Any], inputs: tuple[str, ...]
) -> dict[str, Any]:
    """Convert a step's parameters to arguments of Ray's constructor.

    For example, the text `module:function` becomes a function.
    """
    arguments = dict(params)
    for key in ("tokenization_fn", "transform"):
        if isinstance(arguments.get(key), str):
            arguments[key] = references.resolve(arguments[key])
    if isinstance(arguments.get("dtype"), str):
        arguments["dtype"] = np.dtype(arguments["dtype"])
    if isinstance(arguments.get("max_categories"), int):
        arguments["max_categories"] = dict.fromkeys(inputs, arguments["max_categories"])
    if isinstance(arguments.get("dtypes"), Mapping):  # in YAML, categories are a list
        arguments["dtypes"] = {
            k: pd.CategoricalDtype(v) if isinstance(v, (list, tuple)) else v
            for k, v in arguments["dtypes"].items()
        }
    return arguments


def _fit_robust_scaler(preprocessor: Any, part: pd.DataFrame) -> None:
    """Fit Ray's RobustScaler with exact quantiles.

    Ray approximates quantiles with a package that is not installed with Ray, and the result differs
    from fit to fit.
    """
    low, high = preprocessor.quantile_range
    for column in preprocessor.columns:
        values = part[column].to_numpy(dtype=np.float64)
        values = values[~np.isnan(values)]
        result = np.quantile(values, [low, 0.5, high]).tolist() if len(values) else [None] * 3
        preprocessor.stats_ |= dict(
            zip(
                (f"low_quantile({column})", f"median({column})", f"high_quantile({column})"),
                result,
                strict=True,
            )
        )
    preprocessor._fitted = True


def _fill_empty_columns(preprocessor: Any, part: pd.DataFrame) -> None:
    """Set a constant fill value for each column that has no values.

    Otherwise, Ray's `transform` would raise an error.
    """
    for key, value in preprocessor.stats_.items():
        if value is None or value != value:
            column = key.partition("(")[2].removesuffix(")")
            preprocessor.stats_[key] = 0.0 if is_number(part[column]) else MISSING_TEXT


def _output_columns(
    preprocessor: Any,
    name: str,
    part: pd.DataFrame,
    inputs: tuple[str, ...],
    params: Mapping[str, Any],
) -> tuple[str, ...]:
    if name == "Concatenator":
        return (preprocessor.output_column_name,)
    if name == "FeatureHasher":
        return (preprocessor.output_column,)
    if "output_columns" in params:
        return tuple(params["output_columns"])
    if type(preprocessor).__module__.startswith(RAY_PACKAGE):
        return inputs
    return tuple(str(n) for n in preprocessor.transform_batch(part.copy()).columns)


def _element_names(preprocessor: Any, name: str, column: str) -> list[str]:
    """Return a name for each position in the lists that a preprocessor returns: a category, a token or the position."""
    if name in ("OneHotEncoder", "MultiHotEncoder"):
        codes = preprocessor.stats_[f"unique_values({column})"]
        return [_category_name(c) for c in sorted(codes, key=codes.__getitem__)]
    if name == "CountVectorizer":
        return [
            str(token) for token, _ in preprocessor.stats_[f"token_counts({column})"].most_common()
        ]
    return [str(i) for i in range(preprocessor.num_features)]


def _category_name(value: Any) -> str:
    if value in (MISSING_TEXT, MISSING_NUMBER):
        return "missing"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def ray_class(name: str) -> type:
    """Return Ray's preprocessor with this name.

    Raises:
        InputError: Ray has no such preprocessor.
    """
    kind = getattr(importlib.import_module("ray.data.preprocessors"), name, None)
    if not isinstance(kind, type):
        raise InputError(PREPROCESSOR_KEY, f"Ray Data has no preprocessor `{name}`")
    return kind

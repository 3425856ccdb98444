"""Convert fitted steps of Ray and scikit-learn to portable steps.

A step is converted only if its class is supported and the portable step gives identical results for
rows of the train split. The numbers of the portable step are read from the fitted object, so this
module does not import Ray or scikit-learn.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from sweeps.data.columns import is_number
from sweeps.data.preprocessing.fitted_steps import FittedEstimator, FittedStep
from sweeps.data.preprocessing.portable_steps import (
    MISSING_NUMBER,
    MISSING_TEXT,
    Encode,
    Fill,
    PortableStep,
    Scale,
    identical,
)
from sweeps.data.preprocessing.ray_steps import FittedRayPreprocessor

# Ray's scalers treat a scale below this value as zero
TINY = 1e-8
PROOF_ROWS = 4096


def to_portable(step: FittedStep, frame: pd.DataFrame) -> FittedStep:
    """Convert a step to a portable step if both give identical results for rows of `frame`.

    Otherwise return the step itself.

    Args:
        step: the fitted step.
        frame: rows that the step was fitted on.
    """
    rows = _proof_rows(frame)
    with contextlib.suppress(
        Exception
    ):  # a new version of a package may change anything; the step is then not converted
        portable = None
        if isinstance(step, FittedRayPreprocessor):
            portable = _from_ray(step, rows)
        elif isinstance(step, FittedEstimator):
            portable = _from_sklearn(step, rows)
        if portable is not None and all(
            identical(step.apply(part), portable.apply(part))
            for part in (rows, rows.iloc[:1], rows.iloc[-3:])
        ):
            return portable
    return step


def _proof_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """Return rows on which results are compared: the first rows of the frame, and two rows in which all text and floats are missing."""
    head = frame.iloc[:PROOF_ROWS]
    missing = head.iloc[:2].copy()
    for name in missing.columns:
        if missing[name].dtype == "str" or missing[name].dtype.kind == "f":
            missing[name] = (
                pd.Series([None, None], index=missing.index, dtype=missing[name].dtype)
                if len(missing) == 2
                else missing[name]
            )
    return pd.concat([head, missing], ignore_index=True)


def _from_ray(step: FittedRayPreprocessor, rows: pd.DataFrame) -> PortableStep | None:
    if any(isinstance(v, (list, tuple, np.ndarray)) for n in step.inputs for v in rows[n].head(50)):
        return None
    if step.name in ("OneHotEncoder", "OrdinalEncoder"):
        return _from_ray_encoder(step, rows)
    if step.inputs != step.outputs:
        return None
    output = step.apply(rows)
    dtypes = {n: str(output[n].dtype) for n in step.inputs}
    if step.name == "SimpleImputer":
        imputer = step.preprocessor
        constant = imputer.strategy == "constant"
        values = {
            n: imputer.fill_value if constant else imputer.stats_[f"{imputer.strategy}({n})"]
            for n in step.inputs
        }
        return Fill(
            {n: {"value": _json_scalar(values[n]), "dtype": dtypes[n]} for n in step.inputs}
        )
    scales = {n: _ray_scale(step.name, n, step.preprocessor.stats_) for n in step.inputs}
    if any(scale is None for scale in scales.values()):
        return None
    computed = {n: str(values.dtype) for n, values in step.results_of_ray(rows).items()}
    types = {
        n: {"dtype": computed[n]} | ({"output": dtypes[n]} if dtypes[n] != computed[n] else {})
        for n in step.inputs
    }
    return Scale({n: {**(scale or {}), **types[n]} for n, scale in scales.items()})


def _from_ray_encoder(step: FittedRayPreprocessor, rows: pd.DataFrame) -> PortableStep | None:
    hot = step.name == "OneHotEncoder"
    columns = {}
    for column, output in zip(step.inputs, step.outputs, strict=True):
        codes = step.preprocessor.stats_[f"unique_values({column})"]
        codes = (
            codes
            if isinstance(codes, dict)
            else {k.as_py(): v.as_py() for k, v in zip(*codes, strict=True)}
        )
        keys = sorted(codes, key=codes.__getitem__)
        if [codes[k] for k in keys] != list(range(len(keys))):
            return None
        missing_key = MISSING_NUMBER if is_number(rows[column]) else MISSING_TEXT
        names = step.expanded[output] if hot else (output,)
        missing = keys.index(missing_key) if missing_key in keys else -1
        columns[column] = {
            "keys": [_json_scalar(k) for k in keys],
            "missing": missing,
            "names": list(names),
        }
    dropped = [n for n in step.inputs if n in step.expanded]
    return Encode(
        columns, hot, "uint8" if hot else "float64", keeps=len(dropped) < len(step.inputs)
    )


def _ray_scale(name: str, column: str, stats: Mapping[str, float | None]) -> dict[str, Any] | None:
    """Return the entry of `Scale.columns` that replaces a fitted scaler of Ray, without `dtype`.

    Args:
        name: class name of the preprocessor. The result is None if it is not a supported scaler.
        column: name of the column.
        stats: the fitted statistics of the preprocessor, such as {"mean(x)": 2.0, "std(x)": 0.5}.
    """
    names = {
        "StandardScaler": ("mean", "std"),
        "MinMaxScaler": ("min", "max"),
        "MaxAbsScaler": ("abs_max",),
        "RobustScaler": ("median", "low_quantile", "high_quantile"),
    }
    if name not in names:
        return None
    values = [
        np.nan if (value := stats[f"{stat}({column})"]) is None else value for stat in names[name]
    ]
    if any(value != value for value in values):
        return {"constant": "nan"}
    if name == "StandardScaler":
        center, width = values
    elif name == "MaxAbsScaler":
        center, width = 0.0, values[0]
    else:
        center, width = values[0], values[-1] - values[-2]
    if width == 0 and name == "RobustScaler":
        return {"constant": "0"}
    tiny = width == 0 if name in ("MaxAbsScaler", "RobustScaler") else width < TINY
    return {"minus": float(center), "by": 1.0 if tiny else float(width)}


# For each scaler of scikit-learn, the attributes that hold the numbers of `Scale`
_SKLEARN_SCALERS = {
    "StandardScaler": {"minus": "mean_", "by": "scale_"},
    "RobustScaler": {"minus": "center_", "by": "scale_"},
    "MaxAbsScaler": {"by": "scale_"},
    "MinMaxScaler": {"times": "scale_", "plus": "min_"},
}


def _from_sklearn(step: FittedEstimator, rows: pd.DataFrame) -> PortableStep | None:
    estimator = step.estimator
    if not type(estimator).__module__.startswith("sklearn."):
        return None
    name, inputs = type(estimator).__name__, step.inputs
    if name in ("OneHotEncoder", "OrdinalEncoder"):
        return _from_sklearn_encoder(step, rows, name == "OneHotEncoder")
    if step.outputs != inputs:
        return None
    if name == "SimpleImputer":
        if estimator.add_indicator or not (
            isinstance(estimator.missing_values, float) and np.isnan(estimator.missing_values)
        ):
            return None
        dtypes = step.apply(rows).dtypes
        values = dict(zip(inputs, estimator.statistics_.tolist(), strict=True))
        return Fill(
            {n: {"value": _json_scalar(values[n]), "dtype": str(dtypes[n])} for n in inputs}
        )
    attributes = _SKLEARN_SCALERS.get(name)
    if (
        attributes is None
        or not all(is_number(rows[n]) for n in inputs)
        or rows[list(inputs)].to_numpy().dtype != np.float64
    ):
        return None
    columns: dict[str, dict[str, Any]] = {n: {"dtype": "float64"} for n in inputs}
    for key, attribute in attributes.items():
        numbers = getattr(estimator, attribute, None)
        if numbers is None or (attribute == "mean_" and not estimator.with_mean):
            continue
        for n, value in zip(inputs, np.asarray(numbers, np.float64).tolist(), strict=True):
            columns[n][key] = value
    low, high = (
        estimator.feature_range if name == "MinMaxScaler" and estimator.clip else (None, None)
    )
    return Scale(columns, low, high)


def _from_sklearn_encoder(
    step: FittedEstimator, rows: pd.DataFrame, hot: bool
) -> PortableStep | None:
    estimator = step.estimator
    if (
        estimator.min_frequency is not None
        or estimator.max_categories is not None
        or getattr(estimator, "drop", None) is not None
    ):
        return None
    if estimator.handle_unknown != ("ignore" if hot else "use_encoded_value"):
        return None
    if not hot and not (
        _is_nan(estimator.unknown_value) and _is_nan(estimator.encoded_missing_value)
    ):
        return None
    columns, left = {}, list(step.outputs)
    for column, categories in zip(step.inputs, estimator.categories_, strict=True):
        keys = [_json_scalar(k) for k in categories.tolist()]
        missing = len(keys) - 1 if keys and (keys[-1] is None or _is_nan(keys[-1])) else -1
        width = len(keys) if hot else 1
        known = keys if missing < 0 else keys[:-1]
        if not hot:
            keys, missing = known, -1
        columns[column] = {
            "keys": keys if missing < 0 else [*known, None],
            "missing": missing,
            "names": left[:width],
        }
        left = left[width:]
    return None if left else Encode(columns, hot, np.dtype(estimator.dtype).name)


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and value != value


def _json_scalar(value: Any) -> Any:
    """Convert a NumPy scalar to a Python scalar.

    Raises:
        TypeError: JSON does not support the type of the value.
    """
    value = value.item() if isinstance(value, np.generic) else value
    if not (value is None or isinstance(value, (bool, int, float, str))):
        raise TypeError(type(value).__name__)
    return value

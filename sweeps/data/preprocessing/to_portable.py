"""What a fitted step of Ray's or scikit-learn's comes to as plain data, where that is known and proved on rows.

The parameters are read off the fitted object; nothing here imports either package.
"""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pandas as pd

from sweeps.data.columns import is_number
from sweeps.data.preprocessing.fitted_steps import FittedEstimator, FittedStep
from sweeps.data.preprocessing.portable_steps import MISSING_NUMBER, MISSING_TEXT, Encode, Fill, PortableStep, Scale, identical
from sweeps.data.preprocessing.ray_steps import FittedRayPreprocessor

# Ray's scalers take a spread below this for none
TINY = 1e-8
PROOF_ROWS = 4096


def to_portable(stage: FittedStep, frame: pd.DataFrame) -> FittedStep:
    """The step as plain data if it can be, and makes the same bits of rows of `frame`; else the step itself.

    Args:
        stage: fitted.
        frame: what it was fitted on.
    """
    rows = _proof_rows(frame)
    with contextlib.suppress(Exception):  # whatever another version of a package has changed: it stays as it is
        found = None
        if isinstance(stage, FittedRayPreprocessor):
            found = _from_ray(stage, rows)
        elif isinstance(stage, FittedEstimator):
            found = _from_sklearn(stage, rows)
        if found is not None and all(identical(stage.apply(part), found.apply(part)) for part in (rows, rows.iloc[:1], rows.iloc[-3:])):
            return found
    return stage


def _proof_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows to compare on: the first of the frame, and some in which everything is missing that can be."""
    head = frame.iloc[:PROOF_ROWS]
    gone = head.iloc[:2].copy()
    for name in gone.columns:
        if gone[name].dtype == "str" or gone[name].dtype.kind == "f":
            gone[name] = pd.Series([None, None], index=gone.index, dtype=gone[name].dtype) if len(gone) == 2 else gone[name]
    return pd.concat([head, gone], ignore_index=True)


def _from_ray(stage: FittedRayPreprocessor, rows: pd.DataFrame) -> PortableStep | None:
    made, stats, name = stage.preprocessor, stage.preprocessor.stats_, stage.name
    if any(isinstance(v, (list, tuple, np.ndarray)) for n in stage.inputs for v in rows[n].head(50)):
        return None
    if name in ("OneHotEncoder", "OrdinalEncoder"):
        columns = {}
        for column, output in zip(stage.inputs, stage.outputs, strict=True):
            codes = stats[f"unique_values({column})"]
            codes = codes if isinstance(codes, dict) else {k.as_py(): v.as_py() for k, v in zip(*codes, strict=True)}
            keys = sorted(codes, key=codes.__getitem__)
            if [codes[k] for k in keys] != list(range(len(keys))):
                return None
            lost = MISSING_NUMBER if is_number(rows[column]) else MISSING_TEXT
            names = stage.expanded[output] if name == "OneHotEncoder" else (output,)
            missing = keys.index(lost) if lost in keys else -1
            columns[column] = {"keys": [_json_scalar(k) for k in keys], "missing": missing, "names": list(names)}
        dropped = [n for n in stage.inputs if n in stage.expanded]
        hot = name == "OneHotEncoder"
        return Encode(columns, hot, "uint8" if hot else "float64", keeps=len(dropped) < len(stage.inputs))
    if stage.inputs != stage.outputs:
        return None
    out = stage.apply(rows)
    dtypes = {n: str(out[n].dtype) for n in stage.inputs}
    if name == "SimpleImputer":
        strategy = made.strategy
        values = {n: made.fill_value if strategy == "constant" else stats[f"{strategy}({n})"] for n in stage.inputs}
        return Fill({n: {"value": _json_scalar(values[n]), "dtype": dtypes[n]} for n in stage.inputs})
    how: dict[str, dict[str, Any]] = {}
    for n in stage.inputs:
        if name == "StandardScaler":
            low, spread = stats[f"mean({n})"], stats[f"std({n})"]
            spread = 1.0 if spread is not None and spread < TINY else spread
        elif name == "MinMaxScaler":
            low, high = stats[f"min({n})"], stats[f"max({n})"]
            spread = None if low is None or high is None else high - low
            spread = 1.0 if spread is not None and spread < TINY else spread
        elif name == "MaxAbsScaler":
            low, spread = 0.0, stats[f"abs_max({n})"]
            spread = 1.0 if spread == 0 else spread
        elif name == "RobustScaler":
            low, first, last = stats[f"median({n})"], stats[f"low_quantile({n})"], stats[f"high_quantile({n})"]
            spread = None if first is None or last is None else last - first
            if spread == 0:
                how[n] = {"constant": "0", "dtype": dtypes[n]}
                continue
        else:
            return None
        if low is None or spread is None or low != low or spread != spread:
            how[n] = {"constant": "nan", "dtype": dtypes[n]}
        else:
            how[n] = {"minus": float(low), "by": float(spread), "dtype": dtypes[n]}
    return Scale(how)


def _from_sklearn(stage: FittedEstimator, rows: pd.DataFrame) -> PortableStep | None:
    made = stage.estimator
    if not type(made).__module__.startswith("sklearn."):
        return None
    name, inputs = type(made).__name__, stage.inputs
    if name in ("OneHotEncoder", "OrdinalEncoder"):
        return _from_sklearn_encoder(stage, rows, name == "OneHotEncoder")
    if stage.outputs != inputs:
        return None
    if name == "SimpleImputer":
        if made.add_indicator or not (isinstance(made.missing_values, float) and np.isnan(made.missing_values)):
            return None
        dtypes = stage.apply(rows).dtypes
        values = dict(zip(inputs, made.statistics_.tolist(), strict=True))
        return Fill({n: {"value": _json_scalar(values[n]), "dtype": str(dtypes[n])} for n in inputs})
    if not all(is_number(rows[n]) for n in inputs) or rows[list(inputs)].to_numpy().dtype != np.float64:
        return None

    def of(attribute: str) -> list[Any]:
        found = getattr(made, attribute, None)
        return [None] * len(inputs) if found is None else np.asarray(found, np.float64).tolist()

    if name == "StandardScaler":
        keys, low, high = (("minus", of("mean_") if made.with_mean else of("")), ("by", of("scale_"))), None, None
    elif name == "RobustScaler":
        keys, low, high = (("minus", of("center_")), ("by", of("scale_"))), None, None
    elif name == "MaxAbsScaler":
        keys, low, high = (("by", of("scale_")),), None, None  # type: ignore[assignment]
    elif name == "MinMaxScaler":
        keys = (("times", of("scale_")), ("plus", of("min_")))
        low, high = made.feature_range if made.clip else (None, None)
    else:
        return None
    how = {n: {k: v[i] for k, v in keys if v[i] is not None} | {"dtype": "float64"} for i, n in enumerate(inputs)}
    return Scale(how, low, high)


def _from_sklearn_encoder(stage: FittedEstimator, rows: pd.DataFrame, hot: bool) -> PortableStep | None:
    made = stage.estimator
    if made.min_frequency is not None or made.max_categories is not None or getattr(made, "drop", None) is not None:
        return None
    if made.handle_unknown != ("ignore" if hot else "use_encoded_value"):
        return None
    if not hot and not (_is_nan(made.unknown_value) and _is_nan(made.encoded_missing_value)):
        return None
    columns, left = {}, list(stage.outputs)
    for column, categories in zip(stage.inputs, made.categories_, strict=True):
        keys = [_json_scalar(k) for k in categories.tolist()]
        missing = len(keys) - 1 if keys and (keys[-1] is None or _is_nan(keys[-1])) else -1
        width = len(keys) if hot else 1
        known = keys if missing < 0 else keys[:-1]
        if not hot:
            keys, missing = known, -1
        columns[column] = {"keys": keys if missing < 0 else [*known, None], "missing": missing, "names": left[:width]}
        left = left[width:]
    return None if left else Encode(columns, hot, np.dtype(made.dtype).name)


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and value != value


def _json_scalar(value: Any) -> Any:
    """NumPy's as Python's own, for JSON.

    Raises:
        TypeError: JSON has no such thing.
    """
    value = value.item() if isinstance(value, np.generic) else value
    if not (value is None or isinstance(value, (bool, int, float, str))):
        raise TypeError(type(value).__name__)
    return value

"""Fit a chain of preprocessing steps on the train split.

The fitted chain needs no Ray cluster to transform rows.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pandas.api.extensions import ExtensionDtype

from sweeps.core.errors import InputError
from sweeps.core.label_columns import Label, label_columns
from sweeps.core.plugins import references
from sweeps.data.columns.columns import (
    PREPROCESSOR_KEY,
    input_column,
    is_categorical,
    is_number,
    select_columns,
)

from . import estimator_fit, fitted_steps
from .builtin_steps import fit_builtin
from .fitted_chain import (
    FittedChain,
    StepConfig,
    convert_inputs,
    one_line,
    restore_dtypes,
)

if TYPE_CHECKING:
    from sweeps.data.streaming.streamed_fit import RowStream
    from sweeps.space import Step


def _output_dtype(values: pd.Series) -> np.dtype | ExtensionDtype:
    """Return the dtype to which a prepared column is converted, both in training and in prediction.

    Numbers become floats, because later rows may have missing values. The dtypes int8 and uint8,
    which encoders create, are kept.
    """
    unchanged = values.dtype in ("float32", "uint8", "int8")
    return np.dtype("float64") if is_number(values) and not unchanged else values.dtype


def fit_chain(steps: Iterable[Step], train: pa.Table, label: Label | None) -> FittedChain:
    """Fit steps on the train split, one after the other.

    Args:
        steps: The steps in order. Each step selects from the columns that the previous step
            returned.
        train: Rows of the train split.
        label: See `Splits.label`. Steps do not get the label among their columns. If the `fit` of
            an estimator takes `y`, the label is passed as `y`, with one column for each label
            column if there are several.

    Raises:
        InputError: A step names a missing column, has invalid parameters, or fails.
    """
    return fit_transform(steps, train, label)[0]


def fit_transform(
    steps: Iterable[Step],
    train: pa.Table,
    label: Label | None,
    copy: bool = True,
    stream: RowStream | None = None,
    parse: Mapping[str, str] = MappingProxyType({}),
) -> tuple[FittedChain, pd.DataFrame]:
    """Fit steps in the same way as `fit_chain`, and also return the transformed rows of train.

    Args:
        steps: See `fit_chain`.
        train: Rows of the train split. If there is a stream, the first rows of the stream.
        label: See `fit_chain`.
        copy: False to let the returned columns share the memory of `train` where no step changes
            them.
        stream: The rows of the train split as a stream, on which the steps are then fitted. None
            to fit the steps on `train`.
        parse: The rules of `data.parse`, by column. The steps get the parsed columns.

    Returns:
        The fitted chain, and the transformed rows of `train` with the label.
    """
    configs = tuple(StepConfig(s.name, s.columns, dict(s.params)) for s in steps)
    labels = label_columns(label)
    inputs = tuple(
        input_column(f, parse.get(f.name, "")) for f in train.schema if f.name not in labels
    )
    target = label_values(train, label)
    # With `split_blocks`, Arrow copies no column of numbers without nulls.
    raw = train.select([c.name for c in inputs]).to_pandas(split_blocks=True)
    frame = convert_inputs(inputs, raw, keep_integers=False, copy=copy)
    fitted: list[fitted_steps.FittedStep] = []
    for config in configs:
        transformed = None if stream is None else stream.after(inputs, fitted)
        with _step_errors(config):
            fitted_step = _fit_step(config, frame, label, target=target, stream=transformed)
            if fitted_step is not None:
                frame = _apply_checked(fitted_step, frame)
                fitted.append(fitted_step)
    if not fitted:
        # Integers stay integers, so the rows are converted again.
        empty = convert_inputs(inputs, raw.iloc[:0], keep_integers=True)
        unchanged = FittedChain(configs, label, inputs, (), empty)
        return unchanged, unchanged.transform(train.to_pandas(split_blocks=True), copy)
    if not len(frame.columns):
        raise InputError(PREPROCESSOR_KEY, "the preprocessing chain leaves no column to train on")
    empty = frame.iloc[:0].astype({n: _output_dtype(frame[n]) for n in frame.columns})
    chain = FittedChain(configs, label, inputs, tuple(fitted), empty)
    prepared = restore_dtypes(dict(frame.items()), empty, len(frame))
    values = {n: train.column(n).to_pandas() for n in labels if n in train.column_names}
    label_frame = pd.DataFrame(values, index=frame.index)
    return chain, chain.with_label(prepared, label_frame)


def label_values(train: pa.Table, label: Label | None) -> np.ndarray | None:
    """Return the values of the label, shape (n,), or (n, k) for k columns.

    None if the table has no label.
    """
    names = label_columns(label)
    if not names or not set(names) <= set(train.column_names):
        return None
    values: np.ndarray = train.select(names).to_pandas().to_numpy()
    return values[:, 0] if isinstance(label, str) else values


@contextlib.contextmanager
def _step_errors(step: StepConfig) -> Iterator[None]:
    """Convert any error in the `with` block to an `InputError` that names the step."""
    try:
        yield
    except InputError:
        raise
    except Exception as e:
        raise InputError(PREPROCESSOR_KEY, f"{step.name}: {one_line(e)}") from e


def _apply_checked(step: fitted_steps.FittedStep, frame: pd.DataFrame) -> pd.DataFrame:
    """Apply a step.

    If it is a user's step, check that its result for a row does not depend on other rows.
    """
    result = step.apply(frame)
    # Estimators of scikit-learn have fixed blocks.
    if isinstance(step, fitted_steps.FunctionStep) or (
        isinstance(step, fitted_steps.FittedEstimator) and not step.fixed_blocks
    ):
        estimator_fit.check_rowwise(step, frame, result)
    return result


def _fit_step(
    step: StepConfig,
    frame: pd.DataFrame,
    label: Label | None,
    target: np.ndarray | None,
    stream: RowStream | None,
) -> fitted_steps.FittedStep | None:
    """Fit a step on the rows that the previous steps returned.

    Return None if the step has no columns to process.

    Args:
        step: The step.
        frame: The rows that the previous steps returned. If there is a stream, the first rows.
        label: The label column.
        target: The label of each row of `frame`.
        stream: All rows that the previous steps returned. None if `frame` has all rows.
    """
    inputs = select_columns(frame, step.columns, _default_columns(step), step.name, label)
    if ":" in step.name:
        return _fit_reference(step, frame, inputs, target=target, stream=stream)
    inputs = _suitable_columns(step, frame, inputs)
    if not inputs:
        return None
    if stream is not None and step.name == "RobustScaler":
        raise InputError(PREPROCESSOR_KEY, "RobustScaler needs all rows in memory")

    def collect(function: Callable[[pd.DataFrame], Any]) -> Iterable[Any]:
        """Apply a function to all rows, or to each block; see `builtin_steps.Collect`."""
        return [function(frame)] if stream is None else stream.results(function)

    return fit_builtin(step.name, frame, inputs, params=step.params, collect=collect)


def _fit_reference(
    step: StepConfig,
    frame: pd.DataFrame,
    inputs: tuple[str, ...],
    *,
    target: np.ndarray | None,
    stream: RowStream | None,
) -> fitted_steps.FittedStep | None:
    """Fit a step `module:attr` on some columns; see `_fit_step`."""
    try:
        kind = references.resolve(step.name)
    except references.RefError as e:
        raise InputError(PREPROCESSOR_KEY, str(e)) from e
    if not inputs:
        return None
    if isinstance(kind, type) and hasattr(kind, "transform"):
        return estimator_fit.fit_estimator(
            kind, frame, inputs, params=step.params, target=target, stream=stream
        )
    if callable(kind) and not isinstance(kind, type):
        return fitted_steps.FunctionStep(kind, inputs, step.params)
    raise InputError(
        PREPROCESSOR_KEY, f"`{step.name}` is neither a function nor a class with `transform`"
    )


def _default_columns(step: StepConfig) -> str:
    """Return the keyword for the columns of a step without `columns`.

    It is "numeric", "categorical" or "all".
    """
    if ":" in step.name and not step.name.startswith("sklearn."):
        return "all"
    short = step.name.rpartition(":")[2]  # without the module of a class of scikit-learn
    if short == "SimpleImputer" and step.params.get("strategy", "mean") != "mean":
        return "all"
    reads_texts = short.endswith(("Encoder", "Categorizer", "Vectorizer", "LabelBinarizer"))
    return "categorical" if reads_texts else "numeric"


def _suitable_columns(
    step: StepConfig, frame: pd.DataFrame, inputs: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the selected columns that a built-in step can process.

    Other selected columns are left out.

    Raises:
        InputError: A column that is named in the `columns` of the step cannot be processed.
    """
    takes_numbers = step.name != "HashingVectorizer"
    takes_texts = step.name.endswith(("Encoder", "Categorizer", "Vectorizer"))
    if step.name == "SimpleImputer":
        strategy = step.params.get("strategy", "mean")
        fills_text = strategy == "constant" and isinstance(step.params.get("fill_value"), str)
        takes_numbers = not fills_text
        takes_texts = fills_text or strategy == "most_frequent"
    needs_values = step.name == "UniformKBinsDiscretizer"
    named = (step.columns,) if isinstance(step.columns, str) else step.columns or ()
    suitable = []
    for name in inputs:
        column = frame[name]
        fits = (takes_numbers and is_number(column)) or (takes_texts and is_categorical(column))
        if fits and not (needs_values and column.isna().all()):
            suitable.append(name)
        elif name in named:
            content = f"the type {column.dtype}" if column.notna().any() else "no value"
            raise InputError(
                PREPROCESSOR_KEY,
                f"{step.name} cannot be used for column `{name}`, which has {content}",
            )
    return tuple(suitable)


def data_key(fingerprint: str, steps: Iterable[Step]) -> str:
    """Return the name of prepared data: 16 hex digits.

    The digits depend only on the fingerprint of the data and on the steps.
    """
    plain = [{"name": s.name, "columns": s.columns, "params": dict(s.params)} for s in steps]
    text = json.dumps([fingerprint, plain], sort_keys=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()[:16]

"""A chain of preprocessing steps, fitted on the train split; what is fitted needs no Ray cluster to transform."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

from sweeps.core import references
from sweeps.core.errors import InputError, Problem
from sweeps.data.columns import PREPROCESSOR_KEY, input_column, is_categorical, is_number, select_columns
from sweeps.data.preprocessing import fitted_steps, portable_steps, ray_steps
from sweeps.data.preprocessing.fitted_chain import FittedChain, StepConfig, convert_inputs, one_line, restore_dtypes
from sweeps.data.preprocessing.to_portable import to_portable

if TYPE_CHECKING:
    from sweeps.space import Step


def _output_dtype(values: pd.Series) -> Any:
    """The dtype that a prepared column has for all rows to come: a number can always go missing, but for 0 and 1 in a byte."""
    if is_number(values) and values.dtype not in (np.dtype("uint8"), np.dtype("int8")):
        return np.dtype("float32") if values.dtype == np.dtype("float32") else np.dtype("float64")
    return values.dtype


def fit_chain(steps: Iterable[Step], train: pa.Table, label: str | None) -> FittedChain:
    """Fit steps, one after the other, on the train split.

    All are fitted in this process, but a preprocessor of the user's for Ray Data: that runs tasks, which need a free CPU. Ray must run
    for Ray's preprocessors. Without a step nothing is fitted, and Ray is not touched.

    Args:
        steps: each selects from the columns that the ones before it left.
        train: rows of the train split.
        label: its column, which no step sees; an estimator whose `fit` takes `y` gets it there.

    Raises:
        InputError: a step names an absent column, its parameters will not do, or it fails.
    """
    return fit_transform(steps, train, label)[0]


def fit_transform(steps: Iterable[Step], train: pa.Table, label: str | None) -> tuple[FittedChain, pd.DataFrame]:
    """As `fit_chain`, and what the fitted chain's `transform` makes of the rows of train, which need not pass through it again."""
    chain = tuple(StepConfig(s.name, s.columns, dict(s.params)) for s in steps)
    inputs = tuple(input_column(f) for f in train.schema if f.name != label)
    todo = [step for step in chain if not _is_label_encoder(step, label)]
    target = train.column(label).to_numpy() if label is not None and label in train.column_names else None
    raw = train.select([c.name for c in inputs]).to_pandas()
    frame = convert_inputs(inputs, raw, keep_integers=False)
    done: list[fitted_steps.FittedStep] = []
    for step in todo:
        stage = _fit_step(step, frame, label, target)
        if stage is not None:
            stage = to_portable(stage, frame)
            frame = _with_step_errors(step, functools.partial(_apply_checked, stage, frame))
            done.append(stage)
    rows = train.to_pandas()
    if not done:
        fitted = FittedChain(chain, label, inputs, (), convert_inputs(inputs, raw.iloc[:0], keep_integers=True))
        return fitted, fitted.transform(rows)
    if not len(frame.columns):
        raise InputError(Problem(PREPROCESSOR_KEY, "the chain leaves no column to train on"))
    empty = frame.iloc[:0].astype({n: _output_dtype(frame[n]) for n in frame.columns})
    fitted = FittedChain(chain, label, inputs, tuple(done), empty)
    return fitted, fitted.with_label(
        restore_dtypes({n: portable_steps.column_array(frame[n]) for n in frame.columns}, empty, len(frame)), rows
    )


def runs_tasks(steps: Iterable[Step]) -> bool:
    """Whether a chain is fitted by tasks of Ray's: whether a preprocessor for Ray Data is in it that is not Ray's own."""
    for step in steps:
        with contextlib.suppress(Exception):  # the fit will say what is wrong with it
            kind = references.resolve(step.name) if ":" in step.name else None
            if isinstance(kind, type) and _is_ray_preprocessor(kind) and not kind.__module__.startswith(ray_steps.RAY_PACKAGE):
                return True
    return False


def _is_label_encoder(step: StepConfig, label: str | None) -> bool:
    """Whether the step asks for what is always done."""
    if step.name != "LabelEncoder":
        return False
    named = step.params.get("label_column", step.columns if isinstance(step.columns, str) else None)
    if named not in (None, label):
        text = f"LabelEncoder: `{named}` is not the label (`{label}`); use OrdinalEncoder for a feature"
        raise InputError(Problem(PREPROCESSOR_KEY, text))
    return True


def _with_step_errors(step: StepConfig, call: Callable[[], Any]) -> Any:
    """What a call gives; whatever goes wrong in it is a problem of the step, in one line."""
    try:
        return call()
    except InputError:
        raise
    except Exception as e:
        raise InputError(Problem(PREPROCESSOR_KEY, f"{step.name}: {one_line(e)}")) from e


def _apply_checked(stage: fitted_steps.FittedStep, frame: pd.DataFrame) -> pd.DataFrame:
    whole = stage.apply(frame)
    if isinstance(stage, fitted_steps.FunctionStep) or (isinstance(stage, fitted_steps.FittedEstimator) and not stage.fixed_blocks):
        fitted_steps.check_rowwise(stage, frame, whole)
    return whole


def _fit_step(step: StepConfig, frame: pd.DataFrame, label: str | None, target: np.ndarray | None) -> fitted_steps.FittedStep | None:
    """The step fitted on the frame that reaches it; None if its selector selects nothing."""
    if ":" in step.name:
        try:
            kind = references.resolve(step.name)
        except references.RefError as e:
            raise InputError(Problem(PREPROCESSOR_KEY, str(e))) from e
        short = step.name.rpartition(":")[2]
    else:
        short = step.name
        kind = ray_steps.ray_class(short)
    inputs = select_columns(frame, step.columns, _default_columns(step, kind), step.name, label)
    if not inputs:
        return None
    if isinstance(kind, type) and _is_ray_preprocessor(kind):
        if step.name in ray_steps.NUMERIC:
            texts = [n for n in inputs if not is_number(frame[n])]
            if texts and not (step.name == "Concatenator" and step.params.get("flatten")):
                raise InputError(Problem(PREPROCESSOR_KEY, f"{step.name}: column `{texts[0]}` holds no numbers"))
        inputs = _suitable_columns(step, frame, inputs)
        return _with_step_errors(step, lambda: ray_steps.fit_ray(kind, short, frame, inputs, step.params)) if inputs else None
    if isinstance(kind, type) and hasattr(kind, "transform"):
        return _with_step_errors(step, lambda: fitted_steps.fit_estimator(kind, frame, inputs, step.params, target))
    if callable(kind) and not isinstance(kind, type):
        return fitted_steps.FunctionStep(kind, inputs, step.params)
    raise InputError(Problem(PREPROCESSOR_KEY, f"`{step.name}` is neither a function, nor a class with `transform`"))


def _is_ray_preprocessor(kind: type) -> bool:
    return any(base.__module__ == "ray.data.preprocessor" for base in kind.__mro__)


def _default_columns(step: StepConfig, kind: Any) -> str:
    """The selector of a step that names none."""
    short = step.name.rpartition(":")[2]
    own = ":" in step.name and not step.name.startswith("sklearn.")
    if own:
        return "all"
    if short == "SimpleImputer":
        return "numeric" if step.params.get("strategy", "mean") == "mean" else "all"
    if short.endswith(("Encoder", "Categorizer", "Binarizer")) and short != "Binarizer":
        return "categorical"
    if short.endswith(("Vectorizer", "Tokenizer")):
        return "categorical"
    return "numeric"


def _suitable_columns(step: StepConfig, frame: pd.DataFrame, inputs: tuple[str, ...]) -> tuple[str, ...]:
    """The selected columns that the step can work on; one that does not suit is left out, or refused if it was named."""
    value = step.params.get("fill_value")
    what = strategy = str(step.params.get("strategy", "mean"))
    if step.name == "SimpleImputer":
        number = strategy in ("mean", "most_frequent") or (strategy == "constant" and not isinstance(value, str))
        text = strategy != "mean" and (strategy != "constant" or isinstance(value, str))
        fits = [n for n in inputs if (number and is_number(frame[n])) or (text and is_categorical(frame[n]))]
        what = f"fill_value {value!r}" if strategy == "constant" else f"strategy {strategy}"
    elif step.name == "UniformKBinsDiscretizer":
        fits = [n for n in inputs if frame[n].notna().any()]
        what = "binning"
    else:
        return inputs
    named = (step.columns,) if isinstance(step.columns, str) else step.columns or ()
    wrong = [n for n in inputs if n not in fits and n in named]
    if wrong:
        has = f"of type {frame[wrong[0]].dtype}" if frame[wrong[0]].notna().any() else "without a value"
        raise InputError(Problem(PREPROCESSOR_KEY, f"{step.name}: {what} does not suit column `{wrong[0]}`, {has}"))
    return tuple(fits)


def data_key(fingerprint: str, steps: Iterable[Step]) -> str:
    """A short name for prepared data: equal for equal data and equal steps, 16 hex digits."""
    plain = [{"name": s.name, "columns": _json_value(s.columns), "params": _json_value(s.params)} for s in steps]
    text = json.dumps([fingerprint, plain], sort_keys=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _json_value(value: Any) -> Any:
    """Tuples as lists, keys as text, at any depth."""
    if isinstance(value, Mapping):
        return {str(k): _json_value(v) for k, v in value.items()}
    return [_json_value(v) for v in value] if isinstance(value, (list, tuple)) else value

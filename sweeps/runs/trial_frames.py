"""Frames of the trials of a sweep: one row for each trial, or one for each report."""

from collections.abc import Iterable

import pandas as pd
from pydantic import JsonValue

from sweeps.study.record_reader import Record
from sweeps.study.states import TrialState


def trials_frame(study: Record | None, running: bool) -> pd.DataFrame:
    """Return one row for each trial; see `Sweep.trials` for the columns.

    Args:
        study: The study; None if there is none yet.
        running: True if a process runs the sweep.
    """
    trials = study.trials if study is not None else ()
    value_columns = ["value"]
    if study is not None and len(study.objectives.objectives) > 1:
        value_columns = [f"value.{o.metric}" for o in study.objectives.objectives]
    columns: dict[str, pd.Series] = {
        "number": pd.Series([t.number for t in trials], dtype="int64"),
        "state": pd.Series([t.result.state_name(running) for t in trials], dtype="str"),
    }
    for i, name in enumerate(value_columns):
        columns[name] = pd.Series(
            [t.result.values[i] if i < len(t.result.values) else None for t in trials],
            dtype="float64",
        )
    for name in dict.fromkeys(name for t in trials for name in t.labels):
        columns[name] = _column([t.labels.get(name) for t in trials])
    columns["seconds"] = pd.Series([t.result.seconds for t in trials], dtype="float64")
    return pd.DataFrame(columns)


def curves_frame(trials: Iterable[TrialState]) -> pd.DataFrame:
    """Return one row for each report of the leading metric; see `Sweep.curves` for the columns."""
    rows = [(t.number, step, value) for t in trials for step, value in t.curve]
    frame = pd.DataFrame(rows, columns=["trial", "step", "value"])
    return frame.astype({"trial": "int64", "step": "int64", "value": "float64"})


def _column(values: list[JsonValue]) -> pd.Series:
    """Return a dimension's values as a column of type boolean, Int64, float64, str or object.

    None becomes a missing value.
    """
    kinds = {type(v) for v in values if v is not None}
    if kinds == {bool}:
        return pd.Series(values, dtype="boolean")
    if kinds == {int}:
        return pd.Series(values, dtype="Int64")
    if kinds <= {int, float}:
        return pd.Series(values, dtype="float64")
    return pd.Series(values, dtype="str" if kinds == {str} else "object")

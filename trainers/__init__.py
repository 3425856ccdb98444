"""Training loops for several frameworks.

Each file has a training loop for Ray Train, and a function that loads the trained model.

A trainer `NAME.py` has these parts:

    NAME.yaml               describes the trainer by the keys that
                            `sweeps/space/sections/trainer_definition.py` lists
    train_func(config)      the loop; `config` is the trial's `params`; all else comes from
                            Ray Train and `sweeps.trial.current()`
    load(folder)            returns the model of a checkpoint, an object with
                            `predict(DataFrame) -> array`

`predict` takes prepared features and returns a float64 array. For two classes, the array has the
probability of the second class, shape (n,). For more classes, it has the probabilities of all k
classes, shape (n, k). For a regression, it has values, shape (n,). For k label columns, it has
values, or the probability of 1, shape (n, k). Only the loop imports Ray, so a bundle predicts
without Ray.

The built-in loops use only functions that a user's loop can use too. This module has the functions
that the built-in loops share.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sweeps.core.errors import join_first
from sweeps.core.files.safe_names import safe_name
from sweeps.core.label_columns import GROUP_COLUMN, MULTIOUTPUT, label_columns
from sweeps.core.plugins.trainer_file import read
from sweeps.core.text.suggestions import did_you_mean

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from sweeps import trial


# A trial's `params`, or arguments of a framework or of a user's function, by name. The user decides
# the types of the values.
Params = dict[str, Any]


class LabeledRows(NamedTuple):
    """The rows of a split that a rank has.

    Attributes:
        features: The prepared features.
        label: Class codes as int64, or values as float64, shape (n,). For k label columns, shape
            (n, k).
        weight: Weight of each row, float64 of shape (n,). None if the rows have no weights.
        query: Number of each row's query; see `queries`. None if the rows have no queries.
    """

    features: pd.DataFrame
    label: np.ndarray
    weight: np.ndarray | None
    query: np.ndarray | None = None


def shard(split: str) -> pd.DataFrame:
    """Return this rank's prepared rows of "train" or "valid", with the label."""
    import ray.train

    return ray.train.get_dataset_shard(split).materialize().to_pandas()


def read_rows(split: str, cur: trial.Current) -> LabeledRows:
    """Read this rank's rows of a split.

    Args:
        split: "train" or "valid". Rows of valid have no weights.
        cur: The trial.
    """
    import numpy as np

    frame = shard(split)
    label = frame[cur.label].to_numpy(
        np.float64 if cur.task in ("regression", MULTIOUTPUT) else np.int64
    )
    weight = frame[cur.weight].to_numpy() if cur.weight in frame.columns else None
    removed = [*label_columns(cur.label), cur.weight, GROUP_COLUMN]
    return LabeledRows(frame.drop(columns=removed, errors="ignore"), label, weight, queries(frame))


def queries(frame: pd.DataFrame) -> np.ndarray | None:
    """Return the number of each row's query, starting with 0, shape (n,).

    Return None if the rows have no queries. The rows of a query must follow each other.
    """
    import numpy as np

    if GROUP_COLUMN not in frame.columns:
        return None
    groups = frame[GROUP_COLUMN].to_numpy()
    return np.cumsum(np.diff(groups, prepend=groups[:1]) != 0)


def fill_parameters(trainer: str, config: Params, max_t: int | None) -> Params:
    """Return the trainer's own parameters, with the defaults of those that `params` lacks.

    Args:
        trainer: Name of the trainer.
        config: The trial's `params`.
        max_t: The step at which the scheduler ends the trial, or None. The default of `epochs` is
            this step, or 20 if there is none.
    """
    rules = read(trainer)["parameters"]
    defaults = {name: rule.get("default") for name, rule in rules.items()}
    not_null = {name: config[name] for name in rules if config.get(name) is not None}
    return defaults | {"epochs": max_t or 20} | whole_numbers(not_null, rules)


def main_names(trainer: str, config: Params, reserved: Collection[str] = ()) -> Params:
    """Return a trial's `params` without nulls, and with the main name in place of each alias.

    Args:
        trainer: Name of the trainer.
        config: The trial's `params`.
        reserved: Parameters of the framework that the trainer sets itself.

    Raises:
        ValueError: A parameter is reserved.
    """
    definition = read(trainer)
    for name in reserved:
        if name in config:
            raise ValueError(f"params.{name} cannot be set, because `{trainer}` sets it itself")
    aliases = definition["aliases"]
    not_null = {
        aliases.get(name, name): value for name, value in config.items() if value is not None
    }
    return whole_numbers(not_null, definition["parameters"])


def without(params: Mapping[str, Any], names: Collection[str]) -> Params:
    """Return the parameters that have other names than these."""
    return {name: value for name, value in params.items() if name not in names}


def require_task(task: str | None) -> str:
    """Return the task unchanged. Raise an error if there is no task because the data has no label.

    Raises:
        ValueError: The task is None.
    """
    if task is None:
        raise ValueError("data.label is missing: this trainer needs a column to predict")
    return task


def report(metrics: dict[str, float], save: Callable[[Path], None] | None) -> None:
    """Report a step to Ray Train.

    Args:
        metrics: The metrics of the step.
        save: Function that writes a checkpoint into a folder. None to report without a checkpoint.
    """
    import ray.train

    if save is None:
        ray.train.report(metrics)
        return
    with tempfile.TemporaryDirectory() as folder:
        save(Path(folder))
        ray.train.report(metrics, checkpoint=ray.train.Checkpoint.from_directory(folder))


def require_metric(metric: str, reported: Iterable[str]) -> None:
    """Raise an error if the loop never reports a metric.

    Args:
        metric: Name of the metric.
        reported: Names of all metrics that the loop can report.

    Raises:
        ValueError: The loop does not report the metric. The message suggests the most similar name
            that the loop reports.
    """
    reported = list(reported)
    if metric not in reported:
        raise ValueError(
            f"this trainer does not report the metric `{metric}`; {did_you_mean(metric, reported)}"
        )


def require_numbers(features: pd.DataFrame, accepted_dtype: str = "") -> None:
    """Raise an error if prepared features are not numbers.

    Args:
        features: The columns of the training data.
        accepted_dtype: A pandas dtype that is accepted besides numbers and booleans, such as
            "category".

    Raises:
        ValueError: A column is not numeric. The message lists all such columns and suggests a
            solution.
    """
    others = [
        str(name)
        for name, dtype in features.dtypes.items()
        if dtype.kind not in "biuf" and str(dtype) != accepted_dtype
    ]
    if others:
        advice = (
            "name such a column in `columns` of an encoder (the default, `categorical`, leaves "
            "out dates), or drop it with `data.drop`"
        )
        raise ValueError(
            f"these columns are not numeric after preprocessing: {join_first(others)}; "
            f"this trainer reads only numbers, so {advice}"
        )


def float_array(features: pd.DataFrame) -> np.ndarray:
    """Return prepared features as float32 of shape (n, columns).

    Missing values become 0, and infinite values become the largest or the smallest float32.

    Raises:
        ValueError: A column is not numeric.
    """
    import numpy as np

    require_numbers(features)
    values = features.to_numpy(np.float32, na_value=np.nan)
    filled: np.ndarray = np.nan_to_num(values)
    return filled


def safe_names(columns: Iterable[Any], refused: str) -> list[str]:
    """Return column names that a framework accepts; see `safe_name`.

    Args:
        columns: Names of the columns.
        refused: The characters that the framework does not accept, as in `age_<30` after one-hot
            encoding.
    """
    pattern = re.compile(f"[{re.escape(refused)}]")
    return [safe_name(str(column), pattern) for column in columns]


def constraints_by_position(params: Params, columns: Iterable[Any]) -> Params:
    """Return the constraints of gradient boosting with positions in place of names of columns.

    A constraint that is a text is left out, because the framework reads it.

    Args:
        params: The trial's `params`.
        columns: Names of the columns in the prepared data.

    Raises:
        ValueError: A constraint names an unknown column.
    """
    positions = {str(name): position for position, name in enumerate(columns)}
    signs = params.get("monotone_constraints")
    groups = params.get("interaction_constraints")
    constraints: Params = {}
    try:
        if isinstance(signs, Mapping):
            constraints["monotone_constraints"] = [0] * len(positions)
            for name, sign in signs.items():
                constraints["monotone_constraints"][positions[str(name)]] = sign
        if isinstance(groups, list):
            constraints["interaction_constraints"] = [
                [name if isinstance(name, int) else positions[name] for name in group]
                for group in groups
            ]
    except KeyError as e:
        raise ValueError(
            f"a constraint names the column `{e.args[0]}`; the prepared data has: "
            f"{', '.join(positions)}"
        ) from None
    return constraints


def whole_numbers(params: Params, rules: Mapping[str, Params]) -> Params:
    """Convert floats such as 6.0 to integers where a framework accepts only integers.

    A domain such as `quniform` samples floats.

    Args:
        params: The trial's `params`.
        rules: JSON Schema of each parameter, by name.
    """
    converted = dict(params)
    for name, value in params.items():
        needs_integer = rules.get(name, {}).get("type") == "integer"
        if needs_integer and isinstance(value, float) and value.is_integer():
            converted[name] = int(value)
    return converted

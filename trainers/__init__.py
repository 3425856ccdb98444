"""What runs inside a trial: one file a framework, each an ordinary Ray Train loop with its loader.

A trainer `NAME.py` is these things:

    BACKEND                 the process group its ranks need: "torch", "xgboost", "lightgbm" or "none"; read without an import
    train_func(config)      the loop; `config` is the trial's `params`, all else it asks of Ray Train and `sweeps.trial.current()`
    READS_NUMBERS           optional: True refuses a chain that leaves other columns, before a trial is begun; read without an import
    NEEDS_LABEL             optional: True refuses a space without `data.label`; read without an import
    CHECKPOINT_BYTES        optional: how large a checkpoint can be, as arithmetic in a text; read without an import
    RESUME_FILES            optional: names of a checkpoint's files that only going on with the training needs; a bundle leaves them out
    load(folder)            the model of a checkpoint: an object with `predict(DataFrame) -> array`

`predict` takes prepared features and gives float64: P(second class) of shape (n,) for two classes, probabilities of shape
(n, k) for more, values of shape (n,) for a regression. Ray is imported by the loop alone: a bundle predicts without it.

Our loops have no privilege over a user's. What they share stands below: errors that a user meets in either of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from sweeps.core.suggestions import did_you_mean

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["reports_all", "require_metric", "require_numbers"]


def reports_all(config: Mapping[str, Any]) -> bool:
    """Return whether a trial reports every metric at every step (`params.report`), and not only those that are asked for.

    Raises:
        ValueError: `params.report` is neither of its two values.
    """
    value = config.get("report", "asked")
    if value not in ("asked", "all"):
        raise ValueError(f"params.report is {value!r}, but must be one of asked, all")
    return bool(value == "all")


def require_metric(metric: str, reported: Iterable[str], asked_as: str = "objective.metric") -> None:
    """Refuse a metric that is asked for and that the loop never reports.

    Raises:
        ValueError: with the nearest name that it does report.
    """
    reported = list(reported)
    if metric not in reported:
        raise ValueError(f"{asked_as} is `{metric}`, which this trainer does not report; {did_you_mean(metric, reported)}")


def require_numbers(features: pd.DataFrame, also: str = "") -> None:
    """Refuse prepared features that are not numbers.

    Args:
        features: the columns a model would be trained on.
        also: a NumPy/pandas `kind` letter accepted beside numbers and booleans, "O" for pandas' categories.

    Raises:
        ValueError: naming every such column, and the preprocessors that would make numbers of them.
    """
    text = [str(name) for name, dtype in features.dtypes.items() if not (dtype.kind in "biuf" or (also and str(dtype) == also))]
    if text:
        shown = ", ".join(text[:10]) + (f" and {len(text) - 10} more" if len(text) > 10 else "")
        raise ValueError(
            f"column{'s' if len(text) > 1 else ''} {shown}: not numbers, which is all this trainer reads; "
            "name them in `columns` of an encoder in `space.preprocessor` (an encoder's default, `categorical`, leaves out dates), "
            "or leave them out with `data.drop`"
        )

"""Convert the output of a model to a frame of predictions. Pure functions, no I/O."""

import numpy as np
import pandas as pd

from sweeps.core.errors import BundleError
from sweeps.core.label_columns import MULTILABEL

from .averaging import (
    class_probabilities,
    has_only_classes,
    invalid_output,
    to_numbers,
    without_extra_axis,
)
from .manifest import Manifest


def label_output(manifest: Manifest, output: np.ndarray, index: pd.Index) -> pd.DataFrame:
    """Translate a model's output to the original classes.

    Args:
        manifest: The bundle's manifest.
        output: The model's output. For a binary label, the probabilities of the second class, shape
            (n,), or of both classes, shape (n, 2). For a multiclass label, the probabilities of all
            k classes, shape (n, k). For both tasks, integer class codes of shape (n,) are also
            allowed. For regression, numbers of shape (n,). For several label columns, numbers, or
            the probability of 1, shape (n, k).
        index: The index of the n rows.

    Returns:
        A frame with the column `prediction`. If the output has probabilities, the frame also has a
        column `probability_<class>` for each class. For several label columns, see
        `Bundle.predict`.

    Raises:
        BundleError: The output has none of the allowed shapes, or a class code is out of range.
    """
    task = manifest.task
    output = without_extra_axis(np.asarray(output), task)
    if task is None and output.ndim == 2:
        return unlabeled_output(output, index)
    classes = manifest.classes or []
    if classes:
        numbers = class_probabilities(output, task, len(classes))
        # With two classes at 0.5 each, argmax chooses the first class, as XGBoost's `error` does
        chosen = np.array(classes, dtype=object)[numbers.argmax(axis=1)]
        predicted = pd.Series(chosen).infer_objects().to_numpy()
    else:
        numbers = to_numbers(output, task, 0)
        predicted = (numbers > 0.5).astype(np.int64) if task == MULTILABEL else numbers
    columns = [predicted] if predicted.ndim == 1 else list(predicted.T)
    names = manifest.prediction_names
    if len(columns) != len(names):
        raise invalid_output(output, task, f"shape (n, {len(names)})")
    frame = dict(zip(names, columns, strict=True))
    if manifest.probability_names and not has_only_classes(output, task, len(classes)):
        frame |= dict(zip(manifest.probability_names, numbers.T, strict=True))
    return pd.DataFrame(frame, index=index)


def unlabeled_output(output: np.ndarray | pd.DataFrame, index: pd.Index) -> pd.DataFrame:
    """Convert a model's output to a frame, if the data has no label.

    Raises:
        BundleError: The output is a single value instead of one value for each row.
    """
    if not output.ndim:
        raise BundleError(
            f"`predict` of the model returned a single value for {len(index)} rows, but must "
            "return one value for each row"
        )
    if isinstance(output, pd.DataFrame):
        return output.set_axis(index)
    if output.ndim == 2:
        return pd.DataFrame(output, index=index).add_prefix("prediction_")
    return pd.DataFrame({"prediction": list(output) if output.ndim > 2 else output}, index=index)

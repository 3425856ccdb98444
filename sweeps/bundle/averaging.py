"""Convert the outputs of models to numbers, and average them. Pure functions, no I/O."""

from collections.abc import Sequence

import numpy as np

from sweeps.core.errors import BundleError
from sweeps.core.label_columns import MULTILABEL, SEVERAL_COLUMNS


def without_extra_axis(output: np.ndarray, task: str | None) -> np.ndarray:
    """Return the output of a model with shape (n,) instead of (n, 1) for a single label column."""
    if output.ndim == 2 and output.shape[1] == 1 and task not in SEVERAL_COLUMNS:
        return output[:, 0]
    return output


def has_only_classes(output: np.ndarray, task: str | None, classes: int) -> bool:
    """Return whether a model predicts only classes, and no probabilities.

    Args:
        output: The model's output.
        task: See `Manifest.task`.
        classes: See `to_numbers`.
    """
    may_be_classes = task == MULTILABEL or (classes > 0 and output.ndim == 1)
    return may_be_classes and output.dtype.kind in "iub"  # integers and booleans


def class_probabilities(output: np.ndarray, task: str | None, classes: int) -> np.ndarray:
    """Return the probabilities of all k classes, shape (n, k).

    If the model predicts only class codes, the probability of the predicted class is 1.

    Args:
        output: The model's output for a binary or multiclass label, in one of the forms that
            `label_output` of `sweeps.bundle.predictions` allows.
        task: See `Manifest.task`.
        classes: Number of classes.

    Raises:
        BundleError: See `to_numbers`.
    """
    if has_only_classes(output, task, classes):
        codes = output.astype(np.int64)
        if ((codes < 0) | (codes >= classes)).any():
            raise invalid_output(output, task, f"class codes from 0 to {classes - 1}")
        return np.eye(classes)[codes]
    if task == "binary" and output.ndim == 1:
        second = output.astype(np.float64)
        return np.stack([1.0 - second, second], axis=1)
    if output.ndim != 2 or output.shape[1] != classes:
        raise invalid_output(output, task, f"shape (n, {classes})")
    return output.astype(np.float64)


def to_numbers(output: np.ndarray, task: str | None, classes: int) -> np.ndarray:
    """Convert the output of a model to numbers that can be averaged with those of other models.

    Args:
        output: The model's output for n rows, in one of the forms that `label_output` of
            `sweeps.bundle.predictions` allows.
        task: See `Manifest.task`.
        classes: Number of classes; 0 if the label has numbers, or if there are several label
            columns.

    Returns:
        Float64. Binary: the probability of the second class, shape (n,). Multiclass: the
            probabilities of all k classes, shape (n, k).
        Regression: numbers, shape (n,). Several label columns: numbers, or the probability of 1,
            shape (n, columns).

    Raises:
        BundleError: The output has none of the allowed shapes, or a class code is out of range.
    """
    output = without_extra_axis(np.asarray(output), task)
    if classes:
        probabilities = class_probabilities(output, task, classes)
        return probabilities[:, 1] if task == "binary" else probabilities
    dimensions, shape = (2, "shape (n, columns)") if task in SEVERAL_COLUMNS else (1, "shape (n,)")
    if output.ndim != dimensions:
        raise invalid_output(output, task, shape)
    return output.astype(np.float64)


def invalid_output(output: np.ndarray, task: str | None, allowed_form: str) -> BundleError:
    """Return the error to raise if the output of a model does not have the allowed form."""
    return BundleError(
        f"`predict` of the model returned an array of {output.dtype} with shape {output.shape}, "
        f"but for a {task} label the array must have {allowed_form}"
    )


def average(outputs: Sequence[np.ndarray], weights: Sequence[int]) -> np.ndarray:
    """Return the weighted mean of some outputs.

    The same outputs and weights in the same order give bit-identical results.

    Args:
        outputs: Results of `to_numbers`, at least one, all of the same shape.
        weights: Weight of each output, at least 1.
    """
    total = np.zeros_like(outputs[0], dtype=np.float64)
    for output, weight in zip(outputs, weights, strict=True):
        total += output * weight
    return total / sum(weights)

"""Average the outputs of several models. Pure functions, no I/O."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sweeps.core.errors import BundleError
from sweeps.core.label_columns import SEVERAL


def to_numbers(output: np.ndarray, task: str | None, classes: int) -> np.ndarray:
    """Convert the output of a model to numbers that can be averaged with those of other models.

    A model of a classification that predicts only class codes votes: the probability of its class
    is 1.

    Args:
        output: the model's output for n rows, in one of the forms that `label_output` of
            `sweeps.bundle.model` allows.
        task: see `Manifest.task`.
        classes: number of classes; 0 if the label has numbers, or if there are several label
            columns.

    Returns:
        Float64. Binary: the probability of the second class, shape (n,). Multiclass: the
            probabilities of all k classes, shape (n, k).
        Regression: numbers, shape (n,). Several label columns: numbers, or the probability of 1,
            shape (n, columns).

    Raises:
        BundleError: the output has none of the allowed shapes, or a class code is out of range.
    """
    output = np.asarray(output)
    if output.ndim == 2 and output.shape[1] == 1 and task not in SEVERAL:
        output = output[:, 0]
    if not classes:
        _require(output.ndim == (2 if task in SEVERAL else 1), output)
        return output.astype(np.float64)
    if output.ndim == 1 and output.dtype.kind in "iub":
        codes = output.astype(np.int64)
        _require(bool(((codes >= 0) & (codes < classes)).all()), output)
        output = np.eye(classes)[codes]
    if task == "binary" and output.ndim == 2:
        _require(output.shape[1] == 2, output)
        return output[:, 1].astype(np.float64)
    _require(
        output.ndim == 1 if task == "binary" else output.ndim == 2 and output.shape[1] == classes,
        output,
    )
    return output.astype(np.float64)


def _require(holds: bool, output: np.ndarray) -> None:
    if not holds:
        raise BundleError(
            f"`predict` returned an array of {output.dtype} with shape {output.shape}, which "
            "cannot be averaged"
        )


def average(outputs: Sequence[np.ndarray], weights: Sequence[int]) -> np.ndarray:
    """Return the weighted mean of some outputs.

    The same outputs and weights in the same order give bit-identical results.

    Args:
        outputs: results of `to_numbers`, at least one, all of the same shape.
        weights: weight of each output, at least 1.
    """
    total = np.zeros_like(outputs[0], dtype=np.float64)
    for output, weight in zip(outputs, weights, strict=True):
        total += output * weight
    return total / sum(weights)

"""Explain errors of a loop that come from a full GPU."""

from __future__ import annotations

import re

# torch has an exception for a full GPU. It and LightGBM say the first text, XGBoost says one of the
# next two, and CatBoost the last one.
_CLASS = ("torch", "OutOfMemoryError")
_SAYS = re.compile(
    r"\bCUDA\b.{0,20}out of memory|cudaErrorMemoryAllocation|Memory allocation error on "
    r"worker|Out of memory\. Requested",
    re.IGNORECASE,
)


def explain(error: BaseException) -> str | None:
    """Return a line for a trial's error text: how a trial needs less GPU memory, or gets more.

    Args:
        error: Exception that the loop raised.

    Returns:
        The line. None if the error does not say that the memory of a GPU is full.
    """
    if not _is_full_gpu(error):
        return None
    return (
        "space.scaling.resources_per_worker: the memory of the GPU is full; use smaller values "
        "for the dimensions that need memory, such "
        "as the batch size, or give each worker a larger part of a GPU with `GPU`"
    )


def _is_full_gpu(error: BaseException) -> bool:
    classes = [(cls.__module__.partition(".")[0], cls.__name__) for cls in type(error).__mro__]
    return _CLASS in classes or _SAYS.search(str(error)) is not None

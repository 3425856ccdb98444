"""Explain errors of a loop that come from a full GPU."""

from __future__ import annotations

import re

# torch and LightGBM say the first text, XGBoost one of the next two, and CatBoost the last one.
_SAYS = re.compile(
    r"\b(CUDA|HIP)\b.{0,20}out of memory|cudaErrorMemoryAllocation|Memory allocation error on "
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
    if _SAYS.search(str(error)) is None:
        return None
    return (
        "space.scaling.resources_per_worker: the memory of the GPU is full; use smaller values "
        "for the dimensions that need memory, such "
        "as the batch size, or give each worker a larger part of a GPU with `GPU`"
    )

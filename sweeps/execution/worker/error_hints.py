"""Explain errors of a loop: a full GPU, and missing values in the prepared data."""

import contextlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

MOST_COLUMNS = 5  # the largest number of columns that a message lists for each dataset
# torch and LightGBM say the first text, XGBoost one of the next two, and CatBoost the last one.
_MEMORY_FULL = re.compile(
    r"\b(CUDA|HIP)\b.{0,20}out of memory|cudaErrorMemoryAllocation|Memory allocation error on "
    r"worker|Out of memory\. Requested",
    re.IGNORECASE,
)
_MISSING = re.compile(r"\bnans?\b|missing values?|null values?", re.IGNORECASE)


def gpu_memory_hint(error: BaseException) -> str | None:
    """Return a line for a trial's error text: how a trial needs less GPU memory, or gets more.

    Args:
        error: Exception that the loop raised.

    Returns:
        The line. None if the error does not say that the memory of a GPU is full.
    """
    if _MEMORY_FULL.search(str(error)) is None:
        return None
    return (
        "space.scaling.resources_per_worker: the memory of the GPU is full; use smaller values "
        "for the dimensions that need memory, such as the batch size, or give each worker a larger "
        "part of a GPU with `GPU`"
    )


def missing_values_hint(
    error: BaseException, shards: Mapping[str, Any], steps: Iterable[Any]
) -> str | None:
    """Return a line for the error text of a trial, about missing values.

    It names the prepared columns that have missing values, and a preprocessing step that fills
    them.

    Args:
        error: Exception that the loop raised.
        shards: Maps the name of each dataset that the loop has read to its shard.
        steps: Preprocessing steps of the trial.

    Returns:
        The line. None if the error does not mention missing values, or if no shard has missing
        values.
    """
    if not _MISSING.search(str(error)):
        return None
    missing: dict[str, list[str]] = {}
    with contextlib.suppress(Exception):  # A failure here must not hide the loop's own error.
        for name, shard in shards.items():
            frame = shard.materialize().to_pandas()
            if columns := [f"`{column}`" for column in frame.columns if frame[column].isna().any()]:
                missing[name] = columns
    if not missing:
        return None
    # Each worker imports this module, and `sweeps.space` takes long to import.
    from sweeps.space.parse.key_suggestions import UNSEEN

    places = []
    for name, columns in missing.items():
        more = " and more" * (len(columns) > MOST_COLUMNS)
        places.append(f"{', '.join(columns[:MOST_COLUMNS])}{more} in {name}")
    advice = f"add `SimpleImputer` to `space.preprocessor`; for categories, write {UNSEEN}"
    if any(step.name == "OrdinalEncoder" for step in steps) and "train" not in missing:
        advice = (
            "`OrdinalEncoder` turns a category that the train split does not have into a missing "
            f"value; write {UNSEEN}"
        )
    where = "; ".join(places)
    return f"space.preprocessor: the preprocessor leaves missing values in {where}; {advice}"

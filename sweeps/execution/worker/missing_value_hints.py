"""Explain errors of a loop that come from missing values in the prepared data."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

_SAYS = re.compile(r"\bnans?\b|missing values?|null values?", re.IGNORECASE)


def explain(error: BaseException, shards: Mapping[str, Any], steps: Iterable[Any]) -> str | None:
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
    if not _SAYS.search(str(error)):
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
    from sweeps.space.parse.key_suggestions import (
        UNSEEN,
    )

    where = "; ".join(
        f"{', '.join(columns[:5])}{' and more' if len(columns) > 5 else ''} in {name}"
        for name, columns in missing.items()
    )
    if any(step.name == "OrdinalEncoder" for step in steps) and "train" not in missing:
        way = (
            "`OrdinalEncoder` turns a category that the train split does not have into a missing "
            f"value; write {UNSEEN}"
        )
    else:
        way = f"add `SimpleImputer` to `space.preprocessor`; for categories, write {UNSEEN}"
    return f"space.preprocessor: the preprocessor leaves missing values in {where}; {way}"

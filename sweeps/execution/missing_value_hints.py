"""The way out of a loop's error about missing values, which are left by the preprocessor."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from sweeps.space.synonyms import UNSEEN

_SAYS = re.compile(r"\bnans?\b|missing values?|null values?", re.IGNORECASE)


def explain(error: BaseException, shards: Mapping[str, Any], steps: Iterable[Any]) -> str | None:
    """Say in a line which prepared columns have missing values, and which step prevents it; None for an error of another kind.

    Args:
        error: what the loop raised.
        shards: those that the loop has read, by name.
        steps: the trial's chain.
    """
    if not _SAYS.search(str(error)):
        return None
    missing: dict[str, list[str]] = {}
    with contextlib.suppress(Exception):  # the loop's own error matters more
        for name, shard in shards.items():
            frame = shard.materialize().to_pandas()
            if columns := [f"`{column}`" for column in frame.columns if frame[column].isna().any()]:
                missing[name] = columns
    if not missing:
        return None
    where = "; ".join(f"{', '.join(columns[:5])}{' and more' if len(columns) > 5 else ''} in {name}" for name, columns in missing.items())
    if any(step.name == "OrdinalEncoder" for step in steps) and "train" not in missing:
        way = f"`OrdinalEncoder` leaves a category missing that the train split does not have; write {UNSEEN}"
    else:
        way = f"add `SimpleImputer` to `space.preprocessor`, or for categories {UNSEEN}"
    return f"space.preprocessor: it leaves missing values in {where}; {way}"

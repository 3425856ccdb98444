"""The data of a trial after its preprocessing steps, as the data actor returns it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import ray

if TYPE_CHECKING:
    import pandas as pd
    from ray.data import Dataset

# Maps "train" to one reference for each rank, and "valid" to one reference that all ranks share.
Shards = Mapping[str, tuple[ray.ObjectRef["Dataset"], ...]]


@dataclass(frozen=True)
class PreparedData:
    """References to prepared rows in Ray's object store.

    Attributes:
        key: Name of the prepared data.
        shards: Maps each number of workers to references of Ray Datasets. Empty mappings if the
            space names no data.
        check: Reference of the first prepared rows of valid, without the label. None if the space
            names no data.
        size: Size of the prepared rows in bytes, with all folds and parts.
        rows: Number of rows of train; 0 if the number is unknown.
        weight: Name of the column of train with the weights of the rows. None if the rows have no
            weights.
        stream: True if the references are to lazy Ray Datasets, one for train and one for valid.
        folds: For a cross-validation, the data of each fold. The other attributes then describe the
            first fold.
        unread: Why a trainer cannot read the rows, by the label of the trainer. Trainers that can
            read them are left out.
        parts: If the scheduler counts rows, the data of each step below the last one, by step.
    """

    key: str
    shards: Mapping[int, Shards]
    check: ray.ObjectRef[pd.DataFrame] | None
    size: int = 0
    rows: int = 0
    weight: str | None = None
    stream: bool = False
    folds: tuple[PreparedData, ...] = ()
    unread: Mapping[str, str] = field(default_factory=dict)
    parts: Mapping[int, PreparedData] = field(default_factory=dict)

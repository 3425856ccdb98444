"""Prepared data that a worker keeps for later trials."""

from typing import Any

import ray
import ray.train
from ray.data import DataIterator, Dataset

from sweeps.data.columns import tables
from sweeps.execution.messages import Data, Ranks
from sweeps.execution.ray_apis import ray_data_adapter

# Other names of the dataset `valid`, as in Ray's tutorials. If the space file names a dataset by
# such a name, this dataset has precedence.
ALIASES = {"validation": "valid", "val": "valid", "eval": "valid", "evaluation": "valid"}


class DatasetCache:
    """Prepared data that a worker keeps for later trials that use the same data.

    The worker also keeps the objects that loops have built from this data.

    Attributes:
        data: The prepared data.
        check: DataFrame that a loop gets as `Current.check`; None if the space names no data.
        opened: This rank's shard of each dataset that a loop has read, by the dataset's name.
        cached_objects: Objects that loops keep with `Current.cached`, by name.
        folds: The data of each fold of a cross-validation; () without a cross-validation.
        parts: The data of each step at which the loop trains on a part of the train rows; {} unless
            the scheduler counts rows.
    """

    def __init__(self, data: Data):
        self.data = data
        self.check = ray.get(data.check) if data.check is not None else None
        self.opened: dict[str, DataIterator] = {}
        self.cached_objects: dict[str, Any] = {}
        self.folds = tuple(map(DatasetCache, data.folds))
        self.parts = {step: DatasetCache(part) for step, part in data.parts.items()}

    def dataset(self, name: str) -> Dataset:
        """Return a lazy Ray Dataset with all rows of a split, if the data is streamed."""
        return ray.get(self.data.shards[name][0])

    def resolve_name(self, name: str) -> str:
        """Return the name of a dataset: `name`, or "valid" if `name` is one of its aliases.

        Raises:
            KeyError: The space has no dataset of this name, or the dataset is the test split.
        """
        shards = self.data.shards
        name = name if name in shards else ALIASES.get(name, name)
        if not shards:
            raise KeyError(
                f"no dataset `{name}`: the space file has no section `data`; add this section, or "
                "read the data in the loop"
            )
        if name == "test" and name not in shards:
            raise KeyError(
                "the search never sees the split `test`; evaluate on `valid`. After the sweep, "
                "the winner is scored on `test`"
            )
        if name not in shards:
            raise KeyError(f"no dataset `{name}`; the datasets are: {', '.join(shards)}")
        return name

    def shard(self, name: str, ranks: Ranks) -> DataIterator:
        """Return the shard of a dataset that belongs to a rank.

        Args:
            name: Name of the dataset; see `resolve_name`.
            ranks: Place of this process in its gang.

        Raises:
            KeyError: See `resolve_name`.
        """
        name = self.resolve_name(name)
        if self.data.stream:
            return ray_data_adapter.Stream(self.dataset(name))
        if name not in self.opened:
            shards = self.data.shards[name]
            # There is a shard for each rank, or a single one for all ranks.
            dataset = ray.get(shards[ranks.rank % len(shards)])
            if self.data.cut_by_ranks and name == "train":
                dataset = tables.rows_of_rank(dataset, ranks.world_size, ranks.rank)
            self.opened[name] = ray_data_adapter.Shard(dataset.materialize())
        return self.opened[name]

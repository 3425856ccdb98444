"""Decide which data of earlier trials a worker keeps cached. The functions are pure.

The pool decides for all ranks of a gang together. XGBoost would fail if one rank built its data
matrix anew while another rank reused a cached matrix.
"""

from collections.abc import Mapping

from sweeps.core.resources import Shape

# Fraction of a gang's share of the memory that may hold cached data of earlier trials.
SHARE = 0.25
# Memory of a cluster that does not state it, in bytes.
DEFAULT_MEMORY = 8 << 30

# (key, size in bytes) of the prepared data in a worker's cache, the most recently used last. See
# `data_key_of` for the form of a key.
CachedData = tuple[tuple[str, int], ...]


def data_key_of(cache_key: str) -> str:
    """Return the key of prepared data from the key of a rank's shard in a worker's cache.

    `Attempt` makes these keys: `KEY|NUMBER OF RANKS|RANK`.
    """
    return cache_key.partition("|")[0]


def data_to_keep(cached: CachedData, key: str, size: int, capacity: float) -> CachedData:
    """Return which prepared data a worker keeps in its cache when a trial starts.

    Args:
        cached: The data in the cache.
        key: Key of the data of the trial that starts. This data is always kept.
        size: Size of this data in bytes.
        capacity: Size that all data in the cache may have together, in bytes. The least recently
            used data is dropped first.
    """
    free = capacity - size
    chosen = [(key, size)]
    for other, other_size in reversed(cached):
        if other == key:
            continue
        if other_size > free:
            break
        chosen.append((other, other_size))
        free -= other_size
    return tuple(reversed(chosen))


def cache_capacity(cluster: Mapping[str, float], shape: Shape) -> float:
    """Return how many bytes of cached data each worker of a gang may keep.

    The workers of a gang together may fill the fraction `SHARE` of the gang's part of the cluster's
    memory. This part is the gang's fraction of the CPUs or of the GPUs, whichever is larger. For
    example, a gang with 1/4 of the cluster's CPUs and 1/2 of its GPUs has 1/2 of the memory.

    Args:
        cluster: Name and amount of each resource of the cluster; `memory` is in bytes.
        shape: Number of workers of the gang, and the resources of each.
    """
    fractions = [
        shape.total.get(name, 0.0) / cluster[name] for name in ("CPU", "GPU") if cluster.get(name)
    ]
    gang_memory = cluster.get("memory", DEFAULT_MEMORY) * min(1.0, max(fractions, default=1.0))
    return SHARE * gang_memory / shape.workers

"""Decide which data of earlier trials a worker keeps cached. The functions are pure.

The pool decides for all ranks of a gang together. XGBoost would fail if one rank built its data
matrix anew while another rank reused a cached matrix.
"""

from collections.abc import Mapping

from sweeps.core.resources import Shape

# Fraction of a gang's share of the memory that may hold cached data of earlier trials.
SHARE = 0.25

Kept = tuple[tuple[str, int], ...]


def keep(kept: Kept, key: str, size: int, room: float) -> Kept:
    """Return which prepared data a worker keeps in its cache when a trial starts.

    Args:
        kept: (key, size in bytes) of all prepared data in the cache, the most recently used last.
            The result has the same form.
        key: Key of the data of the trial that starts. This data is always kept.
        size: Size of this data in bytes.
        room: Size that all kept data may have together, in bytes. The least recently used data is
            dropped first.
    """
    left = room - size
    chosen = [(key, size)]
    for other, bytes_ in reversed(kept):
        if other == key:
            continue
        if bytes_ > left:
            break
        chosen.append((other, bytes_))
        left -= bytes_
    return tuple(reversed(chosen))


def room_of(cluster: Mapping[str, float], shape: Shape) -> float:
    """Return how many bytes of cached data each worker of a gang may keep.

    The workers of a gang together may fill the fraction `SHARE` of the gang's part of the cluster's
    memory. This part is the gang's fraction of the CPUs or of the GPUs, whichever is larger. For
    example, a gang with 1/4 of the cluster's CPUs and 1/2 of its GPUs has 1/2 of the memory.

    Args:
        cluster: Name and amount of each resource of the cluster; `memory` is in bytes.
        shape: Number of workers of the gang, and the resources of each.
    """
    part = max(
        (
            shape.total.get(name, 0.0) / cluster[name]
            for name in ("CPU", "GPU")
            if cluster.get(name)
        ),
        default=1.0,
    )
    return SHARE * cluster.get("memory", 8 << 30) * min(1.0, part) / shape.workers

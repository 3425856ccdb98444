"""Decide which data of earlier trials a worker keeps cached. The functions are pure.

The pool decides for all ranks of a gang together. If one rank rebuilt a matrix that another rank reused, XGBoost would fail.
"""

from __future__ import annotations

from collections.abc import Mapping

from sweeps.core.resources import Shape

# Fraction of a gang's share of the memory that may hold cached data of earlier trials.
SHARE = 0.25

Kept = tuple[tuple[str, int], ...]


def keep(kept: Kept, key: str, size: int, room: float) -> Kept:
    """Return (key, bytes) of the data that a worker keeps when a trial starts, with the most recently used data last.

    Args:
        kept: (key, bytes) of the data that earlier trials used, with the most recently used data last.
        key: Key of the starting trial's data, which is always kept.
        size: Size of the starting trial's data in bytes.
        room: Bytes that all kept data may take together. The least recently used data is dropped first.
    """
    left, chosen = room - size, [(key, size)]
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

    A gang may use the fraction `SHARE` of its part of the cluster's memory. The part is the larger of the gang's fraction of the CPUs and
    its fraction of the GPUs.

    Args:
        cluster: Name and amount of each resource of the cluster; `memory` is in bytes.
        shape: Shape of the gang.
    """
    part = max((shape.total.get(name, 0.0) / cluster[name] for name in ("CPU", "GPU") if cluster.get(name)), default=1.0)
    return SHARE * cluster.get("memory", 8 << 30) * min(1.0, part) / shape.workers

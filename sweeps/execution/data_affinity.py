"""What a gang keeps of the data of earlier trials: pure, and decided once for all its ranks.

With one rank rebuilding a matrix that another reused, XGBoost's collective died on sizes that made no sense.
"""

from __future__ import annotations

from collections.abc import Mapping

from sweeps.core.resources import Shape

# Of the memory that falls to a gang, this part may hold what was built from the data of earlier trials.
SHARE = 0.25

Kept = tuple[tuple[str, int], ...]


def keep(kept: Kept, key: str, size: int, room: float) -> Kept:
    """What is kept when a trial on the data `key` begins, the latest last.

    Args:
        kept: (key, bytes) of the data that earlier trials used, the latest last.
        key: of this trial's data, which is always kept.
        size: its bytes.
        room: bytes for all of them together.
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
    """The bytes a worker of a gang may keep: its share, by CPUs, of a part of the cluster's memory.

    Args:
        cluster: all resources there are; Ray counts `memory` in bytes.
        shape: of the gang.
    """
    part = max((shape.total.get(name, 0.0) / cluster[name] for name in ("CPU", "GPU") if cluster.get(name)), default=1.0)
    return SHARE * cluster.get("memory", 8 << 30) * min(1.0, part) / shape.workers

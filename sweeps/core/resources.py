"""Shapes and what fits: pure arithmetic on resources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

# Ray rounds resources to 1/10000; a sum of fractions must not be refused for its last bit.
EPSILON = 1e-6
# Idle gangs stay, with their processes, while others work: as many CPUs of them as there are, within these bounds.
MOST_PARKED = 8
MEMORY_A_PARKED_CPU = 2 * 2**30


@dataclass(frozen=True)
class Shape:
    """What a trial needs to run.

    Attributes:
        workers: processes, at least 1.
        per_worker: resource name and amount for each of them, such as (("CPU", 1.0), ("GPU", 0.5)); sorted.
        backend: the process group between them: "torch", "xgboost", "lightgbm" or "none".
    """

    workers: int
    per_worker: tuple[tuple[str, float], ...]
    backend: str = "none"

    @property
    def total(self) -> dict[str, float]:
        """The resources of all workers together."""
        return {name: amount * self.workers for name, amount in self.per_worker}

    def __str__(self) -> str:
        each = ", ".join(f"{amount:g} {name}" for name, amount in self.per_worker)
        return f"{self.workers} worker{'s' if self.workers > 1 else ''} × {each or 'nothing'}"


def shape_of(scaling: Mapping[str, Any], backend: str) -> Shape:
    """The shape that a filled-in `scaling` section asks for.

    A worker gets 1 CPU unless `resources_per_worker` says otherwise, and 1 GPU with `use_gpu: true`, as in Ray Train.
    """
    per_worker = {str(k): float(v) for k, v in (scaling.get("resources_per_worker") or {}).items()}
    if scaling.get("use_gpu"):
        per_worker.setdefault("GPU", 1.0)
    per_worker.setdefault("CPU", 1.0)
    kept = tuple(sorted((k, v) for k, v in per_worker.items() if v > 0))
    return Shape(int(scaling.get("num_workers", 1)), kept, backend)


# What a trial costs, by the names under which every trial has it as a metric.
COSTS = ("seconds", "cpu_seconds", "gpu_seconds")


def costs(seconds: float, workers: int, per_worker: Mapping[str, float]) -> dict[str, float]:
    """What a trial has cost: seconds on its workers, and these times the CPUs and the GPUs that it held.

    >>> costs(10.0, 2, {"CPU": 1.0, "GPU": 0.5})
    {'seconds': 10.0, 'cpu_seconds': 20.0, 'gpu_seconds': 10.0}
    """
    held = (seconds * workers * per_worker.get(name, 0.0) for name in ("CPU", "GPU"))
    return dict(zip(COSTS, (seconds, *held), strict=True))


def fits(need: Mapping[str, float], have: Mapping[str, float]) -> bool:
    """Whether `have` holds `need`."""
    return all(amount <= have.get(name, 0.0) + EPSILON for name, amount in need.items() if amount > 0)


def minus(have: Mapping[str, float], taken: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """What is left of `have` after everything in `taken`."""
    left = dict(have)
    for need in taken:
        for name, amount in need.items():
            left[name] = left.get(name, 0.0) - amount
    return left


def at_once(shape: Shape, cluster: Mapping[str, float]) -> int:
    """How many gangs of one shape the cluster holds side by side; 0 if it never fits."""
    if not fits(shape.total, cluster):
        return 0
    counts = [int((cluster[name] + EPSILON) // amount) for name, amount in shape.total.items() if amount > 0]
    part = dict(shape.per_worker).get("GPU", 0.0)
    if 0 < part < 1:  # a worker's part lies on one GPU: of 0.6 two GPUs hold two, not three
        counts.append(int(cluster["GPU"] + EPSILON) * int((1 + EPSILON) // part) // shape.workers)
    return min(counts) if counts else 1_000_000


def concurrency(shapes: Iterable[Shape], cluster: Mapping[str, float], max_trials: int) -> int:
    """`max_concurrent_trials: auto`: as many as fit of the smallest shape, no more than there are trials."""
    return max(1, min(max_trials, max(at_once(shape, cluster) for shape in shapes)))


def parked_cpus(cpus: int, memory: float) -> int:
    """How many CPUs idle gangs may hold beyond those there are, on a machine with so much memory, in bytes."""
    return max(0, int(min(cpus, MOST_PARKED, memory // MEMORY_A_PARKED_CPU - cpus)))

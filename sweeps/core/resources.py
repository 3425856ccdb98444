"""Shapes of trials, and arithmetic with resources.

The shape of a trial is the number of its workers and the resources of each worker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .json_values import Number, Text, Workers

# Tolerance for sums of fractions. Ray itself rounds resources to 1/10000.
EPSILON = 1e-6
# Resources that Ray counts in bytes.
BYTES = ("memory", "object_store_memory")
# Idle workers may hold CPUs in addition to the CPUs of the machine; see `parked_cpus`. This is the
# largest number of such additional CPUs.
MOST_PARKED_CPUS = 8
# The bytes of memory that the machine must have for each CPU, both for its own CPUs and for the
# additional ones.
BYTES_PER_CPU = 2 * 2**30
# The number of trials that fit on a cluster if they need no resources.
MOST_TRIALS = 1_000_000
# Key of an elastic number of workers: `num_workers: {elastic: [1, 4]}`.
ELASTIC = "elastic"


@dataclass(frozen=True)
class Shape:
    """Number of workers of a trial, their resources and their backend.

    In an elastic shape, the number of workers is a range, because it may change while the trial
    runs.

    Attributes:
        workers: Number of worker processes, at least 1. For an elastic shape, the smallest number.
        per_worker: Name and amount of each resource of one worker, sorted by name, such as
            `(("CPU", 1.0), ("GPU", 0.5))`.
        backend: Kind of process group that connects the workers: "torch", "xgboost", "lightgbm",
            "tensorflow", "jax", "none", or the `module:attr` of a user's own backend.
        most: Largest number of workers of an elastic shape; None if the number is fixed.
    """

    workers: Workers
    per_worker: tuple[tuple[Text, Number], ...]
    backend: Text = "none"
    most: Workers | None = None

    @property
    def total(self) -> dict[str, float]:
        """Resources of all workers together, by name.

        An elastic shape counts with its smallest number of workers.
        """
        return {name: amount * self.workers for name, amount in self.per_worker}

    @property
    def sizes(self) -> range:
        """The numbers of workers that the trial may have: one, or a range for an elastic shape."""
        return range(self.workers, (self.most or self.workers) + 1)

    @property
    def scaling(self) -> dict[str, Any]:
        """The shape as the section `scaling` of a space file.

        Its keys are `num_workers` and `resources_per_worker`.
        """
        number = self.workers if self.most is None else {ELASTIC: [self.workers, self.most]}
        return {"num_workers": number, "resources_per_worker": dict(self.per_worker)}

    def of_size(self, workers: int) -> Shape:
        """Return the same shape with this fixed number of workers. The result is not elastic."""
        return replace(self, workers=workers, most=None)

    def __str__(self) -> str:
        worker = ", ".join(f"{amount:g} {name}" for name, amount in self.per_worker)
        return f"{workers_text(self.scaling['num_workers'])} × {worker or 'nothing'}"


def number_text(num_workers: int | Mapping[str, Sequence[int]]) -> str:
    """Return the value of `num_workers` as a short text without a noun.

    >>> number_text(2), number_text({"elastic": [1, 4]})
    ('2', '1 to 4')
    """
    if isinstance(num_workers, Mapping):
        return " to ".join(map(str, num_workers[ELASTIC]))
    return str(num_workers)


def workers_text(num_workers: int | Mapping[str, Sequence[int]]) -> str:
    """Return the value of `num_workers` as a text with the noun "worker".

    >>> workers_text(1), workers_text({"elastic": [1, 4]})
    ('1 worker', '1 to 4 workers')
    """
    return f"{number_text(num_workers)} worker{'s' * (num_workers != 1)}"


def shape_of(scaling: Mapping[str, Any], backend: str) -> Shape:
    """Return the shape that the section `scaling` describes for one trial.

    As in Ray Train, a worker has 1 CPU, and 1 GPU with `use_gpu: true`, unless
    `resources_per_worker` sets other amounts.

    Args:
        scaling: The section, in which each dimension is already replaced by the trial's sampled
            value.
        backend: Backend of the trainer.
    """
    per_worker = {str(k): float(v) for k, v in (scaling.get("resources_per_worker") or {}).items()}
    if scaling.get("use_gpu"):
        per_worker.setdefault("GPU", 1.0)
    per_worker.setdefault("CPU", 1.0)
    positive = tuple(sorted((k, v) for k, v in per_worker.items() if v > 0))
    number = scaling.get("num_workers", 1)
    least, most = number[ELASTIC] if isinstance(number, Mapping) else (number, None)
    return Shape(int(least), positive, backend, most)


def jax_connects(shape: Shape) -> bool:
    """Return whether Ray's `JaxConfig` can connect the workers of a shape.

    If the shape may have several workers, each of them must have TPUs or a whole number of GPUs, at
    least 1.
    """
    per_worker = dict(shape.per_worker)
    gpus = per_worker.get("GPU", 0.0)
    has_whole_gpus = gpus >= 1 and gpus.is_integer()
    return shape.sizes[-1] == 1 or has_whole_gpus or per_worker.get("TPU", 0.0) > 0


# Metrics that every trial has: its costs.
COSTS = ("seconds", "cpu_seconds", "gpu_seconds")


def costs(
    seconds: float, worker_seconds: float, per_worker: Mapping[str, float]
) -> dict[str, float]:
    """Return the costs of a trial, in seconds, by the names in `COSTS`.

    They are the trial's wall time, and the CPU and GPU time of its workers.

    Args:
        seconds: Wall time of the trial, in seconds.
        worker_seconds: Wall time of each worker, in seconds, summed over all workers.
        per_worker: Amount of each resource of one worker, by name.

    >>> costs(10.0, 20.0, {"CPU": 1.0, "GPU": 0.5})
    {'seconds': 10.0, 'cpu_seconds': 20.0, 'gpu_seconds': 10.0}
    """
    amounts = (worker_seconds * per_worker.get(name, 0.0) for name in ("CPU", "GPU"))
    return dict(zip(COSTS, (seconds, *amounts), strict=True))


def fits_into(need: Mapping[str, float], available: Mapping[str, float]) -> bool:
    """Return whether `available` has at least as much of each resource as `need` names."""
    return all(
        amount <= available.get(name, 0.0) + EPSILON for name, amount in need.items() if amount > 0
    )


def subtract(
    available: Mapping[str, float], taken: Iterable[Mapping[str, float]]
) -> dict[str, float]:
    """Subtract all resources in `taken` from `available`, and return what remains.

    An amount may become negative.
    """
    rest = dict(available)
    for need in taken:
        for name, amount in need.items():
            rest[name] = rest.get(name, 0.0) - amount
    return rest


def count_fitting_workers(
    per_worker: Mapping[str, float], available: Mapping[str, float], most: int
) -> int:
    """Return how many workers fit into the available resources, but not more than `most`.

    Args:
        per_worker: Resources of each worker.
        available: The available resources.
        most: Largest possible result.
    """
    counts = [
        int((available.get(name, 0.0) + EPSILON) // amount)
        for name, amount in per_worker.items()
        if amount > 0
    ]
    gpu_share = per_worker.get("GPU", 0.0)
    # A worker's share must be on one GPU: two GPUs hold two workers with 0.6 each, not three.
    if 0 < gpu_share < 1:
        gpus = available.get("GPU", 0.0)
        on_whole_gpus = int(gpus + EPSILON) * int((1 + EPSILON) // gpu_share)
        counts.append(on_whole_gpus + int(gpus % 1 // gpu_share))
    return max(0, min([most, *counts]))


def count_fitting_trials(shape: Shape, cluster: Mapping[str, float]) -> int:
    """Return how many trials of one shape fit on the cluster at once, but at most `MOST_TRIALS`.

    Args:
        shape: The shape of all these trials.
        cluster: All resources of the cluster.
    """
    most_workers = MOST_TRIALS * shape.workers
    return count_fitting_workers(dict(shape.per_worker), cluster, most_workers) // shape.workers


def missing_resources(
    shape: Shape, cluster: Mapping[str, float], nodes: Sequence[Mapping[str, float]]
) -> str | None:
    """Describe the resources that the cluster lacks for a shape, such as `4 GPU (there is 1)`.

    Return None if the shape fits on the cluster.

    Args:
        shape: The shape of a trial.
        cluster: All resources of the cluster.
        nodes: Resources of each node of the cluster.
    """
    missing = [
        _missing_text(name, needed, cluster.get(name, 0.0))
        for name, needed in shape.total.items()
        if not fits_into({name: needed}, cluster)
    ]
    if missing:
        return ", ".join(missing)
    # The cluster has enough, but each worker must fit on one node.
    fitting = sum(count_fitting_trials(Shape(1, shape.per_worker), node) for node in nodes)
    if fitting >= shape.workers:
        return None
    worker = ", ".join(f"{amount:g} {name}" for name, amount in shape.per_worker)
    where = "this node" if len(nodes) == 1 else f"these {len(nodes)} nodes"
    return f"{shape.workers} × {worker} (there is room for {fitting} on {where})"


def _missing_text(name: str, needed: float, existing: float) -> str:
    """Format the needed and the existing amount of a resource.

    Examples are `4 GPU (there is 1)` and `20 GB of memory (there are 16 GB)`.
    """
    if name in BYTES:
        return f"{needed / 1e9:.4g} GB of {name} (there are {existing / 1e9:.4g} GB)"
    return f"{needed:g} {name} (there {'is' if existing == 1 else 'are'} {existing:g})"


def auto_concurrency(shapes: Iterable[Shape], cluster: Mapping[str, float], max_trials: int) -> int:
    """Return how many trials run at once with `max_concurrent_trials: auto`.

    This is the number of trials that fit on the cluster if all trials have the smallest shape. The
    result is at least 1.

    Args:
        shapes: The shapes that trials of the space may have.
        cluster: All resources of the cluster.
        max_trials: Largest possible result.
    """
    return max(1, min(max_trials, max(count_fitting_trials(shape, cluster) for shape in shapes)))


def parked_cpus(cpus: int, memory: float) -> int:
    """Return how many CPUs sweeps reports to Ray in addition to the real ones.

    Idle workers occupy the additional CPUs, so that these workers can stay open while other trials
    run. The number is limited, because each idle worker uses memory.

    Args:
        cpus: Number of CPUs of the machine.
        memory: Memory of the machine in bytes.
    """
    return max(0, int(min(cpus, MOST_PARKED_CPUS, memory // BYTES_PER_CPU - cpus)))


def stream_cpus(cpus: float) -> int:
    """Return how many CPUs are reserved for Ray Data if the data is streamed.

    The number is an eighth of all CPUs, and at least 1.

    On a machine on which sweeps starts Ray, these CPUs are reported to Ray in addition to the real
    ones, so that trials can still use all CPUs. On a running cluster, workers never hold these
    CPUs.

    Args:
        cpus: Number of CPUs of the machine or of the cluster.
    """
    return max(1, int(cpus // 8))

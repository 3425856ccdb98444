"""Find the shapes that can never run on a cluster.

A shape is a number of workers and the resources of each worker.
"""

from collections.abc import Mapping, Sequence

from sweeps.core.errors import Problem
from sweeps.core.host.host_resources import detect
from sweeps.core.resources import missing_resources
from sweeps.space import Space

# Amount to use for a resource that is not checked. No space file asks for this much.
PLENTY = 2.0**60
# If more shapes than this number do not fit, the error names only the smallest of these shapes.
MAX_LINES = 3


def find_infeasible_shapes(
    space: Space, cluster: Mapping[str, float], nodes: Sequence[Mapping[str, float]] = ()
) -> list[Problem]:
    """Return a problem for each shape that can never run.

    If more than `MAX_LINES` shapes can never run, return only one problem, which names the smallest
    of these shapes.

    Args:
        space: The search space.
        cluster: Total resources of the cluster, by name.
        nodes: Resources of each node, by name. If empty, the cluster is treated as one node.
    """
    infeasible = {}  # the resources that a shape lacks, as text
    for shape in space.shapes:
        missing = missing_resources(shape, cluster, nodes or (cluster,))
        if missing:
            infeasible[shape] = missing
    place = space.place("scaling")
    if len(infeasible) <= MAX_LINES:
        return [
            Problem(place, f"scaling: {shape} can never run, because it needs {missing}")
            for shape, missing in infeasible.items()
        ]
    smallest = min(infeasible, key=lambda shape: sum(shape.total.values()))
    text = (
        f"{len(infeasible)} of the {len(space.shapes)} shapes can never run; the smallest of "
        f"these, {smallest}, needs {infeasible[smallest]}"
    )
    return [Problem(place, f"scaling: {text}")]


def find_infeasible_shapes_here(space: Space, cpus: int | None = None) -> list[Problem]:
    """Return the problems of shapes that need more CPUs than this machine has.

    See `find_infeasible_shapes`.

    This function needs no running Ray. Resources other than CPUs are checked after Ray has started,
    because Ray detects them more reliably.

    Args:
        space: The search space.
        cpus: Number of CPUs that the sweep may use. None means all CPUs of this machine.
    """
    resources = {name: PLENTY for shape in space.shapes for name, _ in shape.per_worker}
    resources["CPU"] = detect()["CPU"] if cpus is None else float(cpus)
    return find_infeasible_shapes(space, resources)

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
    short = [
        (shape, why)
        for shape in space.shapes
        if (why := missing_resources(shape, cluster, nodes or (cluster,)))
    ]
    place = space.place("scaling")
    if len(short) <= MAX_LINES:
        return [
            Problem(place, f"scaling: {shape} can never run, because it needs {why}")
            for shape, why in short
        ]
    shape, why = min(short, key=lambda pair: sum(pair[0].total.values()))
    all_of_them = f"{len(short)} of the {len(space.shapes)} shapes can never run"
    return [Problem(place, f"scaling: {all_of_them}; the smallest of these, {shape}, needs {why}")]


def find_infeasible_shapes_here(space: Space, cpus: int | None = None) -> list[Problem]:
    """Return the problems of shapes that need more CPUs than this machine has.

    See `find_infeasible_shapes`.

    This function needs no running Ray. Resources other than CPUs are checked after Ray has started,
    because Ray detects them more reliably.

    Args:
        space: The search space.
        cpus: Number of CPUs that the sweep may use. None means all CPUs of this machine.
    """
    others = {name: PLENTY for shape in space.shapes for name, _ in shape.per_worker}
    return find_infeasible_shapes(
        space, others | {"CPU": detect()["CPU"] if cpus is None else float(cpus)}
    )

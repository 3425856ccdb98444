"""Find the shapes that can never run on a cluster. A shape is a number of workers and the resources of each worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sweeps.core.errors import Problem
from sweeps.core.host_resources import detect
from sweeps.core.resources import Shape, at_once, fits
from sweeps.space import Space

# Amount to use for a resource that is not checked. No space file asks for this much.
PLENTY = 2.0**60
# If more shapes than this number do not fit, the error names only the smallest of these shapes.
MAX_LINES = 3


def find_infeasible_shapes(
    space: Space,
    cluster: Mapping[str, float],
    nodes: Sequence[Mapping[str, float]] = (),
    can_provide: Callable[[Shape], bool] | None = None,
) -> list[Problem]:
    """Return a problem for each shape that can never run.

    If more than `MAX_LINES` shapes can never run, return only one problem, which names the smallest of these shapes.

    Args:
        space: The search space.
        cluster: Total resources of the cluster, by name.
        nodes: Resources of each node, by name. If empty, the cluster is treated as one node.
        can_provide: Returns whether the cluster can start nodes for a shape that does not fit now. None if it cannot start nodes.
    """
    short = [(shape, why) for shape in space.shapes if (why := _short(shape, cluster, nodes or (cluster,)))]
    if can_provide is not None:
        short = [(shape, why) for shape, why in short if not can_provide(shape)]
    place = space.place("scaling")
    if len(short) <= MAX_LINES:
        return [Problem(place, f"scaling: {shape} can never run, because it needs {why}") for shape, why in short]
    shape, why = min(short, key=lambda found: sum(found[0].total.values()))
    all_of_them = f"{len(short)} of the {len(space.shapes)} shapes can never run"
    return [Problem(place, f"scaling: {all_of_them}; the smallest of these, {shape}, needs {why}")]


def find_infeasible_shapes_here(space: Space, cpus: int | None = None) -> list[Problem]:
    """Return the problems of shapes that need more CPUs than this machine has; see `find_infeasible_shapes`.

    This function needs no running Ray. Resources other than CPUs are checked after Ray has started, because Ray detects them more reliably.

    Args:
        space: The search space.
        cpus: Number of CPUs that the sweep may use. None means all CPUs of this machine.
    """
    others = {name: PLENTY for shape in space.shapes for name, _ in shape.per_worker}
    return find_infeasible_shapes(space, others | {"CPU": detect()["CPU"] if cpus is None else float(cpus)})


def _short(shape: Shape, cluster: Mapping[str, float], nodes: Sequence[Mapping[str, float]]) -> str | None:
    """Describe the resources that the cluster lacks for a shape, such as `4 GPU (there is 1)`; None if the shape fits on the cluster."""
    lacking = [_both(amount, name, cluster.get(name, 0.0)) for name, amount in shape.total.items() if not fits({name: amount}, cluster)]
    if lacking:
        return ", ".join(lacking)
    room = sum(at_once(Shape(1, shape.per_worker), node) for node in nodes)
    if room >= shape.workers:
        return None
    each = ", ".join(f"{amount:g} {name}" for name, amount in shape.per_worker)
    where = "this node" if len(nodes) == 1 else f"these {len(nodes)} nodes"
    return f"{shape.workers} × {each} (there is room for {room} on {where})"


def _both(needed: float, name: str, there: float) -> str:
    """Format the needed and the existing amount of a resource, such as `4 GPU (there is 1)`."""
    return f"{needed:g} {name} (there {'is' if there == 1 else 'are'} {there:g})"

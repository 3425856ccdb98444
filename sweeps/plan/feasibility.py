"""What can never run, with both numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sweeps.core.errors import Problem
from sweeps.core.host_resources import detect
from sweeps.core.resources import Shape, at_once, fits
from sweeps.space import Space

# More than any space file asks for, of what is not looked at.
PLENTY = 2.0**60
# So many shapes that do not fit have a line each; of more the smallest is told.
TOLD = 3


def never_fits(space: Space, cluster: Mapping[str, float], nodes: Sequence[Mapping[str, float]] = ()) -> list[Problem]:
    """A problem for each shape of the space that the cluster can never hold; one for all where they are many.

    Args:
        space: what is searched.
        cluster: all resources there are.
        nodes: those of each node; of one machine they are the cluster.
    """
    short = [(shape, why) for shape in space.shapes if (why := _short(shape, cluster, nodes or (cluster,)))]
    place = space.place("scaling")
    if len(short) <= TOLD:
        return [Problem(place, f"scaling: {shape} needs {why}: it can never run") for shape, why in short]
    shape, why = min(short, key=lambda found: sum(found[0].total.values()))
    all_of_them = f"{len(short)} of its {len(space.shapes)} shapes can never run"
    return [Problem(place, f"scaling: {all_of_them}; the smallest of these, {shape}, needs {why}")]


def never_fits_here(space: Space) -> list[Problem]:
    """The same before a Ray is started on this machine, for its CPUs alone: of all else Ray knows better what there is."""
    others = {name: PLENTY for shape in space.shapes for name, _ in shape.per_worker}
    return never_fits(space, others | {"CPU": detect()["CPU"]})


def _short(shape: Shape, cluster: Mapping[str, float], nodes: Sequence[Mapping[str, float]]) -> str | None:
    """What a shape needs and is not there; None if it fits."""
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
    return f"{needed:g} {name} (there {'is' if there == 1 else 'are'} {there:g})"

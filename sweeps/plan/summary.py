"""The Plan: everything a space and a machine's resources tell of a sweep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sweeps.core.errors import InputError
from sweeps.core.resources import at_once, concurrency, parked_cpus
from sweeps.plan import cells as visited
from sweeps.plan.cells import Expected
from sweeps.plan.chains import Fits, fits, variants
from sweeps.plan.disk import Disk, Table, disk
from sweeps.plan.feasibility import PLENTY, never_fits
from sweeps.plan.gangs import Gangs, gangs
from sweeps.plan.steps import Steps, lengths, steps, whole
from sweeps.search.cells import Cell
from sweeps.search.schedulers.rules import scheduler_of
from sweeps.space import Dimension, Space

# What every node has some of and nobody says: Ray counts bytes of these, which a plan does not look at unless it is told.
BYTES = ("memory", "object_store_memory")


@dataclass(frozen=True)
class Plan:
    """What a sweep will come to.

    Attributes:
        space: what is planned.
        resources: of the machine, by name.
        counts: trials of each cell of `space.cells`, without their repeats, which are in all that follows.
        repeats: at least and at most, of all trials.
        even: whether the counts are certain; a grid inside an option of a choice makes them a guess.
        shapes: every shape, with its trials.
        side_by_side: how many gangs of each shape the machine holds.
        at_once: trials that run at once, as `run` would choose it.
        room: how many the machine holds at most; `limits.max_concurrent_trials` may ask for more, and the rest waits.
        gangs: how many are started.
        variants: of the data, as far as they are finitely many; None for any number of them.
        fits: distinct chains that are fitted, each once a variant of the data.
        steps: what the scheduler spends; None where only the loop ends a trial.
        disk: what the checkpoints take.
    """

    space: Space
    resources: Mapping[str, float]
    counts: tuple[int, ...]
    repeats: tuple[int, int]
    even: bool
    shapes: tuple[Expected, ...]
    side_by_side: tuple[int, ...]
    at_once: int
    room: int
    gangs: Gangs
    variants: int | None
    fits: Fits
    steps: Steps | None
    disk: Disk

    @property
    def trials(self) -> int:
        """Trials of all cells, without their repeats."""
        return sum(self.counts)

    @property
    def cells(self) -> list[tuple[Cell, int]]:
        """Each cell and its trials; empty without a grid."""
        return [(cell, count) for cell, count in zip(self.space.cells, self.counts, strict=True) if cell]

    def to_json(self) -> dict[str, Any]:
        """Everything as plain data; null where it is not known beforehand."""
        return {
            "name": self.space.name,
            "file": str(self.space.path),
            "resources": dict(self.resources),
            "algorithm": {"name": self.space.search.algorithm, "reason": self.space.algorithm_reason},
            "dimensions": [{"name": d.name, "domain": d.kind, "values": domain(d)} for d in self.space.dimensions],
            "cells": [{"values": dict(cell), "trials": count} for cell, count in self.cells],
            "trials": self.trials,
            "repeats": {"least": self.repeats[0], "most": self.repeats[1]},
            "shapes": [
                {
                    "workers": e.shape.workers,
                    "resources_per_worker": dict(e.shape.per_worker),
                    "trials": {"least": e.least, "most": e.most},
                    "at_once": beside,
                }
                for e, beside in zip(self.shapes, self.side_by_side, strict=True)
            ],
            "max_concurrent_trials": self.at_once,
            "gangs": self.gangs.started,
            "variants": self.variants,
            "fits": {"least": self.fits.least, "most": self.fits.most},
            "steps": asdict(self.steps) if self.steps else None,
            "disk": {**asdict(self.disk), "total": self.disk.total},
            "trackers": [tracker.name for tracker in self.space.trackers],
        }


def domain(dim: Dimension) -> list[Any] | dict[str, Any]:
    """What a dimension takes: the keys of its options; or its lowest and highest value, or its mean and deviation."""
    if dim.options:
        return [option.key for option in dim.options]
    ends = {"mean": dim.mean, "sd": dim.sd} if dim.lower is None else {"lowest": dim.lower, "highest": dim.highest}
    return ends | ({} if dim.q in (None, 1) else {"q": dim.q})


def plan(
    space: Space, resources: Mapping[str, float], table: Table | None = None, free: int | None = None, memory: float | None = None
) -> Plan:
    """What a sweep of this space will come to on a machine.

    Args:
        space: what is searched.
        resources: the machine's, such as `{"CPU": 8, "GPU": 2}`.
        table: what is known of the data, for the disk; None for what the space file tells.
        free: bytes free where the sweep's folder will be.
        memory: the machine's, in bytes; enough by default.

    Raises:
        InputError: a shape needs more than there is.
    """
    cluster = dict.fromkeys(BYTES, PLENTY) | dict(resources)
    if problems := never_fits(space, cluster):
        raise InputError(problems)
    trials = space.limits.max_trials
    counts = visited.visits(space.cells, trials)
    scheduler, again = scheduler_of(space.scheduler), space.repeats.count - 1
    ending = whole(scheduler, trials, space.search.seed)
    shapes = visited.repeated(visited.expected(space, counts), again, ending)
    room = concurrency(space.shapes, cluster, trials)
    limit = min(space.limits.max_concurrent_trials or room, trials)
    parked = parked_cpus(int(cluster.get("CPU", 0)), PLENTY if memory is None else memory)
    stay = cluster | {"CPU": cluster.get("CPU", 0.0) + parked}
    return Plan(
        space=space,
        resources=dict(resources),
        counts=tuple(counts),
        repeats=(again * ending, again * trials),
        even=not visited.uneven(space.sections),
        shapes=shapes,
        side_by_side=tuple(min(at_once(e.shape, cluster), trials) for e in shapes),
        at_once=limit,
        room=room,
        gangs=gangs(space, shapes, lengths(scheduler, trials, limit), cluster, limit, stay),
        variants=variants(space),
        fits=fits(space, counts),
        steps=steps(scheduler, trials, min(limit, room), space.search.seed, again),
        disk=disk(space, table, free),
    )

"""Collect all predictions for a sweep in a `Plan`."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from sweeps.core.errors import InputError
from sweeps.core.resources import BYTES, Shape, auto_concurrency, count_fitting_trials
from sweeps.data.sources.ingest import Ingest
from sweeps.data.sources.ingest import choose as choose_ingest
from sweeps.search.cells import Cell
from sweeps.search.configurations import list_configurations, most_trials
from sweeps.search.plugins import planned_scheduler
from sweeps.space import Dimension, Space

from .feasibility import PLENTY, find_infeasible_shapes
from .plan_counts import (
    FitCount,
    count_fits,
    count_shapes,
    count_variants,
    has_conditional_grid,
    trials_per_cell,
)
from .steps import StepCount, count_steps

if TYPE_CHECKING:
    from pydantic import JsonValue

    from sweeps.search.earlier_trials import EarlierSweep


@dataclass(frozen=True)
class ShapePlan:
    """Predictions for the trials of one shape.

    Attributes:
        shape: The number of workers of a trial, and the resources of each worker.
        trials: Largest possible number of trials of this shape.
        at_once: Number of these trials that fit on the machine at the same time.
    """

    shape: Shape
    trials: int
    at_once: int


@dataclass(frozen=True)
class Plan:
    """Predictions for one sweep.

    Attributes:
        space: The search space.
        resources: Resources of the machine, by name.
        counts: Number of trials of each cell of `space.cells`, without repeats. `shapes` and
            `steps` include the repeats.
        repeats: Largest possible number of repeats of all trials together.
        counts_exact: True if `counts` is exact. If a grid is inside an option of a choice, `counts`
            is approximate.
        shapes: The trials of every shape.
        concurrency: Largest number of trials that are started at the same time:
            `limits.max_concurrent_trials`, or `fitting_trials` if this is `auto`, but at most
            `limits.max_trials`.
        fitting_trials: Number of trials that fit on the machine at the same time if all have the
            smallest shape. If `concurrency` is larger, the other trials wait for resources.
        variants: Number of different `data` sections that trials may have; None if there are very
            many.
        fits: Number of preprocessing chains to fit. A chain that is used with several `data`
            sections is counted once for each of them.
        steps: Number of steps that all trials take under the scheduler; None if the scheduler has
            no `max_t`.
        ingest: Choice between memory and stream; None if the space names no data.
        earlier: The earlier sweeps from which the sweep learns (`search.from`).
    """

    space: Space
    resources: Mapping[str, float]
    counts: tuple[int, ...]
    repeats: int
    counts_exact: bool
    shapes: tuple[ShapePlan, ...]
    concurrency: int
    fitting_trials: int
    variants: int | None
    fits: FitCount
    steps: StepCount | None
    ingest: Ingest | None
    earlier: tuple[EarlierSweep, ...]

    @functools.cached_property
    def configurations(self) -> int | None:
        """Number of configurations without a known result.

        None if they are not listed (see `list_configurations`).
        """
        listed = list_configurations(self.space)
        return None if listed is None else len(listed)

    @property
    def trials(self) -> int:
        """Number of trials of all cells, without repeats."""
        return sum(self.counts)

    @property
    def cells(self) -> list[tuple[Cell, int]]:
        """(cell, number of trials) of each grid cell; [] if the space has no grid."""
        return [
            (cell, count) for cell, count in zip(self.space.cells, self.counts, strict=True) if cell
        ]

    def to_json(self) -> dict[str, JsonValue]:
        """Return the plan as JSON data, with null for unknown numbers."""
        return {
            "name": self.space.name,
            "file": str(self.space.path),
            "resources": dict(self.resources),
            "algorithm": {
                "name": self.space.search.algorithm,
                "reason": self.space.algorithm_reason,
            },
            "learns_from": [sweep.summary() for sweep in self.earlier],
            "dimensions": [
                {"name": d.name, "domain": d.kind, "values": domain(d)}
                for d in self.space.dimensions
            ],
            "cells": [{"values": dict(cell), "trials": count} for cell, count in self.cells],
            "trials": self.trials,
            "configurations": self.configurations,
            "repeats": self.repeats,
            "shapes": [
                {
                    "workers": planned.shape.scaling["num_workers"],
                    "resources_per_worker": dict(planned.shape.per_worker),
                    "trials": planned.trials,
                    "at_once": planned.at_once,
                }
                for planned in self.shapes
            ],
            "max_concurrent_trials": self.concurrency,
            "variants": self.variants,
            "ingest": asdict(self.ingest) if self.ingest else None,
            "fits": asdict(self.fits),
            "steps": asdict(self.steps) if self.steps else None,
            "trackers": [tracker.name for tracker in self.space.trackers],
        }


def domain(dim: Dimension) -> list[JsonValue] | dict[str, JsonValue]:
    """Return the domain of a dimension as JSON data.

    Returns:
        For a grid or a choice, the list of the options' keys. For a normal distribution, `mean` and
        `sd`. For other dimensions, the `lowest` and the `highest` value. A step other than 1 is
        added as `q`.
    """
    if dim.options:
        return [option.key for option in dim.options]
    values: dict[str, JsonValue] = {"lowest": dim.lower, "highest": dim.highest}
    if dim.lower is None:
        values = {"mean": dim.mean, "sd": dim.sd}
    if dim.q not in (None, 1):
        values["q"] = dim.q
    return values


def plan(
    space: Space,
    resources: Mapping[str, float],
    memory: float | None = None,
    earlier: tuple[EarlierSweep, ...] = (),
) -> Plan:
    """Predict the course of a sweep on a machine: its trials, fits and steps.

    Args:
        space: The search space.
        resources: Resources of the machine, such as `{"CPU": 8, "GPU": 2}`.
        memory: Memory of the machine in bytes; None if the memory is not limited.
        earlier: The earlier sweeps that `search.from` names.

    Raises:
        InputError: A shape can never run on this machine.
    """
    # Users rarely give these resources in `--resources`, so they are checked only if they are
    # known.
    known = {} if memory is None else {"memory": memory}
    cluster = dict.fromkeys(BYTES, PLENTY) | known | dict(resources)
    if problems := find_infeasible_shapes(space, cluster):
        raise InputError(problems)
    trials = most_trials(space)
    counts = trials_per_cell(space.cells, trials)
    repeats = space.repeats.count - 1
    shapes = count_shapes(space, [count * (1 + repeats) for count in counts])
    fitting = auto_concurrency(space.shapes, cluster, trials)
    concurrency = min(space.limits.max_concurrent_trials or fitting, trials)
    scheduler = planned_scheduler(space.scheduler)
    return Plan(
        space=space,
        resources=dict(resources),
        counts=tuple(counts),
        repeats=repeats * trials,
        counts_exact=not has_conditional_grid(space.sections),
        shapes=tuple(
            ShapePlan(shape, count, at_once=min(count_fitting_trials(shape, cluster), trials))
            for shape, count in shapes.items()
        ),
        concurrency=concurrency,
        fitting_trials=fitting,
        variants=count_variants(space),
        fits=count_fits(space, counts),
        steps=count_steps(scheduler, trials, min(concurrency, fitting), repeats),
        ingest=choose_ingest(space) if space.data.is_named else None,
        earlier=earlier,
    )

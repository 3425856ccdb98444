"""The Space: what a valid file says."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sweeps.core.resources import Shape
from sweeps.space.conditions import ABSENT
from sweeps.space.domains import Dimension
from sweeps.space.enumeration import any_key, ways
from sweeps.space.section_models import (
    Checkpoints,
    Constraint,
    DataSpec,
    Limits,
    Objective,
    Repeats,
    SchedulerSpec,
    Search,
    TrainerSpec,
    variant_of,
)
from sweeps.space.step_names import Step
from sweeps.space.templates import Template, children, dimensions, enclosing_options, fill
from sweeps.space.tracker_section import DEFAULT as DEFAULT_TRACKERS
from sweeps.space.tracker_section import TrackerSpec
from sweeps.space.trainer_definition import TrainerDefinition


@dataclass(frozen=True)
class Space:
    """A validated space file.

    Attributes:
        name: of the sweep; made of letters, digits, `.`, `_` and `-`.
        path: the file, absolute.
        text: the file as read, before the overrides.
        overrides: `key.path=YAML value`, applied in order.
        trainer: what trains.
        data: what it trains on. What is tuned in it is here the first source, no column dropped and all rows; see `variant`.
        objectives: what is optimised, one or several.
        constraints: what a feasible trial keeps.
        search: how it is searched.
        scheduler: what stops a trial early.
        repeats: how often each configuration is trained.
        limits: what may be spent.
        checkpoints: which are kept.
        sections: the templates of `params`, `preprocessor` and `scaling`, in the order of the file; before them that of `data`, with the
            keys that are tuned there, if any are.
        dimensions: all of them in the order of the file, nested ones after the one they stand in.
        cells: every combination of the grids: name -> key of an option; `({},)` without a grid. A grid inside an option of another
            grid is there only together with that option, and one with a condition only where that holds; one inside an option of a
            choice is always there, as which option is chosen is not known yet, and unused where another is.
        shapes: every distinct shape that a trial can have.
        places: where everything in the file stands, by dotted path; see `place`.
        algorithm_reason: why sweeps chose the search algorithm; "" if the file names it.
        trackers: Trackers that record the sweep.
        trainer_definition: what the trainer's module says about the trainer.
        notes: what the user should change in the file or its modules, although it works.
    """

    name: str
    path: Path
    text: str
    overrides: tuple[str, ...]
    trainer: TrainerSpec
    data: DataSpec
    objectives: tuple[Objective, ...]
    constraints: tuple[Constraint, ...]
    search: Search
    scheduler: SchedulerSpec
    repeats: Repeats
    limits: Limits
    checkpoints: Checkpoints
    sections: dict[str, Template]
    dimensions: tuple[Dimension, ...]
    cells: tuple[dict[str, Any], ...]
    shapes: tuple[Shape, ...]
    places: dict[str, str] = field(default_factory=dict, compare=False, repr=False)
    algorithm_reason: str = field(default="", compare=False, repr=False)
    trackers: tuple[TrackerSpec, ...] = DEFAULT_TRACKERS
    trainer_definition: TrainerDefinition = field(default_factory=TrainerDefinition, compare=False, repr=False)
    notes: tuple[str, ...] = field(default=(), compare=False, repr=False)

    @property
    def has_mlflow(self) -> bool:
        """Whether MLflow records the sweep."""
        return any(tracker.name == "mlflow" for tracker in self.trackers)

    @property
    def objective(self) -> Objective:
        """The only objective, or the first."""
        return self.objectives[0]

    @property
    def always(self) -> tuple[Dimension, ...]:
        """The dimensions that every trial has: those that stand in no option of another and have no condition."""
        outer = enclosing_options(self.sections)
        return tuple(d for d in self.dimensions if not d.when and outer[d.name] is None)

    def place(self, key: str) -> str:
        """Where a key of the file stands, as `file:line:column` or `--set ...`; of an absent one, what is nearest around it.

        Args:
            key: a dotted path, such as `data.label`, `scaling.num_workers` or `params.eta`; `space.` before it may be left out.
        """
        for path in (key.removeprefix("space."), key):
            while path:
                if path in self.places:
                    return self.places[path]
                path = path.rpartition(".")[0]
        return self.places.get("", str(self.path))

    def fill(self, choose: Callable[[Dimension], Any]) -> dict[str, Any]:
        """One configuration, define-by-run: every dimension that is met is asked for, in the order of the file.

        Args:
            choose: the key of a dimension's value, see `Dimension.value`. A dimension inside an option is asked for only if
                that option was chosen, one with a condition only if that holds; what is not active is left out.

        Returns:
            `{"data": dict, "params": dict, "preprocessor": tuple of Step, "scaling": dict}`, free of dimensions and shared with nobody.
            `data` has what is tuned of it, see `variant`.

        Raises:
            ValueError: `choose` answered what is no option of the dimension.
        """
        known: dict[str, Any] = {}
        filled = {name: fill(template, choose, known) for name, template in self.sections.items()}
        empty: dict[str, Any] = {"data": {}, "params": {}, "preprocessor": (), "scaling": {}}
        return {name: nothing if filled.get(name, ABSENT) is ABSENT else filled[name] for name, nothing in empty.items()}

    def variant(self, data: Mapping[str, Any]) -> DataSpec:
        """The data of a trial.

        Args:
            data: as `fill` gave it.
        """
        return variant_of(self.data, data)

    @functools.cached_property
    def variants(self) -> tuple[DataSpec, ...]:
        """Every variant of the data that a trial can have, in the order of the file; but for a tuned part of the rows, which is whole."""
        data = self.sections.get("data")
        if not data:
            return (self.data,)
        names = [dim.name for key, template in data.items() if key != "rows" for dim in dimensions(template)]
        found = (self.variant(filled["data"] | ({"rows": 1.0} if "rows" in data else {})) for filled in ways({"data": data}, names))
        return tuple({repr(spec): spec for spec in found}.values())


def user_references(space: Space) -> list[str]:
    """Every `module:attr` that a space names, without repeats: the trainer's, the data's, the steps'."""
    from sweeps.core import references

    sources = [*(spec.train for spec in space.variants), *(s.path for s in (space.data.valid, space.data.test) if s is not None)]
    found = [space.trainer.loop, space.trainer.load, *sources]

    def walk(template: Template) -> None:
        if isinstance(template, Step):
            found.append(template.name)
        inside = [option.value for option in template.options] if isinstance(template, Dimension) else children(template)
        for child in inside:
            walk(child)

    walk(space.sections.get("preprocessor", ()))
    named = []
    for name in found:
        with contextlib.suppress(references.RefError):
            references.parse(name or "")
            named.append(str(name))
    return list(dict.fromkeys(named))


def known_fits(space: Space) -> list[tuple[dict[str, Any], tuple[Step, ...]]]:
    """The distinct pairs of data variant and chain that are known before a trial is sampled: constant ones and those of the grid."""

    class Unknown(Exception):
        pass

    fits = {}
    mine = [*dimensions(space.sections.get("data")), *dimensions(space.sections.get("preprocessor"))]
    asked = {term.name for dim in mine for term in dim.when}
    for cell in space.cells:
        guessed: set[str] = set()

        def choose(dimension: Any, cell: dict[str, Any] = cell, guessed: set[str] = guessed) -> Any:
            if dimension.name in cell:
                return cell[dimension.name]
            if dimension.name.split(".")[0] in ("preprocessor", "data"):
                raise Unknown
            guessed.add(dimension.name)
            return any_key(dimension)

        with contextlib.suppress(Unknown):
            filled = space.fill(choose)
            if not asked & guessed:
                fits[repr((filled["data"], filled["preprocessor"]))] = (filled["data"], filled["preprocessor"])
    return list(fits.values())

"""Validate the tree of a space file, section by section."""

import itertools
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from sweeps.core.errors import InputError, join_first
from sweeps.core.resources import Shape
from sweeps.space.model import enumeration
from sweeps.space.model.domains import Dimension, Keys
from sweeps.space.model.enumeration import MAX_CELLS, MAX_SHAPES
from sweeps.space.model.space_model import Space
from sweeps.space.model.step_names import Step
from sweeps.space.model.templates import (
    Sections,
    conditions_of,
    dimensions,
    params_of,
    variant_names,
    walk,
)
from sweeps.space.sections.auto_algorithm import AUTO, Choice, choose
from sweeps.space.sections.command_checks import check_commands
from sweeps.space.sections.data_models import DataSpec
from sweeps.space.sections.data_section import DataSection, is_parsed
from sweeps.space.sections.runtime_env_section import KEY, read_runtime_env
from sweeps.space.sections.search_sections import SearchSections, perturbs
from sweeps.space.sections.space_sections import SpaceParser
from sweeps.space.sections.tracker_section import read_trackers
from sweeps.space.sections.trainer_choice import read_trainers
from sweeps.space.sections.trainer_section import TrainerSection
from sweeps.space.sections.trainer_spec import backends_of

from .consistency_checks import ConsistencyChecks
from .initial_points import InitialPointsParser
from .nodes import INVALID, Node, Problems, places
from .notes import brace_notes, goal_notes, list_notes
from .space_source import SpaceSource
from .top_level_keys import check_keys, sweep_name

# The largest number of data variants. Each variant is checked before the sweep starts.
MAX_VARIANTS = 1_000


class SpaceValidator:
    """Validator of one space file.

    Its methods add problems, and return None in place of an invalid value.

    Args:
        root: The parsed file, with the overrides.
        problems: Collects the problems.
        source: The text, from which the file was parsed.
        algorithm: The algorithm of a sweep that has already started; None for a new sweep.
    """

    def __init__(self, root: Node, problems: Problems, source: SpaceSource, algorithm: str | None):
        self.root = root
        self.source = source
        self.problems = problems
        self.folder = source.base
        self.algorithm = algorithm
        self.started = algorithm is not None
        functions = () if source.functions is None else (source.functions,)
        self.roots = (source.base, Path.cwd(), *functions)
        self.parser = SpaceParser(self.problems, self.roots, self.started)
        self.trainers, trainer_template = read_trainers(
            root.get("trainer"),
            TrainerSection(self.roots, self.problems, self.started),
            self.parser,
        )
        self.parser.trainers = self.trainers
        self.parser.trainer_template = trainer_template
        self.search_sections = SearchSections(root, self.roots)
        self.checks = ConsistencyChecks(root, self.trainers, self.search_sections, self.started)
        self.dimensions: tuple[Dimension, ...] = ()

    def space(self) -> Space:
        """Validate the whole file and return the space.

        Raises:
            InputError: The file is invalid. The error has all problems.
        """
        check_keys(self.root)
        name = sweep_name(self.root, self.source.path)
        data, tuned = self._data()
        trackers = read_trackers(self.root.get("trackers"), self.roots)
        runtime_env = read_runtime_env(self.root.get(KEY), self.folder)
        self.checks.check_columns()
        self.checks.check_environments()
        self._check_space_is_given(bool(tuned))
        before = len(self.problems)
        reason = ""
        sections = self._sections(data, tuned)
        cells: tuple[Keys, ...] = ()
        shapes: tuple[Shape, ...] = ()
        if data is not None:
            data = self.checks.with_queries(data, sections)
        if len(self.problems) == before:  # counts of an incomplete space would mislead
            cells = self._cells(sections)
            shapes = self._shapes(sections)
            reason = self._finish_search(data, sections, len(cells))
        if len(self.problems):
            raise InputError(self.problems.sorted())
        assert data is not None
        return Space(
            name=name,
            path=self.source.path,
            text=self.source.text,
            overrides=self.source.overrides,
            trainers=self.trainers,
            data=data,
            sections=sections,
            dimensions=self.dimensions,
            cells=cells,
            shapes=shapes,
            tree=self.source.root,
            functions=self.source.functions,
            tables=self.source.tables,
            places=places(self.root),
            algorithm_reason=reason,
            trackers=trackers,
            runtime_env=runtime_env,
            notes=self._notes(sections),
            **self.search_sections.parsed,
        )

    def _shapes(self, sections: Sections) -> tuple[Shape, ...]:
        """Return the shapes of the trials, and check their numbers of workers."""
        shapes = enumeration.all_shapes(sections, backends_of(self.trainers))
        self.checks.check_workers(shapes)
        return shapes

    def _check_space_is_given(self, tuned_data: bool) -> None:
        """Add a problem if the section `space` is absent or empty and no key of `data` is tuned."""
        if self.root.get("space").value in (None, {}) and not tuned_data:
            text = (
                "is required; give the loop's parameters and their domains, such as {params: "
                "{eta: {loguniform: [1e-3, 0.3]}}}"
            )
            self.root.wrong_inside("space", text)

    def _sections(self, data: DataSpec | None, tuned: Sections) -> Sections:
        """Parse the section `space`, and return the templates of its sections.

        Under the name `data`, also return the templates of the tuned keys of `data`.
        """
        sections = self.parser.space(self.root.get("space"))
        if (
            data is not None
            and not data.is_named
            and any(isinstance(part, Step) for part in walk(sections.get("preprocessor")))
        ):
            text = "needs `data`, which the file does not have; add `data`, or remove this key"
            self.root.find("space.preprocessor").wrong_key(text)
        if tuned and all(map(is_parsed, tuned.values())):
            sections = {"data": tuned, **sections}
        if isinstance(self.parser.trainer_template, Dimension):
            sections = {"trainer": self.parser.trainer_template, **sections}
        self.dimensions = tuple(dimensions(sections))
        self.parser.when_parser.conclude(conditions_of(sections))
        if not self.started:
            for label, trainer in self.trainers.items():
                params = params_of(sections, label)
                if INVALID not in walk(params):
                    check_commands(self.root, trainer, params, self.roots)
        return sections

    @property
    def _sampled(self) -> list[str]:
        """Names of the dimensions that are not grids."""
        return [dim.name for dim in self.dimensions if not dim.is_grid]

    def _finish_search(self, data: DataSpec | None, sections: Sections, cells: int) -> str:
        """Complete the values that depend on the dimensions.

        These are the initial points, `limits.max_trials`, the population and the algorithm.

        Args:
            data: The parsed section `data`; None if it has a problem.
            sections: The parsed sections of the space.
            cells: Number of grid cells.

        Returns:
            The reason for the algorithm that was chosen for `search.algorithm: auto`. "" if the
            file names an algorithm.
        """
        self._add_initial_points(sections)
        search_sections = self.search_sections
        scheduler = search_sections.scheduler
        limits = search_sections.limits
        reason = ""
        self.checks.check_scheduler(data)
        self.checks.check_folds(data)
        self.checks.check_bundle(data)
        self.checks.check_choice(data)
        self.checks.check_ingest(data, sections)
        if perturbs(scheduler) and not any(name.startswith("params.") for name in self._sampled):
            self.root.wrong_inside(
                "scheduler.name",
                f"{scheduler.name} changes the sampled dimensions of `params`, but `params` has "
                "no sampled dimension",
            )
        if limits:
            limits = replace(limits, max_trials=limits.max_trials or cells)
            search_sections.limits = limits
        if limits and perturbs(scheduler):
            search_sections.scheduler = replace(
                scheduler, options=scheduler.options | {"population": limits.max_trials}
            )
        if search_sections.search.algorithm == AUTO:
            choice = self._choice(limits.max_trials if limits else cells)
            search_sections.search = replace(search_sections.search, algorithm=choice.algorithm)
            reason = choice.reason
        return reason

    def _notes(self, sections: Sections) -> tuple[str, ...]:
        """Return notes about sections that are valid, but seldom what the user wants.

        A sweep that has started has no such notes.
        """
        if self.started:
            return ()
        lists = () if self.dimensions else list_notes(sections.get("params"))
        names = [dim.name for dim in self.dimensions]
        braces = itertools.chain.from_iterable(
            brace_notes(trainer.params_key, params_of(sections, label), names)
            for label, trainer in self.trainers.items()
        )
        return (
            *goal_notes(self.search_sections.objectives),
            *lists,
            *braces,
            *self._algorithm_notes(),
        )

    def _algorithm_notes(self) -> tuple[str, ...]:
        """Return a note if the file names a sampler, but has no dimension for it to choose."""
        search = self.search_sections.search
        if search.algorithm in (AUTO, "grid") or self._sampled:
            return ()
        why = "nothing is tuned, so the trials differ only in their seeds"
        if self.dimensions:
            why = "only grids are tuned, and sweeps tries every cell"
        note = (
            f"search.algorithm: `{search.algorithm}` has no effect, because {why}; leave this key "
            "out, or tune a value under `space:`"
        )
        return (note,)

    def _choice(self, max_trials: int) -> Choice:
        """Choose the algorithm for `search.algorithm: auto`.

        A sweep that has already started keeps its algorithm.
        """
        if self.algorithm is not None:
            return Choice(self.algorithm, "chosen when the sweep began")
        search_sections = self.search_sections
        return choose(
            sampled=len(self._sampled),
            objectives=len(search_sections.objectives),
            max_trials=max_trials,
            perturbs=perturbs(search_sections.scheduler),
        )

    def _add_initial_points(self, sections: Sections) -> None:
        """Parse the initial points.

        Add a problem if `limits.max_trials` is less than the number of points without a known
        result.
        """
        search = self.search_sections.search
        limits = self.search_sections.limits
        if not search.initial_points:
            return
        parser = InitialPointsParser(
            self.dimensions, sections, max(1, len(self.search_sections.objectives)), self.problems
        )
        points = parser.read(self.root.find("search.initial_points"))
        self.search_sections.search = replace(search, initial_points=points)
        count = sum(point.values is None for point in points)
        if limits and 0 < limits.max_trials < count:
            text = (
                f"{count} initial points must run, but limits.max_trials is only "
                f"{limits.max_trials}"
            )
            self.root.wrong_inside("search.initial_points", text)

    def _data(self) -> tuple[DataSpec | None, Sections]:
        """Parse the section `data`; see `DataSection.read`.

        The section may be absent if `trainer` is a mapping. A mapping names a user's training loop,
        and this loop may read its own data.
        """
        if "data" not in self.root.value and self.root.get("trainer").is_map:
            spec = DataSpec(
                train="", label=None, valid=None, test=None, task=None, base=self.folder
            )
            return spec, {}
        return DataSection(self.parser, self.folder, self.roots).read(self.root.get("data"))

    def _cells(self, sections: Sections) -> tuple[Keys, ...]:
        """Return the grid cells, and check everything that depends on their number.

        Add a problem if there are too many cells, shapes or data variants, or if the sections about
        the search contradict the cells.
        """
        cells = tuple(itertools.islice(enumeration.cells_of(sections), MAX_CELLS + 1))
        if len(cells) > MAX_CELLS:
            self.root.wrong_inside(
                "space", f"the grids make more than {MAX_CELLS} cells; change some grids to choices"
            )
            return cells
        if _more_than(MAX_SHAPES, enumeration.shape_assignments(sections, {})):
            text = f"makes more than {MAX_SHAPES} combinations; give fewer options"
            self.root.find("space.scaling").wrong_key(text)
        variants = enumeration.assignments(sections, variant_names(sections))
        if _more_than(MAX_VARIANTS, variants):
            text = f"makes more than {MAX_VARIANTS} variants; give fewer options"
            self.root.wrong_inside("data", text)
        self._check_search(len(cells))
        return cells

    def _check_search(self, cells: int) -> None:
        """Add a problem for each key that contradicts the dimensions or the number of grid cells.

        The keys are in the sections `search` and `limits`.
        """
        search = self.search_sections.search
        limits = self.search_sections.limits
        sampled = self._sampled
        if search.algorithm == "grid" and sampled:
            self.root.wrong_inside(
                "search.algorithm",
                "grid search allows only `grid` dimensions, but these are sampled: "
                f"{join_first(sampled, 5)}",
            )
        for key, value in {"from": search.earlier, "portfolio": search.portfolio}.items():
            if value and not sampled:
                text = "has no effect, because no dimension is sampled; leave this key out"
                self.root.wrong_inside(f"search.{key}", text)
        if limits and 0 < limits.max_trials < cells:
            text = f"must be at least the number of grid cells, {cells}, got {limits.max_trials}"
            self.root.wrong_inside("limits.max_trials", text)
        elif limits and not limits.max_trials and sampled:
            text = (
                f"is required, because {sampled[0]} is sampled; give the number of trials, which "
                f"must be at least the number of grid cells, {cells}"
            )
            self.root.wrong_inside("limits.max_trials", text)


def _more_than(count: int, items: Iterable[object]) -> bool:
    """Return True if there are more than `count` items."""
    return any(True for _ in itertools.islice(items, count, None))

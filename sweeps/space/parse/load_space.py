"""Load a space file into a `Space`, or report all its problems.

This runs no user code and imports no framework.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sweeps.core.errors import InputError, first_of
from sweeps.core.resources import Shape, jax_connects
from sweeps.space.model import enumeration
from sweeps.space.model.domains import Dimension, Keys
from sweeps.space.model.enumeration import MAX_CELLS, MAX_SHAPES
from sweeps.space.model.space_model import Space
from sweeps.space.model.step_names import Step
from sweeps.space.model.templates import Sections, conditions_of, dimensions, variant_names, walk
from sweeps.space.parse.initial_points import InitialPointsParser
from sweeps.space.parse.nodes import INVALID, Node, located, places
from sweeps.space.parse.notes import brace_notes, goal_notes, list_notes
from sweeps.space.parse.problems import Problems
from sweeps.space.parse.section_checks import key_names, report_domains
from sweeps.space.parse.space_source import SpaceSource, overridden_tree
from sweeps.space.parse.synonyms import foreign_file, our_name, suggest
from sweeps.space.parse.variable_values import Variables, remember_secrets, replace_variables
from sweeps.space.python.passed_space import PLACE, read_passed
from sweeps.space.python.table_overrides import ROWS, overrides_of
from sweeps.space.sections.auto_algorithm import AUTO, Choice, choose
from sweeps.space.sections.command_checks import check_commands
from sweeps.space.sections.data_section import DataSection, whole
from sweeps.space.sections.ingest_checks import row_obstacles, stream_obstacles
from sweeps.space.sections.runtime_env_section import KEY, read_runtime_env
from sweeps.space.sections.search_sections import (
    SEARCH_SECTIONS,
    SearchSections,
    perturbs,
    scheduler_keys,
)
from sweeps.space.sections.section_models import (
    BundleKeys,
    Checkpoints,
    DataKeys,
    DataSpec,
    Limits,
    Objective,
    RuntimeEnv,
    SchedulerSpec,
    Search,
)
from sweeps.space.sections.space_sections import SpaceParser
from sweeps.space.sections.tracker_section import read_trackers
from sweeps.space.sections.trainer_definition import NAME
from sweeps.space.sections.trainer_section import TrainerSection, trainer_definitions
from sweeps.space.yaml.yaml12 import parse, read_text

TOP = ("name", "trainer", "data", *SEARCH_SECTIONS, "runtime_env", "trackers", "space")
# The largest number of data variants. Each variant is checked before the sweep starts.
MAX_VARIANTS = 1_000

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}\Z")


@dataclass(frozen=True)
class Recorded:
    """Facts about a space from the folder of a sweep that has already started.

    Attributes:
        algorithm: The algorithm that was chosen for `search.algorithm: auto`.
        variables: The environment variables that the file used. They replace the current ones.
        functions: The folder with the functions that a script passed; None if there are none.
    """

    algorithm: str
    variables: Mapping[str, str] = field(default_factory=dict)
    functions: Path | None = None


def load(
    space: str | os.PathLike[str] | Mapping[str, Any] | Space | SpaceSource,
    overrides: Iterable[str] = (),
    base: str | Path | None = None,
    recorded: Recorded | None = None,
    tables: Mapping[str, Any] | None = None,
) -> Space:
    """Read and validate a search space.

    Args:
        space: A space file, or a dict with the same keys, whose domains may be made by functions
            such as `sweeps.loguniform`. Or a `Space`, to change it with `overrides`. Messages about
            problems show the path of the file, or the key path in the dict.
        overrides: Overrides of the form `key.path=YAML value`. They are applied in order, before
            the space is checked.
        base: Folder for relative paths, in which the user's modules are also searched. The default
            is the file's folder; for a dict, the folder of the script that runs, or the working
            directory of a notebook.
        recorded: The record of a sweep that has already started. What may have changed on this
            machine since is then not checked. None for a new sweep.
        tables: Tables that a script passed, by their key of the section `data`.

    Raises:
        InputError: The space or an override is invalid. The error has all problems that were found,
            in the order of the file.
    """
    problems = Problems()
    source = _changed(_source_of(space), overrides, base, recorded=recorded, tables=tables)
    root = _overridden_tree(source, problems)
    start = root.mark._replace(line=1, column=1)  # the place of absent sections
    root = located(replace(root, key_mark=start), problems)
    if recorded is None and root.is_map and (text := foreign_file(root.value)) is not None:
        raise InputError(str(root.mark), text)
    environment = {**os.environ, **(recorded.variables if recorded is not None else {})}
    found = Variables(environment, optional=recorded is not None)
    root = replace_variables(root, found)
    remember_secrets(root)
    if len(problems):
        raise InputError(problems.sorted())
    loaded = _Loader(root, problems, source, recorded).space()
    return replace(
        loaded,
        notes=tuple(dict.fromkeys((*loaded.notes, *source.notes))),
        variables=found.values,
        secrets=tuple(found.secrets),
        missing_secrets=tuple(found.missing),
    )


def _source_of(space: Any) -> SpaceSource:
    """Return the text of a space that was given to `load`, and its tree.

    Raises:
        InputError: The file cannot be read, is not YAML, or is not a mapping.
    """
    if isinstance(space, Mapping):
        return read_passed(space)
    if isinstance(space, Space):
        return SpaceSource(
            path=space.path,
            text=space.text,
            root=space.tree,
            base=space.data.base,
            overrides=space.overrides,
            functions=space.functions,
            tables=space.tables,
            notes=space.notes,
        )
    if isinstance(space, SpaceSource):
        return space
    if not isinstance(space, (str, os.PathLike)):
        raise InputError(
            PLACE,
            "must be the path of a space file, a dict or a sweeps.Space, or a table and `label=`, "
            f"got {type(space).__name__}",
        )
    path = Path(space).absolute()
    text = read_text(Path(space), str(space))
    tree = parse(text, str(space))
    if not tree.is_map:
        rule = f"a space file must be a mapping with keys {', '.join(TOP)}"
        raise InputError(str(tree.mark), f"{rule}, got {tree.show()}")
    return SpaceSource(path, text, tree, path.parent)


def _changed(
    source: SpaceSource,
    overrides: Iterable[str],
    base: str | Path | None,
    recorded: Recorded | None,
    tables: Mapping[str, Any] | None,
) -> SpaceSource:
    """Return a source with the arguments of `load`."""
    source = replace(
        source,
        overrides=(*source.overrides, *overrides),
        tables={**source.tables, **(tables or {})},
    )
    if recorded is not None:
        source = replace(source, functions=recorded.functions)
    if base is not None:
        source = replace(source, base=Path(base).absolute())
    return source


def _overridden_tree(source: SpaceSource, problems: Problems) -> Node:
    """Return the tree of a space with the overrides.

    Raises:
        InputError: An override is invalid.
    """
    table_files = overrides_of(Path(f"{key}{ROWS}") for key in source.tables)
    root = overridden_tree(source.root, (*table_files, *source.overrides), problems)
    if len(problems):
        raise InputError(problems.sorted())
    return root


class _Loader:
    """Validator of one space file.

    Its methods add problems, and return None in place of an invalid value.

    Args:
        root: The parsed file, with the overrides.
        problems: Collects the problems.
        source: The text, from which the file was parsed.
        recorded: The record of a sweep that has already started; None for a new sweep.
    """

    def __init__(
        self, root: Node, problems: Problems, source: SpaceSource, recorded: Recorded | None
    ):
        self.root = root
        self.source = source
        self.problems = problems
        self.folder = source.base
        self.algorithm = None if recorded is None else recorded.algorithm
        self.started = recorded is not None
        self.roots = (source.base, Path.cwd(), *filter(None, (source.functions,)))
        self.trainers = TrainerSection(self.roots, self.problems, self.started)
        self.trainer = self.trainers.read(root.get("trainer"))
        self.parser = SpaceParser(
            self.problems, self.roots, self.started, self.trainers.definition, self.trainers.name
        )
        self.search = SearchSections(root, self.roots)
        self.dimensions: tuple[Dimension, ...] = ()

    def space(self) -> Space:
        """Validate the whole file and return the space.

        Raises:
            InputError: The file is invalid. The error has all problems.
        """
        self._check_keys()
        name = self._name(self.source.path)
        data, tuned = self._data()
        trackers = read_trackers(self.root.get("trackers"), self.roots)
        runtime_env = read_runtime_env(self.root.get(KEY), self.folder)
        self._check_label()
        self._check_weights()
        self._check_several_labels()
        self._check_space_is_given(bool(tuned))
        before, reason = len(self.problems), ""
        sections = self._sections(data, tuned)
        cells: tuple[Keys, ...] = ()
        shapes: tuple[Shape, ...] = ()
        if data is not None and isinstance(params := sections.get("params"), dict):
            data = self._with_queries(data, params)
        if len(self.problems) == before:  # counts of an incomplete space would mislead
            cells = self._cells(sections)
            shapes = self._shapes(sections)
            reason = self._finish_search(data, sections, len(cells))
        if len(self.problems):
            raise InputError(self.problems.sorted())
        assert self.trainer and data
        return Space(
            name=name,
            path=self.source.path,
            text=self.source.text,
            overrides=self.source.overrides,
            trainer=self.trainer,
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
            trainer_definition=self.trainers.definition,
            notes=self._notes(sections),
            **self.search.parsed,
        )

    def _shapes(self, sections: Sections) -> tuple[Shape, ...]:
        """Return the shapes of the trials, and check their numbers of workers."""
        if self.trainer is None:
            return ()
        shapes = enumeration.all_shapes(sections, self.trainer.backend)
        self._check_workers(shapes, self.trainer.backend)
        return shapes

    def _check_keys(self) -> None:
        """Add a problem for each unknown key at the top of the file."""
        for key, child in self.root.items():
            if key not in TOP:
                child.wrong_key(f"unknown key; {_hint(str(key))}")

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
            and not data.given
            and any(isinstance(part, Step) for part in walk(sections.get("preprocessor")))
        ):
            text = "needs `data`, which the file does not have; add `data`, or remove this key"
            self.root.find("space.preprocessor").wrong_key(text)
        if tuned and all(map(whole, tuned.values())):
            sections = {"data": tuned, **sections}
        self.dimensions = tuple(dimensions(sections))
        self.parser.when_parser.conclude(conditions_of(sections))
        params = sections.get("params")
        if self.trainer is not None and not self.started and INVALID not in walk(params):
            check_commands(self.root, self.trainer, self.trainers.definition, params, self.roots)
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
        search = self.search
        scheduler = search.scheduler
        limits = search.limits
        reason = ""
        self._check_folds(data, scheduler)
        self._check_bundle(data, scheduler)
        if scheduler.counts_rows:
            for key, text in row_obstacles(data, sections, scheduler):
                self.root.wrong_inside(key, text)
        self._check_ingest(data, sections, scheduler)
        if perturbs(scheduler) and not any(name.startswith("params.") for name in self._sampled):
            self.root.wrong_inside(
                "scheduler.name",
                f"{scheduler.name} changes the sampled dimensions of `params`, but `params` has "
                "no sampled dimension",
            )
        if limits:
            search.limits = limits = replace(limits, max_trials=limits.max_trials or cells)
        if limits and perturbs(scheduler):
            search.scheduler = replace(
                scheduler, options=scheduler.options | {"population": limits.max_trials}
            )
        if search.search.algorithm == AUTO:
            choice = self._choice(limits.max_trials if limits else cells)
            search.search = replace(search.search, algorithm=choice.algorithm)
            reason = choice.reason
        return reason

    def _notes(self, sections: Sections) -> tuple[str, ...]:
        """Return notes about sections that are valid, but seldom what the user wants.

        A sweep that has started has no such notes.
        """
        if self.started:
            return ()
        lists = () if self.dimensions else list_notes(sections.get("params"))
        braces = brace_notes(sections.get("params"), (dim.name for dim in self.dimensions))
        return (*goal_notes(self.search.objectives), *lists, *braces, *self._algorithm_notes())

    def _algorithm_notes(self) -> tuple[str, ...]:
        """Return a note if the file names a sampler, but has no dimension for it to choose."""
        search = self.search.search
        if search.algorithm in (AUTO, "grid") or self._sampled:
            return ()
        why = "nothing is tuned, so the trials differ only in their seeds"
        if self.dimensions:
            why = "only grids are tuned, and sweeps tries every cell"
        return (
            (
                f"search.algorithm: `{search.algorithm}` has no effect, because {why}; leave this "
                "key "
                "out, or tune a value under `space:`"
            ),
        )

    def _check_folds(self, data: DataSpec | None, scheduler: SchedulerSpec) -> None:
        """Add a problem if the scheduler does not fit a cross-validation.

        In a cross-validation, each step of a trial is one fold.
        """
        folds = data.folds if data else 0
        if not folds:
            return
        if perturbs(scheduler):
            self.root.wrong_inside(
                "scheduler.name",
                f"{scheduler.name} copies models between trials, but in a cross-validation a "
                "trial has a model for each fold; "
                "choose another scheduler",
            )
        elif scheduler.max_t is not None and scheduler.max_t > folds:
            text = (
                f"must be at most {folds}, because each step of a trial is one of the {folds} "
                f"folds of data.valid, got {scheduler.max_t}"
            )
            self.root.wrong_inside("scheduler.max_t", text)

    def _check_bundle(self, data: DataSpec | None, scheduler: SchedulerSpec) -> None:
        """Add a problem for each reason why the winner cannot be trained again on all rows."""
        if self.search.bundle.train_on == "train":
            return
        obstacles = {
            "needs the section `data`, because a loop that reads its own data chooses the rows": (
                data is not None and not data.given
            ),
            "needs a single objective, because several objectives have no single winner": (
                len(self.search.objectives) > 1
            ),
            "does not work under pbt, whose trials copy checkpoints of other trials": (
                perturbs(scheduler)
            ),
        }
        for text, is_obstacle in obstacles.items():
            if is_obstacle:
                self.root.wrong_inside("bundle.train_on", f"`all` {text}; leave the section out")

    def _check_ingest(
        self, data: DataSpec | None, sections: Sections, scheduler: SchedulerSpec
    ) -> None:
        """Add a problem for each key that does not fit `data.ingest: stream`."""
        if data is None or self.trainer is None or data.ingest != "stream":
            return
        for key, text in stream_obstacles(
            data, sections, self.trainer, self.trainers.definition, scheduler
        ):
            self.root.wrong_inside(key, f"{text}; this file has `data.ingest: stream`")

    def _choice(self, max_trials: int) -> Choice:
        """Choose the algorithm for `search.algorithm: auto`.

        A sweep that has already started keeps its algorithm.
        """
        if self.algorithm is not None:
            return Choice(self.algorithm, "chosen when the sweep began")
        search = self.search
        return choose(
            sampled=len(self._sampled),
            objectives=len(search.objectives),
            max_trials=max_trials,
            perturbs=perturbs(search.scheduler),
        )

    def _add_initial_points(self, sections: Sections) -> None:
        """Parse the initial points.

        Add a problem if `limits.max_trials` is less than the number of points without a known
        result.
        """
        search = self.search
        if not search.search.initial_points:
            return
        parser = InitialPointsParser(
            self.dimensions, sections, max(1, len(search.objectives)), self.problems
        )
        points = parser.read(self.root.find("search.initial_points"))
        search.search = replace(search.search, initial_points=points)
        count = sum(point.values is None for point in points)
        if search.limits and 0 < search.limits.max_trials < count:
            text = (
                f"{count} initial points must run, but limits.max_trials is only "
                f"{search.limits.max_trials}"
            )
            self.root.wrong_inside("search.initial_points", text)

    def _name(self, path: Path) -> str:
        """Return the sweep's name: the key `name`, or else the file's name without its extension.

        The name of the sweep's folder starts with this name.
        """
        node = self.root.get("name")
        if node.value is None:
            return re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem).strip("-.")[:100] or "sweep"
        if not report_domains(node) and not (
            isinstance(node.value, str) and _NAME.match(node.value)
        ):
            number = isinstance(node.value, (int, float)) and _NAME.match(node.raw)
            rule = (
                "must have 1 to 100 characters out of A-Z a-z 0-9 _ - . and must not begin with - "
                "or ."
            )
            text = (
                f"must be text, got {node.show()}; put quotes around it"
                if number
                else f"{rule}, got {node.show()}"
            )
            node.wrong(text)
        if node.value == "latest":
            node.wrong("`latest` means the newest sweep in every command; choose another name")
        return str(node.value)

    def _data(self) -> tuple[DataSpec | None, Sections]:
        """Parse the section `data`; see `DataSection.read`.

        The section may be absent if `trainer` is a mapping. A mapping names a user's training loop,
        and this loop may read its own data.
        """
        if "data" not in self.root.value and self.root.get("trainer").is_map:
            return DataSpec("", None, None, None, None, self.folder), {}
        return DataSection(self.parser, self.folder, self.roots).read(self.root.get("data"))

    def _check_workers(self, shapes: Sequence[Shape], backend: str) -> None:
        """Add a problem if the trainer cannot train on the workers of a shape.

        Also add a problem if Ray's backend for JAX cannot connect the workers.
        """
        limit = self.trainers.definition.max_workers
        most = max((shape.most or shape.workers for shape in shapes), default=1)
        if limit is not None and most > limit:
            text = (
                f"trains on at most {limit} worker{'s' if limit > 1 else ''}, but the space has "
                f"trials with {most} workers"
            )
            self.root.wrong_inside(
                "space.scaling", f"`{self.trainers.name}` {text}; set num_workers to {limit}"
            )
        alone = [shape for shape in shapes if backend == "jax" and not jax_connects(shape)]
        if alone:
            text = (
                "Ray's backend for `jax` connects workers only if each worker has whole GPUs or "
                f"TPUs, but the shape {alone[0]} has none"
            )
            self.root.wrong_inside(
                "space.scaling",
                f"{text}; give each worker a GPU with `use_gpu: true`, or set num_workers to 1",
            )

    def _check_label(self) -> None:
        """Add a problem if the trainer needs a label and the file names none."""
        data, label = self.root.get("data"), self.root.find("data.label")
        if self.trainer is None or not self.trainers.definition.needs_label or self.started:
            return
        if label.value is None and (data.value is None or data.is_map):
            text = "give the name of the column to predict"
            label.wrong(f"is required by `{self.trainers.name}`; {text}", data.at)

    def _check_weights(self) -> None:
        """Add a problem for each key that weights rows if the trainer does not use weights."""
        if self.trainer is None or self.trainers.definition.weights:
            return
        for key in ("weight", "class_weight"):
            weights = self.root.find(f"data.{key}")
            if weights.value is not None:
                text = (
                    f"`{self.trainers.name}` does not use weights; leave this key out, or choose "
                    "a trainer that uses them"
                )
                weights.wrong_key(text + self._trainers_with("weights"))

    def _check_several_labels(self) -> None:
        """Add a problem if the label has several columns, and the trainer predicts only one."""
        label = self.root.find("data.label")
        if self.trainer is None or self.trainers.definition.several_labels:
            return
        if label.is_list and len(label.value) > 1:
            text = (
                f"`{self.trainers.name}` predicts one column, but the label has "
                f"{len(label.value)}; name one column, or choose a trainer that predicts several"
            )
            label.wrong(text + self._trainers_with("several_labels"))

    def _trainers_with(self, key: str) -> str:
        """Return the end of a message: the trainers whose definition has a key.

        The end also says how a loop of the user's own gets the key.
        """
        definitions = trainer_definitions()
        names = [name for name, definition in definitions.items() if getattr(definition, key)]
        text = f": {', '.join(names)}"
        if self.trainer is not None and self.trainer.name is None:
            text += f', or write `"{key}": True` into `{NAME}` if your loop does this'
        return text

    def _with_queries(self, data: DataSpec, params: Sections) -> DataSpec:
        """Return the data for a trainer that ranks rows.

        With a ranking objective, the task is a regression: the model predicts scores.

        Add a problem for each ranking objective if the rows have no groups, or have weights.
        """
        ranking = self.trainers.definition.ranking
        for key, value in params.items():
            for text in walk(value):
                if not (ranking and isinstance(text, str) and re.fullmatch(ranking, text)):
                    continue
                data = replace(data, task=data.task or "regression")
                if data.group is None or data.weight_columns:
                    rule = (
                        "needs `data.group`, the column of groups whose rows it ranks, such as a "
                        "query, and no `data.weight`"
                    )
                    self.root.wrong_inside(f"space.params.{key}", f"`{text}` {rule}")
        return replace(data, queries=bool(ranking and data.group))

    def _cells(self, sections: Sections) -> tuple[Keys, ...]:
        """Return the grid cells.

        Add a problem if there are too many cells, shapes or data variants, or too few trials for
        the cells.
        """
        cells = tuple(itertools.islice(enumeration.cells_of(sections), MAX_CELLS + 1))
        if len(cells) > MAX_CELLS:
            self.root.wrong_inside(
                "space", f"the grids make more than {MAX_CELLS} cells; change some grids to choices"
            )
            return cells
        if _more_than(MAX_SHAPES, enumeration.shape_assignments(sections, "none")):
            text = f"makes more than {MAX_SHAPES} combinations; give fewer options"
            self.root.find("space.scaling").wrong_key(text)
        variants = enumeration.assignments(sections, variant_names(sections))
        if _more_than(MAX_VARIANTS, variants):
            text = f"makes more than {MAX_VARIANTS} variants; give fewer options"
            self.root.wrong_inside("data", text)
        search, limits = self.search.search, self.search.limits
        sampled = self._sampled
        if search.algorithm == "grid" and sampled:
            self.root.wrong_inside(
                "search.algorithm",
                "grid search allows only `grid` dimensions, but these are sampled: "
                f"{first_of(sampled, 5)}",
            )
        for key, name in (("from", "earlier"), ("portfolio", "portfolio")):
            if getattr(search, name) and not sampled:
                text = "has no effect, because no dimension is sampled; leave this key out"
                self.root.wrong_inside(f"search.{key}", text)
        if limits and 0 < limits.max_trials < len(cells):
            text = (
                f"must be at least the number of grid cells, {len(cells)}, got {limits.max_trials}"
            )
            self.root.wrong_inside("limits.max_trials", text)
        elif limits and not limits.max_trials and sampled:
            text = (
                f"is required, because {sampled[0]} is sampled; give the number of trials, which "
                f"must be at least the number of grid cells, {len(cells)}"
            )
            self.root.wrong_inside("limits.max_trials", text)
        return cells


def _more_than(count: int, items: Iterable[object]) -> bool:
    """Return True if there are more than `count` items."""
    return sum(1 for _ in itertools.islice(items, count + 1)) > count


# Sections whose keys users may write at the top of the file by mistake.
_HOMES = {
    "data": DataKeys,
    "objective": Objective,
    "search": Search,
    "limits": Limits,
    "checkpoints": Checkpoints,
    "bundle": BundleKeys,
    KEY: RuntimeEnv,
}


def _hint(key: str) -> str:
    """Return the hint of a message about an unknown key at the top of the file."""
    homes = [section for section, model in _HOMES.items() if key in key_names(model)]
    homes += ["scheduler"] * (key in scheduler_keys())
    if our_name("file", key) is None and len(homes) == 1:
        return f"move this key to the section `{homes[0]}`"
    return suggest("file", key, TOP)

"""The `Space`, which is a validated space file."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sweeps.core.best_step import Constraint
from sweeps.core.plugins import references
from sweeps.core.plugins.command_template import code_files, folder_of
from sweeps.core.resources import Shape
from sweeps.core.text.secrets import hide_values
from sweeps.space.parse.nodes import Node, Problems
from sweeps.space.parse.space_source import overridden_tree
from sweeps.space.python.passed_space import PLACE
from sweeps.space.sections.command_checks import command_options
from sweeps.space.sections.data_models import DataSpec, variant_of
from sweeps.space.sections.search_models import (
    BundleKeys,
    Checkpoints,
    Limits,
    Objective,
    Repeats,
    SchedulerSpec,
    Search,
)
from sweeps.space.sections.tracker_section import DEFAULT as DEFAULT_TRACKERS
from sweeps.space.sections.tracker_section import TrackerSpec
from sweeps.space.sections.trainer_models import RuntimeEnv
from sweeps.space.sections.trainer_spec import TrainerSpec
from sweeps.space.yaml.yaml_writer import block

from .conditions import Key
from .domains import Dimension, Keys
from .enumeration import any_key, assignments
from .step_names import Step
from .templates import (
    Sections,
    conditions_of,
    dimensions,
    fill,
    tuned_data,
    variant_names,
    walk,
)


@dataclass(frozen=True)
class Space:
    """A validated search space, which `sweeps.load` returns.

    Attributes:
        name: Name of the sweep, of letters, digits, `.`, `_` and `-`.
        path: Absolute path of the file. For a dict of a Python script, the path of the script.
        text: Text of the file, without the overrides.
        overrides: Overrides such as `limits.max_trials=8`, in the order in which they were applied.
        trainers: The trainers, by label. The label of a single trainer is "".
        data: The section `data`. A tuned `train` is replaced by its first source, and the other
            tuned keys have their defaults; see `variant`.
        objectives: The objectives, at least one.
        constraints: Bounds on metrics. A trial is feasible if it satisfies all of these bounds.
        search: The sampler and its options.
        scheduler: The scheduler and its options.
        repeats: Number of times that each configuration is trained.
        limits: Budget of the sweep.
        checkpoints: Which checkpoints the ended trials keep.
        bundle: The model in the bundle of the winner.
        sections: Template of each section, by name: `params`, `preprocessor` and `scaling`, in the
            order of the file. If a key of `data` is tuned, `data` comes before them, with the
            templates of its tuned keys. If there are several trainers, `trainer` comes first; it is
            a dimension with their labels, and `params` has a template for each label.
        dimensions: All dimensions in the order of the file. A dimension comes before the dimensions
            inside it.
        cells: Every combination of the grids' options. Each cell maps names of grids to keys of
            options. `({},)` if there is no grid. A grid inside an option of another grid is only in
            cells with that option. A grid inside an option of a choice is in every cell, because
            the choice is not sampled yet. A grid with a condition is only in cells for which the
            condition is true.
        shapes: Every distinct shape that a trial can have.
        tree: Tree of the text, without the overrides.
        places: Place of every value in the file, such as `space.yaml:4:3`, by the value's dotted
            path; see `place`.
        algorithm_reason: Reason for the algorithm that was chosen for `search.algorithm: auto`; ""
            if the file names the algorithm.
        trackers: Trackers that record the sweep.
        runtime_env: Environment of the worker processes.
        notes: Messages for the user about the file, such as keys without an effect.
        variables: Value of each environment variable that the file uses, without secrets. The
            values are already in the other attributes.
        secrets: Names of the environment variables that the file uses and whose values are secrets.
        missing_secrets: Those of `secrets` that are not set. Trials cannot run without them.
        functions: Folder of the module with the functions that a Python script passed and that no
            other module has; None if there are none.
        tables: Tables that a Python script passed in the dict, by their key of the section `data`.
    """

    name: str
    path: Path
    text: str
    overrides: tuple[str, ...]
    trainers: Mapping[str, TrainerSpec]
    data: DataSpec
    objectives: tuple[Objective, ...]
    constraints: tuple[Constraint, ...]
    search: Search
    scheduler: SchedulerSpec
    repeats: Repeats
    limits: Limits
    checkpoints: Checkpoints
    bundle: BundleKeys
    sections: Sections
    dimensions: tuple[Dimension, ...]
    cells: tuple[Keys, ...]
    shapes: tuple[Shape, ...]
    tree: Node = field(compare=False, repr=False)
    places: dict[str, str] = field(default_factory=dict, compare=False, repr=False)
    algorithm_reason: str = field(default="", compare=False, repr=False)
    trackers: tuple[TrackerSpec, ...] = DEFAULT_TRACKERS
    runtime_env: RuntimeEnv = field(default_factory=RuntimeEnv)
    notes: tuple[str, ...] = field(default=(), compare=False, repr=False)
    variables: dict[str, str] = field(default_factory=dict, compare=False, repr=False)
    secrets: tuple[str, ...] = field(default=(), compare=False, repr=False)
    missing_secrets: tuple[str, ...] = field(default=(), compare=False, repr=False)
    functions: Path | None = field(default=None, compare=False, repr=False)
    tables: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def is_passed(self) -> bool:
        """True if a Python script passed the space as a dict."""
        return self.places.get("") == PLACE

    def to_yaml(self) -> str:
        """Return the space as the text of a space file, with overrides and without comments.

        Tables that a script passed are left out. A function that the script passed and that no
        module has appears under its generated name, such as `train_89df371f:train`, which only a
        sweep can import. Otherwise the text works as a space file.
        """
        return block(self.tree_with_overrides.plain())

    @property
    def tree_with_overrides(self) -> Node:
        """Tree of the text, with the overrides applied."""
        return overridden_tree(self.tree, self.overrides, Problems())

    @property
    def has_mlflow(self) -> bool:
        """True if MLflow is one of the sweep's trackers."""
        return any(tracker.name == "mlflow" for tracker in self.trackers)

    def public(self, text: str) -> str:
        """Return a text with `***` for the values of environment variables in `runtime_env`.

        The text may be the space file or an override.
        """
        return hide_values(text, self.runtime_env.env_vars)

    @property
    def objective(self) -> Objective:
        """The first objective. Most sweeps have only one objective."""
        return self.objectives[0]

    @property
    def trainer(self) -> TrainerSpec:
        """The first trainer. Most sweeps have only one trainer."""
        return next(iter(self.trainers.values()))

    def trainer_of(self, labels: Mapping[str, Any]) -> TrainerSpec:
        """Return the trainer of a trial.

        Args:
            labels: Value of each active dimension, by name, as `Trial.labels` has them.
        """
        return self.trainers[labels.get("trainer", "")]

    @property
    def refit_splits(self) -> tuple[str, ...]:
        """The splits on whose rows a trial is trained again.

        Test is one of them only if `bundle` allows this and test is a random part.
        """
        test = self.data.test
        is_random = test is not None and test.kind in ("fraction", "group")
        on_test = self.bundle.train_on == "all" and is_random
        return ("train", "valid", "test") if on_test else ("train", "valid")

    @property
    def trains_winner(self) -> bool:
        """True if the winner is trained again after the search, on the rows of several splits.

        The models of rolling folds have not seen the latest rows, so their average is no winner.
        """
        valid = self.data.valid
        is_rolling = valid is not None and valid.kind == "rolling"
        return is_rolling or self.bundle.train_on == "all"

    @property
    def always(self) -> tuple[Dimension, ...]:
        """Dimensions that are active in every trial.

        They have no condition, and are not inside an option of another dimension.
        """
        conditions = conditions_of(self.sections)
        return tuple(dim for dim in self.dimensions if not conditions[dim.name])

    def place(self, key: str) -> str:
        """Return the place of a key as `file:line:column` or `--set ...`.

        For an absent key, return the place of the nearest key above it.

        Args:
            key: Dotted path, such as `data.label`, `scaling.num_workers` or `params.eta`, with or
                without `space.`.
        """
        for path in (key.removeprefix("space."), key):
            while path:
                if path in self.places:
                    return self.places[path]
                path = path.rpartition(".")[0]
        return self.places.get("", str(self.path))

    def fill(self, choose: Callable[[Dimension], Key]) -> dict[str, Any]:
        """Build a configuration: call `choose` for every active dimension, in the file's order.

        Args:
            choose: Function that returns a key for a dimension; `Dimension.value` converts this key
                to the value. A dimension inside an option is active only if that option was chosen.
                A dimension with a condition is active only if the condition is true.

        Returns:
            A new dict `{"data": dict, "params": dict, "preprocessor": tuple of Step, "scaling":
            dict}`. Every dimension is replaced by its value. An inactive dimension is left out, or
            replaced by its `otherwise` if it has one. `data` has the tuned keys only; see
            `variant`.

        Raises:
            ValueError: `choose` returned a key that no option of the dimension has.
        """
        filled = fill({**self.sections}, choose)
        if "trainer" in filled:
            filled["params"] = filled.get("params", {}).get(filled["trainer"], {})
        empty: dict[str, Any] = {"data": {}, "params": {}, "preprocessor": (), "scaling": {}}
        return {name: filled.get(name, default) for name, default in empty.items()}

    def variant(self, data: Mapping[str, Any]) -> DataSpec:
        """Return the data of a trial.

        Args:
            data: The trial's values of the tuned keys of the section `data`, as `fill` returns
                them.
        """
        return variant_of(self.data, data)

    @functools.cached_property
    def variants(self) -> tuple[DataSpec, ...]:
        """The distinct variants of the data that trials can have, in the order of the file.

        In these variants, a tuned `rows` is 1.
        """
        data = tuned_data(self.sections)
        all_rows = {"rows": 1.0} if "rows" in data else {}
        specs = (
            self.variant(filled["data"] | all_rows)
            for filled, _ in assignments({"data": data}, variant_names(self.sections))
        )
        return tuple({repr(spec): spec for spec in specs}.values())


def user_references(space: Space) -> list[str]:
    """Return every distinct reference `module:attr` in a space.

    References occur in the trainer, the data and the steps.
    """
    sources = [
        *(spec.train for spec in space.variants),
        *(split.path for split in (space.data.valid, space.data.test) if split is not None),
    ]
    names: list[str | None] = [*sources]
    for trainer in space.trainers.values():
        names += [trainer.loop, trainer.load, trainer.backend, *trainer.references]
    names += [
        part.name for part in walk(space.sections.get("preprocessor")) if isinstance(part, Step)
    ]
    return [name for name in dict.fromkeys(names) if name and references.is_reference(name)]


def command_files(space: Space, roots: Sequence[Path]) -> dict[Path, Path]:
    """Return the files that the commands of the trainers name, such as scripts.

    Each file is mapped to the folder in which it was found.

    Args:
        space: The search space.
        roots: Folders to look in. A command is looked up in the first folder that has one of its
            files.
    """
    folders: dict[Path, Path] = {}
    for trainer in space.trainers.values():
        for command in command_options(trainer).values():
            folder = folder_of(command, roots)
            folders |= dict.fromkeys(code_files(command, folder), folder)
    return folders


def known_fits(space: Space) -> list[tuple[dict[str, Any], tuple[Step, ...]]]:
    """Return the preprocessing chains that depend only on constants and grids.

    They can be fitted before any trial is sampled.

    Returns:
        Distinct pairs: the values of the tuned keys of `data`, and a preprocessing chain to fit on
        these data.
    """
    fits = {}
    dims = [
        *dimensions(space.sections.get("data")),
        *dimensions(space.sections.get("preprocessor")),
    ]
    # The dimensions that decide a chain: those in it, and those that their conditions name.
    deciding = {dim.name for dim in dims} | {term.name for dim in dims for term in dim.when}
    for cell in space.cells:

        def choose(dim: Dimension, cell: Keys = cell) -> Key:
            return cell.get(dim.name, any_key(dim))

        active: Keys = {}
        filled = fill({**space.sections}, choose, active)
        sampled = active.keys() - cell.keys()  # `choose` gave them any value
        if not deciding & sampled:
            fit = (filled.get("data", {}), filled.get("preprocessor", ()))
            fits[repr(fit)] = fit
    return list(fits.values())

"""Check the data before Ray starts, to report many problems within a fraction of a second.

The checks find files, read their first rows and, if the files are small, their labels. The checks
do not connect to remote URIs and do not call a user's `module:function`. Problems in such sources,
and in the rows of large files, are found when the sweep reads the data.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeps.core.errors import InputError, Problem
from sweeps.core.plugins import references
from sweeps.space.parse.nodes import place_and_key

from .named_columns import check_columns, split_columns, split_rules

if TYPE_CHECKING:
    from sweeps.core.label_columns import Classes
    from sweeps.data.sources.data_files import Source, SourceFiles
    from sweeps.space import DataSpec, Space

log = logging.getLogger(__name__)

# Largest number of files of a source that are checked early; the sweep checks the other files
MAX_FILES = 100
# Largest number of bytes that are read early; see `ingest.estimate_bytes`. Arrow reads one CSV
# column at 250 MB/s. The rest of the command's work before the sweep takes half a second.
MAX_BYTES = 64_000_000

# Matches the place of a problem if the place is a key and not yet a position in the space file
_KEY = re.compile(
    r"(space\.)?(data|trainer|preprocessor|scaling|params|objective|scheduler|search\.from)(\.|\Z)"
)


@dataclass(frozen=True)
class SourceInfo:
    """Known facts about a data source.

    Attributes:
        names: Column names. A CSV column without a name has the name that pandas gives it, such as
            `Unnamed: 0`.
        files: The files. None if the source is a data set of scikit-learn.
    """

    names: tuple[str, ...]
    files: SourceFiles | None = None


def check_data(space: Space, max_bytes: float = MAX_BYTES) -> None:
    """Check the data of a space; see the module's docstring.

    Log a warning for each split that lacks a class.

    Args:
        space: The search space. The function checks every data variant, and the columns that are
            named in preprocessing steps.
        max_bytes: Largest number of bytes of values that are read for this.

    Raises:
        InputError: The data has problems. The error lists all of them, with their positions in the
            space file.
    """
    if space.data.is_named:
        _DataCheck(space, max_bytes).run()


class _DataCheck:
    """The check of the data of a space; see `check_data` for the arguments.

    Attributes:
        known: Facts about the sources so far, by split and source. None if the source has a problem
            or is not checked.
        labels: Name, task and classes of each source whose label is known, by `DataSpec.source`.
        bytes_left: Number of bytes that may still be read.
        class_notes: See `Splits.class_notes`.
    """

    def __init__(self, space: Space, max_bytes: float):
        self.space = space
        self.bytes_left = max_bytes
        self.known: dict[tuple[str, str], SourceInfo | None] = {}
        self.labels: dict[str, tuple[str, str | None, Classes | None]] = {}
        self.class_notes: tuple[str, ...] = ()

    def run(self) -> None:
        """Check all variants; see `check_data`."""
        problems = [p for spec in self.space.variants for p in self._check_variant(spec)]
        if not problems and self.labels:
            problems = self._check_labels()
        if not problems:
            try:
                problems = self._check_types()
            except InputError as e:
                problems += e.problems
        if problems:
            raise locate_problems(self.space, problems)
        for note in self.class_notes:
            log.warning("note: %s", note)

    def _check_variant(self, spec: DataSpec) -> list[Problem]:
        """Check the `data` section with one choice for each tuned key."""
        from sweeps.data.sources.data_files import sources_of

        problems: list[Problem] = []
        probed: dict[str, SourceInfo] = {}
        sources = sources_of(spec)
        for key, source in sources.items():
            if (key, source.name) not in self.known:
                self.known[key, source.name] = None
                try:
                    self.known[key, source.name] = _probe_source(source)
                except InputError as e:
                    problems += e.problems
            if (info := self.known[key, source.name]) is not None:
                probed[key] = info
        if "train" in probed:
            problems += self._check_columns(spec, probed)
        if not problems and spec.source not in self.labels and len(probed) == len(sources):
            try:
                self._check_values(spec, probed)
            except InputError as e:
                problems += e.problems
        return [self._locate_option(spec, problem) for problem in problems]

    def _check_columns(self, spec: DataSpec, probed: Mapping[str, SourceInfo]) -> list[Problem]:
        """Check that the columns that a variant and its preprocessing steps name exist."""
        from sweeps.space.model.templates import params_of

        from .column_checks import check_step_columns

        names = probed["train"].names
        problems = check_columns(spec, {key: info.names for key, info in probed.items()})
        removed = _removed(spec, names)
        features = [name for name in names if name not in removed]
        trainers = self.space.trainers.values()
        reads_columns = any(trainer.definition.needs_label for trainer in trainers)
        if not features and not problems and reads_columns:
            problems.append(
                Problem(
                    "data.label",
                    f"`{spec.train}` has no other columns than the label and those of data.drop, "
                    "weights and splits; a model needs a column to read",
                )
            )
        return problems + check_step_columns(
            self.space.sections.get("preprocessor", ()),
            features,
            spec.label,
            source=spec.train,
            removed=removed,
            params={
                trainer.params_key: params_of(self.space.sections, trainer.label)
                for trainer in trainers
            },
        )

    def _check_values(self, spec: DataSpec, probed: Mapping[str, SourceInfo]) -> None:
        """Assign the rows to splits as the sweep does, if the deciding columns are read quickly.

        These columns are the label, the weights, the columns of `data.parse`, and those that assign
        rows to splits. The task of the label `target` of scikit-learn's data sets is known without
        reading them.

        Raises:
            InputError: See `split_rows`.
        """
        from sweeps.data.load_data import split_rows
        from sweeps.data.sources.file_rows import read_columns
        from sweeps.data.sources.ingest import estimate_bytes
        from sweeps.data.sources.sklearn_datasets import label_task

        files = {key: info.files for key, info in probed.items() if info.files is not None}
        if not files and list(probed) == ["train"] and spec.labels == ("target",):
            task_and_classes = label_task(spec.train.removeprefix("sklearn:"), spec.task)
            if task_and_classes is not None:
                self.labels[spec.source] = (spec.train, *task_and_classes)
            return
        columns = _deciding_columns(spec)
        # Folds need at least the number of rows, which any column has.
        if spec.folds and not columns:
            columns = [*probed["train"].names[:1]]
        if not columns or len(files) < len(probed):
            return
        size = sum(estimate_bytes(source_files, columns) for source_files in files.values())
        if size > self.bytes_left:
            return
        self.bytes_left -= size
        tables = {key: read_columns(source_files, columns) for key, source_files in files.items()}
        # The other columns are not read, so they cannot be dropped, and do not tell copies of rows.
        spec = replace(spec, drop=(), drop_duplicates=False)
        splits = split_rows(spec, tables, self.space.search.seed)
        self.class_notes += splits.class_notes
        if spec.labels:
            self.labels[spec.source] = (spec.train, splits.task, splits.classes)

    def _check_labels(self) -> list[Problem]:
        """Check that all sources have the same task and classes, and check the space's metrics.

        The trainer must report these metrics for this task.
        """
        from .label_checks import check_same_task
        from .metric_checks import check_metrics

        labels = list(self.labels.values())
        problems = [
            Problem(_option_path(self.space, "train", source), problem.text)
            for source, problem in check_same_task(labels)
        ]
        return problems or check_metrics(self.space, labels[0][1], self.class_notes)

    def _check_types(self) -> list[Problem]:
        """Check the types of the features; see `column_checks.check_types`."""
        from sweeps.data.sources.file_rows import non_number_types

        from .column_checks import check_types

        types = []
        for spec in self.space.variants:
            info = self.known.get(("train", spec.train))
            if info is None or info.files is None:
                return []
            # `names` lacks an index of pandas without a name, which is no feature.
            features = {*info.names} - _removed(spec, info.names) - {*spec.parse}
            not_numbers = non_number_types(spec, info.files).items()
            types.append({name: kind for name, kind in not_numbers if name in features})
        return check_types(self.space, types)

    def _locate_option(self, spec: DataSpec, problem: Problem) -> Problem:
        """Return a problem whose place is the path of the tuned option that causes the problem.

        The option is one of `data.train` or `data.drop`. Other problems are returned unchanged.
        """
        values = {"data.train": spec.train, "data.drop": spec.drop}
        if problem.place not in values:
            return problem
        key = problem.place.removeprefix("data.")
        return Problem(_option_path(self.space, key, values[problem.place]), problem.text)


def _removed(spec: DataSpec, names: Iterable[str]) -> set[str]:
    """Return the columns that are no features.

    They are the label, the weights, dropped columns, and columns that assign rows to splits.
    """
    return {*names} & {*spec.labels, *spec.drop, *spec.weight_columns, *split_columns(spec)}


def _deciding_columns(spec: DataSpec) -> list[str]:
    """Return the columns that decide about splits, classes and weights; see `_check_values`."""
    columns = {rule.column for rule in split_rules(spec).values()} | {spec.group}
    columns |= {*spec.labels, *spec.weight_columns, *spec.parse}
    return sorted(name for name in columns if name is not None)


def _option_path(space: Space, key: str, value: Any) -> str:
    """Return the path of the option of `data.KEY` with this value.

    If the key is not tuned, return the path of the key.
    """
    from sweeps.space.model.templates import dimensions, tuned_data

    for dimension in dimensions(tuned_data(space.sections).get(key)):
        for i, option in enumerate(dimension.options):
            # An option of `data.train` may be a mapping of a function to its arguments.
            names = option.value if isinstance(option.value, dict) else [option.value]
            if value in names:
                return f"{dimension.name}.{dimension.kind}.{i}"
    return f"data.{key}"


def locate_problems(space: Space, problems: Iterable[Problem]) -> InputError:
    """Return an error with the problems in the order of the space file.

    Args:
        space: The search space.
        problems: The problems. If the place of a problem is a key, such as `data.label`, the key's
            position in the space file becomes the place. Other places are kept.
    """
    located = {_add_position(space, problem) for problem in problems}
    return InputError(sorted(located, key=_position_in_file))


def _add_position(space: Space, problem: Problem) -> Problem:
    """Return a problem with the position of its key as the place; see `locate_problems`."""
    key = problem.place
    if not _KEY.match(key):
        return problem
    place = space.place(key)
    if space.is_passed:
        place, key = place_and_key(place, key)
    return Problem(place, f"{key}: {problem.text}" if key else problem.text)


def check_root(root: Path) -> None:
    """Check that the folder of a new sweep can be created in the root folder.

    Args:
        root: The root folder of all sweeps. If it does not exist, the first sweep creates it.

    Raises:
        InputError: The root is not a folder, or the root or the folder that must contain it is not
            writable.
    """
    # `Path` has joined the two slashes of an address. A single letter is a drive of Windows.
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):/", str(root))
    if scheme and not root.exists():
        raise InputError(
            "--dir",
            f"{root}: `{scheme[1]}:` is not a folder; sweeps writes to this machine, or to "
            "storage that all nodes have mounted",
        )
    existing = next((path for path in (root, *root.parents) if os.path.lexists(path)), root)
    if not existing.is_dir():
        file = "is a file" if existing == root else f"`{existing}` is a file"
        raise InputError("--dir", f"{root}: {file}, but must be a folder")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise InputError("--dir", f"{root}: `{existing}` is not writable")


def _position_in_file(problem: Problem) -> tuple[int, int, int, Problem]:
    """Return a key that sorts problems by their position in the file.

    Problems without a position, such as those of `--set`, come last.
    """
    position = re.search(r":(\d+):(\d+)\Z", problem.place)
    if position is None:
        return (1, 0, 0, problem)
    return (0, int(position[1]), int(position[2]), problem)


def _probe_source(source: Source) -> SourceInfo | None:
    """Return facts about a data source.

    Return None for a remote URI or a function, which are not checked early.

    Raises:
        InputError: The source does not exist, or the contents of a file do not match its suffix.
    """
    if source.name.startswith("sklearn:"):
        from sweeps.data.sources.sklearn_datasets import COLUMNS

        return SourceInfo((*COLUMNS[source.name.removeprefix("sklearn:")], "target"))
    from sweeps.data.sources.data_files import check_scheme, find_files

    if "://" in source.name:
        if check_scheme(source.name, source.place) != "file":
            return None
    elif references.is_reference(source.name):
        return None
    from sweeps.data.sources.schema_probe import probe_schemas

    files = find_files(source)
    return SourceInfo((*probe_schemas(files, MAX_FILES)[0].names, *files.partition_columns), files)

"""Check the data before Ray starts, to report many problems within a fraction of a second.

The checks find files, read their first rows and, if the files are small, their labels. The checks
do not connect to remote URIs and do not call a user's `module:function`. Problems in such sources,
and in the rows of large files, are found when the sweep reads the data.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeps.core import references
from sweeps.core.errors import InputError, Problem
from sweeps.space.problems import place_and_key

if TYPE_CHECKING:
    from sweeps.data.files import SourceFiles
    from sweeps.space import DataSpec, Space

log = logging.getLogger(__name__)

# Largest number of files of a source that are checked early; the sweep checks the other files
MAX_FILES = 100
# Largest number of bytes that are read early; see `schema_probe.bytes_to_read`. Arrow reads one CSV
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
        names: column names. A CSV column without a name has the name that pandas gives it, such as
            `Unnamed: 0`.
        files: the files. None if the source is a data set of scikit-learn.
    """

    names: tuple[str, ...]
    files: SourceFiles | None = None


def check_data(space: Space, most: float = MAX_BYTES) -> None:
    """Check the data of a space; see the module's docstring.

    Log a warning for each split that lacks a class.

    Args:
        space: the search space. The function checks every data variant, and the columns that are
            named in preprocessing steps.
        most: largest number of bytes that are read for this.

    Raises:
        InputError: the data has problems. The error lists all of them, with their positions in the
            space file.
    """
    if not space.data.given:
        return
    known: dict[tuple[str, str], SourceInfo | None] = {}
    labels: dict[str, _LabelInfo] = {}
    lacking: tuple[str, ...] = ()
    problems: list[Problem] = []
    for spec in space.variants:
        own_problems, sources = _check_variant(space, spec, known)
        checked = {key: source for key, source in sources.items() if source is not None}
        if not own_problems and spec.source not in labels and len(checked) == len(sources):
            try:
                label, notes, read = _check_values(spec, checked, most, space.search.seed)
                lacking += notes
                most -= read
                if label is not None:
                    labels[spec.source] = (spec.train, *label)
            except InputError as e:
                own_problems += e.problems
        problems += (_locate_option(space, spec, p) for p in own_problems)
    if not problems and labels:
        problems = _check_labels(space, list(labels.values()), lacking)
    if not problems:
        try:
            problems = _check_types(space, known)
        except InputError as e:
            problems += e.problems
    if problems:
        raise locate_problems(space, problems)
    for note in lacking:
        log.warning("note: %s", note)


def _check_labels(
    space: Space, labels: Sequence[_LabelInfo], lacking: Sequence[str]
) -> list[Problem]:
    """Check that all sources have the same task and classes, and check the space's metrics.

    The trainer must report these metrics for this task. For `lacking`, see `Splits.lacking`.
    """
    from sweeps.data.label_checks import check_same_task
    from sweeps.data.metric_checks import check_metrics

    problems = [
        Problem(_option_path(space, "train", p.text.split("`")[1]), p.text)
        for p in check_same_task(labels)
    ]
    return problems or check_metrics(space, labels[0][1], lacking)


def _check_types(space: Space, known: Mapping[tuple[str, str], SourceInfo | None]) -> list[Problem]:
    """Check the types of the features; see `column_checks.check_types`.

    For `known`, see `_check_variant`.
    """
    from sweeps.data.column_checks import check_types
    from sweeps.data.missing import certain_texts
    from sweeps.data.schema_probe import column_types, first_rows

    types = []
    for spec in space.variants:
        info = known.get(("train", spec.train))
        if info is None or info.files is None:
            return []
        features = {*info.names} - {
            *_removed(spec, info.names),
            *spec.parse,
        }  # an index of pandas without a name is no feature
        texts = certain_texts(spec, first_rows(info.files))
        found = column_types(info.files).items()
        types.append(
            {n: kind for n, kind in found if n in features and (kind != "text" or n in texts)}
        )
    return check_types(space, types)


_LabelInfo = tuple[str, str | None, tuple[Any, ...] | None]  # name, task and classes of a source


def _check_variant(
    space: Space, spec: DataSpec, known: dict[tuple[str, str], SourceInfo | None]
) -> tuple[list[Problem], dict[str, SourceInfo | None]]:
    """Check a data variant, which is the `data` section with one choice for each tuned key.

    Args:
        space: the search space.
        spec: the variant.
        known: facts about the sources of earlier variants, by split and source. The function adds
            the sources of this variant.

    Returns:
        The problems, and the facts about each source of the variant, by split. The facts are None
        if the source has a problem or is not checked.
    """
    problems: list[Problem] = []
    sources: dict[str, SourceInfo | None] = {}
    for key, source in _sources(spec).items():
        if (key, source) not in known:
            try:
                known[key, source] = _probe_source(source, spec, f"data.{key}")
            except InputError as e:
                problems += e.problems
                known[key, source] = None
        sources[key] = known[key, source]
    probed = {key: info for key, info in sources.items() if info is not None}
    if "train" in probed:
        from sweeps.data.column_checks import check_step_columns
        from sweeps.data.label_checks import check_columns

        names = probed["train"].names
        problems += check_columns(spec, {key: info.names for key, info in probed.items()})
        removed = _removed(spec, names)
        features = [name for name in names if name not in removed]
        if not features and not problems and space.trainer_definition.needs_label:
            text = (
                f"`{spec.train}` has no other columns than the label and those of data.drop, "
                "weights and splits"
            )
            problems.append(Problem("data.label", f"{text}; a model needs a column to read"))
        problems += check_step_columns(
            space.sections.get("preprocessor", ()),
            features,
            spec.label,
            spec.train,
            removed,
            space.sections.get("params"),
        )
    return problems, sources


def _removed(spec: DataSpec, names: Iterable[str]) -> set[str]:
    """Return the columns that are no features.

    They are the label, the weights, dropped columns, and columns that assign rows to splits.
    """
    from sweeps.data.label_checks import split_columns

    return {*names} & {*spec.labels, *spec.drop, *spec.weight_columns, *split_columns(spec)}


def _locate_option(space: Space, spec: DataSpec, problem: Problem) -> Problem:
    """Return a problem whose place is the path of the tuned option that causes the problem.

    The option is one of `data.train` or `data.drop`. Other problems are returned unchanged.
    """
    values = {"data.train": spec.train, "data.drop": spec.drop}
    if problem.place not in values:
        return problem
    return Problem(
        _option_path(space, problem.place.removeprefix("data."), values[problem.place]),
        problem.text,
    )


def _option_path(space: Space, key: str, value: Any) -> str:
    """Return the path of the option of `data.KEY` with this value.

    If the key is not tuned, return the path of the key.
    """
    from sweeps.space.templates import dimensions, tuned_data

    for dim in dimensions(tuned_data(space.sections).get(key)):
        for i, option in enumerate(dim.options):
            if option.value == value or (isinstance(option.value, dict) and value in option.value):
                return f"{dim.name}.{dim.kind}.{i}"
    return f"data.{key}"


def locate_problems(space: Space, problems: Iterable[Problem]) -> InputError:
    """Return an error with the problems in the order of the space file.

    Args:
        space: the search space.
        problems: the problems. If the place of a problem is a key, such as `data.label`, the key's
            position in the space file becomes the place. Other places are kept.
    """
    located = {_located(space, p) if _KEY.match(p.place) else p: None for p in problems}
    return InputError(sorted(located, key=_position_in_file))


def _located(space: Space, problem: Problem) -> Problem:
    """Return a problem of a key with the key's position as the place."""
    place, key = space.place(problem.place), problem.place
    if space.is_passed:
        place, key = place_and_key(place, key)
    return Problem(place, f"{key}: {problem.text}" if key else problem.text)


def check_root(root: Path) -> None:
    """Check that the folder of a new sweep can be created in the root folder.

    Args:
        root: the root folder of all sweeps. If it does not exist, the first sweep creates it.

    Raises:
        InputError: the root is not a folder, or the root or the folder that must contain it is not
            writable.
    """
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):/", str(root))
    if scheme and len(scheme[1]) > 1 and not root.exists():
        text = (
            f"{root}: `{scheme[1]}:` is not a folder; sweeps writes to this machine, or to "
            "storage that all nodes have mounted"
        )
        raise InputError("--dir", text)
    existing = next((path for path in (root, *root.parents) if os.path.lexists(path)), root)
    if not existing.is_dir():
        file = "is a file" if existing == root else f"`{existing}` is a file"
        raise InputError("--dir", f"{root}: {file}, but must be a folder")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise InputError("--dir", f"{root}: `{existing}` is not writable")


def _position_in_file(problem: Problem) -> tuple[Any, ...]:
    """Return a key that sorts problems by their position in the file.

    Problems without a position, such as those of `--set`, come last.
    """
    at = re.search(r":(\d+):(\d+)\Z", problem.place)
    return (0, int(at[1]), int(at[2]), problem) if at else (1, 0, 0, problem)


def _sources(spec: DataSpec) -> dict[str, str]:
    from sweeps.data.label_checks import split_rules

    return {"train": spec.train} | {
        key: str(rule.path) for key, rule in split_rules(spec).items() if rule.kind == "path"
    }


def _probe_source(source: str, spec: DataSpec, place: str) -> SourceInfo | None:
    """Return facts about a data source.

    Return None for a remote URI or a function, which are not checked early.

    Raises:
        InputError: the source does not exist, or the contents of a file do not match its suffix.
    """
    if source.startswith("sklearn:"):
        from sweeps.data.sklearn_datasets import feature_names

        return SourceInfo((*feature_names(source.removeprefix("sklearn:")), "target"))
    from sweeps.data.files import check_scheme, find_files

    uri = "://" in source
    if (uri and check_scheme(source, place) != "file") or (
        not uri and references.is_reference(source)
    ):
        return None
    from sweeps.data.schema_probe import probe_schemas

    files = find_files(source, spec.base, place, spec.read)
    return SourceInfo((*probe_schemas(files, MAX_FILES)[0].names, *files.partition_columns), files)


def _check_values(
    spec: DataSpec, known: Mapping[str, SourceInfo], most: float, seed: int
) -> tuple[tuple[str | None, tuple[Any, ...] | None] | None, tuple[str, ...], float]:
    """Assign the rows to splits as the sweep does, if the deciding columns can be read quickly.

    These columns are the label, the weights, the columns of `data.parse`, and those that assign
    rows to splits.

    Args:
        spec: the data variant.
        known: facts about the variant's sources.
        most: largest number of bytes that may be read.
        seed: seed of the sweep.

    The task of the label `target` of scikit-learn's data sets is known without reading them.

    Returns:
        The pair (task, classes) of the label, which is None if there is no label, or if the values
        were not read. The notes about classes that a split lacks. An estimate of the number of
        bytes that were read.

    Raises:
        InputError: see `split_rows`.
    """
    from sweeps.data.label_checks import split_rules
    from sweeps.data.load import split_rows
    from sweeps.data.schema_probe import bytes_to_read, read_columns
    from sweeps.data.sklearn_datasets import label_task

    if list(known) == ["train"] and known["train"].files is None and spec.labels == ("target",):
        return label_task(spec.train.removeprefix("sklearn:"), spec.task), (), 0
    columns = (rule.column for rule in split_rules(spec).values() if rule.column is not None)
    groups = () if spec.group is None else (spec.group,)
    wanted = sorted({*spec.labels, *spec.weight_columns, *columns, *groups, *spec.parse})
    if spec.folds and not wanted:
        wanted = [*known["train"].names[:1]]
    parts = {}
    for key, seen in known.items():
        if seen.files is None or not _can_read(seen.files, wanted):
            return None, (), 0
        parts[key] = seen.files
    size = sum(bytes_to_read(files, wanted) for files in parts.values()) if wanted else 0
    if not wanted or size > most:
        return None, (), 0
    tables = {key: read_columns(files, wanted) for key, files in parts.items()}
    splits = split_rows(replace(spec, drop=(), drop_duplicates=False), tables, seed)
    return (splits.task, splits.classes) if spec.labels else None, splits.lacking, size


def _can_read(files: SourceFiles, columns: Sequence[str]) -> bool:
    """Return whether the files themselves have the columns, with their names."""
    if set(columns) & set(files.partition_columns):
        return False
    return not any(name.startswith("Unnamed: ") for name in columns)

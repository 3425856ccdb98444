"""Check the data before Ray starts, so that many problems are reported within a fraction of a second.

The checks find files, read their first rows and, if the files are small, their labels. The checks do not connect to remote URIs and do not
call a user's `module:function`. Problems in such sources, and in the rows of large files, are found when the sweep reads the data.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeps.core import references
from sweeps.core.errors import InputError, Problem
from sweeps.space.passed_tables import is_recipe
from sweeps.space.problems import place_and_key

if TYPE_CHECKING:
    from sweeps.data.files import SourceFiles
    from sweeps.space import DataSpec, Space

# Largest number of files of a source that are checked early; the sweep checks the other files
MAX_FILES = 100
# Largest number of bytes that are read early; see `schema_probe.bytes_to_read`. Arrow reads one CSV column at 250 MB/s. The rest of the
# command's work before the sweep takes half a second.
MAX_BYTES = 64_000_000

# Matches the place of a problem if the place is a key and not yet a position in the space file
_KEY = re.compile(
    r"(space\.)?(data|trainer|preprocessor|scaling|params|objective|scheduler|search\.from)(\.|\Z)"
)


@dataclass(frozen=True)
class SourceInfo:
    """Known facts about a data source.

    Attributes:
        names: column names. A CSV column without a name has the name that pandas gives it, such as `Unnamed: 0`.
        files: the files. None if the source is a data set of scikit-learn.
    """

    names: tuple[str, ...]
    files: SourceFiles | None = None


def check_data(space: Space) -> None:
    """Check the data of a space; see the module's docstring.

    Args:
        space: the search space. The function checks every data variant, and the columns that are named in preprocessing steps.

    Raises:
        InputError: the data has problems. The error lists all of them, with their positions in the space file.
    """
    if not space.data.given:
        return
    known: dict[tuple[str, str], SourceInfo | None] = {}
    labels: dict[str, _LabelInfo] = {}
    problems: list[Problem] = []
    budget = MAX_BYTES
    for spec in space.variants:
        own_problems, sources = _check_variant(space, spec, known)
        checked = {key: source for key, source in sources.items() if source is not None}
        if not own_problems and spec.source not in labels and len(checked) == len(sources):
            try:
                label, read = _check_values(spec, checked, budget)
                budget -= read
                if label is not None:
                    labels[spec.source] = (spec.train, *label)
            except InputError as e:
                own_problems += e.problems
        problems += (_locate_option(space, spec, p) for p in own_problems)
    if not problems and labels:
        problems = _check_labels(space, list(labels.values()))
    if not problems:
        problems = _check_texts(space, known)
    if problems:
        raise locate_problems(space, problems)


def _check_labels(space: Space, labels: Sequence[_LabelInfo]) -> list[Problem]:
    """Check that all sources have the same task and classes, and that the trainer reports the space's metrics for this task."""
    from sweeps.data.label_checks import check_same_task
    from sweeps.data.metric_checks import check_metrics

    problems = [
        Problem(_option_path(space, "train", p.text.split("`")[1]), p.text)
        for p in check_same_task(labels)
    ]
    return problems or check_metrics(space, labels[0][1])


def _check_texts(space: Space, known: Mapping[tuple[str, str], SourceInfo | None]) -> list[Problem]:
    """Return a problem if, in every variant, a column of texts reaches a trainer that reads only numbers.

    If only some variants have such a column, their trials fail, but the sweep does not. Nothing is returned then.

    Args:
        space: the search space.
        known: see `_check_variant`.
    """
    from sweeps.data.column_checks import unread_texts, unread_texts_error
    from sweeps.data.missing import certain_texts
    from sweeps.data.schema_probe import first_rows

    if not space.trainer_definition.reads_numbers or space.trainer_definition.streams:
        return []
    unread: list[list[str]] = []
    texts: dict[str, list[str]] = {}
    for spec in space.variants:
        info = known.get(("train", spec.train))
        if info is None or info.files is None:
            return []
        if spec.train not in texts:
            first = first_rows(info.files)
            texts[spec.train] = [] if first is None else certain_texts(spec, first)
        features = {*info.names} - {
            *_removed(spec, info.names),
            *spec.parse,
        }  # an index of pandas without a name is no feature
        unread.append(
            unread_texts(
                space.sections.get("preprocessor", ()),
                [name for name in texts[spec.train] if name in features],
            )
        )
    if not all(unread):
        return []
    return [
        Problem(
            "space.preprocessor", unread_texts_error(unread[0], space.trainer.name or "the trainer")
        )
    ]


_LabelInfo = tuple[str, str | None, tuple[Any, ...] | None]  # name, task and classes of a source


def _check_variant(
    space: Space, spec: DataSpec, known: dict[tuple[str, str], SourceInfo | None]
) -> tuple[list[Problem], dict[str, SourceInfo | None]]:
    """Check a data variant, which is the `data` section with one choice for each tuned key.

    Args:
        space: the search space.
        spec: the variant.
        known: facts about the sources of earlier variants, by split and source. The function adds the sources of this variant.

    Returns:
        The problems, and the facts about each source of the variant, by split. The facts are None if the source has a problem or is not
        checked.
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
        problems += check_step_columns(
            space.sections.get("preprocessor", ()), features, spec.label, spec.train, removed
        )
    return problems, sources


def _removed(spec: DataSpec, names: Iterable[str]) -> set[str]:
    """Return the columns that are no features: the label, weights, dropped columns, and columns that assign rows to splits."""
    from sweeps.data.label_checks import split_columns

    return {*names} & {*spec.labels, *spec.drop, *spec.weight_columns, *split_columns(spec)}


def _locate_option(space: Space, spec: DataSpec, problem: Problem) -> Problem:
    """Return a problem whose place is the path of the tuned option of `data.train` or `data.drop` that causes the problem.

    Other problems are returned unchanged.
    """
    values = {"data.train": spec.train, "data.drop": spec.drop}
    if problem.place not in values:
        return problem
    return Problem(
        _option_path(space, problem.place.removeprefix("data."), values[problem.place]),
        problem.text,
    )


def _option_path(space: Space, key: str, value: Any) -> str:
    """Return the path of the option of `data.KEY` with this value. If the key is not tuned, return the path of the key."""
    from sweeps.space.templates import dimensions

    for dim in dimensions(space.sections.get("data", {}).get(key)):
        for i, option in enumerate(dim.options):
            if option.value == value or (isinstance(option.value, dict) and value in option.value):
                return f"{dim.name}.{dim.kind}.{i}"
    return f"data.{key}"


def locate_problems(space: Space, problems: Iterable[Problem]) -> InputError:
    """Return an error with the problems in the order of the space file.

    Args:
        space: the search space.
        problems: the problems. If the place of a problem is a key, such as `data.label`, the key's position in the space file becomes
            the place. Other places are kept.
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
        InputError: the root is not a folder, or the root or the folder that must contain it is not writable.
    """
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):/", str(root))
    if scheme and len(scheme[1]) > 1 and not root.exists():
        text = f"{root}: `{scheme[1]}:` is not a folder; sweeps writes to this machine, or to storage that all nodes have mounted"
        raise InputError(Problem("--dir", text))
    existing = next((path for path in (root, *root.parents) if os.path.lexists(path)), root)
    if not existing.is_dir():
        file = "is a file" if existing == root else f"`{existing}` is a file"
        raise InputError(Problem("--dir", f"{root}: {file}, but must be a folder"))
    if not os.access(existing, os.W_OK | os.X_OK):
        raise InputError(Problem("--dir", f"{root}: `{existing}` is not writable"))


def _position_in_file(problem: Problem) -> tuple[Any, ...]:
    """Return a key that sorts problems by their position in the file. Problems without a position, such as those of `--set`, come last."""
    at = re.search(r":(\d+):(\d+)\Z", problem.place)
    return (0, int(at[1]), int(at[2]), problem) if at else (1, 0, 0, problem)


def _sources(spec: DataSpec) -> dict[str, str]:
    from sweeps.data.label_checks import split_rules

    return {"train": spec.train} | {
        key: str(rule.path) for key, rule in split_rules(spec).items() if rule.kind == "path"
    }


def _probe_source(source: str, spec: DataSpec, place: str) -> SourceInfo | None:
    """Return facts about a data source. Return None for a remote URI, a function or a lazy table, which are not checked early.

    Raises:
        InputError: the source does not exist, or the contents of a file do not match its suffix.
    """
    if source.startswith("sklearn:"):
        from sweeps.data.sklearn_datasets import feature_names

        return SourceInfo((*feature_names(source.removeprefix("sklearn:")), "target"))
    if is_recipe(source):
        return None
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
    spec: DataSpec, known: Mapping[str, SourceInfo], most: int
) -> tuple[tuple[str | None, tuple[Any, ...] | None] | None, int]:
    """Check the values of the label, of weights and of columns that assign rows to splits, if they can be read quickly.

    The task of the label `target` of scikit-learn's data sets is known without reading them.

    Args:
        spec: the data variant.
        known: facts about the variant's sources.
        most: largest number of bytes that may be read.

    Returns:
        Two values. The first is the pair (task, classes) of the label; None if there is no label, or if the values were not read.
        The second is an estimate of the number of bytes that were read.

    Raises:
        InputError: a value does not fit its rule of `data.parse`, the values of the label are invalid (see `infer_task`), a split has no
            rows (see `check_split_values`), or a weight is invalid (see `check_weights`).
    """
    from sweeps.data import label_checks, sklearn_datasets, weights
    from sweeps.data.parsed_columns import read_rows
    from sweeps.data.schema_probe import bytes_to_read, read_columns

    if list(known) == ["train"] and known["train"].files is None and spec.labels == ("target",):
        return sklearn_datasets.label_task(spec.train.removeprefix("sklearn:"), spec.task), 0
    wanted = sorted(
        {*spec.labels, *spec.weight_columns, *label_checks.split_columns(spec), *spec.parse}
    )
    parts = {}
    for key, seen in known.items():
        if (
            seen.files is None
            or set(wanted) & set(seen.files.partition_columns)
            or any(n.startswith("Unnamed: ") for n in wanted)
        ):
            return None, 0
        parts[key] = seen.files
    size = sum(bytes_to_read(files, wanted) for files in parts.values()) if wanted else 0
    if not wanted or size > most:
        return None, 0
    tables = {key: read_columns(files, wanted) for key, files in parts.items()}
    tables = read_rows(spec, tables).parts
    if spec.labels and spec.drop_missing_label:
        tables, _ = label_checks.drop_unlabeled(spec.labels, tables)
    problems, label = (
        label_checks.check_split_values(spec, tables["train"])
        + weights.check_weights(spec, tables),
        None,
    )
    if spec.labels:
        try:
            label = label_checks.infer_tasks(spec.labels, spec.task, tables)
            label_checks.positive_last(spec, *label)
            problems += weights.check_class_weight(spec, label[0])
        except InputError as e:
            problems += e.problems
    if problems:
        raise InputError(problems)
    return label, size

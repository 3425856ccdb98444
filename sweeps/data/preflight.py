"""A look at the data before Ray starts: what can be known of it in a fraction of a second is refused then.

Files are found, their heads read, and of small ones the label. A URI is not connected to and a `module:function` not called:
what is wrong there, and with the rows of large files, the sweep finds out when it reads them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeps.core.errors import InputError, Problem

if TYPE_CHECKING:
    from sweeps.data.files import SourceFiles
    from sweeps.space import DataSpec, Space

# Of a source with more files the others are left to the sweep
MAX_FILES = 100
# More than so many bytes are left to the sweep; see `heads.weight`. Arrow reads one column of CSV at 250 MB a second, and all else
# that the command does before takes half a second
MAX_BYTES = 64_000_000

# What places a problem has before it is known where in a file that is
_KEY = re.compile(r"(space\.)?(data|preprocessor|scaling|params|objective)(\.|\Z)")


@dataclass(frozen=True)
class SourceInfo:
    """What is known of a source.

    Attributes:
        names: of its columns, as the sweep will call them.
        files: None for a set that scikit-learn ships.
    """

    names: tuple[str, ...]
    files: SourceFiles | None = None


def check_data(space: Space) -> None:
    """Refuse data that the sweep would refuse, as far as that can be known at once.

    Args:
        space: every variant of its `data` and the columns that the steps of its `preprocessor` name are checked.

    Raises:
        InputError: with every problem, each at its place in the space file.
    """
    if not space.data.given:
        return
    problems: list[Problem] = []
    seen: dict[tuple[str, str], SourceInfo | None] = {}
    labels: dict[str, _LabelInfo] = {}
    left = MAX_BYTES
    for spec in space.variants:
        found, here = _check_variant(space, spec, seen)
        if not found and spec.source not in labels and all(part is not None for part in here.values()):
            try:
                label, read = _check_values(spec, {key: part for key, part in here.items() if part is not None}, left)
                left -= read
                if label is not None:
                    labels[spec.source] = (spec.train, *label)
            except InputError as e:
                found += e.problems
        problems += (_locate_option(space, spec, p) for p in found)
    if not problems:
        from sweeps.data.label_checks import check_same_task

        problems = (
            [Problem(_option_path(space, "train", p.text.split("`")[1]), p.text) for p in check_same_task(list(labels.values()))]
            if labels
            else []
        )
    if not problems and labels:
        from sweeps.data.metric_checks import check_metrics

        problems = check_metrics(space, next(iter(labels.values()))[1])
    if problems:
        raise locate_problems(space, problems)


_LabelInfo = tuple[str, str | None, tuple[Any, ...] | None]  # a source's name, its task and its classes


def _check_variant(
    space: Space, spec: DataSpec, seen: dict[tuple[str, str], SourceInfo | None]
) -> tuple[list[Problem], dict[str, SourceInfo | None]]:
    """What is wrong with a variant, and what is known of its sources.

    Args:
        space: for the steps.
        spec: the variant.
        seen: what is known of sources already, by key and source; added to.
    """
    problems: list[Problem] = []
    here: dict[str, SourceInfo | None] = {}
    for key, source in _sources(spec).items():
        if (key, source) not in seen:
            try:
                seen[key, source] = _probe_source(source, spec, f"data.{key}")
            except InputError as e:
                problems += e.problems
                seen[key, source] = None
        here[key] = seen[key, source]
    known = {key: found for key, found in here.items() if found is not None}
    if "train" in known:
        from sweeps.data.column_checks import check_step_columns
        from sweeps.data.label_checks import check_columns, split_columns

        have = known["train"].names
        problems += check_columns(spec, {key: found.names for key, found in known.items()})
        gone = {name for name in have if name == spec.label or name in spec.drop or name in split_columns(spec)}
        features = [name for name in have if name not in gone]
        problems += check_step_columns(space.sections.get("preprocessor", ()), features, spec.label, spec.train, gone)
    return problems, here


def _locate_option(space: Space, spec: DataSpec, problem: Problem) -> Problem:
    """A problem of a tuned key at the option that it is of."""
    if problem.place == "data.train":
        return Problem(_option_path(space, "train", spec.train), problem.text)
    if problem.place == "data.drop":
        return Problem(_option_path(space, "drop", spec.drop), problem.text)
    return problem


def _option_path(space: Space, key: str, value: Any) -> str:
    """The path of the option of `data.KEY` that has a value; of the key itself where it is not tuned."""
    from sweeps.space import Dimension

    def walk(template: Any) -> str | None:
        if not isinstance(template, Dimension):
            return None
        for i, option in enumerate(template.options):
            path = f"{template.name}.{template.kind}.{i}"
            if option.value == value or (isinstance(option.value, dict) and value in option.value):
                return path
            if inner := walk(option.value):
                return inner
        return None

    return walk(space.sections.get("data", {}).get(key)) or f"data.{key}"


def locate_problems(space: Space, problems: Iterable[Problem]) -> InputError:
    """Problems of a key, such as `data.label`, at the place where the key stands in the file; others as they are."""
    told = {Problem(space.place(p.place), f"{p.place}: {p.text}") if _KEY.match(p.place) else p: None for p in problems}
    return InputError(sorted(told, key=_position_in_file))


def check_root(root: Path) -> None:
    """Refuse a root of sweeps in which no folder can be made. It is made only when a sweep is.

    Raises:
        InputError: it is no folder, or one that may not be written.
    """
    if (found := re.match(r"([A-Za-z][A-Za-z0-9+.-]*):/", str(root))) and len(found[1]) > 1 and not root.exists():
        text = f"{root}: `{found[1]}:` is no folder; sweeps writes to a folder of this machine, or of storage that all nodes have mounted"
        raise InputError(Problem("--dir", text))
    there = next((path for path in (root, *root.parents) if os.path.lexists(path)), root)
    if not there.is_dir():
        raise InputError(Problem("--dir", f"{root}: " + ("is a file" if there == root else f"`{there}` is a file") + ", not a folder"))
    if not os.access(there, os.W_OK | os.X_OK):
        raise InputError(Problem("--dir", f"{root}: `{there}` may not be written"))


def _position_in_file(problem: Problem) -> tuple[Any, ...]:
    """By place in the file; what an override says comes last."""
    at = re.search(r":(\d+):(\d+)\Z", problem.place)
    return (0, int(at[1]), int(at[2]), problem) if at else (1, 0, 0, problem)


def _sources(spec: DataSpec) -> dict[str, str]:
    rules = {"valid": spec.valid, "test": spec.test}
    return {"train": spec.train} | {key: str(r.path) for key, r in rules.items() if r is not None and r.kind == "path"}


def _probe_source(source: str, spec: DataSpec, place: str) -> SourceInfo | None:
    """What is known of a source; None if it is not for this look.

    Raises:
        InputError: it is not there, or not what it says.
    """
    if source.startswith("sklearn:"):
        from sweeps.data.sklearn_datasets import feature_names

        return SourceInfo((*feature_names(source.removeprefix("sklearn:")), "target"))
    from sweeps.data.files import check_scheme, find_files, is_reference

    uri = "://" in source
    if (uri and check_scheme(source, place) != "file") or (not uri and is_reference(source)):
        return None
    from sweeps.data.schema_probe import pandas_names, probe_schemas

    files = find_files(source, spec.base, place)
    return SourceInfo((*pandas_names(probe_schemas(files, MAX_FILES)[0].names), *files.partition_columns), files)


def _check_values(spec: DataSpec, known: Mapping[str, SourceInfo], most: int) -> tuple[tuple[str, tuple[Any, ...] | None] | None, int]:
    """Check the values of the label and of a column that says which split a row is in, where they can be read at once.

    Args:
        spec: of the data.
        known: its sources.
        most: bytes that may be read.

    Returns:
        The task and the classes, or None if that is left to the sweep; and about how many bytes were read.

    Raises:
        InputError: they will not do.
    """
    from sweeps.data import label_checks
    from sweeps.data.schema_probe import bytes_to_read, read_columns

    wanted = sorted({spec.label} | label_checks.split_columns(spec) if spec.label is not None else label_checks.split_columns(spec))
    parts = {}
    for key, seen in known.items():
        if seen.files is None or set(wanted) & set(seen.files.partition_columns) or any(n.startswith("Unnamed: ") for n in wanted):
            return None, 0
        parts[key] = seen.files
    size = sum(bytes_to_read(files, wanted) for files in parts.values()) if wanted else 0
    if not wanted or size > most:
        return None, 0
    tables = label_checks.unify_types({key: read_columns(files, wanted) for key, files in parts.items()})
    if spec.label is not None and spec.drop_missing_label:
        tables, _ = label_checks.drop_unlabelled(spec.label, tables)
    problems, label = label_checks.check_split_values(spec, tables["train"]), None
    if spec.label is not None:
        try:
            label = label_checks.infer_task(spec.label, spec.task, {key: table.column(spec.label) for key, table in tables.items()})
        except InputError as e:
            problems += e.problems
    if problems:
        raise InputError(problems)
    return label, size

"""What a `data` section asks of its columns and of its label. Needs neither Ray nor pandas, so that it can be known early."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from sweeps.core.errors import InputError, Problem
from sweeps.core.suggestions import did_you_mean

if TYPE_CHECKING:
    from sweeps.space import DataSpec

# How to leave out the rows that `label_of` refuses
DROP_MISSING_LABEL = "`data.drop_missing_label: true`"

# An integer label with more distinct values than this is a number, not a class, unless `data.task` says otherwise
_MAX_INTEGER_CLASSES = 20


def split_columns(spec: DataSpec) -> set[str]:
    """Columns whose values say which split a row is in."""
    return {str(rule.column) for rule in (spec.valid, spec.test) if rule is not None and rule.kind == "column"}


def nearest_column(name: str, names: Iterable[str]) -> str:
    """The tail of a message about an absent column: the nearest there is, or what there is, a dozen at most."""
    names = list(names)
    if same := [n for n in names if n.lower() == name.lower()]:
        return f"did you mean `{same[0]}`?"
    hint = did_you_mean(name, names)
    return hint if hint.startswith("did") or len(names) <= 12 else f"it has {', '.join(names[:10])}, ... ({len(names)} in all)"


def check_columns(spec: DataSpec, columns: Mapping[str, Sequence[str]]) -> list[Problem]:
    """Hold what a section names against the columns that there are.

    Args:
        spec: the section.
        columns: the names in "train", and in "valid" and "test" where these are other sources.
    """
    problems = []
    have = columns["train"]
    if spec.label is not None and spec.label not in have:
        problems.append(Problem("data.label", f"`{spec.train}` has no column `{spec.label}`; {nearest_column(spec.label, have)}"))
    problems += check_dropped(spec, have)
    for key, rule in (("valid", spec.valid), ("test", spec.test)):
        if rule is not None and rule.column is not None and rule.column not in have:
            problems.append(Problem(f"data.{key}", f"`{spec.train}` has no column `{rule.column}`; {nearest_column(rule.column, have)}"))
        if key in columns:
            missing, extra = set(have) - set(columns[key]), set(columns[key]) - set(have)
            texts = [f"{word} {_quoted_names(names)}" for word, names in (("missing", missing), ("extra", extra)) if names]
            if texts:
                problems.append(Problem(f"data.{key}", f"its columns differ from data.train's: {'; '.join(texts)}"))
    return problems


def check_dropped(spec: DataSpec, have: Sequence[str]) -> list[Problem]:
    """Hold `data.drop` against the columns that there are."""
    problems = []
    for name in spec.drop:
        if name == spec.label:
            problems.append(Problem("data.drop", f"`{name}` is the label"))
        elif name not in have:
            problems.append(Problem("data.drop", f"`{spec.train}` has no column `{name}`; {nearest_column(name, have)}"))
    return problems


def check_same_task(labels: Sequence[tuple[str, str | None, tuple[Any, ...] | None]]) -> list[Problem]:
    """Hold the labels of several sources against each other: one sweep has one task, or its trials could not be compared.

    Args:
        labels: of each source its name, its task and its classes, see `label_of`.

    Returns:
        A problem for each that differs from the first.
    """
    problems = []
    for source, task, classes in labels[1:]:
        first, wanted, known = labels[0]
        if (task, classes) != (wanted, known):
            own, other = _describe_task(task, classes), _describe_task(wanted, known)
            text = f"`{source}` is {own}, but `{first}` {other}; variants need the same task and classes"
            problems.append(Problem("data.train", text))
    return problems


def _describe_task(task: str | None, classes: tuple[Any, ...] | None) -> str:
    some = ", ".join(f"{value!r}" for value in (classes or ())[:8]) + (", ..." if len(classes or ()) > 8 else "")
    return f"{task} of {some}" if classes is not None else str(task)


def _quoted_names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


def unify_types(parts: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """The same columns in the same order and types everywhere, integers giving way to floats."""
    if len(parts) == 1:
        return dict(parts)
    names = parts["train"].column_names
    problems, columns = [], {}
    for name in names:
        kinds = {key: p.schema.field(name).type for key, p in parts.items() if p.column(name).null_count < p.num_rows}
        try:
            merged = pa.unify_schemas([pa.schema({name: k}) for k in kinds.values()], promote_options="permissive") if kinds else None
            kind = merged.field(name).type if merged else parts["train"].schema.field(name).type
            columns[name] = {
                key: p.column(name).cast(kind) if key in kinds else pa.chunked_array([pa.nulls(p.num_rows, kind)])
                for key, p in parts.items()
            }
        except (pa.ArrowTypeError, pa.ArrowInvalid):
            key, found = next((k, t) for k, t in kinds.items() if t != kinds.get("train"))
            other = _describe_type(kinds.get("train"))
            problems.append(Problem(f"data.{key}", f"column `{name}` holds {_describe_type(found)}, but {other} in data.train"))
    if problems:
        raise InputError(problems)
    return {key: pa.table({name: columns[name][key] for name in names}) for key in parts}


def _describe_type(kind: pa.DataType | None) -> str:
    return "text" if kind is not None and pa.types.is_large_string(kind) else str(kind)


def drop_unlabelled(label: str, parts: Mapping[str, pa.Table]) -> tuple[dict[str, pa.Table], dict[str, int]]:
    """The rows that have a label, and how many have none, by source.

    A column of integers is read as floats where a value is missing; here it becomes integers again, so that they can be classes.

    Raises:
        InputError: no row of a source has a label.
    """
    missing = {key: part.column(label).null_count for key, part in parts.items()}
    if gone := [key for key, part in parts.items() if missing[key] == part.num_rows]:
        raise InputError([Problem("data.label", f"`{label}` has no value in data.{key}") for key in gone])
    kept = {key: part.filter(pc.is_valid(part.column(label))) if missing[key] else part for key, part in parts.items()}
    columns = {key: part.column(label) for key, part in kept.items()}
    if any(missing.values()) and all(_holds_integers(column) for column in columns.values()):
        at = {key: part.column_names.index(label) for key, part in kept.items()}
        kept = {key: part.set_column(at[key], label, columns[key].cast(pa.int64())) for key, part in kept.items()}
    return kept, missing


def _holds_integers(column: pa.ChunkedArray) -> bool:
    """Return whether a column of floats holds only integers, and none too large for a float to be exact."""
    if not pa.types.is_floating(column.type):
        return False
    whole = pc.and_(pc.equal(column, pc.floor(column)), pc.less(pc.abs(column), 2.0**53))
    return bool(pc.all(whole).as_py())


def infer_task(label: str, asked: str | None, columns: Mapping[str, pa.ChunkedArray]) -> tuple[str, tuple[Any, ...] | None]:
    """The task and, for a classification, the sorted classes over all sources."""
    for key, column in columns.items():
        if column.null_count:
            missing = f"{column.null_count} missing value{'s' if column.null_count > 1 else ''}"
            way = f"remove those rows, or leave them out with {DROP_MISSING_LABEL}"
            raise InputError(Problem("data.label", f"`{label}` has {missing} in data.{key}; {way}"))
    kind = columns["train"].type
    integer, floating = pa.types.is_integer(kind), pa.types.is_floating(kind)
    discrete = pa.types.is_boolean(kind) or pa.types.is_large_string(kind)
    if not (integer or floating or discrete):
        raise InputError(Problem("data.label", f"`{label}` has type {kind}; a label holds numbers, text or booleans"))
    values = pc.unique(pa.chunked_array([chunk for column in columns.values() for chunk in column.chunks], kind))
    count = len(values)
    if count < 2:
        what = "value" if asked == "regression" else "class"
        raise InputError(Problem("data.label", f"`{label}` has one {what}, {values[0].as_py()!r}; at least two are needed"))
    task = asked
    if task is None:
        zero_one = floating and count == 2 and set(values.to_pylist()) == {0.0, 1.0}
        if discrete or (integer and count <= _MAX_INTEGER_CLASSES) or zero_one:
            task = "binary" if count == 2 else "multiclass"
        else:
            task = "regression"
    if task == "regression":
        if pa.types.is_large_string(kind):
            raise InputError(Problem("data.task", f"regression needs a number, but `{label}` holds text, such as {values[0].as_py()!r}"))
        return task, None
    if task == "binary" and count != 2:
        raise InputError(Problem("data.task", f"binary needs 2 classes, but `{label}` has {count}"))
    return task, tuple(sorted(values.to_pylist()))


def check_split_values(spec: DataSpec, train: pa.Table) -> list[Problem]:
    """Whether any row has the value that `{column: ..., value: ...}` asks for.

    Args:
        spec: the section.
        train: has at least the columns of `markers`.
    """
    problems = []
    for key, rule in (("valid", spec.valid), ("test", spec.test)):
        if rule is None or rule.kind != "column":
            continue
        values = pc.unique(train.column(str(rule.column))).to_pylist()
        if not any(value == rule.value or str(value) == str(rule.value) for value in values):
            some = ", ".join(sorted({f"`{value}`" for value in values[:8]}))
            problems.append(Problem(f"data.{key}", f"no row has {rule.value!r} in column `{rule.column}`, which holds {some}"))
    return problems


def missing_class_notes(label: str | None, classes: Sequence[Any] | None, parts: Mapping[str, pa.Table]) -> tuple[str, ...]:
    """A line for each split that has no row of some class: no metric of it can say anything of that class.

    Args:
        label: the column of the class codes.
        classes: None for a regression.
        parts: the splits by name.
    """
    said = []
    for name, table in parts.items() if label is not None and classes is not None else ():
        there = set(table.column(label).unique().to_pylist())
        if gone := [f"`{c}`" for code, c in enumerate(classes or ()) if code not in there]:
            more = f" and {len(gone) - 3} more" if len(gone) > 3 else ""
            said.append(f"the {name} split has no row of class {', '.join(gone[:3])}{more} of `{label}`")
    return tuple(said)

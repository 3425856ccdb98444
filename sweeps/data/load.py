"""The three splits of a sweep's data, with the label encoded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sweeps.data import split as splitting
from sweeps.data.sources import read
from sweeps.data.tables import fingerprint
from sweeps.errors import InputError, Problem, nearest

if TYPE_CHECKING:
    from sweeps.space import DataSpec, Split

# An integer label with more distinct values than this is a number, not a class, unless `data.task` says otherwise
_MOST_INTEGER_CLASSES = 20


@dataclass(frozen=True)
class Splits:
    """Raw rows, split.

    Attributes:
        train, valid, test: rows as they were read, the label encoded: int64 codes of `classes`, or float64; `test` may be None.
        label: the label's column; None for data without one.
        task: "binary", "multiclass" or "regression"; None without a label.
        classes: the label's original values by code, sorted; None for a regression.
        features: every column but the label, and but a column whose values say which split a row is in.
        fingerprint: SHA-256 over names, types, values and the split of every row.
    """

    train: pa.Table
    valid: pa.Table
    test: pa.Table | None
    label: str | None
    task: str | None
    classes: tuple[Any, ...] | None
    features: tuple[str, ...]
    fingerprint: str


def load_splits(spec: DataSpec, seed: int = 0) -> Splits:
    """Read the data of a space, split it and encode its label.

    Files are read through Ray Data: Ray must run, or is started.

    Args:
        spec: the section `data` of a space.
        seed: decides splits by fraction and by group.

    Raises:
        InputError: a source cannot be read, columns are missing, the label will not do, or a split would be empty.
    """
    parts = {"train": read(spec.train, spec.base, "data.train")}
    rules: dict[str, Split | None] = {"valid": spec.valid, "test": spec.test}
    for key, rule in rules.items():
        if rule is not None and rule.kind == "path":
            parts[key] = read(str(rule.path), spec.base, f"data.{key}")
    _check_columns(spec, parts, rules)
    parts = _align(parts)
    task, classes = None, None
    if spec.label is not None:
        task, classes = _label_of(spec.label, spec.task, {key: part.column(spec.label) for key, part in parts.items()})
        parts = {key: _encode(part, spec.label, classes) for key, part in parts.items()}
    parts = _divide(spec, parts, rules, classes is not None, seed)

    markers = {str(rule.column) for rule in rules.values() if rule is not None and rule.kind == "column"}
    markers = (markers | set(spec.drop)) - {spec.label}
    parts = {key: part.drop_columns(sorted(markers)) for key, part in parts.items()}
    train = parts["train"]
    if classes is not None and pc.count_distinct(train.column(spec.label)).as_py() < 2:
        only = classes[train.column(spec.label)[0].as_py()]
        raise InputError(Problem("data.label", f"the train split has one class of `{spec.label}`, {only!r}; at least two are needed"))
    return Splits(
        train=train,
        valid=parts["valid"],
        test=parts.get("test"),
        label=spec.label,
        task=task,
        classes=classes,
        features=tuple(name for name in train.column_names if name != spec.label),
        fingerprint=fingerprint({key: parts.get(key) for key in ("train", "valid", "test")}, (str(spec.label), str(task), repr(classes))),
    )


def _check_columns(spec: DataSpec, parts: Mapping[str, pa.Table], rules: Mapping[str, Split | None]) -> None:
    problems = []
    have = parts["train"].column_names
    if spec.label is not None and spec.label not in have:
        problems.append(Problem("data.label", f"`{spec.train}` has no column `{spec.label}`; {nearest(spec.label, have)}"))
    for name in spec.drop:
        if name == spec.label:
            problems.append(Problem("data.drop", f"`{name}` is the label"))
        elif name not in have:
            problems.append(Problem("data.drop", f"`{spec.train}` has no column `{name}`; {nearest(name, have)}"))
    for key, rule in rules.items():
        if rule is not None and rule.column is not None and rule.column not in have:
            problems.append(Problem(f"data.{key}", f"`{spec.train}` has no column `{rule.column}`; {nearest(rule.column, have)}"))
        if key in parts:
            missing, extra = set(have) - set(parts[key].column_names), set(parts[key].column_names) - set(have)
            texts = [f"{word} {_ticked(names)}" for word, names in (("missing", missing), ("extra", extra)) if names]
            if texts:
                problems.append(Problem(f"data.{key}", f"its columns differ from data.train's: {'; '.join(texts)}"))
    if problems:
        raise InputError(problems)


def _ticked(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


def _align(parts: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
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
            other = _spoken(kinds.get("train"))
            problems.append(Problem(f"data.{key}", f"column `{name}` holds {_spoken(found)}, but {other} in data.train"))
    if problems:
        raise InputError(problems)
    return {key: pa.table({name: columns[name][key] for name in names}) for key in parts}


def _spoken(kind: pa.DataType | None) -> str:
    return "text" if kind is not None and pa.types.is_large_string(kind) else str(kind)


def _label_of(label: str, asked: str | None, columns: Mapping[str, pa.ChunkedArray]) -> tuple[str, tuple[Any, ...] | None]:
    """The task and, for a classification, the sorted classes over all sources."""
    for key, column in columns.items():
        if column.null_count:
            missing = f"{column.null_count} missing value{'s' if column.null_count > 1 else ''}"
            raise InputError(Problem("data.label", f"`{label}` has {missing} in data.{key}; remove those rows first"))
    kind = columns["train"].type
    integer, floating = pa.types.is_integer(kind), pa.types.is_floating(kind)
    discrete = pa.types.is_boolean(kind) or pa.types.is_large_string(kind)
    if not (integer or floating or discrete):
        raise InputError(Problem("data.label", f"`{label}` has type {kind}; a label holds numbers, text or booleans"))
    values = pc.unique(pa.chunked_array([chunk for column in columns.values() for chunk in column.chunks], kind))
    count = len(values)
    if count < 2:
        raise InputError(Problem("data.label", f"`{label}` has one class, {values[0].as_py()!r}; at least two are needed"))
    task = asked
    if task is None:
        zero_one = floating and count == 2 and set(values.to_pylist()) == {0.0, 1.0}
        if discrete or (integer and count <= _MOST_INTEGER_CLASSES) or zero_one:
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


def _encode(table: pa.Table, label: str, classes: tuple[Any, ...] | None) -> pa.Table:
    column = table.column(label)
    if classes is None:
        encoded = column.cast(pa.int8()).cast(pa.float64()) if pa.types.is_boolean(column.type) else column.cast(pa.float64())
    else:
        encoded = pc.index_in(column, value_set=pa.array(classes, column.type)).cast(pa.int64())
    return table.set_column(table.column_names.index(label), label, encoded)


def _divide(
    spec: DataSpec, parts: dict[str, pa.Table], rules: Mapping[str, Split | None], classify: bool, seed: int
) -> dict[str, pa.Table]:
    """Take from train what `valid` and `test` do not read elsewhere."""
    todo = {key: rule for key, rule in rules.items() if rule is not None and key not in parts}
    if not todo:
        return parts
    whole = parts["train"]
    columns = {str(r.column): whole.column(str(r.column)).to_numpy() for r in todo.values() if r.column is not None}
    try:
        codes = splitting.assign(
            whole.num_rows,
            valid=todo.get("valid"),
            test=todo.get("test"),
            columns=columns,
            strata=whole.column(spec.label).to_numpy() if classify else None,
            seed=seed,
        )
    except splitting.SplitError as e:
        raise InputError(Problem(f"data.{e.key}", str(e))) from e
    order = {"train": splitting.TRAIN, "valid": splitting.VALID, "test": splitting.TEST}
    taken = {key: whole.take(pa.array(np.flatnonzero(codes == order[key]))) for key in ("train", *todo)}
    return parts | taken

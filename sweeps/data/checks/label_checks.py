"""Check the label and the other columns that are named in a `data` section.

This module needs neither Ray nor pandas, so the checks can run before Ray starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sweeps.core.errors import InputError, Problem, join_first
from sweeps.core.label_columns import MULTILABEL, MULTIOUTPUT, Classes, Label
from sweeps.data.columns.column_types import is_numeric

if TYPE_CHECKING:
    from sweeps.data.columns.tables import Parts
    from sweeps.space import DataSpec

# The setting that drops rows without a label. `infer_task` refuses such rows
DROP_MISSING_LABEL = "`data.drop_missing_label: true`"

# If an integer label has more distinct values than this number, the task is a regression, unless
# `data.task` sets another task
_MAX_INTEGER_CLASSES = 20


def as_text(value: Any) -> str:
    """Return the text from which a value was read: "2" for 2.0.

    A column of whole numbers is read as floats if it has missing values.
    """
    is_whole = isinstance(value, (float, np.floating)) and float(value).is_integer()
    return str(int(value) if is_whole else value)


def check_same_task(
    labels: Sequence[tuple[str, str | None, Classes | None]],
) -> list[tuple[str, Problem]]:
    """Check that several sources have the same task and classes.

    Otherwise the trials of one sweep could not be compared.

    Args:
        labels: Name, task and classes of each source; see `infer_task`.

    Returns:
        (Name, problem) of each source that differs from the first.
    """
    problems = []
    first, first_task, first_classes = labels[0]
    for source, task, classes in labels[1:]:
        if (task, classes) != (first_task, first_classes):
            text = (
                f"the label of `{source}` is {_describe_task(task, classes)}, but the label of "
                f"`{first}` is {_describe_task(first_task, first_classes)}; all variants need the "
                "same task and classes"
            )
            problems.append((source, Problem("data.train", text)))
    return problems


def _describe_task(task: str | None, classes: Classes | None) -> str:
    """Return a task with its classes, for messages."""
    if classes is None:
        return f"{task} without classes"
    return f"{task} with the classes {_list_classes(classes)}"


def _list_classes(classes: Classes) -> str:
    """Return the first classes, at most 8, for messages."""
    return join_first([repr(value) for value in classes], 8)


def drop_unlabeled(labels: Sequence[str], parts: Parts) -> tuple[Parts, dict[str, int]]:
    """Drop the rows without a label.

    If the label has several columns, drop the rows in which one of them has no value.

    If a label of integers has missing values, the label is read as floats. After the rows are
    dropped, it is converted back to integers, so that its values can be classes.

    Args:
        labels: The label columns.
        parts: Tables by split: "train", and the splits that have separate sources.

    Returns:
        The remaining rows by split, and the number of dropped rows by split.

    Raises:
        InputError: A table has no row with a label.
    """
    remaining = dict(parts)
    problems = []
    for label in labels:
        lacking = [key for key, part in remaining.items() if part.column(label).null_count]
        for key in lacking:
            remaining[key] = remaining[key].filter(pc.is_valid(remaining[key].column(label)))
            if not remaining[key].num_rows:
                problems.append(Problem("data.label", f"`{label}` has no value in data.{key}"))
        if lacking and not problems:
            remaining = _with_integers(remaining, label)
    if problems:
        raise InputError(problems)
    return remaining, {key: part.num_rows - remaining[key].num_rows for key, part in parts.items()}


def _with_integers(parts: Parts, label: str) -> Parts:
    """Convert a label of floats to integers in all tables, if all its values are whole numbers."""
    columns = {key: part.column(label) for key, part in parts.items()}
    if not all(pa.types.is_floating(column.type) for column in columns.values()):
        return dict(parts)
    try:
        integers = {key: column.cast(pa.int64()) for key, column in columns.items()}
    except pa.ArrowInvalid:
        return dict(parts)
    index = parts["train"].column_names.index(label)
    return {key: part.set_column(index, label, integers[key]) for key, part in parts.items()}


def missing_labels_problem(label: str, count: int, split: str) -> Problem:
    """Return the problem that `count` rows of a split have no label."""
    return Problem(
        "data.label",
        f"`{label}` has {count} missing value{'s' * (count > 1)} in data.{split}; remove the rows "
        "without a label from the data, "
        f"or set {DROP_MISSING_LABEL} so that sweeps skips these rows",
    )


def infer_task(
    label: str, requested: str | None, columns: Mapping[str, pa.ChunkedArray]
) -> tuple[str, Classes | None]:
    """Infer the task and the classes of a label.

    Args:
        label: The label column.
        requested: The task that the space file sets. None if it sets no task.
        columns: The values of the label by split: "train", and the splits that have separate
            sources.

    Returns:
        The task, which is "binary", "multiclass" or "regression"; and the sorted classes in all
        `columns`, or None for a regression.

    Raises:
        InputError: Values of the label are missing, there are fewer than two different values, or
            the values do not fit the task.
    """
    _check_present(label, columns)
    kind = columns["train"].type
    discrete = pa.types.is_boolean(kind) or pa.types.is_large_string(kind)
    if not (is_numeric(kind) or discrete):
        raise InputError(
            "data.label", f"`{label}` has type {kind}; a label must be numbers, text or booleans"
        )
    values = pc.unique(
        pa.chunked_array([chunk for column in columns.values() for chunk in column.chunks], kind)
    )
    count = len(values)
    if count < 2:
        noun = "value" if requested == "regression" else "class"
        raise InputError(
            "data.label",
            f"`{label}` has only one {noun}, {values[0].as_py()!r}; at least two are needed",
        )
    task = _usual_task(values) if requested is None else requested
    if task == "regression":
        if pa.types.is_large_string(kind):
            raise InputError(
                "data.task",
                f"regression needs numbers, but `{label}` holds text, such as "
                f"{values[0].as_py()!r}",
            )
        return task, None
    if task == "binary" and count != 2:
        raise InputError("data.task", f"binary needs 2 classes, but `{label}` has {count}")
    return task, tuple(sorted(values.to_pylist()))


def _check_present(label: str, columns: Mapping[str, pa.ChunkedArray]) -> None:
    """Raise an InputError if values of the label are missing or infinite."""
    for key, column in columns.items():
        if column.null_count:
            raise InputError(missing_labels_problem(label, column.null_count, key))
        if pa.types.is_floating(column.type) and pc.any(pc.is_inf(column)).as_py():
            row = pc.index(pc.is_inf(column), True).as_py() + 1
            raise InputError(
                "data.label",
                f"`{label}` is infinite in row {row:,} of data.{key}; remove such rows",
            )


def _usual_task(values: pa.Array) -> str:
    """Return the task for the different values of a label."""
    count = len(values)
    if pa.types.is_integer(values.type):
        classes = count <= _MAX_INTEGER_CLASSES
    elif pa.types.is_floating(values.type):
        classes = count == 2 and set(values.to_pylist()) == {0.0, 1.0}
    else:
        classes = True
    if not classes:
        return "regression"
    return "binary" if count == 2 else "multiclass"


def order_classes(spec: DataSpec, task: str | None, classes: Classes | None) -> Classes | None:
    """Return the classes in the order of their codes.

    If `data.positive` names the positive class, it comes last. Otherwise the order is unchanged.

    Raises:
        InputError: The label does not have two classes, or does not have this class.
    """
    if spec.positive is None:
        return classes
    named = as_text(spec.positive).lower()  # a boolean is written as `true` or as `True`
    positives = [value for value in classes or () if as_text(value).lower() == named]
    if task != "binary" or not positives:
        raise InputError(
            "data.positive",
            f"must be one of two classes, got {spec.positive!r}; the label is "
            f"{_describe_task(task, classes)}",
        )
    return tuple(value for value in classes or () if value not in positives) + tuple(positives)


def infer_tasks(
    labels: Sequence[str], requested: str | None, parts: Parts
) -> tuple[str | None, Classes | None]:
    """Infer the task and the classes of a label of one or several columns.

    Args:
        labels: The label columns.
        requested: The task that the space file sets for each column. None if it sets no task.
        parts: Tables by split: "train", and the splits that have separate sources.

    Returns:
        For one column, see `infer_task`. For several columns, the task is "multilabel" or
        "multioutput", and there are no classes. Without a column, both are None.

    Raises:
        InputError: See `infer_task`. Also raised if one of several columns has more than two
            classes, or classes other than 0 and 1, or if only some columns have numbers.
    """
    tasks = {
        name: infer_task(name, requested, {key: part.column(name) for key, part in parts.items()})
        for name in labels
    }
    if len(tasks) < 2:
        return next(iter(tasks.values()), (None, None))
    numbers = [name for name, (task, _) in tasks.items() if task == "regression"]
    if len(numbers) == len(tasks):
        return MULTIOUTPUT, None
    rule = (
        "several label columns must all have numbers, or all have only 0 and 1 (or false and true)"
    )
    flags = [name for name, (_, classes) in tasks.items() if classes and {*classes} <= {0, 1}]
    for name, (_, classes) in tasks.items():
        if name not in (*numbers, *flags):
            raise InputError(
                "data.label",
                f"`{name}` has the classes {_list_classes(classes or ())}; {rule}; for numbers, "
                "set `data.task: regression`",
            )
    if numbers:
        raise InputError(
            "data.label",
            f"`{flags[0]}` has classes, but `{numbers[0]}` has numbers; {rule}; to predict all of "
            "them as numbers, set `data.task: regression`",
        )
    return MULTILABEL, None


def missing_class_notes(
    label: Label | None, classes: Classes | None, parts: Parts
) -> tuple[str, ...]:
    """Return a note to the user for each split that has no rows of some class.

    Metrics on such a split ignore the missing class.

    Args:
        label: The label column, which holds class codes. None if the data has no label.
        classes: The classes, indexed by code. None for a regression.
        parts: The splits by name.
    """
    if classes is None:
        return ()
    notes = []
    for name, table in parts.items():
        present = set(table.column(label).unique().to_pylist())
        absent = [f"`{value}`" for code, value in enumerate(classes) if code not in present]
        if absent:
            notes.append(
                f"the {name} split has no row of class {join_first(absent, 3)} of `{label}`"
            )
    return tuple(notes)

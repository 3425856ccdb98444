"""Load the three splits of a sweep's data, with the label encoded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sweeps.core.errors import InputError
from sweeps.core.label_columns import GROUP_COLUMN, MULTILABEL, Classes

from .checks.label_checks import drop_unlabeled, infer_tasks, order_classes
from .checks.named_columns import check_columns, split_columns, split_rules
from .columns.hashing import fingerprint
from .columns.parsed_columns import (
    ReadRows,
    drop_copies,
    drop_unnamed,
    features_parse,
    read_rows,
    split_values,
)
from .columns.tables import Parts
from .columns.weights import check_class_weight, check_train_weights, check_weights
from .sources.data_files import Source, sources_of
from .sources.sources import read_source
from .splits.split_tables import Splits, subsample
from .summary.data_summary import DataSummary
from .summary.table_summary import summarize

if TYPE_CHECKING:
    from sweeps.space import DataSpec, Split

    from .splits.folds import Folds


def load_splits(spec: DataSpec, seed: int = 0) -> Splits:
    """Read the data of a space, split it and encode its label.

    Ray is started if Ray Data reads the files and Ray is not running.

    Args:
        spec: The `data` section of a space.
        seed: Seed of splits by fraction and by group.

    Returns:
        The splits.

    Raises:
        InputError: A source cannot be read, columns are missing, the label cannot be used, or a
            split would be empty.
    """
    return split_rows(spec, _read_parts(spec, read_source), seed, summarized=True)


def split_rows(spec: DataSpec, parts: Parts, seed: int = 0, summarized: bool = False) -> Splits:
    """Check and encode the label, and assign the rows to splits.

    Args:
        spec: The `data` section of a space.
        parts: Raw rows of each source. Only `spec.labels` and the columns of weights, splits and
            `spec.parse` must be there.
        seed: Seed of splits by fraction and by group.
        summarized: True to summarise the raw rows.

    Raises:
        InputError: The label cannot be used, a split would be empty, a fold would lack a class, or
            no train row has a weight.
    """
    rows = drop_unnamed(spec, _label_rows(spec, parts))
    summary = summarize(spec, rows.parts, rows.classes, seed) if summarized else None
    rows = _encode(spec, rows)
    classes = rows.classes
    parts = rows.parts  # the argument is overwritten, so that the raw rows can be freed
    parts = _split_train(spec, parts, classes is not None, seed)
    folds: Folds = ()
    if spec.folds:
        folds = _assign_folds(spec, parts, classes, seed)
        _, first_valid = folds[0]
        parts["valid"] = parts["train"].take(pa.array(first_valid))
    else:
        parts["train"] = subsample(parts["train"], spec.label, classes, spec.rows, seed)
    valid_groups, valid_times = _groups_and_times(spec, parts["train" if folds else "valid"])
    other_columns = {*spec.labels, *spec.weight_columns, GROUP_COLUMN}
    dropped = split_columns(spec).union(spec.drop) - other_columns
    parts = {key: part.drop_columns(sorted(dropped)) for key, part in parts.items()}
    train = parts["train"]
    _check_train(spec, train, classes, folds=folds)
    features = tuple(name for name in train.column_names if name not in other_columns)
    return Splits(
        train=train,
        valid=parts["valid"],
        test=parts.get("test"),
        label=spec.label,
        task=rows.task,
        classes=classes,
        features=features,
        fingerprint=fingerprint(parts, _fingerprint_texts(spec, rows)),
        notes=rows.notes,
        folds=folds,
        weight=spec.weight,
        class_weight=spec.class_weight,
        parse=features_parse(spec, features),
        summary=summary,
        missing=rows.missing,
        valid_groups=valid_groups,
        valid_times=valid_times,
    )


def _groups_and_times(
    spec: DataSpec, rows: pa.Table
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return the group and the time of each row by which valid is split; None without them."""
    from .splits import split

    rule = split_rules(spec).get("valid")
    by_time = rule is not None and rule.kind in ("time", "rolling")
    groups = times = None
    if spec.group is not None:
        groups = split.group_codes(split_values(spec, rows, spec.group))
    if rule is not None and by_time:
        values = split_values(spec, rows, str(rule.column))
        times = split.sortable_times("valid", str(rule.column), values)
    return groups, times


def _label_notes(spec: DataSpec, rows: ReadRows) -> Iterator[str]:
    """Yield notes about the rows without a label, and about the positive class."""
    if total := sum(rows.unlabeled.values()):
        counts = [f"{count} of data.{key}" for key, count in rows.unlabeled.items() if count]
        noun = f"row{'s' * (total > 1)}"
        yield f"data.drop_missing_label dropped {total} {noun} without a label: {', '.join(counts)}"
    if rows.task == "binary" and rows.classes is not None and rows.classes != (0, 1):
        yield f"the positive class of `{spec.label}` is {rows.classes[1]!r} (data.positive)"


def _encode(spec: DataSpec, rows: ReadRows) -> ReadRows:
    """Encode the label, check the weights, drop copies of rows, and number the queries.

    A query is a group of rows that a trainer ranks; see `GROUP_COLUMN`.
    """
    parts = rows.parts
    for name in spec.labels:
        parts = {
            key: encode_label(part, name, rows.classes, rows.task) for key, part in parts.items()
        }
    if problems := check_weights(spec, parts) + check_class_weight(spec, rows.task):
        raise InputError(problems)
    rows = rows.changed(parts)
    if spec.drop_duplicates:
        rows = drop_copies(spec, rows)
    if spec.queries:
        parts = {key: _with_queries(spec, part) for key, part in rows.parts.items()}
        rows = rows.changed(parts)
    return rows


def _check_train(spec: DataSpec, train: pa.Table, classes: Classes | None, folds: Folds) -> None:
    """Raise an InputError if train rows have no weight, or only one class."""
    if problems := check_train_weights(spec, train, folds):
        raise InputError(problems)
    if classes is None:
        return
    codes = train.column(spec.labels[0]).unique()
    if len(codes) < 2:
        raise InputError(
            "data.label",
            f"the train split has only one class of `{spec.label}`, "
            f"{classes[codes[0].as_py()]!r}; at least two are needed",
        )


def _fingerprint_texts(spec: DataSpec, rows: ReadRows) -> list[str]:
    """Return the settings that the fingerprint of the data covers besides the rows."""
    texts = [str(spec.label), str(rows.task), repr(rows.classes)]
    if spec.labels and spec.drop_missing_label:
        texts.append(f"without a label: {rows.unlabeled}")
    if spec.folds:
        texts.append(f"folds: {spec.valid}, rows: {spec.rows}")
    if spec.weighted:
        texts.append(f"weight: {spec.weight}, class_weight: {spec.class_weight}")
    if spec.parse:
        texts.append(f"parse: {sorted(spec.parse.items())}")
    return texts


def summarize_source(
    spec: DataSpec,
    seed: int,
    read: Callable[[Source], pa.Table],
    rows: Mapping[str, int] | None = None,
) -> DataSummary:
    """Read the sources of a `data` section with a function of the caller, and summarise their rows.

    No row is assigned to a split.

    Args:
        spec: The `data` section.
        seed: Seed of samples.
        read: Function that reads a source.
        rows: Number of rows of each split, if `read` returns a sample. `read` may fill this
            mapping.

    Raises:
        InputError: See `load_splits`.
    """
    labeled = _label_rows(spec, _read_parts(spec, read))
    return summarize(spec, labeled.parts, labeled.classes, seed, rows)


def _label_rows(spec: DataSpec, parts: Parts) -> ReadRows:
    """Apply `data.missing`, `data.parse` and `data.drop_missing_label`, and find the classes.

    Args:
        spec: The `data` section.
        parts: Raw rows of each source.
    """
    rows = read_rows(spec, parts)
    if not spec.labels:
        return rows
    if spec.drop_missing_label:
        remaining, unlabeled = drop_unlabeled(spec.labels, rows.parts)
        rows = replace(rows, parts=remaining, unlabeled=unlabeled)
    task, classes = infer_tasks(spec.labels, spec.task, rows.parts)
    rows = replace(rows, task=task, classes=order_classes(spec, task, classes))
    return rows.changed(rows.parts, *_label_notes(spec, rows))


def _assign_folds(spec: DataSpec, parts: Parts, classes: Classes | None, seed: int) -> Folds:
    """Assign the rows that are not in test to the folds of a cross-validation.

    Raises:
        InputError: A class has fewer train rows than there are folds; see also `assign_folds`.
    """
    from .splits.folds import assign_folds

    assert spec.valid is not None
    train = parts["train"]
    column = None if spec.valid.column is None else _split_values(spec, train, spec.valid)
    strata = None
    if classes is not None:
        label = spec.labels[0]
        strata = train.column(label).to_numpy()
        present, counts = np.unique(strata, return_counts=True)
        rare = present[counts.argmin()]
        number = spec.valid.folds
        if column is None and counts.min() < number:
            codes = {key: part.column(label).to_numpy() for key, part in parts.items()}
            has = " and ".join(f"{(own == rare).sum()} in {key}" for key, own in codes.items())
            raise InputError(
                "data.valid",
                f"{number} folds need at least {number} rows of each class in train, but class "
                f"`{classes[rare]}` of `{label}` has {has}; use fewer folds",
            )
    return assign_folds(spec.valid, train.num_rows, column, strata, seed)


def _read_parts(spec: DataSpec, read: Callable[[Source], pa.Table]) -> Parts:
    """Read all sources of a `data` section."""
    parts = {key: read(source) for key, source in sources_of(spec).items()}
    if problems := check_columns(spec, {key: part.column_names for key, part in parts.items()}):
        raise InputError(problems)
    return parts


def _with_queries(spec: DataSpec, table: pa.Table) -> pa.Table:
    """Return the rows ordered by group, with the number of the group in `GROUP_COLUMN`."""
    from .splits import split

    groups = split.group_codes(split_values(spec, table, str(spec.group)))
    return table.append_column(GROUP_COLUMN, pa.array(groups)).sort_by(GROUP_COLUMN)


def _split_values(spec: DataSpec, table: pa.Table, rule: Split) -> np.ndarray:
    """Return the values of the column by which a rule splits rows.

    In a split by time, all rows of a group get the latest time of the group.
    """
    from .splits import split

    values = split_values(spec, table, str(rule.column))
    if spec.group is None or rule.kind not in ("time", "rolling"):
        return values
    times = split.sortable_times("valid", str(rule.column), values)
    return split.latest_of_groups(times, split_values(spec, table, spec.group))


def encode_label(
    table: pa.Table, label: str, classes: Classes | None, task: str | None = None
) -> pa.Table:
    """Return a table with an encoded label column.

    The column has int64 codes of `classes`, or float64 values if `classes` is None. For the task
    "multilabel", it has the int64 numbers 0 and 1.
    """
    column = table.column(label)
    if task == MULTILABEL:
        encoded = column.cast(pa.int64())
    elif classes is None:
        encoded = column.cast(pa.float64())
    else:
        encoded = pc.index_in(column, value_set=pa.array(classes, column.type)).cast(pa.int64())
    return table.set_column(table.column_names.index(label), label, encoded)


def _split_train(spec: DataSpec, parts: Parts, classify: bool, seed: int) -> Parts:
    """Move the rows of valid and test out of train, unless these splits have their own sources.

    Args:
        spec: The `data` section.
        parts: The rows of each source. `train` is removed.
        classify: True if the label has classes.
        seed: Seed of splits by fraction and by group.

    Returns:
        The rows of all splits. `train` still has the rows of the folds of a cross-validation.
    """
    from .splits import split

    rules = {
        key: rule for key, rule in split_rules(spec).items() if key not in parts and not rule.folds
    }
    if not rules:
        return parts
    whole = parts["train"]
    codes = split.assign_splits(
        whole.num_rows,
        valid=rules.get("valid"),
        test=rules.get("test"),
        columns={
            str(rule.column): _split_values(spec, whole, rule)
            for rule in rules.values()
            if rule.column is not None
        },
        strata=whole.column(spec.labels[0]).to_numpy() if classify else None,
        seed=seed,
    )
    del whole  # `_distribute` frees its columns one by one
    split_codes = {"train": split.TRAIN, "valid": split.VALID, "test": split.TEST}
    rows = {key: pa.array(np.flatnonzero(codes == split_codes[key])) for key in ("train", *rules)}
    return parts | _distribute(parts, rows)


def _distribute(parts: Parts, rows: Mapping[str, pa.Array]) -> Parts:
    """Remove `train` from the parts, and distribute its rows to new tables.

    Each column is freed as soon as its values are copied.

    Args:
        parts: Tables by split. If the caller has no other reference to `train`, only one column
            exists twice at a time.
        rows: Indices of the rows of each new table.
    """
    whole = parts.pop("train")
    columns = dict(zip(whole.column_names, whole.columns, strict=True))
    del whole
    taken: dict[str, dict[str, pa.ChunkedArray]] = {key: {} for key in rows}
    for name in list(columns):
        column = columns.pop(name)
        for key, indices in rows.items():
            taken[key][name] = column.take(indices)
    return {key: pa.table(values) for key, values in taken.items()}

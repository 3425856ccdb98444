"""Apply `data.missing`, `data.parse` and `data.drop_duplicates` to the raw rows of a sweep.

Features keep their raw texts, and the preprocessing chain parses them. So a bundle takes the same
texts. The label, the weights and the columns of splits are no input of a bundle, and are parsed
when the rows are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from sweeps.core.errors import InputError, Problem
from sweeps.core.label_columns import Classes
from sweeps.data.checks.named_columns import split_columns
from sweeps.space import DataSpec

from .column_types import is_numeric
from .hashing import row_hashes
from .missing import Markers, remove_markers
from .tables import Parts
from .unified_types import unify_types


@dataclass(frozen=True)
class ReadRows:
    """Rows after `data.missing` and `data.parse`. Features of `data.parse` still have their texts.

    Attributes:
        parts: Rows by split.
        missing: The markers of missing values, by column; see
            `sweeps.data.columns.missing.remove_markers`.
        notes: Notes for the user.
        task: See `Splits.task`.
        classes: See `Splits.classes`.
        unlabeled: Number of dropped rows without a label, by split.
    """

    parts: Parts
    missing: Markers
    notes: tuple[str, ...] = ()
    task: str | None = None
    classes: Classes | None = None
    unlabeled: Mapping[str, int] = field(default_factory=dict)

    def changed(self, parts: Parts, *notes: str) -> ReadRows:
        """Return the same facts with other rows and further notes."""
        return replace(self, parts=parts, notes=(*self.notes, *notes))


def read_rows(spec: DataSpec, parts: Parts) -> ReadRows:
    """Take missing values out of raw rows, and check the columns of `data.parse`.

    A column gets the same type in all splits.

    Args:
        spec: The `data` section.
        parts: Raw rows by split. They may lack columns.

    Raises:
        InputError: The types of a column differ, a label has words that may be classes, or a value
            does not fit its rule.
    """
    tables, missing, problems = remove_markers(spec, parts)
    if problems:
        raise InputError(problems)
    tables = unify_types({key: _texts_to_parse(spec, table) for key, table in tables.items()})
    notes: tuple[str, ...] = ()
    if spec.parse:
        for key, table in tables.items():
            tables[key], split_problems, split_notes = _parse_part(spec, table, key)
            problems += split_problems
            notes += split_notes
    if problems:
        raise InputError(problems)
    return ReadRows(tables, missing, notes)


def features_parse(spec: DataSpec, features: Iterable[str]) -> dict[str, str]:
    """Return the rules of `data.parse` for the features, by column."""
    return {name: spec.parse[name] for name in features if name in spec.parse}


def _texts_to_parse(spec: DataSpec, table: pa.Table) -> pa.Table:
    """Convert numbers in the columns of `data.parse` to text.

    A column then has the same type in every file. Dates stay dates.
    """
    for i, column in enumerate(table.schema):
        if column.name in spec.parse and is_numeric(column.type):
            table = table.set_column(i, column.name, table.column(i).cast(pa.large_string()))
    return table


def _parse_part(
    spec: DataSpec, table: pa.Table, split: str
) -> tuple[pa.Table, list[Problem], tuple[str, ...]]:
    """Check all values of the columns of `data.parse`, and replace label and weights by numbers.

    Returns:
        The rows of the split, the problem with the first wrong value of each column, and the notes
        of `misfits_note`.
    """
    from .parse import count_misfits, misfits_note, parse_values

    problems: list[Problem] = []
    parsed = {}
    raw = table.select([name for name in spec.parse if name in table.column_names]).to_pandas()
    for name in raw:
        try:
            parsed[name] = parse_values(raw[name], spec.parse[name], name)
        except InputError as e:
            # The message of a bundle becomes one about a split.
            text = e.problems[0].text.removesuffix(" (data.parse)")
            text = text.replace(f"`{name}`", f"`{name}` of data.{split}", 1)
            problems.append(Problem(f"data.parse.{name}", text))
    for name in parsed.keys() & {*spec.labels, *spec.weight_columns}:
        values = pa.array(parsed[name].to_numpy(), pa.float64(), from_pandas=True)
        table = table.set_column(table.column_names.index(name), name, values)
    return table, problems, misfits_note(count_misfits(raw, parsed), split)


def split_values(spec: DataSpec, table: pa.Table, name: str) -> np.ndarray:
    """Return the values of a column that assigns rows to splits.

    A column of `data.parse` is parsed, so that dates have an order.
    """
    from .parse import parse_values

    values = table.column(name)
    if name not in spec.parse:
        return np.asarray(values.to_numpy())
    return np.asarray(parse_values(values.to_pandas(), spec.parse[name], name).to_numpy())


def drop_copies(spec: DataSpec, rows: ReadRows) -> ReadRows:
    """Leave out train rows that are copies of earlier train rows, or of rows of valid or test.

    Add a note about their number.

    Two rows are copies if all features and the label are equal.
    """
    import pandas as pd

    ignored = split_columns(spec) | {*spec.drop, *spec.weight_columns}
    ignored -= {*spec.labels, spec.group}
    whole = rows.parts["train"]
    names = [name for name in whole.column_names if name not in ignored]
    hashes = {key: row_hashes(part, names) for key, part in rows.parts.items()}
    train = hashes.pop("train")
    copies = pd.Index(train).duplicated()
    overlap = np.zeros_like(copies)
    for part in hashes.values():
        overlap |= np.isin(train, part) & ~copies
    masks = {"copies of other rows": copies, "rows that are also in valid or test": overlap}
    texts = [f"{mask.sum()} {noun}" for noun, mask in masks.items() if mask.any()]
    if not texts:
        return rows
    remaining = whole.filter(pa.array(~copies & ~overlap))
    if not remaining.num_rows:
        raise InputError(
            "data.drop_duplicates",
            "all rows of data.train are also in valid or test, so no rows would be left",
        )
    return rows.changed(
        {**rows.parts, "train": remaining},
        f"data.drop_duplicates left out {' and '.join(texts)} of data.train",
    )


def drop_unnamed(spec: DataSpec, rows: ReadRows) -> ReadRows:
    """Leave out the columns that have neither a name nor a value, and add notes.

    Separators at the ends of lines make such columns. A column in `data.drop` is kept.
    """
    train = rows.parts["train"]
    unnamed = [name for name in train.column_names if name.startswith("Unnamed: ")]
    empty = [
        name for name in unnamed if name not in spec.drop and train[name].null_count == len(train)
    ]
    parts = {key: part.drop_columns(empty) for key, part in rows.parts.items()}
    notes = [f"left out `{name}`, which has no name and no values" for name in empty]
    return rows.changed(parts, *notes)

"""Find what in the data may spoil a search. Pure functions.

Each function returns a finding only if the data leaves little doubt, because a wrong warning is worse than none. The thresholds were set on
the shipped spaces and on real tables.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sweeps.data.label_leaks import find_leaks
from sweeps.data.parse import CURRENCY, DECIMAL_COMMA, parse_texts
from sweeps.data.summary import ColumnSummary, Finding, sample_rows, shown

if TYPE_CHECKING:
    from sweeps.space import DataSpec

# Smallest number of rows with a value for a finding about a column.
MIN_ROWS = 50
# A column of texts is an identifier if this share of its values are distinct.
DISTINCT_SHARE = 0.95
# Share of the distinct texts of a column that must be numbers or dates.
PARSED_SHARE = 0.95
# Number of distinct texts that are parsed.
PARSED_TEXTS = 1_000
# Shares of the rows from which copies of rows, and rows of test that are also in train, are reported.
DUPLICATES_FROM, OVERLAP_FROM = 0.01, 0.01
# Share of the distinct numbers of a column that are equal as 32-bit floats from which it is reported.
ROUNDED_FROM = 0.01
# Number of rows that must be found twice.
MIN_COPIES = 10
# Columns whose names differ only in their numbers, such as `pixel_0_1`, are parts of one vector from this number on.
VECTOR = 8
# Formats of dates that are recognised. The first format that fits all texts of a column is suggested.
DATE_FORMATS = (
    *(
        "%Y-%m-%d",
        "%Y-%m-%d %H:%M:%S",
        "%Y-%m-%dT%H:%M:%S",
        "%Y-%m-%d %H:%M",
        "%Y-%m-%dT%H:%M:%SZ",
        "%Y-%m-%d %H:%M:%S.%f",
    ),
    *(
        "%Y-%m-%dT%H:%M:%S.%f",
        "%Y-%m-%dT%H:%M:%S%z",
        "%Y-%m-%d %H:%M:%S%z",
        "%Y/%m/%d",
        "%Y/%m/%d %H:%M:%S",
        "%Y.%m.%d",
    ),
    *(
        "%d/%m/%Y",
        "%m/%d/%Y",
        "%d.%m.%Y",
        "%d-%m-%Y",
        "%m-%d-%Y",
        "%d/%m/%y",
        "%m/%d/%y",
        "%d.%m.%y",
    ),
    *(
        "%d/%m/%Y %H:%M",
        "%m/%d/%Y %H:%M",
        "%d/%m/%Y %H:%M:%S",
        "%m/%d/%Y %H:%M:%S",
        "%d.%m.%Y %H:%M",
        "%d.%m.%Y %H:%M:%S",
    ),
    *(
        "%m/%d/%Y %I:%M %p",
        "%m/%d/%Y %I:%M:%S %p",
        "%d %b %Y",
        "%d %B %Y",
        "%d-%b-%Y",
        "%d-%b-%y",
        "%b %d, %Y",
        "%B %d, %Y",
    ),
)
# Names of identifiers, such as `id`, `user_id`, `PassengerId` and `customerID`.
_NAMED_ID = re.compile(
    r"(?:^|[_\s.-])(?:id|ids|uuid|guid)$|^id[_\s.-]|[a-z0-9]I[Dd]$|^I[Dd]$", re.ASCII
)
# Texts of digits alone are codes, such as ZIP codes. A leading zero marks a code, too, also after letters.
_DIGITS, _CODE = r"^\d+$", r"^[A-Z]* ?0\d+$"
# Letters and a number, such as `CAD-1001` and `CAD1001`, although `CAD` is also a currency.
_LABELLED, _NUMBERED = r"^[A-Z]+[-_]\d+$", r"^[A-Z]+[-_]?\d+$"


def find_all(
    spec: DataSpec,
    parts: Mapping[str, pa.Table],
    sample: pa.Table,
    columns: Sequence[ColumnSummary],
    classes: Sequence[Any] | None,
    seed: int,
    whole: bool = True,
) -> tuple[Finding, ...]:
    """Return everything in the data that may spoil a search; see `summarize` for the arguments.

    Args:
        spec: the `data` section.
        parts: raw rows by split.
        sample: sample of the train rows.
        columns: summaries of all columns.
        classes: classes of the label.
        seed: seed of samples.
        whole: True if `parts` has all rows, so that a finding in the sample can be checked on all rows.
    """
    features = [column for column in columns if column.role == "feature"]
    parsed = set(spec.parse)
    vectors = _vector_names([column.name for column in features])
    train = parts["train"] if whole else sample
    names = _readable(sample, columns)
    # Without all columns, rows that differ would look like copies.
    copies = _copies(sample, names) if names and len(names) == len(columns) else None
    rows, sampled = (
        (train, sample) if copies is None else _without_copies(spec, train, sample, columns, copies)
    )
    found: list[Finding] = []
    for column in features:
        if (empty := _constant(train, column, column.name in vectors)) is not None:
            found.append(empty)
        elif column.kind == "text" and column.name not in parsed:
            found += text_findings(sampled.column(column.name), column)
        elif column.kind == "number" and column.name not in parsed:
            found += _infinite(train.column(column.name), column.name)
            found += _row_numbers(rows.column(column.name), column, len(features))
        found += _rounded(sampled.column(column.name), column, spec.parse.get(column.name, ""))
        found += _unseen(parts, column)
    found += [
        Finding("leak", name, share=score)
        for name, score in find_leaks(spec, sample, features, classes, seed)
    ]
    if copies is not None:
        found += _duplicates(parts["train"], sample, names, copies)
        found += _overlaps(parts, sample, columns, seed)
    return tuple(found)


def _vector_names(names: Sequence[str]) -> set[str]:
    """Return the columns that are parts of a vector, such as the pixels of an image. Some of them may well be constant."""
    stems = Counter(re.sub(r"\d+", "#", name) for name in names)
    return {name for name in names if stems[re.sub(r"\d+", "#", name)] >= VECTOR}


def _constant(train: pa.Table, column: ColumnSummary, in_vector: bool) -> Finding | None:
    """Return a finding for a column without a value, or with one value in all rows; else None."""
    if (
        column.kind == "other"
        or column.distinct is None
        or column.distinct > 1
        or train.num_rows < 2
    ):
        return None
    values = train.column(column.name)
    if values.null_count == len(values):
        return Finding("empty", column.name)
    if in_vector or values.null_count or pc.count_distinct(values, mode="only_valid").as_py() > 1:
        return None
    return Finding("constant", column.name, shown(str(values[0].as_py())))


# ---- texts


def text_findings(values: pa.ChunkedArray, column: ColumnSummary) -> Iterator[Finding]:
    """Yield the finding for a column of texts: texts of numbers, texts of dates, or an identifier. At most one of these."""
    present = values.drop_null()
    distinct = pc.unique(present)
    texts = pc.utf8_trim_whitespace(distinct)
    texts = texts.filter(pc.greater(pc.utf8_length(texts), 0))
    blank = len(distinct) > len(texts)
    some = texts[:PARSED_TEXTS]
    if len(some) < 3:
        return
    differ = len(present) >= MIN_ROWS and len(distinct) >= DISTINCT_SHARE * len(present)
    # The hyphen of a label is no minus. Labels without a hyphen look like amounts, but amounts are seldom all different integers.
    labels = pc.all(pc.match_substring_regex(some, _NUMBERED if differ else _LABELLED)).as_py()
    if not labels and (numbers := _number_text(column.name, some, blank)) is not None:
        yield numbers
    elif (dates := _date_text(column.name, some)) is not None:
        yield dates
    elif differ:
        words = float(np.mean([text.count(" ") + 1 for text in some.to_pylist()]))
        yield Finding(
            "identifier",
            column.name,
            shown(str(present[0].as_py())),
            count=len(distinct),
            words=words,
        )


def _number_text(name: str, texts: pa.Array, blank: bool) -> Finding | None:
    """Return a finding if texts are numbers: amounts of money, numbers with separators, or numbers beside a few other texts."""
    found = None
    for rule in (CURRENCY, DECIMAL_COMMA):
        parsed = parse_texts(texts, rule)
        wrong = parsed.null_count
        if wrong <= (1 - PARSED_SHARE) * len(texts) and (found is None or wrong < found[1]):
            found = (rule, wrong, parsed)
    if found is None:
        return None
    rule, wrong, parsed = found
    numbers = texts.filter(pc.is_valid(parsed))
    digits = pc.sum(pc.match_substring_regex(numbers, _DIGITS)).as_py()
    codes = pc.any(pc.match_substring_regex(numbers, _CODE)).as_py()
    if codes or (digits == len(numbers) and not (wrong or blank)):
        return None
    example = numbers[0].as_py() if wrong == 0 else texts.filter(pc.is_null(parsed))[0].as_py()
    return Finding("number_text", name, shown(example), rule, blank=blank, count=wrong)


def _date_text(name: str, texts: pa.Array) -> Finding | None:
    """Return a finding if texts are dates of one format."""
    if pc.all(pc.match_substring_regex(texts, r"\d.*[-/. :].*\d")).as_py() is not True:
        return None
    few = texts[:50]
    fitting = [form for form in DATE_FORMATS if parse_texts(few, form).null_count == 0]
    for form in fitting:
        if parse_texts(texts, form).null_count == 0:
            other = form.replace("%d/%m", "%m/%d") if "%d/%m" in form else ""
            also = other if other in fitting and parse_texts(texts, other).null_count == 0 else ""
            return Finding("date_text", name, shown(texts[0].as_py()), form, also)
    return None


# ---- numbers


def _rounded(values: pa.ChunkedArray, column: ColumnSummary, rule: str) -> Iterator[Finding]:
    """Yield a finding if different numbers of a column are often equal as 32-bit floats.

    Only integers and texts that `rule` parses count. The rounding of other floats loses digits that seldom matter.
    """
    numbers: Any = pc.unique(values.drop_null())
    if rule and column.kind == "text":
        numbers = parse_texts(numbers, rule).drop_null()
    exact = np.asarray(numbers)
    if exact.dtype.kind not in "iuf" or not (rule or np.all(exact % 1 == 0)):
        return
    share = 1 - len(np.unique(exact.astype(np.float32))) / (len(exact) or 1)
    if len(exact) and share > ROUNDED_FROM:
        yield Finding("rounded", column.name, share=share)


def _unseen(parts: Mapping[str, pa.Table], column: ColumnSummary) -> Iterator[Finding]:
    """Yield a finding if valid has a source of its own, with texts of a column that train does not have."""
    if column.kind == "text" and "valid" in parts:
        valid = parts["valid"].column(column.name).drop_null()
        unseen = pc.invert(pc.is_in(valid, pc.unique(parts["train"].column(column.name))))
        if count := pc.sum(unseen).as_py():
            yield Finding("unseen", column.name, count=count, share=count / len(valid))


def _infinite(values: pa.ChunkedArray, name: str) -> Iterator[Finding]:
    """Yield a finding if a column of floats has infinite values."""
    if pa.types.is_floating(values.type) and (count := pc.sum(pc.is_inf(values)).as_py()):
        yield Finding("infinite", name, count=count)


def _row_numbers(
    values: pa.ChunkedArray, column: ColumnSummary, features: int
) -> Iterator[Finding]:
    """Yield a finding if a column has the numbers of the rows, such as 1, 2, 3, or is named as an identifier and has no value twice."""
    count = len(values)
    if (
        features < 2
        or not pa.types.is_integer(values.type)
        or values.null_count
        or count < MIN_ROWS
    ):
        return
    numbers = values.to_numpy()
    if bool((np.diff(numbers) == 1).all()):
        yield Finding(
            "row_number", column.name, f"{numbers[0]}, {numbers[1]}, {numbers[2]}", count=count
        )
    elif _NAMED_ID.search(column.name) and pc.count_distinct(values).as_py() == count:
        yield Finding("identifier", column.name, str(numbers[0]), count=count)


# ---- rows


def _readable(table: pa.Table, columns: Sequence[ColumnSummary]) -> list[str]:
    """Return the columns whose values can be compared cheaply. Lists, images and tensors are left out."""
    return [
        column.name
        for column in columns
        if column.kind != "other" and column.name in table.column_names
    ]


def _are_rarely_equal(sample: pa.Table, names: Sequence[str]) -> bool:
    """Return whether two rows are hardly ever equal by chance, so that equal rows are copies.

    The estimate treats columns as independent. Columns are not independent, so the chance must be tiny.
    """
    log_chance = 0.0
    some = sample.slice(0, 10_000)
    for name in names:
        counts = pc.value_counts(some.column(name)).field("counts").to_numpy(
            zero_copy_only=False
        ) / max(1, some.num_rows)
        log_chance += float(np.log(max(float(np.sum(counts**2)), 1e-12)))
    return bool(log_chance < -3 * np.log(max(2, sample.num_rows)))


def _copies(rows: pa.Table, names: Sequence[str]) -> np.ndarray:
    """Return which rows are copies of earlier rows, as a mask of shape (n,)."""
    from sweeps.data.streaming.hashing import row_hashes

    copies = np.ones(rows.num_rows, dtype=bool)
    copies[np.unique(row_hashes(rows, names), return_index=True)[1]] = False
    return copies


def _without_copies(
    spec: DataSpec,
    train: pa.Table,
    sample: pa.Table,
    columns: Sequence[ColumnSummary],
    copies: np.ndarray,
) -> tuple[pa.Table, pa.Table]:
    """Return the numbers of train, and the sample, without rows that are copies of earlier rows.

    The value of an identifier appears twice in a copied row, but it still identifies the row.

    Args:
        spec: the `data` section.
        train: rows of train, or the sample.
        sample: rows of train.
        columns: all columns.
        copies: which rows of the sample are copies of earlier rows.
    """
    names = [column.name for column in columns]
    different = sample.filter(pa.array(~copies))
    if not copies.any() or not (spec.drop_duplicates or _are_rarely_equal(different, names)):
        return train, sample
    numbers = train.select([column.name for column in columns if column.kind == "number"])
    return numbers.filter(pa.array(~_copies(train, names))), different


def _duplicates(
    train: pa.Table, sample: pa.Table, names: Sequence[str], copies: np.ndarray
) -> list[Finding]:
    """Return a finding if many rows of train are copies of other rows. All columns count, also those that are no features."""
    if sample.num_rows < MIN_ROWS:
        return []
    count = int(copies.sum())
    share = count / sample.num_rows * (train.num_rows / sample.num_rows)
    if (
        count < MIN_COPIES
        or share < DUPLICATES_FROM
        or not _are_rarely_equal(sample.filter(pa.array(~copies)), names)
    ):
        return []
    return [Finding("duplicates", count=count, share=min(1.0, share))]


def _overlaps(
    parts: Mapping[str, pa.Table], sample: pa.Table, columns: Sequence[ColumnSummary], seed: int
) -> Iterator[Finding]:
    """Yield a finding for each split with a source of its own that has many rows of train."""
    from sweeps.data.streaming.hashing import row_hashes

    names = [c.name for c in columns if c.kind != "other" and c.role in ("feature", "label")]
    others = {key: part for key, part in parts.items() if key != "train"}
    if (
        not names
        or not others
        or any(c.kind == "other" and c.role == "feature" for c in columns)
        or not _are_rarely_equal(sample, names)
    ):
        return
    known, shown_share = (
        np.unique(row_hashes(sample, names)),
        sample.num_rows / max(1, parts["train"].num_rows),
    )
    for key, part in others.items():
        rows = sample_rows(part, len(sample), seed)
        both = int(np.isin(row_hashes(rows, names), known).sum())
        share = both / max(1, rows.num_rows) / shown_share
        if both >= min(MIN_COPIES, rows.num_rows) and share >= OVERLAP_FROM:
            yield Finding("overlap", example=key, count=both, share=min(1.0, share))

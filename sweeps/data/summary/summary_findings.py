"""Find what in the data may spoil a search. Pure functions.

Each function returns a finding only if the data leaves little doubt, because a wrong warning is
worse than none. The thresholds were set on the shipped spaces and on real tables.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from sweeps.core.label_columns import Classes
from sweeps.data.checks.label_checks import as_text
from sweeps.data.columns.hashing import row_hashes
from sweeps.data.columns.missing import WORDS
from sweeps.data.columns.parse import NUMBER, parse_texts
from sweeps.data.columns.tables import Parts
from sweeps.space import DataSpec

from .data_summary import ColumnSummary, Finding, sample_rows, short_text
from .label_leaks import find_leaks
from .text_findings import DISTINCT_SHARE, MIN_ROWS, SUSPECT, text_findings

# A number that is far outside of the other numbers may be a marker if it is in at least this many
# rows, and in at least this share of the rows.
MARKER_COPIES = 5
MARKER_SHARE = 0.005
# The column must have more different numbers than this.
MARKER_OTHERS = 10
# Shares of the rows from which copies of rows, and rows of test that are also in train, are
# reported.
DUPLICATES_FROM = 0.01
OVERLAP_FROM = 0.01
# Share of the distinct numbers of a column that are equal as 32-bit floats from which it is
# reported.
ROUNDED_FROM = 0.01
# Number of rows that must be found twice.
MIN_COPIES = 10
# Columns whose names differ only in their numbers, such as `pixel_0_1`, are parts of one vector
# from this number on.
VECTOR = 8
# Names of identifiers, such as `id`, `user_id`, `PassengerId` and `customerID`.
_NAMED_ID = re.compile(
    r"(?:^|[_\s.-])(?:id|ids|uuid|guid)$|^id[_\s.-]|[a-z0-9]I[Dd]$|^I[Dd]$", re.ASCII
)
# Kinds of findings whose example is the text of a cell.
_WITH_EXAMPLES = ("marker", "number_text", "date_text")


def find_all(
    spec: DataSpec,
    parts: Parts,
    sample: pa.Table,
    columns: Sequence[ColumnSummary],
    classes: Classes | None,
    seed: int,
    whole: bool = True,
) -> tuple[Finding, ...]:
    """Return everything in the data that may spoil a search.

    Args:
        spec: The `data` section.
        parts: Raw rows by split.
        sample: Sample of the train rows.
        columns: Summaries of all columns.
        classes: Classes of the label.
        seed: Seed of samples.
        whole: True if `parts` has all rows, so that a finding can name a row.
    """
    features = [column for column in columns if column.role == "feature"]
    train = parts["train"]
    # Without all columns, rows that differ would look like copies.
    comparable = sample.num_columns == len(columns)
    copies = _copies(sample) if comparable else np.zeros(sample.num_rows, dtype=bool)
    without_copies = sample.filter(pa.array(~copies))
    are_copies = copies.any() and _are_rarely_equal(without_copies)
    searched = sample
    numbers = train.select([column.name for column in columns if column.kind == "number"])
    # The value of an identifier appears twice in a copied row, but it still identifies the row.
    if are_copies or (copies.any() and spec.drop_duplicates):
        searched = without_copies
        numbers = numbers.filter(pa.array(~_copies(train)))
    vectors = _vector_names([column.name for column in features])
    rows = _Rows(parts, searched, numbers, features=len(features), vectors=vectors)
    readable = [column for column in columns if column.role in ("feature", "label")]
    findings = [finding for column in readable for finding in _column_findings(spec, column, rows)]
    findings += _markers(spec, readable, sample, known=findings)
    findings = [f for f in findings if f.kind != "marker" or f.column not in spec.missing]
    if whole:
        findings = [_add_row(finding, train) for finding in findings]
    findings += [
        Finding("leak", name, share=score)
        for name, score in find_leaks(spec, sample, features, classes, seed)
    ]
    if are_copies:
        findings += _duplicates(copies, train.num_rows)
    if comparable:
        findings += _overlaps(parts, sample, columns, seed)
    return tuple(findings)


@dataclass(frozen=True)
class _Rows:
    """Rows in which the findings of one column are searched.

    Attributes:
        parts: Raw rows by split.
        sample: Sample of the train rows. If the data has copies of rows, it has no copies.
        numbers: The columns of numbers of all train rows, or of all rows but copies.
        features: Number of features.
        vectors: The features that are parts of a vector; see `_vector_names`.
    """

    parts: Parts
    sample: pa.Table
    numbers: pa.Table
    features: int
    vectors: set[str]


def _column_findings(spec: DataSpec, column: ColumnSummary, rows: _Rows) -> list[Finding]:
    """Return the findings of a feature, or the markers of missing values in a label."""
    if column.kind == "other":
        return []
    name = column.name
    values = rows.sample.column(name)
    findings: list[Finding] = []
    constant = _constant(rows.parts["train"], column, name in rows.vectors)
    if constant is not None:
        findings.append(constant)
    elif column.kind == "text" and name not in spec.parse:
        findings += text_findings(values, name)
    elif column.kind == "number" and name not in spec.parse:
        if days := [*_days(values, name)]:
            return days if column.role == "feature" else []
        findings += _number_findings(rows.numbers.column(name), name, rows.features)
        findings += _far_number(values, name)
    if column.role == "label":
        return [finding for finding in findings if finding.kind == "marker"]
    findings += _rounded(values, column, spec.parse.get(name, ""))
    findings += _unseen(rows.parts, column)
    return findings


def _vector_names(names: Sequence[str]) -> set[str]:
    """Return the columns that are parts of a vector, such as the pixels of an image.

    Some of them may well be constant.
    """
    stems = Counter(re.sub(r"\d+", "#", name) for name in names)
    return {name for name in names if stems[re.sub(r"\d+", "#", name)] >= VECTOR}


def _constant(train: pa.Table, column: ColumnSummary, in_vector: bool) -> Finding | None:
    """Return a finding for a column without a value, or with one value in all rows; else None."""
    if column.distinct is None or column.distinct > 1 or train.num_rows < 2:
        return None
    values = train.column(column.name)
    if values.null_count == len(values):
        return Finding("empty", column.name)
    if in_vector or values.null_count or pc.count_distinct(values, mode="only_valid").as_py() > 1:
        return None
    return Finding("constant", column.name, short_text(str(values[0].as_py())))


def _markers(
    spec: DataSpec, columns: Sequence[ColumnSummary], sample: pa.Table, known: Sequence[Finding]
) -> Iterator[Finding]:
    """Yield a finding for each text that may mean a missing value.

    Such a text is a sign in several columns or among classes, or a word that is a value.
    """
    known = [f for f in known if f.kind in _WITH_EXAMPLES]
    markers = []
    handled = {*spec.missing, *spec.parse, *(f.column for f in known)}
    texts = [column.name for column in columns if column.kind == "text"]
    for name in texts:
        if name in handled:
            continue
        column = sample.column(name)
        counted = pc.value_counts(pc.utf8_trim_whitespace(column.drop_null()))
        suspect = pc.match_substring_regex(counted.field("values"), SUSPECT)
        for item in counted.filter(suspect).to_pylist():
            certain = item["values"] in WORDS or (name in spec.labels and len(counted) > 2)
            markers.append(
                Finding("marker", name, item["values"], count=item["counts"], loose=not certain)
            )
    number_of_columns = Counter(finding.example for finding in (*known, *markers))
    yield from (f for f in markers if not f.loose or number_of_columns[f.example] > 1)


def _add_row(finding: Finding, train: pa.Table) -> Finding:
    """Return a finding with the row of its example, if its example is the text of a cell."""
    if finding.kind not in _WITH_EXAMPLES:
        return finding
    column = train.column(finding.column)
    example = pa.scalar(finding.example).cast(column.type)
    return replace(finding, row=pc.index(column, example).as_py() + 1)


# ---- numbers


def _rounded(values: pa.ChunkedArray, column: ColumnSummary, rule: str) -> Iterator[Finding]:
    """Yield a finding if different numbers of a column are often equal as 32-bit floats.

    Only integers and texts that `rule` parses count. The rounding of other floats loses digits that
    seldom matter.
    """
    numbers = pc.unique(values.drop_null())
    if rule and column.kind == "text":
        numbers = parse_texts(numbers, rule).drop_null()
    exact = np.unique(np.asarray(numbers))
    if exact.dtype.kind not in "iuf":
        return
    if not rule and not np.all(exact == np.trunc(exact)):
        return
    equal = len(exact) - len(np.unique(exact.astype(np.float32)))
    if equal > ROUNDED_FROM * len(exact):
        yield Finding("rounded", column.name, share=equal / len(exact))


def _unseen(parts: Parts, column: ColumnSummary) -> Iterator[Finding]:
    """Yield a finding if valid has its own source, with texts of a column that train lacks."""
    if column.kind == "text" and "valid" in parts:
        valid = parts["valid"].column(column.name).drop_null()
        unseen = pc.invert(pc.is_in(valid, pc.unique(parts["train"].column(column.name))))
        if count := pc.sum(unseen).as_py():
            yield Finding("unseen", column.name, count=count, share=count / len(valid))


def _number_findings(values: pa.ChunkedArray, name: str, features: int) -> Iterator[Finding]:
    """Yield a finding if a column of numbers has infinite values or is an identifier.

    An identifier numbers the rows (1, 2, 3), or has its name and no value twice.
    """
    numbers = values.drop_null().to_numpy()
    count = len(numbers)
    if infinite := int(np.isinf(numbers).sum()):
        yield Finding("infinite", name, count=infinite)
    if count < MIN_ROWS or infinite or not np.all(numbers == np.floor(numbers)):
        return
    steps = np.diff(numbers)
    distinct = pc.count_distinct(values, mode="only_valid").as_py()
    has_missing = count < len(values)
    if (steps == 1).mean() >= DISTINCT_SHARE and features > 1:
        example = ", ".join(f"{number:.0f}" for number in numbers[:3])
        loose = has_missing or not bool(np.all(steps > 0))
        yield Finding("row_number", name, example, count=distinct, loose=loose)
    elif _NAMED_ID.search(name) and distinct >= DISTINCT_SHARE * count:
        loose = has_missing or distinct < count
        yield Finding("identifier", name, f"{numbers[0]:.0f}", count=distinct, loose=loose)


def _days(values: pa.ChunkedArray, name: str) -> Iterator[Finding]:
    """Yield a finding if integers are dates such as 20260131."""
    numbers = pc.unique(values.drop_null())
    if pa.types.is_integer(values.type) and len(numbers) >= MIN_COPIES:
        ends = pc.min_max(numbers).as_py()
        if ends["min"] >= 19_000_101 and ends["max"] <= 21_001_231:  # years 1900 to 2100
            texts = numbers.cast(pa.large_string())
            if not parse_texts(texts, "%Y%m%d").null_count:
                yield Finding("date_text", name, texts[0].as_py(), "%Y%m%d")


def _far_number(values: pa.ChunkedArray, name: str) -> Iterator[Finding]:
    """Yield a finding for the smallest or the largest number if it stands out in many rows.

    It stands out if its distance from the next number is half the range of the other numbers.
    """
    numbers = values.drop_null().cast(pa.float64(), safe=False).to_numpy()
    distinct, counts = np.unique(numbers[np.isfinite(numbers)], return_counts=True)
    if len(distinct) <= MARKER_OTHERS:
        return
    for end, others in ((0, distinct[1:]), (-1, distinct[:-1])):
        gap = np.abs(distinct[end] - others[end])
        is_frequent = counts[end] >= max(MARKER_COPIES, MARKER_SHARE * len(numbers))
        if is_frequent and gap >= (others[-1] - others[0]) / 2:
            example = as_text(float(distinct[end]))
            count = int(counts[end])
            yield Finding("marker", name, example, NUMBER, count=count)


# ---- rows


def _are_rarely_equal(rows: pa.Table) -> bool:
    """Return whether two rows are hardly ever equal by chance, so that equal rows are copies.

    The estimate treats columns as independent. Columns are not independent, so the chance must be
    tiny.
    """
    log_chance = 0.0  # logarithm of the chance that two rows are equal
    first_rows = rows.slice(0, 10_000)
    for column in first_rows.columns:
        shares = pc.value_counts(column).field("counts").to_numpy() / max(1, first_rows.num_rows)
        log_chance += float(np.log(max(float(np.sum(shares**2)), 1e-12)))
    # n rows have about n² pairs. A chance below 1 / n³ makes even one equal pair unlikely.
    return bool(log_chance < -3 * np.log(max(2, rows.num_rows)))


def _copies(rows: pa.Table) -> np.ndarray:
    """Return which rows are copies of earlier rows, as a mask of shape (n,)."""
    return np.asarray(pd.Index(row_hashes(rows, rows.column_names)).duplicated())


def _duplicates(copies: np.ndarray, rows: int) -> Iterator[Finding]:
    """Yield a finding if many of the rows of train are copies of other rows.

    All columns count, also those that are no features.

    Args:
        copies: Which rows of the sample are copies of earlier rows.
        rows: Number of rows of train.
    """
    count = int(copies.sum())
    if len(copies) < MIN_ROWS or count < MIN_COPIES:
        return
    # The chance that a sample also has the copy of a row is the share of the rows in the sample.
    share = count / len(copies) * (rows / len(copies))
    if share >= DUPLICATES_FROM:
        yield Finding("duplicates", count=count, share=min(1.0, share))


def _overlaps(
    parts: Parts, sample: pa.Table, columns: Sequence[ColumnSummary], seed: int
) -> Iterator[Finding]:
    """Yield a finding for each split with a source of its own that has many rows of train."""
    names = [c.name for c in columns if c.role in ("feature", "label")]
    if len(parts) == 1 or not _are_rarely_equal(sample.select(names)):
        return
    known = row_hashes(sample, names)
    sampled_share = sample.num_rows / max(1, parts["train"].num_rows)
    for key, part in parts.items():
        if key == "train":
            continue
        rows = sample_rows(part, len(sample), seed)
        count = int(np.isin(row_hashes(rows, names), known).sum())
        share = count / max(1, rows.num_rows) / sampled_share
        if count >= min(MIN_COPIES, rows.num_rows) and share >= OVERLAP_FROM:
            yield Finding("overlap", example=key, count=count, share=min(1.0, share))

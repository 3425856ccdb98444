"""Summarise data, find what may spoil a search, and stay quiet where the data is clean."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeps.data.columns.parse import CODES
from sweeps.data.columns.tables import canonical_table
from sweeps.data.summary.data_summary import DataSummary
from sweeps.data.summary.summary_text import one_line, table_rows
from sweeps.data.summary.table_summary import summarize
from sweeps.space.sections.data_models import DataSpec, Split

SHARED = Path(os.environ.get("SWEEPS_TEST_DATA", Path(__file__).parents[3] / "shared" / "data"))
RNG = np.random.default_rng(0)
START = RNG.bit_generator.state
N = 400


@pytest.fixture(autouse=True)
def same_rows_in_any_order() -> None:
    """Give each test the same random rows, whatever tests ran before."""
    RNG.bit_generator.state = START


def spec(**changed: Any) -> Any:
    return replace(
        DataSpec("rows.csv", "y", Split("fraction", fraction=0.25), None, None, Path()), **changed
    )


def frame(**columns: Any) -> Any:
    """Rows with a label that no column determines, and with columns that are clean."""
    columns_of_all = {
        "y": RNG.integers(0, 2, N),
        "size": RNG.normal(size=N),
        "color": RNG.choice(["red", "blue"], N),
    }
    return pd.DataFrame({**columns_of_all, **columns})


def summary_of(rows: Any, asked: Any = None, **others: Any) -> Any:
    asked = asked or spec()
    parts = {
        key: canonical_table(pa.Table.from_pandas(part, preserve_index=False))
        for key, part in ({"train": rows} | others).items()
    }
    values = rows[asked.label].dropna().unique() if isinstance(asked.label, str) else ()
    return summarize(asked, parts, tuple(sorted(values)) if 0 < len(values) <= 20 else None)


def findings(rows: Any, asked: Any = None, **others: Any) -> Any:
    return [
        (finding.kind, finding.column) for finding in summary_of(rows, asked, **others).findings
    ]


def test_clean_rows_have_no_findings() -> None:
    assert findings(frame()) == []


def test_the_summary_counts_and_survives_json() -> None:
    rows = frame(age=[None, *range(N - 1)])
    summary = summary_of(rows)
    stored = json.loads(json.dumps(asdict(summary)))
    assert DataSummary.from_json(stored) == summary
    columns = {column.name: column for column in summary.columns}
    assert (columns["age"].missing, columns["age"].distinct, columns["age"].values) == (
        1,
        N - 1,
        "0 to 398",
    )
    assert columns["color"].values.startswith(("red", "blue"))
    assert sum(summary.label.values()) == N
    assert one_line(summary).startswith(
        "400 rows, 3 features (2 numeric, 1 text); 1 missing value; y "
    )
    assert table_rows(summary)[0][0] == "y (label)"


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ([f"u-{i:05x}" for i in range(N)], "identifier"),
        (list(range(1, N + 1)), "row_number"),
        ([f"${i * 7 + 1000:,}" for i in range(N)], "number_text"),
        ([f"{i * 7.5:.2f}" if i % 9 else " " for i in range(N)], "number_text"),
        ([f"{i % 99}" if i % 9 else "unknown" for i in range(N)], "marker"),
        ([-200 if i % 20 == 0 else i % 99 for i in range(N)], "marker"),
        ([f"{i * 7 % 313}" if i != 300 else "3.0M" for i in range(N)], "number_text"),
        ([f"{i * 7 % 313}" if i != 300 else "4.2*" for i in range(N)], "number_text"),
        ([f"{i * 7 % 313}" if i % 200 else f"n{i}" for i in range(N)], "number_text"),
        ([f"{i % 90} bhp" for i in range(N)], "number_text"),
        ([f"{i % 9}h {i % 60}m" for i in range(N)], "number_text"),
        ([">20", "<1", "5", "7"] * (N // 4), "number_text"),
        (["10,000+", "500+", "1.5M", "20k"] * (N // 4), "number_text"),
        ([f"{i % 28 + 1:02d}/03/2026" for i in range(N)], "date_text"),
        ([f"{i % 28 + 1:02d}/03/2026" if i else "soon" for i in range(N)], "date_text"),
        ([f"{i % 12 + 1}/{i % 28 + 1}/24 {i % 24}:{i % 60:02d}" for i in range(N)], "date_text"),
        (["12:30", "08:15", "23:59", "00:01"] * (N // 4), "date_text"),
        ([None if i == 7 else i for i in range(N)], "row_number"),
        ([i + i // 100 for i in range(N)], "row_number"),
        ([f"{i * i % 211:05d}" for i in range(N)], "many"),
        ([f"city {i % 60}" for i in range(N)], "many"),
        ([f"now we meet {i % 99} and talk" for i in range(N)], "prose"),
        ([f"2026-03-{i % 28 + 1:02d} 10:00:00" for i in range(N)], "date_text"),
        ([20_260_301 + i % 28 for i in range(N)], "date_text"),
        (["Jan-2014", "Feb-2014", "Mar-2015"] * (N // 3) + ["May-2016"], "date_text"),
        ([f"{i % 7 * 50}" for i in range(N)], "number_text"),  # digits of different lengths
        ([f"0,{i % 313 + 100}" for i in range(N)], "number_text"),
        ([f"{i / 7 + 5:.3f} {('kmpl', 'km/kg')[i % 2]}" for i in range(N)], "many"),
        ([f"{('$', '€')[i % 2]}{i}" for i in range(N)], "many"),  # two currencies
        ([f"{i}%" if i % 2 else f"{i / N}" for i in range(N)], "many"),
        ([f"{i // 60 + 10}:{i % 60:02d}.5" for i in range(N)], "many"),
        ([f"+49 640 {i * 7919 + 10**6}" for i in range(N)], "identifier"),
        ([None] * N, "empty"),
        (["a"] * N, "constant"),
    ],
)
def test_a_column_that_spoils_a_search_is_a_finding(column: Any, kind: str) -> None:
    assert findings(frame(odd=column)) == [(kind, "odd")]


@pytest.mark.parametrize(
    "column",
    [
        [f"{i % 30:05d}" for i in range(N)],  # codes with leading zeros
        [str(10_000 + i % 30) for i in range(N)],  # codes stored as text
        RNG.choice(["10-20", "20-30", "30+"], N),  # ranges
        [f"v{i % 7}.{i % 3}" for i in range(N)],
        [f"CAD-{100 + i % 30}" for i in range(N)],  # labels that begin like an amount
        [f"INR{i % 30:04d}" for i in range(N)],
        [f"{i % 20} {('kmpl', 'km/kg')[i % 50 == 0]}" for i in range(N)],  # two units
        ["?" if i % 9 == 0 else "red" for i in range(N)],  # one column with a sign
        [0 if i % 2 else i for i in range(N)],
        [None if i % 2 else "yes" for i in range(N)],  # one value, but it is often missing
        RNG.permutation(N * 3)[:N],  # distinct numbers
        RNG.integers(0, 30, N),
    ],
)
def test_an_ordinary_column_is_no_finding(column: Any) -> None:
    assert findings(frame(plain=column)) == []


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(CODES.split("|")) | st.text("ABCXYZ", min_size=1, max_size=5),
    st.sampled_from(["", "-", "_"]),
    st.integers(0, 10**6),
)
def test_different_numbers_after_letters_are_identifiers_and_never_prices(
    letters: Any, mark: Any, first: Any
) -> None:
    assert findings(frame(order=[f"{letters}{mark}{first + i}" for i in range(N)])) == [
        ("identifier", "order")
    ]


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(CODES.split("|")),
    st.sampled_from(["{code} {n}", "{n} {code}", "{n}{code}", "{code}{n:.2f}", "{code} -{n}"]),
)
def test_amounts_with_a_currency_code_are_prices(code: Any, form: Any) -> None:
    prices = [form.format(code=code, n=100 + i * 7 % 997) for i in range(N)]
    assert findings(frame(price=prices)) == [("number_text", "price")]


def finding(column: Any, **asked: Any) -> Any:
    """Return the finding about a column of a table."""
    summary = summary_of(frame(odd=column), spec(**asked))
    return next((f for f in summary.findings if f.column == "odd"), None)


def test_the_first_exception_is_named_with_its_row() -> None:
    late = finding([f"{i * 7 % 313}" if i != 300 else "3.0M" for i in range(N)])
    assert (late.example, late.row, late.rule, late.count) == ("3.0M", 301, "number", 0)
    day = finding([f"{i % 28 + 1:02d}/03/2026" if i != 250 else "soon" for i in range(N)])
    assert (day.example, day.row, day.rule, day.count) == ("soon", 251, "%d/%m/%Y", 1)
    low = finding([-200 if i % 20 == 5 else i % 99 for i in range(N)])
    assert (low.example, low.row, low.count) == ("-200", 6, 20)


@pytest.mark.parametrize(
    ("column", "rule"),
    [
        ([f"{i % 90} bhp" for i in range(N)], "unit bhp"),
        ([f"{i % 90}" if i % 9 else "5 °C" for i in range(N)], "unit °C"),
        ([f"{i % 9}h {i % 60}m" for i in range(N)], "duration"),
        (
            [f"2026-03-{i % 28 + 1:02d}T10:00:00.5-05:00" for i in range(N)],
            "%Y-%m-%dT%H:%M:%S.%f%z",
        ),
        ([f"{i % 12 + 1}:30 PM" for i in range(N)], "%I:%M %p"),
        ([f"{i % 28 + 1} Mar 2026 08:46" for i in range(N)], "%d %b %Y %H:%M"),
        ([f"{i / 10:.1f}%".replace(".", ",") for i in range(N)], "decimal_comma"),
        ([f"0,{i % 313 + 100}" if i % 3 else f"1,{i}" for i in range(N)], "decimal_comma"),
        ([f"US${i + 1},000" for i in range(N)], "number"),
        ([20_260_301 + i % 28 for i in range(N)], "%Y%m%d"),
        (["Jan-2014", "Feb-2014", "Mar-2015"] * (N // 3) + ["May-2016"], "%b-%Y"),
    ],
)
def test_the_rule_that_fits_is_proposed(column: Any, rule: str) -> None:
    assert finding(column).rule == rule


@pytest.mark.parametrize("column", [[None, *range(1, N)], [0, *range(N - 1)]])
def test_an_identifier_may_have_a_gap_or_a_copy(column: Any) -> None:
    rows = frame(user_id=RNG.permutation(np.array([None if v is None else 7 * v for v in column])))
    (finding,) = summary_of(rows.astype({"user_id": "Int64"})).findings
    assert (finding.kind, finding.column, finding.loose) == ("identifier", "user_id", True)


@pytest.mark.parametrize("label", [["a", "b", "?"], ["1.5", "2.5", "3.5", "?"], [*range(20), -200]])
def test_a_marker_among_labels_is_a_finding(label: Any) -> None:
    rows = frame(y=pd.Series(label * (N // len(label) + 1))[:N])
    (finding,) = summary_of(rows, spec(task="regression")).findings
    assert (finding.kind, finding.column, finding.example) == ("marker", "y", str(label[-1]))


def test_classes_with_signs_are_no_markers() -> None:
    assert findings(frame(y=["+", "-"] * (N // 2))) == []


def test_parsed_comparisons_are_not_rounded() -> None:
    column = [(">20", "20", "<5", "5", "7")[i % 5] for i in range(N)]
    assert finding(column, parse={"odd": "number"}) is None


@pytest.mark.parametrize(
    "column",
    [
        [2**53 + 1 + i * 2**20 for i in range(N)],
        [-(2**60) + i * 2**20 for i in range(N)],
        pd.date_range("2026-01-01", periods=N, freq="s") + pd.Timedelta(nanoseconds=1),
    ],
)
def test_large_integers_and_nanoseconds_are_summarized(column: Any) -> None:
    assert finding(column) is None or finding(column).kind == "rounded"


def test_a_number_is_an_identifier_only_by_its_name() -> None:
    numbers = RNG.permutation(10 * N)[:N]
    assert findings(frame(customerID=numbers)) == [("identifier", "customerID")]
    assert findings(frame(user_id=numbers)) == [("identifier", "user_id")]
    assert findings(frame(paid=numbers, grid=numbers[::-1])) == []


def test_one_of_many_numbered_columns_may_be_constant() -> None:
    pixels = {f"pixel_{i}": RNG.integers(0, 16, N) for i in range(20)}
    assert findings(frame(**pixels, pixel_20=[0] * N)) == []


class TestLeaks:
    def test_a_copy_of_the_label(self) -> None:
        rows = frame()
        assert findings(rows.assign(copy=np.where(rows.y == 1, "yes", "no"))) == [("leak", "copy")]

    def test_a_number_with_a_threshold(self) -> None:
        rows = frame()
        assert findings(rows.assign(late=rows.y * 10 + RNG.normal(size=N))) == [("leak", "late")]

    def test_a_column_that_is_missing_for_one_class(self) -> None:
        for _ in range(10):
            rows = frame()
            assert findings(
                rows.assign(cancelled=np.where(rows.y == 1, RNG.normal(size=N), np.nan))
            ) == [("leak", "cancelled")]

    def test_a_regression(self) -> None:
        rows = frame().assign(y=RNG.normal(size=N))
        assert findings(rows.assign(euro=rows.y * 0.9 + 3)) == [("leak", "euro")]

    def test_one_extreme_row_does_not_leak(self) -> None:
        rows = frame(y=RNG.normal(size=N)).assign(fare=lambda rows: rows.y + RNG.normal(size=N))
        rows.loc[7, ["y", "fare"]] = 1e6
        assert findings(rows) == []

    def test_good_columns_do_not_leak(self) -> None:
        rows = frame()
        assert (
            findings(
                rows.assign(
                    good=rows.y + RNG.normal(size=N) * 0.3,
                    often=np.where(RNG.random(N) < 0.97, rows.y, 1 - rows.y),
                )
            )
            == []
        )

    def test_the_only_column_may_explain_everything(self) -> None:
        x = RNG.normal(size=N)
        assert findings(pd.DataFrame({"x": x, "y": 2 * x})) == []

    def test_rare_classes(self) -> None:
        y = np.zeros(N, dtype=int)
        y[:3] = 1
        assert findings(frame(y=y, flag=y)) == []

    @settings(max_examples=20, deadline=None)
    @given(st.integers(0, 1000))
    def test_noise_never_leaks(self, seed: Any) -> None:
        rng = np.random.default_rng(seed)
        noise = {f"n{i}": rng.normal(size=N) for i in range(5)} | {
            f"c{i}": rng.integers(0, 4, N) for i in range(2)
        }
        assert not [
            item for item in findings(frame(y=rng.integers(0, 3, N), **noise)) if item[0] == "leak"
        ]


class TestCopies:
    def test_copies_of_rows(self) -> None:
        rows = frame(a=RNG.normal(size=N), b=RNG.normal(size=N))
        assert findings(pd.concat([rows, rows.head(40)])) == [("duplicates", "")]

    @pytest.mark.parametrize("dropped", [False, True])
    def test_identifiers_and_row_numbers_among_copies_are_findings(self, dropped: bool) -> None:
        rows = frame(
            cust=[f"C{i:05d}" for i in range(N)], row=range(1, N + 1), a=RNG.normal(size=N)
        )
        expected = [("identifier", "cust"), ("row_number", "row"), ("duplicates", "")]
        assert (
            findings(
                pd.concat([rows, rows.sample(60, random_state=0)]), spec(drop_duplicates=dropped)
            )
            == expected
        )
        assert findings(pd.concat([rows, rows.head(3)])) == expected[:2]

    def test_few_categories_make_equal_rows(self) -> None:
        rows = pd.DataFrame({name: RNG.integers(0, 3, N) for name in "abcy"})
        assert findings(rows) == []

    def test_rows_of_test_in_train(self) -> None:
        rows = frame(a=RNG.normal(size=N), b=RNG.normal(size=N))
        summary = summary_of(rows, test=rows.sample(60, random_state=0))
        assert [(f.kind, f.example) for f in summary.findings] == [("overlap", "test")]
        assert summary.rows == {"train": N, "test": 60}
        fresh = frame(a=RNG.normal(size=N), b=RNG.normal(size=N))
        assert findings(rows, test=fresh) == []


# ---- which findings matter


# ---- no false alarms

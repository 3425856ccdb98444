"""Parse numbers and dates that are written as text, as `data.parse` says, from the data file to the
bundle's input.
"""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.bundle.schema import enforce_schema, infer_schema
from sweeps.core.errors import InputError
from sweeps.data.checks import preflight
from sweeps.data.columns.parse import parse_texts, parse_values
from sweeps.data.load_data import load_splits
from sweeps.data.preprocessing import step_files
from sweeps.data.preprocessing.fit import fit_transform
from sweeps.data.splits.variants import DataVariants
from sweeps.space import load
from sweeps.space.model.step_names import Step
from tests.documents import block_beginning


def parsed(rule: Any, *texts: Any) -> Any:
    return parse_texts(pa.array(texts, pa.large_string()), rule).to_pylist()


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("$1,234.50", 1234.5),
        ("1 234.5 EUR", 1234.5),
        ("1\u00a0234.5\u00a0€", 1234.5),
        ("USD 7", 7.0),
        ("-$5", -5.0),
        ("$-5", -5.0),
        ("(12.00)", -12.0),
        ("\u22123.5", -3.5),
        ("45%", 45.0),
        ("1e3", 1000.0),
        (".5", 0.5),
        (" +2. ", 2.0),
        ("1'000", 1000.0),
        (">20", 20.0),
        ("≤ 5", 5.0),
        ("~7", 7.0),
        ("10,000+", 10_000.0),
        ("19M", 19e6),
        ("1.2k", 1200.0),
        ("$3bn", 3e9),
        ("1.5M €", 1.5e6),
        ("12 %", 12.0),
        ("-2k", -2000.0),
        ("US$5", 5.0),
        ("Rs. 9,371", 9371.0),
        ("₹4,85,204", 485_204.0),
        ("12,34,567", 1_234_567.0),
    ],
)
def test_amounts_are_read(text: str, number: float) -> None:
    assert parsed("number", text) == [number]


@pytest.mark.parametrize(
    ("rule", "text", "number"),
    [
        ("unit bhp", "74 bhp", 74.0),
        ("unit bhp", "74", 74.0),
        ("unit bhp", "1,248.5bhp", 1248.5),
        ("unit bhp", "74 kW", None),
        ("unit bhp", "bhp", None),
        ("unit km/kg", "12.5 km/kg", 12.5),
        ("unit °C", "-3 °C", -3.0),
        ("duration", "2h 50m", 10_200.0),
        ("duration", "90 min", 5400.0),
        ("duration", "2 hrs 5 mins", 7500.0),
        ("duration", "1:23:45", 5025.0),
        ("duration", "1 day 02:00:00", 93_600.0),
        ("duration", "2D", 172_800.0),
        ("duration", "30", None),
        ("duration", "3 months", None),
        ("time %H:%M", "08:46", 31_560.0),
        ("time %I:%M %p", "1:30 PM", 48_600.0),
        ("%m/%d/%y %H:%M", "01/02/70 12:00", 1.5),
        ("decimal_comma", ">1.234,5", 1234.5),
        ("decimal_comma", "1,5k", 1500.0),
    ],
)
def test_units_durations_and_times_are_read(rule: str, text: str, number: float | None) -> None:
    assert parsed(rule, text) == parsed(f"{rule} or missing", text) == [number]


@pytest.mark.parametrize("text", ["ORD-100", "INV00007", "100 LBS", "usd 7"])
def test_other_letters_are_no_currency(text: str) -> None:
    assert parsed("number", text) == [None]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "abc",
        "1,23",
        "12,34,56",
        "0,196",
        "(5",
        "5)",
        "1.2.3",
        "$",
        "12:30",
        "2020-01-31",
        "1 2",
        "$5 million",
        None,
    ],
)
def test_other_texts_are_no_amounts(text: str | None) -> None:
    assert parsed("number", text) == [None]


def test_the_decimal_comma_is_a_rule_of_its_own() -> None:
    assert parsed("decimal_comma", "1.234,50 €", "1 234,5", "12", "1.23", "1,5") == [
        1234.5,
        1234.5,
        12.0,
        None,
        1.5,
    ]


@given(st.integers(-(10**9), 10**9), st.sampled_from(["${}", "{} EUR", "{}", " {} €"]))
def test_formatted_amounts_are_read_back(cents: Any, form: Any) -> None:
    assert parsed("number", form.format(f"{cents / 100:,.2f}")) == [pytest.approx(cents / 100)]


@given(
    st.dates(date(1900, 1, 1), date(2200, 1, 1)),
    st.sampled_from(["%d/%m/%Y", "%Y-%m-%d", "%b %d, %Y", "%Y%m%d"]),
)
def test_dates_become_days_since_1970(day: Any, form: Any) -> None:
    assert parsed(form, day.strftime(form)) == [(day - date(1970, 1, 1)).days]


def test_times_and_zones() -> None:
    assert parsed("%Y-%m-%d %H:%M", "1970-01-02 12:00") == [1.5]
    assert parsed("%Y-%m-%dT%H:%M:%S%z", "1970-01-02T02:00:00+02:00") == [1.0]


def test_a_column_may_have_been_read_with_another_type() -> None:
    assert parse_values(pd.Series([1.5, np.nan]), "number", "x").tolist()[0] == 1.5
    assert parse_values(pd.Series([19700102, 19700103]), "%Y%m%d", "x").tolist() == [1.0, 2.0]
    assert parse_values(pd.to_datetime(pd.Series(["1970-01-02"])), "%d/%m/%Y", "x").tolist() == [
        1.0
    ]
    assert np.isnan(parse_values(pd.Series([None], dtype=object), "number", "x")).all()
    lenient = parse_values(pd.Series(["$5", "ask"]), "number or missing", "x")
    assert lenient[0] == 5.0 and np.isnan(lenient[1])


def test_the_first_wrong_value_is_named() -> None:
    with pytest.raises(
        InputError,
        match=r"column `x` holds 'oops' in row 3, but must fit the rule number, such as \$1,234.50",
    ):
        parse_values(pd.Series(["$1", None, "oops", "also"], dtype=object), "number", "x")
    with pytest.raises(
        InputError,
        match=r"holds '2026-01-31' in row 1, but must fit the rule %d/%m/%Y",
    ):
        parse_values(pd.Series(["2026-01-31"]), "%d/%m/%Y", "x")


# ---- in a space

SPACE = """\
trainer: xgboost
data: {{train: rows.parquet, label: {label}, valid: {valid}, \
parse: {{price: number, day: "%d/%m/%Y"}}}}
objective: {{metric: {metric}, goal: minimize}}
limits: {{max_trials: 2}}
space: {{params: {{eta: {{loguniform: [0.01, 1]}}}}}}
"""


def space_of(
    tmp_path: Path,
    wrong: Any = None,
    label: str = "y",
    valid: str = "0.25",
    metric: str = "valid-logloss",
) -> Any:
    days = [date(2026, 1, 1) + timedelta(days=7 * i % 40) for i in range(40)]
    frame = pd.DataFrame(
        {
            "price": [f"${1000 + i:,}.50" for i in range(40)],
            "day": [d.strftime("%d/%m/%Y") for d in days],
        }
    )
    frame["y"] = [i % 2 for i in range(40)]
    for column, row, value in wrong or ():
        frame.loc[row, column] = value
    frame.to_parquet(tmp_path / "rows.parquet")
    (tmp_path / "space.yaml").write_text(SPACE.format(label=label, valid=valid, metric=metric))
    return load(tmp_path / "space.yaml")


def test_the_early_check_names_every_wrong_value(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        preflight.check_data(space_of(tmp_path, [("price", 4, "about 5"), ("day", 6, "soon")]))
    first, second = (str(problem) for problem in caught.value.problems)
    assert "space.yaml:2:" in first
    assert (
        "data.parse.price: column `price` of data.train holds 'about 5' in row 5, but must fit "
        "the rule number" in first
    )
    assert (
        "data.parse.day: column `day` of data.train holds 'soon' in row 7, but must fit the rule "
        "%d/%m/%Y" in second
    )


def test_the_chain_gets_numbers_and_the_bundle_takes_texts(tmp_path: Path) -> None:
    space = space_of(tmp_path)
    splits = load_splits(space.data)
    assert pa.types.is_large_string(splits.train.schema.field("price").type)
    chain, prepared = fit_transform((), splits.train, splits.label, parse=splits.parse)
    assert prepared["price"].dtype == prepared["day"].dtype == "float64"
    assert prepared["price"].between(1000, 1040).all()
    step_files.save_chain(chain, tmp_path)
    again = step_files.load_chain(tmp_path)
    schema = infer_schema(splits.valid.select(["price", "day"]).to_pandas())
    assert [column.type for column in schema] == ["string", "string"]
    rows = enforce_schema(pd.DataFrame({"day": ["02/01/1970"], "price": ["$1,000"]}), schema)
    assert again.transform(rows).to_dict("list") == {"price": [1000.0], "day": [1.0]}


def test_the_step_of_the_page_adds_the_parts_of_a_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dates.py").write_text(block_beginning("# dates.py"))
    monkeypatch.syspath_prepend(str(tmp_path))
    splits = load_splits(space_of(tmp_path, [("day", 1, None)]).data)
    chain, prepared = fit_transform(
        (Step("dates:date_parts", ("day",), {}),), splits.train, splits.label, parse=splits.parse
    )
    assert (
        set(prepared) == {"price", "day", "day_month", "day_weekday", "y"}
        and prepared["day_weekday"].dtype == "float64"
    )
    rows = pd.DataFrame({"price": ["$1"] * 2, "day": ["25/12/2026", None]})  # a Friday
    friday, missing = chain.transform(rows)[["day_month", "day_weekday"]].to_numpy()
    assert friday.tolist() == [12.0, 4.0] and np.isnan(missing).all()


def test_the_label_is_parsed_when_the_rows_are_read(tmp_path: Path) -> None:
    splits = load_splits(space_of(tmp_path, label="price", metric="valid-rmse").data)
    assert (splits.task, splits.classes) == ("regression", None)
    assert splits.train.column("price").to_pylist()[0] >= 1000
    assert dict(splits.parse) == {"day": "%d/%m/%Y"}


def test_a_split_by_time_orders_parsed_dates(tmp_path: Path) -> None:
    splits = load_splits(space_of(tmp_path, valid="{time: day, last: 0.25}").data)
    days = {
        key: parse_values(getattr(splits, key).column("day").to_pandas(), "%d/%m/%Y", "day")
        for key in ("train", "valid")
    }
    assert days["train"].max() < days["valid"].min()


def test_another_rule_is_other_data(tmp_path: Path) -> None:
    space = space_of(tmp_path)
    before = DataVariants(space.data, space.variants, 0).fingerprint
    other = load(tmp_path / "space.yaml", ["data.parse={price: number}"])
    assert DataVariants(other.data, other.variants, 0).fingerprint != before


def test_texts_that_do_not_fit_are_missing_and_counted_if_the_rule_says_so(tmp_path: Path) -> None:
    space = space_of(tmp_path, [("price", 4, "about 5"), ("price", 7, "ask")])
    with pytest.raises(InputError):
        load_splits(space.data)
    lenient = load(
        tmp_path / "space.yaml",
        ["data.parse={price: {rule: number, other: missing}, day: '%d/%m/%Y'}"],
    )
    preflight.check_data(lenient)
    splits = load_splits(lenient.data)
    assert splits.notes == (
        (
            "data.train has texts that do not fit their rule in data.parse, read as missing: 2 in "
            "`price`"
        ),
    )
    chain, _ = fit_transform((), splits.train, splits.label, parse=splits.parse)
    step_files.save_chain(chain, tmp_path)
    rows = pd.DataFrame({"day": ["02/01/1970"] * 2, "price": ["$1,000", "on request"]})
    price = step_files.load_chain(tmp_path).transform(rows)["price"]
    assert price[0] == 1000.0 and np.isnan(price[1])


def test_a_format_without_a_date_is_a_time_of_day(tmp_path: Path) -> None:
    space_of(tmp_path)
    asked = load(tmp_path / "space.yaml", ["data.parse={day: '%H:%M', price: 'unit kg'}"])
    assert asked.data.parse == {"day": "time %H:%M", "price": "unit kg"}


# ---- data.drop_duplicates


def test_copies_are_left_out_of_train_alone(tmp_path: Path) -> None:
    for name, rows in (("train.parquet", [1, 1, 2, 3, 4, 5]), ("valid.parquet", [5, 6, 6])):
        pd.DataFrame({"x": rows, "y": [i % 2 for i in rows]}).to_parquet(tmp_path / name)
    (tmp_path / "space.yaml").write_text(
        SPACE.split("data:")[0].format()
        + "data: {train: train.parquet, valid: valid.parquet, label: y, drop_duplicates: true}\n"
        "objective:" + SPACE.split("objective:")[1].format(metric="valid-logloss")
    )
    splits = load_splits(load(tmp_path / "space.yaml").data)
    assert splits.train.column("x").to_pylist() == [1, 2, 3, 4]
    assert splits.valid.num_rows == 3
    (note,) = splits.notes
    assert (
        note == "data.drop_duplicates left out 1 copies of other rows and 1 rows that are also in "
        "valid or test of data.train"
    )

"""Warnings about a table, and the table that plan shows."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sweeps.data.summary.data_summary import DataSummary
from sweeps.data.summary.early_summary import render, summarize_early
from sweeps.data.summary.summary_text import table_rows
from sweeps.space import load
from tests.data.test_summary import RNG, START, N, frame
from tests.shipped_spaces import FOLDER, missing_package


@pytest.fixture(autouse=True)
def same_rows_in_any_order() -> None:
    """Give each test the same random rows, whatever tests ran before."""
    RNG.bit_generator.state = START


SPACE = """\
trainer: {trainer}
data: {{train: rows.csv, label: y, valid: 0.25{data}}}
objective: {{metric: valid-logloss, goal: minimize}}
limits: {{max_trials: 2}}
space: {{preprocessor: {steps}, params: {{eta: {{loguniform: [0.01, 1]}}}}}}
"""


def texts(
    tmp_path: Path,
    rows: Any,
    trainer: str = "xgboost",
    data: str = "",
    steps: str = "[OneHotEncoder: {}]",
) -> Any:
    rows.to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "space.yaml").write_text(SPACE.format(trainer=trainer, data=data, steps=steps))
    (summary,) = summarize_early(load(tmp_path / "space.yaml"))
    return [warning.text for warning in summary.warnings]


def test_markers_in_several_columns_are_one_warning(tmp_path: Path) -> None:
    rows = frame(
        temp=["?" if i % 7 == 0 else f"{i % 90}" for i in range(N)],
        wind=["?" if i % 5 == 0 else ("N", "S")[i % 2] for i in range(N)],
        no2=[-200 if i % 20 == 0 else i % 99 for i in range(N)],
        pool=["None" if i % 3 else "Good" for i in range(N)],
    )
    sign, number, word = texts(tmp_path, rows)
    assert number == (
        "`no2` has '-200' in 20 rows (first: row 1); if this means a missing value, write "
        "data.missing: {no2: [-200]}"
    )
    assert sign.startswith("`temp`, `wind` have '?' in 138 rows")
    assert sign.endswith('write data.missing: {"*": ["?"]}')
    assert word.startswith("`pool` has 'None' in 266 rows (first: row 2); ")
    known = ', missing: {"*": ["?"], no2: [-200], pool: []}'
    assert texts(tmp_path, rows, data=known) == []
    kept = ", missing: {temp: [], wind: [], no2: [], pool: []}"
    assert texts(tmp_path, rows, data=kept) == []


def test_every_warning_names_the_key_that_mends_it(tmp_path: Path) -> None:
    rows = frame(
        customerID=[f"u-{i:05x}" for i in range(N)],
        price=[f"${i * 7 + 1000:,}" for i in range(N)],
        nothing=[None] * N,
    )
    identifier, price, empty = texts(tmp_path, rows)
    assert (
        identifier.startswith(
            "`customerID` has 400 different values in 400 rows, such as u-00000; "
        )
        and "data.drop" in identifier
    )
    assert price == "`price` has numbers as text, such as $1,000; write data.parse: {price: number}"
    assert empty == "`nothing` has no value; add it to data.drop"
    assert texts(tmp_path, rows, data=", drop: [customerID, nothing], parse: {price: number}") == []


def test_an_encoder_of_many_numbers_is_named(tmp_path: Path) -> None:
    rows = frame(temp=["?" if i % 7 == 0 else f"{i % 90}" for i in range(N)])
    steps, known = "[OrdinalEncoder: {columns: [temp, color]}]", ', missing: {temp: ["?"]}'
    (text,) = texts(tmp_path, rows, steps=steps, data=known)
    assert text == (
        "`temp` has numbers, which OrdinalEncoder makes codes, so that other numbers are missing "
        "values; take it out of `columns`"
    )
    assert texts(tmp_path, rows, steps="[OrdinalEncoder: {}]", data=known) == []


def test_a_date_that_fits_two_formats_names_both(tmp_path: Path) -> None:
    (text,) = texts(
        tmp_path, frame(day=[f"{i % 12 + 1:02d}/{i % 5 + 1:02d}/2026" for i in range(N)])
    )
    assert text.endswith('write data.parse: {day: "%d/%m/%Y" or "%m/%d/%Y", which also fits}')


def test_steps_that_read_texts_silence_the_warning(tmp_path: Path) -> None:
    rows = frame(note=[f"{i} is a note with words" for i in range(N)])
    assert texts(tmp_path, rows)
    assert (
        texts(
            tmp_path,
            rows,
            steps="[OneHotEncoder: {columns: [color]}, HashingVectorizer: {columns: [note], "
            "num_features: 8}]",
        )
        == []
    )


def test_a_loop_of_the_user_may_ignore_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_loop.py").write_text("def train(config):\n    pass\n")
    rows = frame(path=[f"images/{i:05d}.jpg" for i in range(N)])
    own = '{loop: "own_loop:train"}'
    assert texts(tmp_path, rows, trainer=own, steps="[]") == []
    assert texts(tmp_path, rows, trainer=own)


def test_plan_shows_the_table_and_reads_no_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    texts(tmp_path, frame(price=["$1"] * N))
    shown = render(summarize_early(load(tmp_path / "space.yaml")))
    assert shown.startswith("data: 400 rows, 3 features (1 numeric, 2 text); y ")
    assert "column     kind" in shown
    assert "\nwarning: `price`" in shown
    (tmp_path / "own_rows.py").write_text("raise SystemExit\ndef load():\n    pass\n")
    (summary,) = summarize_early(load(tmp_path / "space.yaml", ["data.train=own_rows:load"]))
    assert summary.summary is None and "runs no code of yours" in summary.reason


def test_the_table_marks_parsed_columns(tmp_path: Path) -> None:
    rows = frame(
        price=[f"${i * 7 + 1000:,}" for i in range(N)],
        other=[f"${i * 7 + 1000:,}" for i in range(N)],
    )
    assert (
        texts(tmp_path, rows, data=", drop: [other], parse: {price: number, other: number}") == []
    )
    (summary,) = summarize_early(load(tmp_path / "space.yaml"))
    assert summary.summary is not None
    assert [row[0] for row in table_rows(summary.summary)] == [
        "y (label)",
        "size",
        "color",
        "price (parsed)",
        "other (dropped)",
    ]
    stored = asdict(summary.summary)
    assert DataSummary.from_json(stored) == summary.summary


def test_plan_calls_a_loader_if_it_is_asked_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    texts(tmp_path, frame(price=["$1"] * N))
    rows = tmp_path / "rows.parquet"
    frame(price=["$1"] * N).to_parquet(rows)
    loader = (
        "import pandas as pd\ndef load(first):\n    return "
        f"pd.read_parquet({str(rows)!r}).head(first)\n"
    )
    (tmp_path / "called_rows.py").write_text(loader)
    space = load(tmp_path / "space.yaml", ["data.train={called_rows:load: {first: 200}}"])
    (summary,) = summarize_early(space, call_loaders=True)
    assert summary.summary is not None
    assert summary.summary.rows == {"train": 200} and any(
        "`price`" in warning.text for warning in summary.warnings
    )
    (streamed,) = summarize_early(
        load(
            tmp_path / "space.yaml",
            ["data.train=called_rows:load", "data.ingest=stream", "trainer={loop: json:load}"],
        )
    )
    assert streamed.summary is None and "only `sweeps run`" in streamed.reason


def test_a_stream_is_summarised_from_a_sample(tmp_path: Path) -> None:
    texts(tmp_path, frame())
    rows = pd.concat([frame()] * 50)
    for i in range(3):
        rows.to_parquet(tmp_path / f"part-{i}.parquet", row_group_size=5_000)
    asked = load(
        tmp_path / "space.yaml",
        ["data.train=part-*.parquet", "data.ingest=stream", "trainer={loop: json:load}"],
    )
    (summary,) = summarize_early(asked)
    assert summary.summary is not None
    assert summary.rows_exact and summary.summary.rows == {"train": 60_000}
    assert summary.summary.sampled < 60_000


MICROS = 1_700_000_000_000_000


@pytest.mark.parametrize(
    ("values", "warned"),
    [
        (MICROS + np.arange(N), True),
        (2**24 + np.arange(N), True),
        (-(2**30) - np.arange(N), True),
        ((2**53 + 2 * np.arange(N)).astype(float), True),
        (np.append(MICROS + np.arange(N - 1.0), np.nan), True),
        (2**24 + 2 * np.arange(N), False),
        (2**24 - N + np.arange(N), False),
        (MICROS + np.arange(N) * 10**12, False),
        (RNG.normal(1e9, 1, N), False),
        (np.full(N, MICROS), False),
    ],
)
def test_integers_that_meet_as_32_bit_floats_are_reported(
    tmp_path: Path, values: Any, warned: bool
) -> None:
    rows = frame(when=RNG.permutation(values))
    warnings = [text for text in texts(tmp_path, rows) if text.startswith("`when` needs more than")]
    assert len(warnings) == warned
    if warned:
        assert "subtract the smallest value" in warnings[0] and "data.drop" in warnings[0]
        assert not any("32-bit" in text for text in texts(tmp_path, rows, trainer="lightgbm"))
        scaled = texts(tmp_path, rows, steps="[OneHotEncoder: {}, StandardScaler: {}]")
        assert not any("32-bit" in text for text in scaled)


def test_values_of_valid_that_train_does_not_have_are_reported(tmp_path: Path) -> None:
    frame().assign(color=["red", "pink", "blue", None] * (N // 4)).to_csv(
        tmp_path / "valid.csv", index=False
    )
    rows = frame()
    texts(tmp_path, rows)
    space = load(tmp_path / "space.yaml", ["data.valid=valid.csv"])
    (warning,) = [w for s in summarize_early(space) for w in s.warnings if w.key == "data.valid"]
    assert warning.text.startswith(
        "100 values (33 %) of `color` in data.valid are not in data.train"
    )
    assert texts(tmp_path, rows) == [], "rows of one source are not split yet"


SHIPPED = [
    path
    for path in sorted(FOLDER.rglob("*.yaml"))
    if "train: sklearn:" in path.read_text() and missing_package(path) is None
]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_spaces_have_no_warnings(path: Any) -> None:
    assert [
        warning.text for summary in summarize_early(load(path)) for warning in summary.warnings
    ] == []

"""Predict with a bundle: frames, files, memory and errors."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bundle_parts
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pytest

from sweeps.bundle import predict_rows
from sweeps.bundle.bundle_model import Bundle, load_bundle
from sweeps.bundle.predict_rows import predict_file
from sweeps.core.errors import InputError
from sweeps.data.preprocessing.fit import fit_chain, fit_transform
from sweeps.space import Step
from sweeps.space.sections.data_models import ReadKeys
from tests.commands import check_in_this_process

pytestmark = [
    pytest.mark.timeout(60),
    pytest.mark.integration,
]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("bundle")
    with pytest.MonkeyPatch.context() as patch:
        check_in_this_process(patch)
        kept = bundle_parts.ingredients(folder, patch, "files")
        yield bundle_parts.write_parts(folder / "bundle", **kept), kept


@pytest.mark.parametrize(
    ("source", "target", "chunk"),
    [
        ("rows.csv", "out.csv", 2),
        ("rows.csv.gz", "out.parquet", 50_000),
        ("rows.parquet", "out.csv.gz", 2),
        ("rows.parquet", None, 50_000),
    ],
)
def test_files_in_and_out(
    bundle: Any,
    source: str,
    target: str | None,
    chunk: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(predict_rows, "CHUNK_ROWS", chunk)
    path, kept = bundle
    rows = kept["raw"].assign(sold="no")
    rows.to_parquet(tmp_path / source) if source.endswith("parquet") else rows.to_csv(
        tmp_path / source, index=False
    )
    got = predict_file(path, tmp_path / source, target and tmp_path / target)
    if target:
        assert got == tmp_path / target and sorted(os.listdir(tmp_path)) == sorted([source, target])
        read = pd.read_parquet if target.endswith("parquet") else pd.read_csv
        got = read(tmp_path / target)
    assert isinstance(got, pd.DataFrame)
    np.testing.assert_array_equal(got["probability_yes"], kept["expected"])
    assert got["prediction"].tolist() == ["yes" if p > 0.5 else "no" for p in kept["expected"]]


def test_rows_are_read_as_in_training(bundle: Any, tmp_path: Path) -> None:
    path, kept = bundle
    read = ReadKeys(names=("sold", *kept["raw"].columns), separator=";", decimal=",")
    facts = json.loads(json.dumps({"read": vars(read)}))
    model = load_bundle(path)
    model.manifest = model.manifest.model_copy(update={"training": facts})
    rows = kept["raw"].assign(sold="no")
    text = {"sep": ";", "decimal": ",", "index": False}
    for name, table, header in (
        ("same.csv", rows[list(read.names)], False),
        ("header.csv", rows, True),
        ("unlabeled.csv", kept["raw"], True),
    ):
        table.to_csv(tmp_path / name, header=header, **text)
        predicted = predict_rows.predict_file(model, tmp_path / name)
        pd.testing.assert_frame_equal(predicted, model.predict(kept["raw"]))


def test_transform_gives_the_features_that_the_model_gets(bundle: Any) -> None:
    path, kept = bundle
    loaded = load_bundle(path)
    rows = kept["raw"].assign(sold="no")[["sold", "garden", "city", "area", "rooms"]]
    rows.index = pd.Index(list("fedcba"), name="house")
    expected = kept["fitted"].transform(kept["raw"])
    prepared = loaded.transform(rows)
    pd.testing.assert_frame_equal(prepared, expected.set_axis(rows.index, axis=0))
    np.testing.assert_array_equal(loaded.model_output(rows), kept["expected"])
    assert rows.columns[0] == "sold" and loaded.transform(rows.iloc[[3, 1]]).index.tolist() == [
        "c",
        "e",
    ]
    assert list(loaded.transform(rows.iloc[:0]).columns) == list(expected.columns)


def test_transform_without_a_preprocessor_gives_the_raw_features(
    checked_in_this_process: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = bundle_parts.ingredients(tmp_path, monkeypatch, "rawonly")
    raw = kept["raw"][["rooms", "area"]]
    (tmp_path / "checkpoint" / "weights.json").write_text('{"rooms": 0.25, "area": -0.02}')
    path = bundle_parts.write_parts(
        tmp_path / "bundle", **{**kept, "fitted": None, "raw": raw, "expected": None}
    )
    text = raw.astype(str)[["area", "rooms"]].set_axis([7, 7, 8, 9, 10, 11], axis=0)
    pd.testing.assert_frame_equal(
        load_bundle(path).transform(text), raw.set_axis(text.index, axis=0)
    )


def test_the_rows_are_not_written_over(bundle: Any, tmp_path: Path) -> None:
    path, kept = bundle
    kept["raw"].to_csv(tmp_path / "rows.csv", index=False)
    before = (tmp_path / "rows.csv").read_bytes()
    with pytest.raises(InputError, match="is the input file, and would be overwritten"):
        predict_file(path, tmp_path / "rows.csv", tmp_path / "." / "rows.csv")
    assert (tmp_path / "rows.csv").read_bytes() == before


def test_a_header_alone(bundle: Any, tmp_path: Path) -> None:
    path, kept = bundle
    kept["raw"].iloc[:0].to_csv(tmp_path / "rows.csv", index=False)
    got = predict_file(path, tmp_path / "rows.csv")
    assert isinstance(got, pd.DataFrame)
    assert len(got) == 0 and list(got.columns) == [
        "prediction",
        "probability_no",
        "probability_yes",
    ]


def test_errors_are_named_and_nothing_is_written(bundle: Any, tmp_path: Path) -> None:
    path, _ = bundle
    cases = {
        "rows.xlsx": (b"", r"rows\.xlsx: the name must end in \.csv, \.tsv, \.jsonl"),
        "missing.csv": (None, r"missing\.csv: the file does not exist"),
        "empty.csv": (b"", r"empty\.csv: cannot be read: it is empty"),
        "binary.csv": (b"\xff\xfe\x00\x01", r"binary\.csv: cannot be read"),
        "text.parquet": (b"no parquet at all", r"text\.parquet: cannot be read"),
        "text.csv.gz": (b"no gzip", r"text\.csv\.gz: cannot be read"),
        "short.csv": (b"rooms,area,garden\n1,2,True\n", "column `city` is missing"),
        "words.csv": (
            b"rooms,area,garden,city\n1,2,True,a\nmany,2,True,a\n",
            "column `rooms` holds 'many' in row 2",
        ),
    }
    for name, (content, message) in cases.items():
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=message):
            predict_file(path, tmp_path / name, tmp_path / "out.csv")
    assert not [f for f in os.listdir(tmp_path) if "out" in f]
    with pytest.raises(InputError, match=r"the folder .* does not exist"):
        predict_file(path, tmp_path / "short.csv", tmp_path / "no" / "out.csv")


def test_nothing_is_left_of_a_file_that_breaks_half_way(
    bundle: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predict_rows, "CHUNK_ROWS", 3)
    path, kept = bundle
    kept["raw"].astype(object).replace(5, "many").to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "out.csv").write_text("before")
    with pytest.raises(InputError, match="column `rooms` holds 'many'"):
        predict_file(path, tmp_path / "rows.csv", tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == "before" and sorted(os.listdir(tmp_path)) == [
        "out.csv",
        "rows.csv",
    ]


def test_numbers_of_a_csv_file_are_read_as_in_training(bundle: Any, tmp_path: Path) -> None:
    """Read with the same reader, because that of pandas rounds some numbers differently."""
    path, kept = bundle
    hard = [
        "0.1",
        "2.2250738585072014e-308",
        "9007199254740993",
        "179.6988531357624",
        "+5",
        " 7.25",
    ]
    rows = kept["raw"].assign(area=hard)
    rows.to_csv(tmp_path / "rows.csv", index=False)
    got = predict_file(path, tmp_path / "rows.csv")
    assert isinstance(got, pd.DataFrame)
    expected = load_bundle(path).predict(kept["raw"].assign(area=[float(text) for text in hard]))
    np.testing.assert_array_equal(got["probability_yes"], expected["probability_yes"])


def test_a_wrong_value_is_named_with_its_row_in_the_file(
    bundle: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predict_rows, "CHUNK_ROWS", 2)
    path, kept = bundle
    rows = kept["raw"].astype({"rooms": object})
    rows.loc[4, "rooms"] = "many"
    for name, write in {
        "rows.csv": rows.to_csv,
        "rows.parquet": rows.astype({"rooms": str}).to_parquet,
    }.items():
        write(tmp_path / name, index=False)
        with pytest.raises(
            InputError, match="column `rooms` holds 'many' in row 5, but must hold numbers"
        ):
            predict_file(path, tmp_path / name, tmp_path / "out.csv")


def test_a_stream_gets_csv(bundle: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predict_rows, "CHUNK_ROWS", 2)
    path, kept = bundle
    kept["raw"].to_csv(tmp_path / "rows.csv", index=False)
    stream = io.BytesIO()
    predict_file(path, tmp_path / "rows.csv", stream)
    stream.seek(0)
    np.testing.assert_array_equal(pd.read_csv(stream)["probability_yes"], kept["expected"])


PEAK = """
import sys, psutil, threading, time
from sweeps.bundle.predict_rows import predict_file
own, peak, done = psutil.Process(), [0], threading.Event()
def watch():
    while not done.wait(0.02):
        peak[0] = max(peak[0], own.memory_info().rss)
thread = threading.Thread(target=watch)
thread.start()
predict_file(*sys.argv[1:])
done.set(); thread.join()
print(peak[0])
"""


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_file_takes_no_more_memory_than_one_of_a_third_of_its_size(
    bundle: Any, tmp_path: Path, kind: str
) -> None:
    """Memory of the process for a single row group of Parquet, with Arrow's buffers."""
    path, kept = bundle
    peaks = []
    for rows in (4_000_000, 12_000_000):
        rng, file = np.random.default_rng(0), tmp_path / f"rows.{kind}"
        part = pd.concat([kept["raw"]] * (rows // len(kept["raw"])), ignore_index=True)
        part = part.assign(
            area=rng.normal(30, 9, len(part)), text=rng.integers(0, 2**60, len(part))
        )
        if kind == "csv":
            pyarrow.csv.write_csv(pa.Table.from_pandas(part, preserve_index=False), file)
        else:
            part.to_parquet(file, row_group_size=len(part), index=False)
        size = file.stat().st_size
        del part
        done = subprocess.run(
            [sys.executable, "-c", PEAK, path, file, tmp_path / "out.parquet"],
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert done.returncode == 0, done.stderr
        peaks.append(int(done.stdout))
    assert size > 150e6 and peaks[1] - peaks[0] < 50e6, (size, peaks)


def test_predict_counts_texts_that_do_not_fit_their_rule(bundle: Any, tmp_path: Path) -> None:
    train = pa.table({"price": pa.array(["$1", "$2"], pa.large_string())})
    fitted, _ = fit_transform((), train, None, parse={"price": "number or missing"})
    loaded = Bundle(tmp_path, load_bundle(bundle[0]).manifest, None, fitted)
    loaded.count_unseen(pd.DataFrame({"price": ["$5", "ask", None]}))
    assert loaded.unseen_notes == [
        "1 of 2 values of `price` do not fit the rule in data.parse; predicted as missing"
    ]


def test_predict_counts_values_that_training_never_saw(bundle: Any, tmp_path: Path) -> None:
    rows = bundle_parts.raw()[["city", "rooms"]].assign(
        kind=["a", "b", "a", "b", "a", "b"], floor=[1.0, 2.0, 1.0, 2.0, 1.0, 2.0]
    )
    steps = (Step("OrdinalEncoder", ("city", "floor"), {}), Step("Categorizer", ("kind",), {}))
    fitted = fit_chain(steps, pa.Table.from_pandas(rows, preserve_index=False), None)
    loaded = Bundle(tmp_path, load_bundle(bundle[0]).manifest, None, fitted)
    assert loaded.unseen_notes == []
    new = pd.DataFrame(
        {
            "city": ["Rome", "Lyon", "NA", "Oslo"],
            "kind": ["c", "a", "a", None],
            "floor": ["1", "2.0", None, "7"],  # as a file has them that also has other texts
        }
    )
    for start in (0, 2):
        loaded.count_unseen(new.iloc[start : start + 2])
    assert loaded.unseen_notes == [
        "2 of 3 values of `city` were not in the training data; predicted as missing",
        "1 of 3 values of `kind` were not in the training data; predicted as missing",
        "1 of 3 values of `floor` were not in the training data; predicted as missing",
    ]

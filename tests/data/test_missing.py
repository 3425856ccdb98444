"""Texts and numbers that mean a missing value: one decision on the train rows, for all formats,
splits, and rows of a bundle.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from sweeps.bundle.manifest import ColumnSchema
from sweeps.bundle.schema import enforce_schema, infer_schema
from sweeps.core.errors import InputError
from sweeps.data.checks import preflight
from sweeps.data.columns.parsed_columns import read_rows
from sweeps.data.columns.tables import canonical_table
from sweeps.data.load_data import load_splits
from sweeps.data.sources.data_files import Source, find_files
from sweeps.data.sources.file_blocks import read_blocks
from sweeps.data.sources.file_rows import read_columns
from sweeps.serving import request_checks
from sweeps.space import load
from sweeps.space.sections.data_models import DataSpec, Split

N = 200


def spec(**changed: Any) -> Any:
    default = DataSpec("rows.csv", "y", Split("fraction", fraction=0.25), None, None, Path())
    return DataSpec(**{**default.__dict__, **changed})


def read(column: Any, valid: Any = None, **changed: Any) -> Any:
    """Return the column `x` of train after the markers are taken out, its markers, and the column
    of valid.
    """
    tables = {
        key: canonical_table(pa.table({"x": values, "y": [i % 2 for i in range(len(values))]}))
        for key, values in (("train", column), ("valid", valid))
        if values is not None
    }
    rows = read_rows(spec(**changed), tables)
    held_out = rows.parts["valid"].column("x").to_pylist() if valid is not None else None
    return rows.parts["train"].column("x"), rows.missing.get("x"), held_out


def words(word: Any, share: Any) -> Any:
    return [word if i < share * N else ("red", "blue")[i % 2] for i in range(N)]


@pytest.mark.parametrize("word", ["NA", "N/A", "n/a", "None", " NA "])
def test_a_word_is_a_value_of_a_text_column_only_if_it_is_frequent(word: str) -> None:
    often, markers, _ = read(words(word, 0.4))
    assert often.null_count == 0 and word.strip() not in markers
    rarely, markers, _ = read(words(word, 0.01))
    assert rarely.null_count == 2 and word.strip() in markers


@pytest.mark.parametrize("text", ["", "  ", "nan", "NaN", "null", "NULL", "#N/A", "<NA>"])
def test_some_texts_are_always_missing(text: str) -> None:
    assert read(words(text, 0.9))[0].null_count == 0.9 * N
    assert read(words(text, 0.9), missing={"x": ()})[0].null_count == 0.9 * N


def test_the_decision_on_train_holds_for_valid() -> None:
    _, _, valid = read(words("None", 0.4), valid=["None", "NA", "red", "red"])
    assert valid == ["None", None, "red", "red"]
    _, _, valid = read(words("None", 0.01), valid=["None"] * 3 + ["red"])
    assert valid == [None] * 3 + ["red"]


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["1", "2", "NA", "N/A"], pa.int64()),
        (["1.5", "None", "NA", "-2"], pa.float64()),
        (["true", "NA", "false", "n/a"], pa.bool_()),
        (["NA"] * 4, pa.float64()),
    ],
)
def test_words_among_numbers_are_missing_however_frequent(texts: Any, kind: Any) -> None:
    column, _, valid = read(texts, valid=["NA"] * 4)
    assert column.type == kind and column.null_count >= 2 and valid == [None] * 4


def test_an_own_list_replaces_the_words_and_the_list_of_all_columns() -> None:
    texts = ["?", "1", "NA", "2"]
    assert read(texts, missing={"*": ("?",)})[0].to_pylist() == [None, 1, None, 2]
    assert read(texts, missing={"x": ("?",)})[0].to_pylist() == [None, "1", "NA", "2"]
    assert read(texts, missing={"x": (), "*": ("?",)})[0].to_pylist() == texts
    assert read(words("None", 0.4), missing={"*": ("None",)})[0].null_count == 0.4 * N


@pytest.mark.parametrize(
    "numbers", [[-200, 5, -200, 7], [-200.0, 0.5, -200.0, 7], ["-200", "5", "?", "7"]]
)
def test_numbers_can_be_markers(numbers: Any) -> None:
    column, markers, _ = read(numbers, missing={"x": (-200, "?")})
    assert not pa.types.is_large_string(column.type)
    assert column.null_count == 2 and column.to_pylist()[3] == 7
    assert markers == [-200, "?"]


def test_texts_that_were_stored_as_texts_stay_texts_without_a_marker() -> None:
    assert read(["1", "2", "3", "4"])[0].type == pa.large_string()


def test_codes_with_leading_zeros_stay_text(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(
        "zip,month,mixed,n\n"
        + "".join(f"{i * 97:05d},{i % 12 + 1:02d},{i:03d}{i},{i}\n" for i in range(50))
    )
    from sweeps.data.sources.data_files import Source, find_files

    table = read_columns(
        find_files(Source("rows.csv", tmp_path, "data.train")), ["zip", "month", "mixed", "n"]
    )
    kinds = [str(kind) for kind in table.schema.types]
    assert kinds == ["large_string", "large_string", "int64", "int64"]


# ---- the label


def test_a_word_in_the_label_is_refused_until_the_file_says_what_it_is() -> None:
    labels = pa.table({"x": range(4), "y": ["None", "minor", "None", "severe"]})
    with pytest.raises(
        InputError, match=r"data.label: `y` has 'None' in 2 of 4 rows of data.train"
    ) as caught:
        read_rows(spec(), {"train": canonical_table(labels)})
    assert "`data.missing: {y: []}`" in str(caught.value)
    assert "`data.drop_missing_label: true`" in str(caught.value)
    kept = read_rows(spec(missing={"y": ()}), {"train": canonical_table(labels)})
    assert kept.parts["train"].column("y").null_count == 0
    dropped = read_rows(spec(drop_missing_label=True), {"train": canonical_table(labels)})
    assert dropped.parts["train"].column("y").null_count == 2


def test_a_class_of_a_label_of_numbers_may_be_a_word() -> None:
    labels = canonical_table(pa.table({"x": range(4), "y": ["None", "1", "2", "1"]}))
    with pytest.raises(InputError, match="'None' in 1 of 4 rows"):
        read_rows(spec(), {"train": labels})
    kept = read_rows(spec(missing={"y": ()}), {"train": labels})
    assert kept.parts["train"].column("y").to_pylist() == ["None", "1", "2", "1"]


SPACE = """\
trainer: xgboost
data: {train: rows.parquet, label: y, valid: 0.25}
objective: {metric: valid-logloss, goal: minimize}
limits: {max_trials: 2}
space: {params: {eta: {loguniform: [0.01, 1]}}}
"""


def space_of(tmp_path: Path, frame: Any, *changes: Any) -> Any:
    frame.to_parquet(tmp_path / "rows.parquet")
    (tmp_path / "space.yaml").write_text(SPACE)
    return load(tmp_path / "space.yaml", list(changes))


def test_blank_labels_are_missing_labels(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": range(40), "y": ["yes", " ", "no", ""] * 10})
    with pytest.raises(InputError, match="`y` has 20 missing values in data"):
        preflight.check_data(space_of(tmp_path, frame))
    space = space_of(tmp_path, frame, "data.drop_missing_label=true")
    preflight.check_data(space)
    splits = load_splits(space.data)
    assert splits.classes == ("no", "yes") and "20 rows without a label" in splits.notes[0]


def test_the_early_check_knows_the_markers(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": ["?", "1", "2", "3"] * 10, "y": [0, 1] * 20})
    with pytest.raises(InputError, match="`x` is text, which xgboost cannot read"):
        preflight.check_data(space_of(tmp_path, frame))
    preflight.check_data(space_of(tmp_path, frame, "data.missing={'*': ['?']}"))
    with pytest.raises(InputError, match=r"data.missing.z: .* has no column `z`"):
        preflight.check_data(space_of(tmp_path, frame, "data.missing={z: ['?']}"))


# ---- a bundle


def bundle_columns(frame: Any, **changed: Any) -> Any:
    rows = read_rows(spec(label=None, **changed), {"train": canonical_table(pa.table(frame))})
    return infer_schema(rows.parts["train"].to_pandas(), rows.missing)


FRAME = {
    "pool": words("None", 0.4),
    "kind": words("None", 0.01),
    "size": ["NA", *map(str, range(N - 1))],
    "no2": [-200, *range(N - 1)],
}
GIVEN = pd.DataFrame(
    {
        "pool": ["None", "NA", " ", "red"],
        "kind": ["None", "blue", "NaN", "n/a"],
        "size": ["NA", "5", "", "7"],
        "no2": [-200, 3, None, 4],
    }
)
EXPECTED = [
    {"pool": "None", "kind": None, "size": None, "no2": None},
    {"pool": None, "kind": "blue", "size": 5.0, "no2": 3.0},
    {"pool": None, "kind": None, "size": None, "no2": None},
    {"pool": "red", "kind": None, "size": 7.0, "no2": 4.0},
]


def as_records(frame: Any) -> Any:
    return [
        {key: None if pd.isna(value) else value for key, value in row.items()}
        for row in frame.to_dict("records")
    ]


def read_csv(folder: Any) -> Any:
    GIVEN.to_csv(folder / "given.csv", index=False)
    files = find_files(Source("given.csv", folder, "rows"))
    blocks = read_blocks(files, files.paths[0], list(GIVEN.columns))
    return pa.concat_tables(blocks).to_pandas()


def test_a_bundle_reads_the_same_rows_from_every_format(tmp_path: Path) -> None:
    columns = bundle_columns(FRAME, missing={"no2": (-200,)})
    GIVEN.to_parquet(tmp_path / "given.parquet")
    formats = {
        "frame": GIVEN,
        "objects": GIVEN.astype(object),
        "categories": GIVEN.astype({"pool": "category", "kind": "category"}),
        "parquet": pd.read_parquet(tmp_path / "given.parquet"),
        "csv": read_csv(tmp_path),
    }
    for name, rows in formats.items():
        assert as_records(enforce_schema(rows, columns)) == EXPECTED, name
    body = json.dumps(GIVEN.astype(object).where(GIVEN.notna(), None).to_dict("records"))
    checked = request_checks.read(body.replace('"5"', "5").replace('"7"', "7").encode(), columns)
    assert as_records(pd.DataFrame(checked.values)) == EXPECTED


def test_the_columns_of_an_earlier_bundle_have_the_usual_words() -> None:
    text = ColumnSchema(name="pool", type="string", dtype="str")
    number = ColumnSchema(name="size", type="double", dtype="float64")
    rows = enforce_schema(
        pd.DataFrame({"pool": ["None", "red"], "size": ["NA", "5"]}), [text, number]
    )
    assert rows["pool"].isna().tolist() == [True, False]
    assert np.isnan(rows["size"][0]) and rows["size"][1] == 5.0

"""A stream has the rows, the label and the fitted chain that the same data has in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from sweeps.core.errors import InputError
from sweeps.data.preprocessing.fit import fit_chain, fit_transform
from sweeps.data.splits.variants import DataVariants
from sweeps.data.streaming.split_source import rows_of_valid
from sweeps.data.streaming.stream_settings import StreamSettings
from sweeps.data.streaming.stream_splits import StreamVariants, first_rows
from sweeps.data.streaming.streamed_fit import FIRST_ROWS, RowStream, prepared_stream
from sweeps.space import DataSpec, Split, Step
from sweeps.space.sections.data_models import ReadKeys

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(240)]

STEPS = (
    Step("SimpleImputer", None, {}),
    Step("StandardScaler", ("a", "b"), {}),
    Step("sklearn.preprocessing:MinMaxScaler", ("n",), {}),
    Step("SimpleImputer", ("color",), {"strategy": "most_frequent"}),
    Step("OneHotEncoder", ("color",), {}),
    Step("stream_steps:double", ("n",), {"by": 3}),
)


@pytest.fixture
def ray_data(local_ray: Any) -> Iterator[Any]:
    """Ray with the settings of streams. The settings of this process are restored at the end."""
    context = local_ray.data.DataContext
    before = context.get_current().copy()
    StreamSettings(2.0).apply()
    yield local_ray.data
    context._set_current(before)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folders with the same rows as Parquet and as CSV: three files of train and one of valid.

    `stream_steps.py` has a step. Ray Data reads CSV much faster than Parquet, because it starts
    actors for each pass over Parquet files.
    """
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "a": np.where(rng.random(600) < 0.1, np.nan, rng.normal(5, 2, 600)),
            "b": rng.normal(size=600).astype("float32"),
            "n": rng.integers(0, 50, 600),
            "color": rng.choice(np.array(["red", "green", "blue", None]), 600),
            "y": rng.choice(["no", "yes"], 600),
        }
    )
    for kind in ("parquet", "csv", "odd"):
        for name, part in {
            "train/0": frame[:100],
            "train/1": frame[100:150],
            "train/2": frame[150:450],
            "valid": frame[450:],
        }.items():
            file = tmp_path / kind / f"{name}.{kind.replace('odd', 'csv')}"
            file.parent.mkdir(exist_ok=True, parents=True)
            if kind == "odd":
                part.to_csv(file, index=False, sep=";", decimal=",", encoding="utf-16")
            else:
                getattr(part, f"to_{kind}")(file, index=False)
    (tmp_path / "stream_steps.py").write_text("def double(frame, by):\n    return frame * by\n")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def spec(folder: Path, train: str, valid: Split, **more: Any) -> DataSpec:
    return DataSpec(train, "y", valid, None, None, folder, ingest="stream", **more)


def fit_on_stream(steps: Any, splits: Any, roots: Any) -> Any:
    first = first_rows(splits.train, FIRST_ROWS, splits.schema)
    return fit_transform(steps, first, splits.label, stream=RowStream(splits.train, roots))


def frame_of(dataset: Any) -> pd.DataFrame:
    blocks = [
        block
        for block in dataset.iter_batches(batch_size=None, batch_format="pyarrow")
        if block.num_rows
    ]
    return pa.concat_tables(blocks, promote_options="permissive").to_pandas(ignore_metadata=True)


@pytest.mark.parametrize(
    ("kind", "steps", "compared"),
    [("parquet", STEPS[1:2], ["valid"]), ("odd", STEPS, ["train", "valid"])],
    ids=["parquet", "odd"],
)
def test_a_stream_has_what_the_same_files_have_in_memory(
    ray_data: Any, folder: Any, kind: str, steps: Any, compared: Any
) -> None:
    read = ReadKeys(separator=";", decimal=",", encoding="utf-16")
    valid = Split("path", path=f"{kind}/valid.{kind.replace('odd', 'csv')}")
    given = spec(folder, f"{kind}/train", valid, read=read)
    memory, streams = (
        DataVariants(given, [given], 0).splits({}),
        StreamVariants(given, [given], 0).splits({}),
    )
    assert (streams.task, streams.classes, streams.features) == (
        memory.task,
        memory.classes,
        memory.features,
    )
    assert streams.rows == {"train": 450, "valid": 150}
    assert streams.schema == memory.train.schema
    pd.testing.assert_frame_equal(
        frame_of(streams.train), memory.train.to_pandas(), check_dtype=False
    )
    expected = fit_chain(steps, memory.train, "y")
    fitted, first = fit_on_stream(steps, streams, (str(folder),))
    assert fitted.columns_out == expected.columns_out and len(first) == 450
    for split in compared:
        raw = getattr(memory, split).to_pandas()
        blocks = prepared_stream(
            getattr(streams, split), fitted, streams.schema, (str(folder),)
        ).iter_batches(batch_size=None, batch_format="pandas")
        pd.testing.assert_frame_equal(
            pd.concat(list(blocks), ignore_index=True), expected.transform(raw), rtol=1e-6
        )


@pytest.mark.parametrize(
    "rule", [Split("fraction", fraction=0.3), Split("group", column="color", fraction=0.4)]
)
def test_each_row_is_in_one_split_whatever_the_files(ray_data: Any, folder: Any, rule: Any) -> None:
    given = spec(folder, "csv/train", rule)
    streams = StreamVariants(given, [given], 5).splits({})
    train_rows, valid_rows = frame_of(streams.train), frame_of(streams.valid)
    assert (
        len(train_rows) + len(valid_rows) == 450 == sum(streams.rows.values())
        and 0 < len(valid_rows) == streams.rows["valid"]
    )
    if rule.kind == "group":
        assert not set(train_rows["color"]) & set(valid_rows["color"])
        table = pa.Table.from_pandas(pd.read_parquet(folder / "parquet" / "train"))
        assert rows_of_valid(table, rule, 5).sum() == len(valid_rows), "CSV rounds no text"


def test_a_share_of_the_rows_and_dropped_columns(ray_data: Any, folder: Any) -> None:
    given = spec(folder, "csv/train", Split("column", column="color", value="red"))
    variants = StreamVariants(given, [given], 0)
    half = variants.splits({"rows": 0.5, "drop": ("n",)})
    assert half.features == ("a", "b") and variants.fingerprint_of(
        {"rows": 0.5}
    ) != variants.fingerprint_of({})
    rows = frame_of(half.train)
    assert (
        len(rows) == half.rows["train"]
        and 0.3 < len(rows) / variants.splits({}).rows["train"] < 0.7
    )
    assert half.rows["valid"] == variants.splits({}).rows["valid"]


def test_a_ray_dataset_of_a_function_stays_lazy(
    ray_data: Any, folder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "stream_source.py").write_text(
        "import ray.data\n\n\ndef more(batch):\n    return {**batch, 'twice': batch['n'] * 2}\n"
        "\n\n"
        "def rows():\n    return "
        f"ray.data.read_csv('{folder}/csv/train').map_batches(more)\n"
    )
    given = spec(folder, "stream_source:rows", Split("fraction", fraction=0.2))
    variants = StreamVariants(given, [given], 0)
    rows = frame_of(variants.splits({}).train)
    assert (rows["twice"] == 2 * rows["n"]).all()


def test_a_changed_file_changes_the_fingerprint(ray_data: Any, folder: Any) -> None:
    given = spec(folder, "csv/train", Split("fraction", fraction=0.2))
    before = StreamVariants(given, [given], 0).fingerprint
    assert StreamVariants(given, [given], 0).fingerprint == before
    with (folder / "csv" / "train" / "0.csv").open("a") as file:
        file.write("1,2,3,red,yes\n")
    assert StreamVariants(given, [given], 0).fingerprint != before


BAD = [
    (
        Split("fraction", fraction=0.2),
        {"label": "gone"},
        "data.label: `csv/train` has no column `gone`",
    ),
    (Split("column", column="color", value="pink"), {}, "data.valid: the valid split has no rows"),
    (
        Split("fraction", fraction=0.2),
        {"label": "color"},
        r"data.label: `color` has \d+ missing values in data.train",
    ),
]


@pytest.mark.parametrize(("rule", "changed", "message"), BAD)
def test_a_stream_that_cannot_be_used_is_refused(
    ray_data: Any, folder: Any, rule: Any, changed: Any, message: Any
) -> None:
    given = DataSpec(
        "csv/train", changed.get("label", "y"), rule, None, None, folder, ingest="stream"
    )
    with pytest.raises(InputError, match=message):
        StreamVariants(given, [given], 0)


def test_an_estimator_without_partial_fit_is_refused(ray_data: Any, folder: Any) -> None:
    given = spec(folder, "csv/train", Split("fraction", fraction=0.2))
    streams = StreamVariants(given, [given], 0).splits({})
    with pytest.raises(
        InputError,
        match=r"`QuantileTransformer` has no `partial_fit`, so it cannot be fitted on a stream",
    ):
        fit_on_stream((Step("sklearn.preprocessing:QuantileTransformer", ("a",), {}),), streams, ())
    fitted, _ = fit_on_stream((Step("sklearn.preprocessing:Normalizer", ("b",), {}),), streams, ())
    assert fitted.columns_out == ("a", "b", "n", "color"), "this class learns nothing"

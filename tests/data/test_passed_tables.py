"""Tables that a Python script passes to `sweeps.run`: what is stored, and what a sweep reads."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sweeps
from sweeps.core.errors import InputError
from sweeps.core.files.sweep_folder import SweepFolder
from sweeps.data.sources.data_files import Source
from sweeps.data.sources.passed_tables import named_tables, save_tables
from sweeps.data.sources.sources import read_source, to_arrow
from sweeps.exports.rerun import rerun
from sweeps.space.python.table_overrides import table_overrides

FRAME = pd.DataFrame(
    {"x": [1.5, 2.5, 3.5], "c": pd.Categorical(["a", "b", "a"]), "y": [0, 1, 0]}, index=[7, 8, 9]
)
SPACE = """\
name: passed
trainer: {loop: "tests.user_loops:plain", backend: none}
data: {label: y, valid: 0.25}
objective: {metric: loss, goal: minimize}
limits: {max_trials: 2, max_concurrent_trials: 1}
space:
  params: {x: {uniform: [0.0, 1.0]}, latch: /tmp}
"""


def test_a_table_in_memory_is_stored_as_parquet(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    tables = {
        "train": FRAME,
        "valid": pa.table({"x": [1.0], "y": [1]}),
        "test": polars.DataFrame({"x": [2.0], "y": [0]}),
    }
    save_tables(named_tables(tables), tmp_path / "tables")
    assert sorted(path.name for path in (tmp_path / "tables").iterdir()) == [
        "test.parquet",
        "train.parquet",
        "valid.parquet",
    ]
    read = pq.read_table(tmp_path / "tables" / "train.parquet")
    assert read.column_names == ["x", "c", "y"] and read.to_pandas().equals(
        FRAME.reset_index(drop=True)
    )
    assert table_overrides(tmp_path / "tables") == tuple(
        f'data.{key}="{tmp_path}/tables/{key}.parquet"' for key in ("test", "train", "valid")
    )
    assert table_overrides(tmp_path / "none") == ()


def test_rows_of_lazy_tables_are_stored(tmp_path: Path) -> None:
    polars, dask = pytest.importorskip("polars"), pytest.importorskip("dask.dataframe")
    datasets = pytest.importorskip("datasets")
    rows = tmp_path / "rows.parquet"
    FRAME.to_parquet(rows)
    stream = datasets.load_dataset("parquet", data_files=str(rows), split="train", streaming=True)
    for i, lazy in enumerate((polars.scan_parquet(rows), dask.read_parquet(rows), stream)):
        save_tables({"train": lazy}, tmp_path / str(i))
        stored = pq.read_table(tmp_path / str(i) / "train.parquet")
        assert stored.column("x").to_pylist() == [1.5, 2.5, 3.5]
    whole = datasets.Dataset.from_pandas(FRAME, preserve_index=False)
    split = datasets.DatasetDict({"train": whole, "validation": whole})
    assert set(named_tables(split)) == {"train", "valid"}


@pytest.mark.integration
def test_ray_dataset_becomes_a_folder_of_files(local_ray: Any, tmp_path: Path) -> None:
    blocks = local_ray.data.from_pandas([FRAME[["x", "y"]], FRAME[["x", "y"]]])
    save_tables({"train": blocks}, tmp_path / "tables")
    assert table_overrides(tmp_path / "tables") == (
        f'data.train="{tmp_path}/tables/train.parquet"',
    )
    read = read_source(Source(str(tmp_path / "tables" / "train.parquet"), tmp_path, "data.train"))
    assert read.column("y").to_pylist() == [0, 1, 0, 0, 1, 0]


def test_the_batches_of_a_stream_may_have_different_types() -> None:
    class Stream:  # has what an IterableDataset of Hugging Face has
        features = None

        def with_format(self, _: Any) -> Any:
            return self

        def iter(self, _: Any = None, batch_size: Any = None) -> Iterator[Any]:
            yield pa.table({"note": pa.nulls(2)})
            yield pa.table({"note": ["a"]})

    table = to_arrow(Stream())
    assert table is not None and table["note"].to_pylist() == [None, None, "a"]


def test_other_objects_are_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(
        InputError,
        match=r"data.train: is list, but must be a frame of pandas, Polars or Dask, an Arrow table",
    ):
        save_tables(named_tables([1, 2]), tmp_path / "a")
    with pytest.raises(InputError, match=r"^data.valid: pandas.* cannot be stored: "):
        save_tables({"valid": pd.DataFrame([[1, 2]], columns=["a", "a"])}, tmp_path / "b")
    with pytest.raises(
        InputError, match=r"^data: `rows` is not a key for a table; valid: train, valid, test$"
    ):
        named_tables({"rows": FRAME})


@pytest.mark.integration
@pytest.mark.extended
@pytest.mark.timeout(120)
def test_a_sweep_of_passed_tables_is_resumed_and_rerun_without_them(
    clean_ray: Any, tmp_path: Path
) -> None:
    polars = pytest.importorskip("polars")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=40), "y": rng.integers(0, 2, 40)})
    (tmp_path / "passed.yaml").write_text(SPACE)
    frame.to_parquet(tmp_path / "valid.parquet")
    lazy = polars.scan_parquet(tmp_path / "valid.parquet")
    result = sweeps.run(
        tmp_path / "passed.yaml", data={"train": frame, "valid": lazy}, dir=tmp_path / "runs"
    )
    assert result.trials == {"completed": 2, "pruned": 0, "failed": 0}
    moved = Path(shutil.move(result.dir, tmp_path / "moved"))
    assert pq.read_table(SweepFolder(moved).tables / "train.parquet").to_pandas().equals(frame)
    again = sweeps.resume(moved, add_trials=1)
    assert again.trials == {"completed": 3, "pruned": 0, "failed": 0}
    assert rerun(moved, "2").equal


@pytest.mark.integration
def test_a_wrong_table_leaves_no_sweep(tmp_path: Path) -> None:
    (tmp_path / "passed.yaml").write_text(SPACE)
    with pytest.raises(InputError, match="has no column `y`"):
        sweeps.run(tmp_path / "passed.yaml", data=FRAME.drop(columns="y"), dir=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()

"""Tables of the libraries that `sweeps-ray[sources]` installs."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pytest

from sweeps.data.sources import to_arrow
from tests.data.test_loaders import read, refused

pytestmark = pytest.mark.frameworks
FRAME = pd.DataFrame({"a": [1, 2, 3], "b": ["x", "y", "z"]})


def test_a_frame_of_dask():
    import dask.dataframe

    found = to_arrow(dask.dataframe.from_pandas(FRAME, npartitions=2))
    assert found is not None and found.to_pydict() == FRAME.to_dict("list")


def test_a_dataset_of_hugging_face_from_a_folder_and_from_a_file(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    import datasets

    rows = datasets.Dataset.from_pandas(FRAME).filter(lambda row: row["a"] > 1)
    datasets.DatasetDict({"train": rows}).save_to_disk(str(tmp_path / "saved"))
    assert read(tmp_path, "huggingface", path="saved").to_pydict() == {"a": [2, 3], "b": ["y", "z"]}
    assert "has no split `test`; its splits are train" in refused(
        tmp_path, "huggingface", path="saved", split="test"
    )
    FRAME.to_csv(tmp_path / "rows.csv", index=False)
    files = str(tmp_path / "rows.csv")
    options = {"data_files": files, "cache_dir": str(tmp_path / "cache")}
    assert read(tmp_path, "huggingface", path="csv", **options).to_pydict() == FRAME.to_dict("list")


def test_a_version_of_a_delta_table(tmp_path):
    import deltalake

    deltalake.write_deltalake(str(tmp_path / "table"), FRAME)
    deltalake.write_deltalake(str(tmp_path / "table"), FRAME, mode="append")
    assert read(tmp_path, "delta", path="table").num_rows == 6
    assert read(tmp_path, "delta", path="table", version=0).to_pydict() == FRAME.to_dict("list")


def test_a_snapshot_of_an_iceberg_table(tmp_path):
    import pyiceberg.catalog

    properties = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"file://{tmp_path}",
    }
    catalog = pyiceberg.catalog.load_catalog("here", **properties)
    catalog.create_namespace("shop")
    rows = pa.Table.from_pandas(FRAME)
    table = catalog.create_table("shop.orders", rows.schema)
    table.append(rows)
    first = table.current_snapshot().snapshot_id
    table.append(rows)
    assert (
        read(tmp_path, "iceberg", table="shop.orders", catalog="here", **properties).num_rows == 6
    )
    found = read(
        tmp_path, "iceberg", table="shop.orders", catalog="here", snapshot=first, **properties
    )
    assert found.to_pydict() == FRAME.to_dict("list")

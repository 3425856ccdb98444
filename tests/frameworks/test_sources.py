"""Tables of the libraries that `sweeps-ray[sources]` installs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from sweeps.data.sources.data_files import Source
from sweeps.data.sources.sources import read_source, to_arrow

pytestmark = pytest.mark.frameworks
FRAME = pd.DataFrame({"a": [1, 2, 3], "b": ["x", "y", "z"]})


def test_a_frame_of_dask() -> None:
    import dask.dataframe

    untyped: Any = dask.dataframe
    table = to_arrow(untyped.from_pandas(FRAME, npartitions=2))
    assert table is not None and table.to_pydict() == FRAME.to_dict("list")


def test_a_dataset_of_hugging_face_from_a_folder_and_from_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    import datasets

    def read(function: str, **args: Any) -> Any:
        return read_source(Source(f"datasets:{function}", tmp_path, "data.train", args)).to_pydict()

    datasets.Dataset.from_pandas(FRAME).save_to_disk(str(tmp_path / "saved"))
    assert read("load_from_disk", dataset_path=str(tmp_path / "saved")) == FRAME.to_dict("list")
    FRAME.to_csv(tmp_path / "rows.csv", index=False)
    options = {"data_files": str(tmp_path / "rows.csv"), "cache_dir": str(tmp_path / "cache")}
    assert read("load_dataset", path="csv", split="train", **options) == FRAME.to_dict("list")

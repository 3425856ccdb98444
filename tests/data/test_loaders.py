"""Loaders of images, and functions of libraries as loaders."""

from __future__ import annotations

import io
import sqlite3
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from sweeps.core.errors import InputError
from sweeps.data.sources.data_files import Source
from sweeps.data.sources.sources import pickled_by_value, read_source, to_arrow

LOADER = "sweeps.loaders"
FRAME = pd.DataFrame({"a": [1, 2, 3], "b": ["x", "y", "z"]})


def read(folder: Path, name: str, **args: Any) -> pa.Table:
    """Read a source as sweeps does, with paths relative to a folder that is not the working
    directory.
    """
    return read_source(Source(f"{LOADER}:{name}", folder, "data.train", args))


def refused(folder: Path, name: str, **args: Any) -> str:
    with pytest.raises(InputError) as caught:
        read(folder, name, **args)
    (problem,) = caught.value.problems
    assert problem.place == "data.train" and "\n" not in problem.text
    return problem.text


def picture(
    color: tuple[int, int, int], size: tuple[int, int] = (8, 4), format: str = "PNG"
) -> bytes:
    """Return an encoded image of one color. The size is a width and a height."""
    out = io.BytesIO()
    Image.new("RGB", size, color).save(out, format)
    return out.getvalue()


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for name, color in (
        ("dog/1.png", (0, 0, 255)),
        ("cat/2.png", (0, 255, 0)),
        ("cat/1.png", (255, 0, 0)),
    ):
        file = tmp_path / "photos" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(picture(color))
    return tmp_path


def test_folder_of_images_is_decoded_resized_and_labeled(photos: Any) -> None:
    table = read(photos, "images", path="photos", size=[4, 6])
    assert table.column("label").to_pylist() == ["cat", "cat", "dog"]
    arrays = table.column("image").combine_chunks().to_numpy_ndarray()
    assert arrays.shape == (3, 4, 6, 3) and arrays.dtype == np.uint8
    assert arrays[:, 0, 0].tolist() == [[255, 0, 0], [0, 255, 0], [0, 0, 255]]
    gray = read(photos, "images", path="photos/cat", size=[4, 8], mode="L")
    assert gray.column_names == ["image"], "images that lie in no subfolder have no label"
    assert gray.column("image").combine_chunks().to_numpy_ndarray().shape == (2, 4, 8)


@pytest.mark.parametrize(
    "wrap",
    [lambda b: b, lambda b: {"bytes": b, "path": None}],
    ids=["bytes", "Hugging Face's structs"],
)
def test_images_of_a_parquet_column_are_decoded_and_the_other_columns_stay(
    tmp_path: Path, wrap: Any
) -> None:
    encoded = [wrap(picture(color, format="JPEG")) for color in ((250, 5, 5), (5, 5, 250))]
    pq.write_table(pa.table({"jpeg": encoded, "label": [1, 0]}), tmp_path / "rows.parquet")
    table = read(tmp_path, "images", path="rows.parquet", size=[4, 8], bytes_column="jpeg")
    assert table.column_names == ["image", "label"] and table.column("label").to_pylist() == [1, 0]
    arrays = table.column("image").combine_chunks().to_numpy_ndarray().astype(int)
    assert arrays.shape == (2, 4, 8, 3) and abs(arrays[0, 0, 0] - [250, 5, 5]).max() < 8


def test_a_bad_image_or_argument_is_named(photos: Any) -> None:
    (photos / "photos" / "cat" / "3.jpg").write_bytes(b"no image")
    assert "`photos: cat/3.jpg` cannot be decoded as an image" in refused(
        photos, "images", path="photos", size=[4, 4]
    )
    assert "size: must be [height, width] in pixels, got [4]" in refused(
        photos, "images", path="photos", size=[4]
    )
    (photos / "empty").mkdir()
    assert "folder `empty` has no image; valid suffixes: .jpg, .jpeg, .png" in refused(
        photos, "images", path="empty", size=[4, 4]
    )
    assert "`nowhere` does not exist" in refused(photos, "images", path="nowhere", size=[4, 4])
    pq.write_table(pa.table({"jpeg": [b""], "y": [1]}), photos / "rows.parquet")
    assert "its columns are jpeg, y" in refused(photos, "images", path="rows.parquet", size=[4, 4])


def test_a_function_of_a_library_is_a_loader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sqlite3.connect(tmp_path / "rows.db") as database:
        FRAME.to_sql("rows", database, index=False)
    monkeypatch.setenv("ROWS", str(tmp_path / "rows.db"))
    args = {"sql": "SELECT a, b FROM rows WHERE a > 1 ORDER BY a", "con": "sqlite:///${ROWS}"}
    table = read_source(Source("pandas:read_sql", tmp_path, "data.train", args))
    assert table.to_pydict() == {"a": [2, 3], "b": ["y", "z"]}


def test_an_object_that_exports_arrow_data_becomes_a_table() -> None:
    class Exports:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return pa.table({"a": [1]}).__arrow_c_stream__(requested_schema)

    table = to_arrow(Exports())
    assert table is not None and table.to_pydict() == {"a": [1]}
    assert to_arrow([1, 2]) is None


def test_the_tasks_of_a_loader_need_not_import_its_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ray import cloudpickle

    (tmp_path / "own_trips.py").write_text(
        "LIMIT = 3\n\ndef clean(rows):\n    return rows[:LIMIT]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import own_trips

    before = cloudpickle.list_registry_pickle_by_value()
    with pickled_by_value(tmp_path):
        packed = cloudpickle.dumps(own_trips.clean)
    assert cloudpickle.list_registry_pickle_by_value() == before
    monkeypatch.delitem(sys.modules, "own_trips")
    (tmp_path / "own_trips.py").unlink()
    assert cloudpickle.loads(packed)([1, 2, 3, 4]) == [1, 2, 3]

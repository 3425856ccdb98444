"""The rows of splits that are read again stay valid after Ray has ended."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sweeps.data import load_data
from sweeps.data.columns import tables
from sweeps.execution.cluster import ray_cluster
from sweeps.exports import split_rows
from sweeps.space import load as load_space

SPACE = {
    "trainer": "xgboost",
    "data": {"train": "train.csv", "valid": "valid.csv", "label": "y"},
    "objective": {"metric": "valid-rmse", "goal": "minimize"},
    "limits": {"max_trials": 2},
    "space": {"params": {"eta": 0.1}},
}


def test_rows_do_not_stay_in_rays_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("train.csv", "valid.csv"):
        (tmp_path / name).write_text("x,y\n")
    memory = bytearray(np.arange(1.0, 101.0).tobytes())  # as Ray's object store
    column = pa.Array.from_buffers(pa.float64(), 100, [None, pa.py_buffer(memory)])

    @contextlib.contextmanager
    def reopened(*args: Any) -> Iterator[Any]:
        yield tmp_path, None, None

    @contextlib.contextmanager
    def ray_connection(*args: Any) -> Iterator[None]:
        yield
        memory[:] = bytes(len(memory))

    monkeypatch.setattr(split_rows, "reopen", reopened)
    monkeypatch.setattr(ray_cluster, "ray_connection", ray_connection)
    monkeypatch.setattr(
        load_data, "read_source", lambda *args, **kwargs: pa.table({"x": column, "y": column})
    )
    rows = split_rows.read_splits(tmp_path, load_space(SPACE), (), None)
    assert not any(memory)
    splits = rows.splits({})
    assert (
        splits.train["x"].to_pylist()
        == splits.valid["x"].to_pylist()
        == splits.valid["y"].to_pylist()
        == list(range(1, 101))
    )


def test_a_copy_has_the_rows_of_a_slice_and_no_buffer_of_the_original() -> None:
    table = pa.table({"number": [1.5, None, 3.0, 4.0], "text": ["a", "b", None, "d"]}).slice(1, 2)
    copy = tables.copy_table(table)
    assert copy.equals(table)
    assert not {buffer.address for part in copy for buffer in part.chunk(0).buffers() if buffer} & {
        buffer.address for part in table for buffer in part.chunk(0).buffers() if buffer
    }

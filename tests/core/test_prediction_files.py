"""The file with the predictions that a trial keeps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from sweeps.core.files.prediction_files import (
    KeptPredictions,
    delete_predictions,
    read_predictions,
)
from sweeps.core.files.sweep_folder import PREDICTIONS

FOLDS = st.lists(
    arrays.arrays(
        st.sampled_from([np.float32, np.float64, np.int64]),
        arrays.array_shapes(min_dims=1, max_dims=2, max_side=4),
        elements=st.integers(-9, 9),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(FOLDS, st.integers(1, 10**6))
def test_predictions_are_read_as_they_were_written(
    tmp_path: Path, folds: list[np.ndarray], step: int
) -> None:
    KeptPredictions(step, tuple(folds)).write(tmp_path / PREDICTIONS)
    read = read_predictions(str(tmp_path))
    assert read is not None and read.step == step and len(read.folds) == len(folds)
    for one, other in zip(read.folds, folds, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "content", [b"", b"PK\x03\x04 cut off", b"no archive", np.arange(3).tobytes()]
)
def test_damaged_predictions_count_as_missing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / PREDICTIONS).write_bytes(content)
    assert read_predictions(str(tmp_path)) is None


def test_an_array_or_an_archive_without_folds_counts_as_missing(tmp_path: Path) -> None:
    for content in ({"step": np.int64(1)}, {"step": np.arange(2), "fold_0": np.zeros(2)}):
        with open(tmp_path / PREDICTIONS, "wb") as file:
            np.savez(file, allow_pickle=False, **content)
        assert read_predictions(str(tmp_path)) is None
    with open(tmp_path / PREDICTIONS, "wb") as file:
        np.save(file, np.zeros(3))
    assert read_predictions(str(tmp_path)) is None


def test_pickled_predictions_are_not_loaded(tmp_path: Path) -> None:
    with open(tmp_path / PREDICTIONS, "wb") as file:
        np.savez(file, step=np.int64(1), fold_0=np.array([object()], dtype=object))
    assert read_predictions(str(tmp_path)) is None


def test_predictions_in_a_store_are_read_and_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sweeps.core.files import stores

    monkeypatch.setattr(stores, "is_address", lambda place: str(place).startswith("memory:"))
    from pyarrow import fs

    store = stores.Store(fs.LocalFileSystem(), str(tmp_path / "bucket"), "memory:bucket")
    monkeypatch.setattr(stores, "open_store", lambda _: store)
    assert read_predictions("memory:bucket") is None
    KeptPredictions(2, (np.arange(3.0),)).write(tmp_path / "file")
    store.put(tmp_path / "file", PREDICTIONS)
    read = read_predictions("memory:bucket")
    assert read is not None and read.folds[0].tolist() == [0.0, 1.0, 2.0]
    delete_predictions("memory:bucket")
    delete_predictions("memory:bucket")
    assert read_predictions("memory:bucket") is None

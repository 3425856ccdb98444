"""The predictions that a trainer records in a checkpoint, which may come from a stranger."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sweeps.bundle.sweep_models import recorded_predictions
from sweeps.core.errors import UnreadableFile
from sweeps.core.loop_context import CHECK_PREDICTIONS


def pickled() -> bytes:
    file = io.BytesIO()
    np.save(file, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    return file.getvalue()


def archive() -> bytes:
    file = io.BytesIO()
    np.savez(file, a=np.zeros(2))
    return file.getvalue()


def huge() -> bytes:
    file = io.BytesIO()
    header = {"descr": "<f8", "fortran_order": False, "shape": (10**15,)}
    np.lib.format.write_array_header_1_0(file, header)
    return file.getvalue()


@pytest.mark.parametrize(
    "content",
    [b"", b"text", pickled(), archive(), huge()],
    ids=["empty", "text", "pickled", "archive", "huge"],
)
def test_a_file_without_an_array_is_named_in_one_line(content: Any, tmp_path: Path) -> None:
    (tmp_path / CHECK_PREDICTIONS).write_bytes(content)
    with pytest.raises(UnreadableFile) as e:
        recorded_predictions(tmp_path)
    text = str(e.value)
    assert text.startswith(f"{tmp_path / CHECK_PREDICTIONS}: holds no array of NumPy (")
    assert "\n" not in text and text.endswith("restore the file, or export another trial")


def test_recorded_predictions_are_returned(tmp_path: Path) -> None:
    assert recorded_predictions(tmp_path) is None
    np.save(tmp_path / CHECK_PREDICTIONS, np.array([0.5, 1.0]))
    np.testing.assert_array_equal(recorded_predictions(tmp_path), [0.5, 1.0])

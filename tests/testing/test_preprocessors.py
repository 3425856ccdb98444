"""The built-in steps pass the conformance suite for preprocessors, and a faulty step fails it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sweeps.core.errors import InputError
from sweeps.testing.pytest_preprocessors import PreprocessorTests


class TestPowerTransformer(PreprocessorTests):
    step = "sklearn.preprocessing:PowerTransformer"


class TestQuantileTransformer(PreprocessorTests):
    step = "sklearn.preprocessing:QuantileTransformer"
    params = {"n_quantiles": 10}  # noqa: RUF012
    columns = "a"


def test_a_step_that_looks_at_other_rows_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "centered_step.py").write_text(
        "def center(frame):\n    return frame - frame.mean()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    class Suite(PreprocessorTests):
        step = "centered_step:center"

    with pytest.raises(InputError, match="row"):
        Suite().fit()
    sys.modules.pop("centered_step", None)

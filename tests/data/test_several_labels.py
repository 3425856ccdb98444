"""Several label columns: their task, their encoding, and what is refused."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sweeps.core.errors import InputError
from sweeps.data.load_data import load_splits
from sweeps.data.preprocessing.fit import fit_transform
from sweeps.space.sections.data_models import DataSpec, Split

N = 40
COLUMNS = {
    "a": np.arange(N, dtype=float),
    "u": np.arange(N) / 7,
    "v": np.arange(N) % 30,
    "yes": [True, False] * (N // 2),
    "bit": [0, 1, 1, 0] * (N // 4),
    "pair": [1, 2] * (N // 2),
    "word": ["x", "y"] * (N // 2),
}


@pytest.fixture
def splits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return a function that loads a table with some label columns and the feature `a`."""

    def load(*labels: str, rows: pd.DataFrame | None = None, **changed: Any) -> Any:
        frame = pd.DataFrame(COLUMNS) if rows is None else rows
        frame[["a", *labels]].to_pickle(tmp_path / "rows.pkl")
        (tmp_path / "several_rows.py").write_text(
            "import pandas as pd\ndef load():\n    return "
            f"pd.read_pickle({str(tmp_path / 'rows.pkl')!r})\n"
        )
        sys.modules.pop("several_rows", None)
        split = Split("fraction", fraction=0.25)
        spec = DataSpec("several_rows:load", labels, split, split, None, tmp_path)
        return load_splits(replace(spec, **changed))

    yield load
    sys.modules.pop("several_rows", None)


def test_numbers_are_several_outputs(splits: Any) -> None:
    data = splits("u", "v")
    assert (data.task, data.classes, data.label, data.features) == (
        "multioutput",
        None,
        ("u", "v"),
        ("a",),
    )
    assert [str(data.train.schema.field(name).type) for name in ("u", "v")] == ["double", "double"]
    assert [table.num_rows for table in (data.train, data.valid, data.test)] == [20, 10, 10]


def test_bits_and_booleans_are_several_labels(splits: Any) -> None:
    data = splits("yes", "bit")
    assert (data.task, data.classes) == ("multilabel", None)
    assert data.train.schema.field("yes").type == data.train.schema.field("bit").type == "int64"
    assert set(data.train.column("yes").to_pylist()) == {0, 1}
    assert splits("yes", "bit", task="regression").task == "multioutput"


def test_rows_without_one_of_the_labels_can_be_dropped(splits: Any) -> None:
    rows = pd.DataFrame(COLUMNS)
    rows.loc[0, "u"], rows.loc[1, "bit"] = np.nan, np.nan
    data = splits("u", "v", rows=rows, drop_missing_label=True)
    assert data.train.num_rows + data.valid.num_rows + data.test.num_rows == N - 1
    assert splits("yes", "bit", rows=rows, drop_missing_label=True).task == "multilabel"
    with pytest.raises(InputError, match=r"`u` has 1 missing value in data\.train"):
        splits("u", "v", rows=rows)


def test_a_chain_passes_the_labels_on(splits: Any) -> None:
    data = splits("u", "v")
    chain, prepared = fit_transform((), data.train, data.label)
    assert list(prepared.columns) == ["a", "u", "v"] and chain.columns_in == ("a",)
    assert list(chain.transform(data.valid.to_pandas()).columns) == ["a", "u", "v"]
    assert list(chain.transform(pd.DataFrame({"a": [1.0]})).columns) == ["a"]

"""The prepared store loads what it saved, and files from others run no code."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sweeps.core.errors import UnreadableFile
from sweeps.core.files import trust
from sweeps.data.prepared_store import INFO_FILE, DatasetInfo, PreparedStore
from sweeps.data.preprocessing.fit import data_key, fit_chain
from sweeps.space import Step

RAN = "RAN"
ROWS = pa.table(
    {
        "x": [1.0, None, 3.0],
        "color": pa.array(["red", "blue", None]).dictionary_encode(),
        "day": pa.array([1, 2, 3], pa.date32()),
    }
)
STEPS = (Step("sklearn.preprocessing:QuantileTransformer", ["x"], {"n_quantiles": 3}),)


class Bomb:
    """An object that writes a file when it is unpickled."""

    def __init__(self, marker: Any) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.marker),)


@pytest.fixture
def bomb(tmp_path: Path) -> Any:
    return Bomb(tmp_path / RAN)


def facts(**changed: Any) -> DatasetInfo:
    fields = {
        "label": "y",
        "task": "binary",
        "classes": (False, True),
        "features": ("x", "color", "day"),
        "fingerprint": "f" * 64,
    }
    return DatasetInfo(
        **{
            **fields,
            "rows": {"train": 3, "valid": 3, "test": 3},
            "check": ROWS.to_pandas(),
            "notes": ("a note",),
            **changed,
        }
    )


@pytest.fixture
def store(tmp_path: Path) -> Any:
    """A store with information, a test split, and a chain that has a pickled step."""
    store = PreparedStore(tmp_path / "sweep")
    store.folder.parent.mkdir()
    store.save_info(facts(), ROWS)
    store.save_table("test", ROWS.append_column("y", pa.array([0, 1, 0])))
    store.save_chain(data_key("f" * 64, STEPS), fit_chain(STEPS, ROWS.select(["x"]), None))
    return store


@pytest.mark.parametrize("classes", [(False, True), ("a", "b"), (1, 2, 3), (0.5, 1.5), None])
@pytest.mark.parametrize("data", [None, {"train": "a.csv"}])
def test_facts_come_back_as_they_were(tmp_path: Path, classes: Any, data: Any) -> None:
    store, info = PreparedStore(tmp_path), facts(classes=classes)
    store.save_info(info, ROWS, data)
    back = store.load_info(data)
    assert [type(c) for c in back.classes or ()] == [type(c) for c in classes or ()]
    pd.testing.assert_frame_equal(back.check, info.check)
    assert {**vars(back), "check": None} == {**vars(info), "check": None}


def test_facts_without_data_have_no_rows(tmp_path: Path) -> None:
    store = PreparedStore(tmp_path)
    store.save_info(
        facts(label=None, task=None, classes=None, features=(), rows={}, check=pd.DataFrame()), None
    )
    assert store.load_info().check.empty and store.load_test() is None


def test_tensors_come_back(tmp_path: Path) -> None:
    from ray.data.extensions import TensorArray

    images = pa.Table.from_pandas(
        pd.DataFrame({"image": TensorArray(np.arange(24.0).reshape(2, 3, 4))})
    )
    store = PreparedStore(tmp_path)
    store.save_info(facts(features=("image",)), images)
    assert np.array_equal(
        np.asarray(store.load_info().check["image"].tolist()), np.arange(24.0).reshape(2, 3, 4)
    )


def test_the_test_split_and_the_chain_come_back(store: Any) -> None:
    rows, labels = store.load_test()
    pd.testing.assert_frame_equal(rows, ROWS.to_pandas())
    assert labels.tolist() == [0, 1, 0] and store.count_chains() == 1
    before = fit_chain(STEPS, ROWS.select(["x"]), None).transform(ROWS.select(["x"]).to_pandas())
    pd.testing.assert_frame_equal(store.load_chain(STEPS).transform(rows[["x"]]), before)


def test_nothing_but_signed_pickles_is_kept_as_a_pickle(store: Any) -> None:
    kept = sorted(str(path.relative_to(store.folder)) for path in store.folder.rglob("*.pkl"))
    assert [name.rpartition("/")[2] for name in kept] == ["preprocessor-1.pkl"]
    assert all((store.folder / f"{name}{trust.SUFFIX}").exists() for name in kept)


def test_r2_a_pickle_that_this_user_has_not_signed_is_not_read(
    store: Any, bomb: Any, tmp_path: Path
) -> None:
    (kept,) = store.folder.rglob("*.pkl")
    kept.write_bytes(pickle.dumps(bomb))
    with pytest.raises(trust.UntrustedFile, match="--trust"):
        store.load_chain(STEPS)
    kept.with_name(kept.name + trust.SUFFIX).write_text("0" * 64)
    with pytest.raises(trust.UntrustedFile, match="your key"):
        store.load_chain(STEPS)
    assert not (tmp_path / RAN).exists()
    PreparedStore(store.folder.parent, trust=True).load_chain(STEPS)
    assert (tmp_path / RAN).exists()


def test_r2_a_column_that_would_be_unpickled_is_refused(
    store: Any, bomb: Any, tmp_path: Path
) -> None:
    import ray.data.extensions
    from ray.data._internal.object_extensions.arrow import ArrowPythonObjectArray

    objects = pa.table({"x": ArrowPythonObjectArray.from_objects([bomb, bomb, bomb])})
    assert ray.data.extensions
    pq.write_table(objects, store.folder / "check.parquet")
    with pytest.raises(
        UnreadableFile, match=r"column `x` is of type ray\.data\.arrow_pickled_object"
    ):
        store.load_info()
    assert not (tmp_path / RAN).exists()


@pytest.mark.parametrize("name", ["../../elsewhere", "/etc/passwd", "..", "sub/test", ""])
def test_the_name_of_the_test_split_leads_nowhere_else(store: Any, name: str) -> None:
    info = json.loads((store.folder / INFO_FILE).read_text())
    (store.folder / INFO_FILE).write_text(json.dumps({**info, "test": name}))
    with pytest.raises(UnreadableFile):
        store.load_test()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "{}",
        '{"label": 3}',
        '{"label": 3, "evil": 1}',
        "\x00",
    ],
)
def test_damaged_facts_are_refused_with_the_file(store: Any, text: str) -> None:
    (store.folder / INFO_FILE).write_text(text)
    with pytest.raises(UnreadableFile) as refused:
        store.load_info()
    assert (
        refused.value.problems[0].place == str(store.folder / INFO_FILE)
        and len(str(refused.value).splitlines()) == 1
    )

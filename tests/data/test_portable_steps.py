"""Portable steps: which steps become portable, with the same bits as the original, also after a
round trip through a file.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sweeps.data.preprocessing import fit as preprocessing
from sweeps.data.preprocessing import ray_steps, step_files
from sweeps.data.preprocessing.fit import fit_chain, fit_transform
from sweeps.data.preprocessing.portable_steps import Encode, Fill, PortableStep, Scale, identical
from sweeps.data.preprocessing.to_portable import to_portable
from tests.data.test_preprocess import CHAINS, HERE, ODD, step, table

SKLEARN = {
    "sk scalers": [
        step("sklearn.preprocessing:StandardScaler", ("i", "f")),
        step("sklearn.preprocessing:MinMaxScaler", ("b",), feature_range=(-1, 1), clip=True),
        step("sklearn.preprocessing:MaxAbsScaler", ("i",)),
        step("sklearn.preprocessing:RobustScaler", ("f",), with_centering=False),
    ],
    "sk impute": [
        step("sklearn.impute:SimpleImputer", ("i", "f"), strategy="median"),
        step("sklearn.impute:SimpleImputer", ("c", "words"), strategy="most_frequent"),
        step("sklearn.preprocessing:StandardScaler", ("i", "f"), with_mean=False),
    ],
    "sk encoders": [
        step("sklearn.preprocessing:OneHotEncoder", ("c", "b"), sparse_output=False),
        step("sklearn.preprocessing:OrdinalEncoder", ("words", "i")),
    ],
}
ALL = CHAINS | SKLEARN
# What of each chain is plain data: a letter a step, P for plain, F for a function by its name, -
# for a pickle.
PLAIN = {
    "scalers": "PPPP",
    "robust": "P",
    "normalizer": "-",
    "power": "-",
    "impute": "PP",
    "impute most frequent": "PP",
    "impute constants": "PP",
    "one-hot": "P",
    "one-hot, appended": "P",
    "ordinal": "PP",
    "ordinal numbers": "P",
    "ordinal lists": "-",
    "categories": "P",
    "categories of numbers": "P",
    "categories, then one-hot": "PP",
    "multi-hot": "-",
    "bins": "--",
    "words": "-",
    "hashed words": "-",
    "tokens": "-",
    "hashed features": "-",
    "concatenated": "-",
    "sklearn": "-P",
    "linear algebra": "P-",
    "target": "-",
    "own": "F-P",
    "sk scalers": "PPPP",
    "sk impute": "PPP",
    "sk encoders": "PP",
}

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def chains(local_ray):
    """Each chain with portable steps, and the same chain with the original steps."""
    plain, fitted = {}, {}
    for name, chain in ALL.items():
        stages: list = []

        def noted(stage, frame, stages=stages):
            stages.append(stage)
            return to_portable(stage, frame)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(preprocessing, "to_portable", noted)
            plain[name] = fit_chain(chain, table(), "y")
        fitted[name] = dataclasses.replace(plain[name], fitted_steps=tuple(stages))
    return plain, fitted


def odd_frame(rows) -> pd.DataFrame:
    columns = ["i", "f", "g", "b", "c", "void", "t", "words", "tags"]
    return pd.DataFrame(rows, columns=columns).astype(
        {"i": "float64", "f": "float64", "g": "float64", "t": "datetime64[us]"}
    )


def test_which_steps_are_plain_data(chains):
    def letter(stage):
        return (
            "P" if isinstance(stage, PortableStep) else "F" if hasattr(stage, "function") else "-"
        )

    assert {
        name: "".join(letter(s) for s in chain.fitted_steps) for name, chain in chains[0].items()
    } == PLAIN


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(rows=ODD)
@pytest.mark.parametrize("name", [n for n, letters in PLAIN.items() if "P" in letters])
def test_the_same_bits_as_the_steps_they_stand_for(chains, name, rows):
    odd = odd_frame(rows)
    if (
        name.startswith("sk") or name == "linear algebra"
    ):  # scikit-learn refuses infinity; plain numbers pass it on
        odd["f"] = odd["f"].replace(np.inf, 1.0)
    odd["f"] = odd["f"] + 0.0  # Ray's encoders take -0.0 for a category of its own
    odd["g"] = odd["g"] + 0.0
    assert identical(chains[0][name].transform(odd), chains[1][name].transform(odd))


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(rows=ODD)
@pytest.mark.parametrize("name", ALL)
def test_a_file_keeps_every_bit(chains, name, rows, tmp_path):
    chain, odd = chains[0][name], odd_frame(rows)
    pickled = step_files.save_chain(chain, tmp_path)
    assert len(pickled) == PLAIN[name].count("-")
    back = step_files.load_chain(tmp_path)
    assert [type(s) for s in back.fitted_steps] == [type(s) for s in chain.fitted_steps]
    try:
        expected = chain.transform(odd)
    except Exception as e:
        with pytest.raises(type(e)):
            back.transform(odd)
        return
    got = back.transform(odd)
    assert list(got.dtypes) == list(expected.dtypes)
    pd.testing.assert_frame_equal(got, expected, check_exact=True)


def test_pickles_are_listed_with_their_content(chains, tmp_path):
    assert step_files.save_chain(chains[0]["sklearn"], tmp_path) == {
        "preprocessor-1.pkl": "sklearn.preprocessing._data.PowerTransformer"
    }
    assert step_files.save_chain(chains[0]["own"], tmp_path) == {
        "preprocessor-2.pkl": f"{HERE}.Means"
    }
    assert step_files.function_references(tmp_path) == [f"{HERE}:ratio"]


def test_a_plain_chain_needs_neither_ray_nor_sklearn(chains, tmp_path):
    for i, name in enumerate(
        ["scalers", "impute", "one-hot", "ordinal", "sk scalers", "sk encoders"]
    ):
        folder = tmp_path / str(i)
        folder.mkdir()
        assert step_files.save_chain(chains[0][name], folder) == {}
    table().to_pandas().to_pickle(tmp_path / "rows.pkl")
    code = (
        "import sys, pathlib, pandas as pd; from sweeps.data.preprocessing import step_files; "
        "root = pathlib.Path(sys.argv[1])\n"
        "rows = pd.read_pickle(root / 'rows.pkl')\n"
        "[step_files.load_chain(p).transform(rows) for p in root.iterdir() if p.is_dir()]\n"
        "print({'ray', 'sklearn', 'mlflow'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "set()\n", done.stderr


@given(st.floats(allow_nan=False), st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_survives_json(minus, by):
    described = Scale({"x": {"minus": minus, "by": by, "dtype": "float64"}}).to_json()
    back = json.loads(json.dumps(described))["columns"]["x"]
    assert np.float64(back["minus"]).tobytes() == np.float64(minus).tobytes()
    assert np.float64(back["by"]).tobytes() == np.float64(by).tobytes()


@pytest.mark.parametrize("name", ray_steps.SCALERS)
def test_scaled_columns_of_32_bit_floats_stay_so_with_the_bits_of_rays_result(local_ray, name):
    values = np.random.default_rng(0).normal(3.0, 2.0, 5000).astype(np.float32)
    values[7] = np.nan
    table = pa.table({"x": values, "whole": np.arange(5000), "y": np.zeros(5000)})
    chain, train = fit_transform([step(name)], table, "y")
    assert (
        isinstance(chain.fitted_steps[0], Scale)
        and train["x"].dtype == np.float32
        and train["whole"].dtype == np.float64
    )
    of_ray = ray_steps.fit_ray(
        ray_steps.ray_class(name), name, table.to_pandas(), ("x",), {}
    ).preprocessor
    expected = of_ray.transform_batch(table.to_pandas())["x"].to_numpy(np.float32, na_value=np.nan)
    np.testing.assert_array_equal(train["x"].to_numpy(), expected)
    assert identical(chain.transform(table.to_pandas()), train)


def test_a_chain_copies_no_column_that_it_does_not_change(local_ray):
    table = pa.table({name: np.arange(10, dtype=np.float32) for name in "abcy"})
    _, prepared = fit_transform([step("StandardScaler", ("a",))], table, "y", copy=False)
    same = {
        name: np.shares_memory(prepared[name].to_numpy(), table[name].to_numpy()) for name in "abc"
    }
    assert same == {"a": False, "b": True, "c": True}
    assert table["a"].to_pylist() == list(range(10)), "the raw rows are as before"


def test_a_step_with_another_result_is_not_made_portable(local_ray, monkeypatch):
    from sweeps.data.preprocessing import to_portable

    monkeypatch.setattr(to_portable, "TINY", 1e9)  # every spread would count as none
    chain = fit_chain([step("StandardScaler", ("i",))], table(), "y")
    assert not isinstance(chain.fitted_steps[0], PortableStep)


def test_by_hand():
    frame = pd.DataFrame(
        {"a": [1.0, np.nan, -0.0], "c": pd.Series(["x", None, "new"], dtype="str")}
    )
    assert Scale({"a": {"constant": "nan", "dtype": "float64"}}).apply(frame)["a"].isna().all()
    assert Fill({"c": {"value": "?", "dtype": "str"}}).apply(frame)["c"].tolist() == [
        "x",
        "?",
        "new",
    ]
    hot = Encode(
        {"c": {"keys": ["x", "y"], "missing": 1, "names": ["c_x", "c_y"]}}, True, "uint8"
    ).apply(frame)
    assert hot[["c_x", "c_y"]].to_numpy().tolist() == [[1, 0], [0, 1], [0, 0]] and list(hot) == [
        "a",
        "c_x",
        "c_y",
    ]
    codes = Encode(
        {"c": {"keys": ["x", "y"], "missing": -1, "names": ["c"]}}, False, "float64"
    ).apply(frame)["c"]
    assert codes[0] == 0 and codes[1:].isna().all()

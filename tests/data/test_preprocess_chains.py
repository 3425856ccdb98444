"""Chains of steps: which are refused, what they store, and what they cost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from sweeps.core.errors import InputError
from sweeps.data.preprocessing import step_files
from sweeps.data.preprocessing.fit import data_key, fit_chain, fit_transform
from tests.data.test_preprocess import CHAINS, HERE, step, table


@pytest.mark.parametrize(
    ("chain", "text"),
    [
        ([step("StandardScaler", "ff")], "StandardScaler: no column `ff`; did you mean `f`?"),
        ([step("StandardScaler", "zz*")], "no column matches `zz*`"),
        ([step("StandardScaler", ("y",))], "`y` is the label, which no step may change"),
        (
            [step("StandardScaler", ("c",))],
            "StandardScaler cannot be used for column `c`, which has the type str",
        ),
        ([step("Categorizer", "t")], "Categorizer cannot be used for column `t`, which has"),
        ([step("SimpleImputer", ("c",))], "SimpleImputer cannot be used for column `c`"),
        ([step("SimpleImputer", strategy="constant")], "`strategy: constant` needs `fill_value`"),
        (
            [step("UniformKBinsDiscretizer", ("void",), bins=3)],
            "cannot be used for column `void`, which has no value",
        ),
        ([step("Scaler")], "there is no built-in step `Scaler`"),
        (
            [step(f"{HERE}:centered", "numeric")],
            "the step returns other values for 1 row alone than for all 120 rows together",
        ),
        ([step(f"{HERE}:shortened")], "the step returned 119 rows for 120 input rows"),
        ([step(f"{HERE}:broken")], "RuntimeError: no such luck"),
        ([step(f"{HERE}:brokn")], "has no `brokn`"),
        ([step(f"{HERE}:CHAINS")], "is neither a function nor a class with `transform`"),
        (
            [step("OneHotEncoder", ("c",)), step("OrdinalEncoder", ("c",))],
            "OrdinalEncoder: no column `c`",
        ),
    ],
)
def test_steps_that_will_not_do(chain: Any, text: str) -> None:
    with pytest.raises(InputError) as caught:
        fit_chain(chain, table(), "y")
    assert text in str(caught.value) and "\n" not in str(caught.value)


def test_files_name_pickles_and_functions(tmp_path: Path) -> None:
    saved = {}
    for name in ("sklearn", "own"):
        (tmp_path / name).mkdir()
        saved[name] = step_files.save_chain(fit_chain(CHAINS[name], table(), "y"), tmp_path / name)
    assert saved["sklearn"] == {
        "preprocessor-1.pkl": "sklearn.preprocessing._data.PowerTransformer",
        "preprocessor-2.pkl": "sklearn.preprocessing._encoders.OneHotEncoder",
    }
    assert saved["own"] == {"preprocessor-2.pkl": f"{HERE}.Means"}
    assert step_files.function_references(tmp_path / "own") == [f"{HERE}:ratio"]


@pytest.mark.timeout(60)
def test_built_in_steps_need_neither_ray_nor_sklearn(tmp_path: Path) -> None:
    table().drop_columns(["tags"]).to_pandas().to_pickle(tmp_path / "rows.pkl")
    code = (
        "import sys, pathlib, pandas as pd, pyarrow as pa; from types import SimpleNamespace\n"
        "from sweeps.data.preprocessing import step_files; from sweeps.data.preprocessing.fit "
        "import fit_chain\n"
        "folder = pathlib.Path(sys.argv[1]); rows = pd.read_pickle(folder / 'rows.pkl')\n"
        "steps = [SimpleNamespace(name=n, columns=None, params={}) for n in ('SimpleImputer', "
        "'OneHotEncoder')]\n"
        "step_files.save_chain(fit_chain(steps, pa.Table.from_pandas(rows), 'y'), folder)\n"
        "step_files.load_chain(folder).transform(rows)\n"
        "print({'ray', 'sklearn', 'mlflow'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=50
    )
    assert done.stdout == "set()\n", done.stderr


def test_a_chain_copies_no_column_that_it_does_not_change() -> None:
    table = pa.table({name: np.arange(10, dtype=np.float32) for name in "abcy"})
    _, prepared = fit_transform([step("StandardScaler", ("a",))], table, "y", copy=False)
    same = {
        name: np.shares_memory(prepared[name].to_numpy(), table[name].to_numpy()) for name in "abc"
    }
    assert same == {"a": False, "b": True, "c": True}
    assert table["a"].to_pylist() == list(range(10)), "the raw rows are as before"


def test_without_steps_nothing_is_fitted_and_nothing_changes() -> None:
    raw = table().to_pandas()
    for chain in ((), [step("OneHotEncoder", ())]):
        identity = fit_chain(chain, table(), "y")
        assert identity.columns_out == identity.columns_in == tuple(raw.columns[:-1])
        out = identity.transform(raw[raw.columns[::-1]].assign(extra=1))
        pd.testing.assert_frame_equal(out, raw)
        assert identity.transform(raw.iloc[:0]).dtypes.equals(raw.dtypes)


def test_invalid_rows_are_refused() -> None:
    identity = fit_chain((), table(), "y")
    raw = table().to_pandas()
    with pytest.raises(InputError, match="missing columns `f`, `c`"):
        identity.transform(raw.drop(columns=["c", "f"]))
    with pytest.raises(InputError, match="column `i` holds 'many' in row 1, but must hold numbers"):
        identity.transform(raw.astype({"i": object}).assign(i="many"))
    with pytest.raises(InputError, match="column `t` holds 'soon' in row 1, but must hold dates"):
        identity.transform(raw.assign(t="soon"))
    assert identity.transform(raw.assign(i=" ", t=None))[["i", "t"]].isna().all().all()


def test_a_key_is_of_the_content() -> None:
    one = [step("StandardScaler", ("a", "b"), x={"k": (1, 2)})]
    assert data_key("f", one) == data_key(
        "f", (step("StandardScaler", ["a", "b"], x={"k": [1, 2]}),)
    )
    others = [
        data_key("g", one),
        data_key("f", ()),
        data_key("f", [step("StandardScaler", ("a",))]),
        data_key("f", [*one, *one]),
    ]
    assert len({data_key("f", one), *others}) == 5

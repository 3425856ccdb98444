"""Fitted chains with built-in steps, steps of scikit-learn and users' steps.

A row's result does not depend on other rows. A chain is stored in files and loaded again, with the
same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.special import boxcox
from sklearn import preprocessing as sk

from sweeps.core.errors import InputError
from sweeps.data.columns.columns import InputColumn
from sweeps.data.preprocessing import step_files
from sweeps.data.preprocessing.builtin_steps import fit_builtin
from sweeps.data.preprocessing.fit import fit_chain, fit_transform
from sweeps.data.preprocessing.fitted_steps import FittedStep
from sweeps.data.preprocessing.portable_steps import Encode, PortableStep
from sweeps.data.streaming.streamed_fit import RowStream, _result

HERE = "tests.data.test_preprocess"


def step(name: Any, columns: Any = None, **params: Any) -> Any:
    return SimpleNamespace(name=name, columns=columns, params=params)


def table(n: int = 120) -> pa.Table:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "i": rng.integers(0, 9, n),
            "f": np.where(np.arange(n) % 7, rng.normal(size=n), np.nan),
            "g": rng.normal(size=n).astype("float32"),
            "b": rng.random(n) > 0.5,
            "c": rng.choice(np.array(["x", "y", "<1H [sea]", None], dtype=object), n),
            "void": np.full(n, np.nan),
            "t": pd.date_range("2020", periods=n),
            "words": rng.choice(np.array(["a b", "b c d", None], dtype=object), n),
            "tags": [["p", "q"] if k % 2 else ["q"] for k in range(n)],
            "y": rng.integers(0, 2, n),
        }
    )
    return pa.Table.from_pandas(frame, preserve_index=False)


# own steps, by reference
def ratio(df: Any, top: Any, bottom: Any) -> Any:
    return df.assign(ratio=df[top] / (df[bottom] + 1))


def centered(df: Any) -> Any:
    return df - df.mean()


def shortened(df: Any) -> Any:
    return df.iloc[1:]


def broken(df: Any) -> None:
    raise RuntimeError("no such luck\nand more")


def shifted(df: Any) -> Any:
    return df + 1


@dataclass(frozen=True)
class Blocks(RowStream):
    """A stream of blocks of 20 rows, and an empty one. `dataset` is a table."""

    dataset: pa.Table
    roots: tuple[str, ...] = ()

    def after(self, inputs: Sequence[InputColumn], steps: Sequence[FittedStep]) -> Blocks:
        return Blocks(self.dataset, self.roots, tuple(inputs), tuple(steps))

    def results(self, function: Callable[[pd.DataFrame], Any]) -> Iterator[Any]:
        import pickle

        for start in range(0, self.dataset.num_rows + 20, 20):
            block = self.dataset.slice(start, 20)
            for row in _result(block, self.inputs, self.steps, function).to_pylist():
                yield pickle.loads(row["result"])


class Means:
    """An estimator whose `fit` also uses the label."""

    def __init__(self, power: int = 1) -> None:
        self.power = power

    def fit(self, X: Any, y: Any) -> None:
        self.mean = X["i"].mean() ** self.power + y.mean()

    def transform(self, X: Any) -> Any:
        return X[["i"]] - self.mean


CHAINS = {
    "scalers": [
        step("StandardScaler", ("i", "f")),
        step("MinMaxScaler", ("g", "void")),
        step("MaxAbsScaler", "b"),
    ],
    "robust": [step("RobustScaler", quantile_range=[0.1, 0.9])],
    "normalizer": [step("Normalizer", ("i", "g", "b"))],
    "power": [step("PowerTransformer", ("i", "f"), power=0.5)],
    "impute": [step("SimpleImputer"), step("StandardScaler")],
    "impute most frequent": [
        step("SimpleImputer", strategy="most_frequent"),
        step("OneHotEncoder", "c"),
    ],
    "impute constants": [
        step("SimpleImputer", strategy="constant", fill_value="?"),
        step("SimpleImputer", strategy="constant", fill_value=-1),
    ],
    "one-hot": [step("OneHotEncoder", ("c", "b", "i"), max_categories={"i": 3})],
    "ordinal": [step("OrdinalEncoder"), step("StandardScaler", ("c", "words"))],
    "ordinal numbers": [step("OrdinalEncoder", ("f", "i", "b"))],
    "categories": [step("Categorizer")],
    "categories of numbers": [step("Categorizer", ("i", "b", "g", "void"))],
    "categories, then one-hot": [step("Categorizer", "c"), step("OneHotEncoder", "c")],
    "bins": [step("UniformKBinsDiscretizer", bins=4)],
    "hashed words": [step("HashingVectorizer", "words", num_features=4)],
    "sklearn": [
        step("sklearn.preprocessing:PowerTransformer", ("i", "f")),
        step("sklearn.preprocessing:OneHotEncoder"),
    ],
    "linear algebra": [
        step("SimpleImputer"),
        step("sklearn.decomposition:PCA", ("i", "f", "g", "b"), n_components=3),
    ],
    "target": [step("sklearn.preprocessing:TargetEncoder", ("c",))],
    "own": [
        step(f"{HERE}:ratio", top="f", bottom="i"),
        step(f"{HERE}:Means", ("i",), power=2),
        step("StandardScaler", "rat*"),
    ],
}
BUILT_IN = [n for n in CHAINS if n not in ("sklearn", "linear algebra", "target", "own")]


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return all chains. Each chain was fitted once, stored in files and loaded again."""
    chains = {}
    for name, chain in CHAINS.items():
        folder = tmp_path_factory.mktemp("chain")
        pickled = step_files.save_chain(fit_chain(chain, table(), "y"), folder)
        assert not pickled or name not in BUILT_IN
        chains[name] = step_files.load_chain(folder)
    return chains


ODD = st.lists(
    st.fixed_dictionaries(
        {
            "i": st.sampled_from([0, 3, 8, -5, 10**6]),
            "f": st.sampled_from([0.1, -1e9, np.nan, np.inf]) | st.floats(-3, 3),
            "g": st.floats(-3, 3, width=32) | st.just(np.nan),
            "b": st.sampled_from([True, False, None]),
            "c": st.sampled_from(["x", "<1H [sea]", "unseen", None, ""]),
            "void": st.sampled_from([np.nan, 1.0]),
            "t": st.sampled_from([pd.Timestamp("2021-05-06"), pd.NaT]),
            "words": st.sampled_from(["a b", "zzz", None]),
            "tags": st.sampled_from([["p"], [], ["new", "q"]]),
            "extra": st.just("ignored"),
            "y": st.just(1),
        }
    ),
    max_size=6,
)


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    rows=ODD,
    order=st.randoms(use_true_random=False),
    start=st.integers(0, 5),
    step_=st.integers(1, 3),
)
@pytest.mark.parametrize("name", CHAINS)
def test_a_slice_of_the_transform_is_the_transform_of_the_slice(
    fitted: Any, name: Any, rows: Any, order: Any, start: Any, step_: Any
) -> None:
    chain = fitted[name]
    columns = ["i", "f", "g", "b", "c", "void", "t", "words", "tags", "extra", "y"]
    odd = pd.DataFrame(rows, columns=columns).astype(
        {"i": "float64", "f": "float64", "g": "float64", "t": "datetime64[us]"}
    )
    odd = odd[order.sample(columns, len(columns))].set_axis([f"row {k}" for k in range(len(odd))])
    if name in ("linear algebra", "sklearn"):  # scikit-learn refuses infinity
        odd["f"] = odd["f"].replace(np.inf, 1.0)
    before = odd.copy(deep=True)
    whole = chain.transform(odd)
    pd.testing.assert_frame_equal(odd, before)
    assert tuple(whole.columns) == (*chain.columns_out, "y") and whole.index.equals(odd.index)
    for part in (slice(start, None, step_), slice(0, 1), slice(0, 0)):
        pd.testing.assert_frame_equal(
            chain.transform(odd.iloc[part]),
            whole.iloc[part],
            check_exact=True,
            check_index_type=False,
        )


@pytest.mark.parametrize("name", [*CHAINS, "none"])
def test_prepared_rows_of_a_fit_are_those_of_the_stored_chain(fitted: Any, name: Any) -> None:
    chain, rows = fit_transform(CHAINS.get(name, []), table(), "y")
    raw = table().to_pandas()
    out = fitted.get(name, chain).transform(raw)
    pd.testing.assert_frame_equal(rows, out, check_exact=True)
    assert out["y"].equals(raw["y"]) and out.columns[-1] == "y"
    assert not any(c in column for column in chain.columns_out for c in "[]<")


@pytest.mark.parametrize("name", [name for name in BUILT_IN if name != "robust"])
def test_a_stream_teaches_what_rows_in_memory_do(name: Any) -> None:
    rows = table()
    chain = [step(f"{HERE}:shifted", ("i",)), *CHAINS[name]]
    whole, _ = fit_transform(chain, rows, "y")
    streamed, _ = fit_transform(chain, rows.slice(0, 7), "y", stream=Blocks(rows))
    assert streamed.columns_out == whole.columns_out
    for one, other in zip(streamed.fitted_steps[1:], whole.fitted_steps[1:], strict=True):
        assert isinstance(one, PortableStep) and isinstance(other, PortableStep)
        pd.testing.assert_series_equal(
            pd.json_normalize(one.to_json()).iloc[0], pd.json_normalize(other.to_json()).iloc[0]
        )


def test_robust_scaler_needs_rows_in_memory() -> None:
    with pytest.raises(InputError, match="RobustScaler needs all rows in memory"):
        fit_transform(CHAINS["robust"], table(), "y", stream=Blocks(table()))


def test_scalers_and_powers_are_those_of_scikit_learn(fitted: Any) -> None:
    raw = table().to_pandas()
    out = fitted["scalers"].transform(raw)
    np.testing.assert_allclose(
        out[["i", "f"]], sk.StandardScaler().fit_transform(raw[["i", "f"]]), rtol=1e-12
    )
    np.testing.assert_allclose(out[["g"]], sk.MinMaxScaler().fit_transform(raw[["g"]]), rtol=1e-5)
    assert out["g"].dtype == np.float32 and out["void"].isna().all()
    robust = sk.RobustScaler(quantile_range=(10, 90)).fit_transform(raw[["i", "f"]])
    np.testing.assert_allclose(fitted["robust"].transform(raw)[["i", "f"]], robust, rtol=1e-12)
    for method, own in (("yeo-johnson", {}), ("box-cox", {"method": "box-cox"})):
        for power in (0, 0.5, 2):
            values = table().select(["g"] if not own else ["i"])
            learned = sk.PowerTransformer(method, standardize=False)
            learned.lambdas_, learned.n_features_in_ = [power], 1
            x = values.to_pandas().to_numpy("float64")
            expected = boxcox(x, power) if own else learned.transform(x)
            chain = fit_chain([step("PowerTransformer", power=power, **own)], values, None)
            np.testing.assert_allclose(chain.transform(values.to_pandas()), expected, rtol=1e-4)


def test_normalizer_divides_rows_by_their_norm() -> None:
    rows = pa.table({"a": [3.0, 0.0, None], "b": [-4.0, 0.0, 2.0]})
    for norm, by in (("l1", 7), ("l2", 5), ("max", 4)):
        chain = fit_chain([step("Normalizer", norm=norm)], rows, None)
        expected = [[3 / by, -4 / by], [np.nan, np.nan], [np.nan, 1]]
        np.testing.assert_allclose(chain.transform(rows.to_pandas()), expected)
    expected = sk.normalize([[3.0, -4.0]])
    usual = fit_chain([step("Normalizer")], rows, None).transform(rows.to_pandas())
    np.testing.assert_allclose(usual.iloc[:1], expected)


def test_encoders_and_imputers(fitted: Any) -> None:
    raw = table().to_pandas()
    assert fitted["impute"].transform(raw)[["f", "void"]].notna().all().all()
    out = fitted["one-hot"].transform(raw)
    assert {"c__1H (sea)", "c_x", "c_y", "c_missing", "b_0", "b_1"} <= {*out}
    assert "c" not in out and str(out["c_x"].dtype) == "uint8"
    assert out["c_missing"].equals(raw["c"].isna().astype("uint8"))
    assert len([n for n in out if n.startswith("i_")]) == 3
    row = raw.iloc[:1].assign(c="never seen")
    assert not fitted["one-hot"].transform(row)[["c_x", "c_y", "c_missing"]].any(axis=None)
    codes = fitted["ordinal numbers"].transform(raw)
    assert codes["f"].isna().sum() == 0 and codes["f"].max() == raw["f"].nunique()
    assert fitted["ordinal numbers"].transform(row.assign(i=77))["i"].isna().all()
    hashed = fitted["hashed words"].transform(raw)[[f"words_{i}" for i in range(4)]]
    assert hashed.sum(axis=1).equals(raw["words"].str.split().str.len().fillna(0).astype("float32"))
    bins = fitted["bins"].transform(raw)
    expected = pd.cut(raw["i"], 4, labels=False).astype("float64")
    assert bins["i"].equals(expected) and bins["void"].isna().all()
    assert fitted["bins"].transform(row.assign(i=1e9))["i"].isna().all()
    own = fitted["own"].transform(raw)
    assert "ratio" in own
    assert np.allclose(own["i"], raw["i"] - raw["i"].mean() ** 2 - raw["y"].mean())


def test_categories_are_sorted_and_missing_and_unseen_values_have_none(fitted: Any) -> None:
    raw = table().to_pandas()
    out = fitted["categories"].transform(raw)
    assert list(out["c"].cat.categories) == ["<1H [sea]", "x", "y"]
    assert out["c"].isna().equals(raw["c"].isna()) and out["f"].isna().any()
    assert out["c"].dropna().astype(str).equals(raw["c"].dropna().astype(str))
    assert str(out["words"].dtype) == "category" and out["tags"].equals(raw["tags"])
    assert fitted["categories"].transform(raw.assign(c="never seen"))["c"].isna().all()
    assert list(fitted["categories"].known_values) == ["c", "words"]
    assert list(fitted["one-hot"].known_values["c"]) == ["<1H [sea]", "x", "y"]
    numbers = fitted["categories of numbers"].transform(raw.assign(void=1.0))
    assert list(numbers["b"].cat.categories) == [0.0, 1.0]
    assert numbers["i"].astype(float).equals(raw["i"].astype(float))
    assert numbers["g"].astype("float32").equals(raw["g"])
    assert numbers["void"].dtype == "float64" and numbers["void"].isna().all()


def test_another_spelling_of_the_same_rows(fitted: Any) -> None:
    raw = table().to_pandas().drop(columns=["tags", "y"]).assign(tags=[["q"]] * 120)
    as_text = raw.assign(
        i=raw["i"].astype(str),
        b=raw["b"].map(str),
        t=raw["t"].astype(str),
        f=raw["f"].astype(object),
    )
    as_arrow = raw.assign(
        i=raw["i"].astype("int64[pyarrow]"),
        c=raw["c"].astype("string[pyarrow]"),
        b=raw["b"].astype("boolean"),
    )
    as_object = raw.assign(
        c=raw["c"].astype(object),
        words=raw["words"].astype("category"),
        f=raw["f"].astype("Float64"),
    )
    for name in BUILT_IN:
        expected = fitted[name].transform(raw)
        for other in (as_text, as_arrow, as_object):
            pd.testing.assert_frame_equal(fitted[name].transform(other), expected)


def test_most_frequent_fills_numbers_too() -> None:
    frame = pd.DataFrame(
        {"n": [1.0, 2.0, 2.0, None], "c": ["a", None, "b", "b"], "y": [0, 1, 0, 1]}
    )
    fitted = fit_chain(
        [step("SimpleImputer", strategy="most_frequent")], pa.Table.from_pandas(frame), "y"
    )
    filled = fitted.transform(frame)
    assert filled["n"].tolist() == [1.0, 2.0, 2.0, 2.0] and filled["c"].tolist() == [
        "a",
        "b",
        "b",
        "b",
    ]
    assert fitted.transform(pd.DataFrame({"n": [None], "c": [None]})).iloc[0].tolist() == [2.0, "b"]


def test_an_encoder_takes_a_column_with_very_many_values() -> None:
    """With a search through a list for each value, this would take a minute."""
    frame = pd.DataFrame({"id": [f"v{i}" for i in range(100_000)]})
    step = fit_builtin("OrdinalEncoder", frame, ["id"], {}, lambda function: [function(frame)])
    assert isinstance(step, Encode) and step.columns["id"]["keys"] == sorted(frame["id"])

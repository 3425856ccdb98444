"""Fitted chains with steps of Ray, scikit-learn and users.

A row's result does not depend on other rows, and a chain transforms rows without a Ray cluster.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ray.data.preprocessor import Preprocessor

from sweeps.core.errors import InputError
from sweeps.data.preprocessing.fit import data_key, fit_chain, fit_transform, runs_tasks
from sweeps.data.streaming.fit import _apply

HERE = "tests.data.test_preprocess"


def step(name, columns=None, **params):
    return SimpleNamespace(name=name, columns=columns, params=params)


def table(n=120) -> pa.Table:
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
def ratio(df, top, bottom):
    return df.assign(ratio=df[top] / (df[bottom] + 1))


def centered(df):
    return df - df.mean()


def shortened(df):
    return df.iloc[1:]


def broken(df):
    raise RuntimeError("no such luck\nand more")


def shifted(df):
    return df + 1


class Blocks:
    """A stream of blocks of 20 rows."""

    def __init__(self, rows, inputs=(), steps=()):
        self.rows, self.inputs, self.steps = rows, inputs, steps

    def after(self, inputs, steps):
        return Blocks(self.rows, tuple(inputs), tuple(steps))

    def frames(self, function):
        for start in range(0, self.rows.num_rows, 20):
            block = self.rows.slice(start, 20)
            yield _apply(block, self.inputs, self.steps, function).to_pandas()


class Means:
    """An estimator whose `fit` also uses the label."""

    def __init__(self, power=1):
        self.power = power

    def fit(self, X, y):
        self.mean = X["i"].mean() ** self.power + y.mean()

    def transform(self, X):
        return X[["i"]] - self.mean


class Counted(Preprocessor):
    """A preprocessor that uses methods of Ray's Dataset that Ray's own preprocessors do not use."""

    def __init__(self, columns):
        super().__init__()
        self.columns = columns

    def _fit(self, dataset):
        self.stats_ = {"rows": dataset.count()}
        return self

    def _transform_pandas(self, df):
        return df / self.stats_["rows"]


CHAINS = {
    "scalers": [
        step("StandardScaler", ("i", "f")),
        step("MinMaxScaler", "g"),
        step("MaxAbsScaler", "b"),
        step("RobustScaler", "void"),
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
    "one-hot, appended": [step("OneHotEncoder", "c", output_columns=["kind"])],
    "ordinal": [step("OrdinalEncoder"), step("StandardScaler", ("c", "words"))],
    "ordinal numbers": [step("OrdinalEncoder", ("f", "i", "b"))],
    "ordinal lists": [step("OrdinalEncoder", "tags")],
    "categories": [step("Categorizer")],
    "categories of numbers": [step("Categorizer", ("i", "b", "g", "void"))],
    "categories, then one-hot": [step("Categorizer", "c"), step("OneHotEncoder", "c")],
    "multi-hot": [step("MultiHotEncoder", "tags")],
    "bins": [
        step("UniformKBinsDiscretizer", bins=4),
        step("CustomKBinsDiscretizer", "g", bins=[0, 1, 2]),
    ],
    "words": [step("CountVectorizer", "words", max_features=2)],
    "hashed words": [step("HashingVectorizer", "words", num_features=4)],
    "tokens": [step("Tokenizer", "words")],
    "hashed features": [step("FeatureHasher", ("i", "f"), num_features=3, output_column="h")],
    "concatenated": [step("Concatenator", ("i", "f"), dtype="float32")],
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


@pytest.fixture(scope="module")
def fitted(local_ray):
    """Return all chains. Each chain was fitted once, pickled and unpickled."""
    return {
        name: pickle.loads(pickle.dumps(fit_chain(chain, table(), "y")))
        for name, chain in CHAINS.items()
    }


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


@pytest.mark.integration
@pytest.mark.timeout(180)
class TestEveryChain:
    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        rows=ODD,
        order=st.randoms(use_true_random=False),
        start=st.integers(0, 5),
        step_=st.integers(1, 3),
    )
    @pytest.mark.parametrize("name", CHAINS)
    def test_a_slice_of_the_transform_is_the_transform_of_the_slice(
        self, fitted, name, rows, order, start, step_
    ):
        chain = fitted[name]
        columns = ["i", "f", "g", "b", "c", "void", "t", "words", "tags", "extra", "y"]
        odd = pd.DataFrame(rows, columns=columns).astype(
            {"i": "float64", "f": "float64", "g": "float64", "t": "datetime64[us]"}
        )
        odd = odd[order.sample(columns, len(columns))].set_axis(
            [f"row {k}" for k in range(len(odd))]
        )
        if name in (
            "linear algebra",
            "sklearn",
        ):  # scikit-learn refuses infinity, and so does the chain, in one line
            odd["f"] = odd["f"].replace(np.inf, 1.0)
        before = odd.copy(deep=True)
        whole = chain.transform(odd)
        pd.testing.assert_frame_equal(odd, before)
        assert tuple(whole.columns) == (*chain.columns_out, "y") and list(whole.index) == list(
            odd.index
        )
        for part in (slice(start, None, step_), slice(0, 1), slice(0, 0)):
            pd.testing.assert_frame_equal(
                chain.transform(odd.iloc[part]),
                whole.iloc[part],
                check_exact=True,
                check_index_type=False,
            )

    @pytest.mark.parametrize("name", CHAINS)
    def test_the_label_is_untouched_and_the_names_are_good_for_xgboost(self, fitted, name):
        raw = table().to_pandas()
        out = fitted[name].transform(raw)
        assert out["y"].equals(raw["y"]) and out.columns[-1] == "y"
        assert not any(c in column for column in fitted[name].columns_out for c in "[]<")
        assert fitted[name].transform(raw.drop(columns="y")).equals(out.drop(columns="y"))

    def test_values(self, fitted):
        raw = table().to_pandas()
        out = fitted["scalers"].transform(raw)
        assert np.allclose(out["i"], (raw["i"] - raw["i"].mean()) / raw["i"].std(ddof=0))
        assert out["f"].isna().equals(raw["f"].isna()) and out["void"].isna().all()
        assert np.allclose(
            out["g"], (raw["g"] - raw["g"].min()) / (raw["g"].max() - raw["g"].min()), atol=1e-6
        )
        robust = fitted["robust"].transform(raw)["i"]
        low, middle, high = raw["i"].quantile([0.1, 0.5, 0.9])
        assert np.allclose(robust, (raw["i"] - middle) / (high - low))
        assert fitted["impute"].transform(raw)[["f", "void"]].notna().all().all()
        out = fitted["one-hot"].transform(raw)
        assert {"c__1H (sea)", "c_x", "c_y", "c_missing", "b_0", "b_1"} <= set(
            out.columns
        ) and "c" not in out
        assert str(out["c_x"].dtype) == "uint8" and out["c_missing"].equals(
            raw["c"].isna().astype("uint8")
        )
        assert len([n for n in out if n.startswith("i_")]) == 3
        assert {"c", "kind_x"} <= set(fitted["one-hot, appended"].columns_out)
        assert fitted["concatenated"].transform(raw)["concat_out"][1].dtype == np.float32
        out = fitted["own"].transform(raw)
        assert (
            np.allclose(out["i"], raw["i"] - raw["i"].mean() ** 2 - raw["y"].mean())
            and "ratio" in out
        )

    def test_categories_are_sorted_and_missing_and_unseen_values_have_none(self, fitted):
        raw = table().to_pandas()
        out = fitted["categories"].transform(raw)
        assert list(out["c"].cat.categories) == ["<1H [sea]", "x", "y"]
        assert out["c"].isna().equals(raw["c"].isna()) and out["f"].isna().any()
        assert out["c"].dropna().astype(str).equals(raw["c"].dropna().astype(str))
        assert str(out["words"].dtype) == "category" and out["tags"].equals(raw["tags"])
        assert fitted["categories"].transform(raw.assign(c="never seen"))["c"].isna().all()
        numbers = fitted["categories of numbers"].transform(raw.assign(void=1.0))
        assert list(numbers["b"].cat.categories) == [0.0, 1.0]
        assert numbers["i"].astype(float).equals(raw["i"].astype(float))
        assert numbers["g"].astype("float32").equals(raw["g"])
        assert numbers["void"].dtype == "float64" and numbers["void"].isna().all()

    @pytest.mark.parametrize("count", [1, 3000])
    def test_one_category_and_thousands(self, count):
        texts = [f"é{i:04}" for i in range(count)]
        train = pa.table({"c": pa.array([*reversed(texts), None], pa.large_string())})
        fitted, rows = fit_transform([step("Categorizer")], train, None)
        assert list(rows["c"].cat.categories) == texts and rows["c"].isna().sum() == 1
        assert rows["c"].cat.codes.tolist() == [*reversed(range(count)), -1]
        assert fitted.known_values["c"].tolist() == texts

    def test_categories_of_a_stream_are_those_of_all_its_rows(self):
        rows = table().drop_columns(["tags"])
        chain = [step(f"{HERE}:shifted", ("i",)), step("Categorizer", ("c", "i", "void"))]
        whole, _ = fit_transform(chain, rows, "y")
        streamed, _ = fit_transform(chain, rows.slice(0, 3), "y", stream=Blocks(rows))
        assert streamed.fitted_steps[1] == whole.fitted_steps[1]
        assert len(streamed.fitted_steps[1].columns["c"]) == 3

    def test_categories_of_dates_are_refused(self):
        with pytest.raises(InputError, match=r"Categorizer: categories cannot .* `t`, which has"):
            fit_chain([step("Categorizer", "t")], table(), "y")

    def test_unseen_is_nan_for_codes_and_zeros_for_one_hot(self, fitted):
        row = table().to_pandas().iloc[:1].assign(c="never seen")
        assert fitted["ordinal numbers"].transform(row.assign(i=77))["i"].isna().all()
        assert fitted["one-hot"].transform(row)[["c_x", "c_y", "c_missing"]].sum(
            axis=1
        ).tolist() == [0]
        assert fitted["bins"].transform(row.assign(i=1e9))["i"].isna().all()

    @pytest.mark.parametrize("name", [*CHAINS, "none"])
    def test_the_rows_that_it_is_fitted_on_come_out_as_they_would_again(self, local_ray, name):
        fitted, rows = fit_transform(CHAINS.get(name, []), table(), "y")
        pd.testing.assert_frame_equal(rows, fitted.transform(table().to_pandas()), check_exact=True)

    def test_another_spelling_of_the_same_rows(self, fitted):
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
        for name in ("scalers", "one-hot", "ordinal", "impute", "words", "categories"):
            expected = fitted[name].transform(raw)
            for other in (as_text, as_arrow, as_object):
                pd.testing.assert_frame_equal(fitted[name].transform(other), expected)

    def test_rays_preprocessors_learn_from_rows_at_hand_what_ray_data_would_teach_them(
        self, local_ray, monkeypatch
    ):
        from sweeps.data.preprocessing import ray_steps

        monkeypatch.setattr(ray_steps, "ROWS_PER_BLOCK", 40)
        learnt = (
            "scalers",
            "impute",
            "impute most frequent",
            "one-hot",
            "ordinal lists",
            "multi-hot",
            "bins",
            "words",
        )
        at_hand = {name: fit_chain(CHAINS[name], table(), "y") for name in learnt}
        monkeypatch.setattr(ray_steps, "_in_memory_dataset", ray_steps.ray_dataset)
        for name in learnt:
            by_ray = fit_chain(CHAINS[name], table(), "y")
            pd.testing.assert_frame_equal(
                at_hand[name].transform(table().to_pandas()),
                by_ray.transform(table().to_pandas()),
                rtol=1e-14,
            )

    def test_a_preprocessor_of_ones_own_for_ray_data_is_given_a_dataset(self, local_ray):
        fitted = fit_chain([step(f"{HERE}:Counted", ("i",))], table(), "y")
        assert np.allclose(
            fitted.transform(table().to_pandas())["i"], table().to_pandas()["i"] / 120
        )
        assert runs_tasks([step("StandardScaler"), step(f"{HERE}:Counted", ("i",))])

    @pytest.mark.parametrize("name", CHAINS)
    def test_nothing_else_runs_tasks(self, name):
        assert not runs_tasks(CHAINS[name])
        assert not runs_tasks([*CHAINS[name], step("no_such_module:Step")])

    def test_fitting_twice_and_in_blocks_gives_the_same_bits(self, local_ray, monkeypatch):
        monkeypatch.setattr("sweeps.data.preprocessing.ray_steps.ROWS_PER_BLOCK", 40)
        chain = [
            step("SimpleImputer", strategy="most_frequent"),
            step("StandardScaler"),
            step("OneHotEncoder", ("c",)),
        ]
        one, two = (fit_chain(chain, table(), "y").transform(table().to_pandas()) for _ in range(2))
        pd.testing.assert_frame_equal(one, two, check_exact=True)

    def test_no_cluster_is_needed_to_transform(self, fitted, tmp_path):
        (tmp_path / "f.pkl").write_bytes(
            pickle.dumps({k: v for k, v in fitted.items() if k != "own"})
        )
        table().to_pandas().to_pickle(tmp_path / "rows.pkl")
        code = (
            "import pickle, sys, pandas as pd; fitted = pickle.load(open(sys.argv[1], 'rb')); "
            "rows = pd.read_pickle(sys.argv[2])\n"
            "[f.transform(rows) for f in fitted.values()]\n"
            "import ray; assert not ray.is_initialized(); assert 'sweeps.space' not in sys.modules"
        )
        subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "f.pkl"), str(tmp_path / "rows.pkl")],
            check=True,
            timeout=120,
        )

    @pytest.mark.parametrize(
        ("chain", "text"),
        [
            ([step("StandardScaler", "ff")], "StandardScaler: no column `ff`; did you mean `f`?"),
            ([step("StandardScaler", "zz*")], "no column matches `zz*`"),
            ([step("StandardScaler", ("y",))], "`y` is the label, which no step may change"),
            ([step("StandardScaler", ("c",))], "StandardScaler: column `c` holds no numbers"),
            (
                [step("SimpleImputer", ("c",))],
                (
                    "SimpleImputer: strategy mean cannot be used for column `c`, which has the "
                    "type "
                    "str"
                ),
            ),
            ([step("SimpleImputer", strategy="median")], "Strategy median is not supported"),
            (
                [step("UniformKBinsDiscretizer", ("void",), bins=3)],
                "binning cannot be used for column `void`, which has no value",
            ),
            ([step("StandardScaler", with_mean=True)], "unexpected keyword argument 'with_mean'"),
            ([step("Scaler")], "Ray Data has no preprocessor `Scaler`"),
            (
                [step("LabelEncoder", label_column="c")],
                "`c` is not the label (`y`); use OrdinalEncoder",
            ),
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
    def test_steps_that_will_not_do(self, local_ray, chain, text):
        with pytest.raises(InputError) as caught:
            fit_chain(chain, table(), "y")
        assert text in str(caught.value) and "\n" not in str(caught.value)

    def test_a_selector_that_selects_nothing_does_nothing(self, local_ray):
        numbers = table().select(["i", "f", "y"])
        assert (
            fit_chain([step("OneHotEncoder")], numbers, "y")
            .transform(numbers.to_pandas())
            .equals(numbers.to_pandas())
        )


def test_without_steps_nothing_is_fitted_and_nothing_changes():
    raw = table().to_pandas()
    for chain in ((), [step("LabelEncoder", label_column="y")]):
        identity = fit_chain(chain, table(), "y")
        assert identity.columns_out == identity.columns_in == tuple(raw.columns[:-1])
        out = identity.transform(raw[raw.columns[::-1]].assign(extra=1))
        pd.testing.assert_frame_equal(out, raw)
        assert identity.transform(raw.iloc[:0]).dtypes.equals(raw.dtypes)


@pytest.mark.integration
def test_without_steps_ray_is_not_imported():
    code = (
        "import sys, pyarrow as pa; from sweeps.data.preprocessing.fit import fit_chain\n"
        "fit_chain((), pa.table({'a': [1]}), None)\n"
        "assert 'ray' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_invalid_rows_are_refused():
    identity = fit_chain((), table(), "y")
    raw = table().to_pandas()
    with pytest.raises(InputError, match="missing columns `f`, `c`"):
        identity.transform(raw.drop(columns=["c", "f"]))
    with pytest.raises(InputError, match="column `i` holds 'many' in row 1, but must hold numbers"):
        identity.transform(raw.astype({"i": object}).assign(i="many"))
    with pytest.raises(InputError, match="column `t` holds 'soon' in row 1, but must hold dates"):
        identity.transform(raw.assign(t="soon"))
    assert identity.transform(raw.assign(i=" ", t=None))[["i", "t"]].isna().all().all()


def test_a_key_is_of_the_content():
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


def test_most_frequent_fills_numbers_too():
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

"""Every trainer with every kind of preprocessor: a loaded bundle predicts odd raw rows as the
trained model does, to the bit.
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from bundle_parts import write_parts
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sweeps.trainers.torch_tabular
import sweeps.trainers.xgboost
from sweeps.bundle.bundle_model import Bundle, load_bundle
from sweeps.core.errors import BundleError, InputError
from sweeps.core.plugins import references
from sweeps.data.preprocessing.fit import fit_chain
from sweeps.space import Step
from sweeps.testing.fake_session import FakeShard, run_loop, small_table
from tests.commands import check_in_this_process

pytestmark = [pytest.mark.timeout(180), pytest.mark.integration, pytest.mark.slow]

FLAT = (Step("SimpleImputer", "numeric", {}), Step("OneHotEncoder", "categorical", {}))
CHAINS = {
    "Ray's": (*FLAT, Step("StandardScaler", "numeric", {}), Step("MinMaxScaler", ("area",), {})),
    "Ray's, pickled": (*FLAT, Step("UniformKBinsDiscretizer", ("area",), {"bins": 4})),
    "scikit-learn's": (
        Step("sklearn.impute:SimpleImputer", "numeric", {"strategy": "median"}),
        Step("sklearn.preprocessing:OrdinalEncoder", ("town",), {}),
        Step("sklearn.preprocessing:RobustScaler", ("area", "rooms"), {}),
    ),
    "scikit-learn's, pickled": (
        *FLAT,
        Step("sklearn.preprocessing:QuantileTransformer", ("area",), {"n_quantiles": 20}),
        Step("sklearn.decomposition:PCA", ("area", "rooms"), {}),
    ),
    "functions": (
        Step("parity_own:features", "all", {"scale": 0.1}),
        Step("SimpleImputer", "numeric", {}),
    ),
    "a class": (*FLAT, Step("parity_own:Center", ("area", "rooms"), {})),
    "categories": (Step("Categorizer", ("town", "rooms", "garden"), {}),),
}
OWN = """
    import json
    from pathlib import Path
    import numpy as np

    def features(df, scale):
        town = df["town"].map(lambda v: len(v) if isinstance(v, str) else -1).astype("float64")
        return df[["rooms", "area", "garden"]].assign(town=town, \
log=np.log1p(df["area"].clip(lower=0)) * scale)

    class Center:
        def fit(self, X):
            self.mean = X.mean()
            return self
        def transform(self, X):
            return X - self.mean

    class Model:
        def __init__(self, weights):
            self.weights = weights
        def predict(self, frame):
            total = np.zeros(len(frame))
            for name, weight in self.weights.items():
                total = total + np.nan_to_num(frame[name].to_numpy("float64")) * weight
            return 1 / (1 + np.exp(-total / 10))

    def load(folder):
        return Model(json.loads(Path(folder, "weights.json").read_text()))
"""
TRAINERS = {
    "xgboost": (sweeps.trainers.xgboost, {"num_boost_round": 6, "max_depth": 4}),
    "torch": (
        sweeps.trainers.torch_tabular,
        {"epochs": 1, "width": 5},
    ),  # so narrow that a careless product would round by place
    "own": (None, {}),
}
# XGBoost has every chain without code of the user, and the user's model has the others. The other
# trainers have one chain of each kind.
OF_THE_USER = ("functions", "a class")
CASES = [("xgboost", chain) for chain in CHAINS if chain not in OF_THE_USER]
CASES += [("torch", "Ray's"), ("torch", "scikit-learn's, pickled")]
CASES += [("own", chain) for chain in ("Ray's", *OF_THE_USER)]


def training_rows() -> pd.DataFrame:
    rng = np.random.default_rng(5)
    n = 120
    frame = pd.DataFrame(
        {
            "rooms": rng.integers(1, 9, n),
            "area": rng.lognormal(3, 0.5, n),
            "town": rng.choice(["Lyon", "Nice", "Pau"], n),
            "garden": rng.random(n) > 0.5,
        }
    )
    frame["y"] = (
        3.0 * frame["rooms"] + frame["area"] + (frame["town"] == "Nice") * 10 > 40
    ).astype(int)
    frame.loc[::9, "area"] = np.nan
    frame.loc[::11, "town"] = None
    return frame


@pytest.fixture(scope="module")
def bundles(local_ray: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """(trainer, chain) -> the loaded bundle, the chain as it was fitted, the model as it was
    trained.
    """
    folder = tmp_path_factory.mktemp("parity")
    (folder / "parity_own.py").write_text(textwrap.dedent(OWN))
    bundles: dict[tuple[str, str], tuple[Bundle, Any, Any, dict[str, Any]]] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        check_in_this_process(patch)  # 18 new processes would take a minute
        raw = training_rows()
        make, _ = small_table("binary")
        for chain, steps in CHAINS.items():
            fitted = fit_chain(steps, pa.Table.from_pandas(raw.iloc[:88]), "y")
            prepared = fitted.transform(raw)
            check = prepared.drop(columns="y").iloc[88:]
            for trainer in (t for t, c in CASES if c == chain):
                module, params = TRAINERS[trainer]
                here = folder / f"{trainer}-{len(bundles)}"
                here.mkdir()
                if module is None:
                    name, checkpoint = "parity_own:load", here / "checkpoint"
                    checkpoint.mkdir()
                    weights = {n: 0.1 * (i + 1) for i, n in enumerate(fitted.columns_out)}
                    (checkpoint / "weights.json").write_text(json.dumps(weights))
                    model = references.resolve(name)(str(checkpoint))
                    expected = model.predict(check)
                else:
                    name = f"{module.__name__}:load"
                    shards = {
                        "train": FakeShard(prepared.iloc[:88]),
                        "valid": FakeShard(prepared.iloc[88:]),
                    }
                    run = run_loop(
                        module.train_func,
                        params,
                        make(check=check, _cached_objects={}),
                        shards,
                        here,
                    )
                    checkpoint = run.checkpoints[len(run.metrics)]
                    model, expected = (
                        module.load(str(checkpoint)),
                        np.load(checkpoint / "check.npy"),
                    )
                facts = {
                    "label": "y",
                    "task": "binary",
                    "classes": (0, 1),
                    "raw": raw.drop(columns="y").iloc[88:],
                    "training": {},
                }
                parts = {
                    "checkpoint": checkpoint,
                    "fitted": fitted,
                    "load": name,
                    "roots": (folder,),
                    "expected": expected,
                    **facts,
                }
                path = write_parts(here / "bundle", **parts)
                bundles[trainer, chain] = load_bundle(path), fitted, model, parts
        yield bundles
    sys.modules.pop("parity_own", None)


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "rooms": st.none() | st.integers(-3, 12) | st.integers(-(2**40), 2**40),
            "area": st.none() | st.floats(-1e6, 1e6) | st.sampled_from([0.0, 1e-300, 24.0]),
            "town": st.sampled_from(
                ["Lyon", "Nice", "Pau", "Atlantis", "", None, "12", "__missing__"]
            ),
            "garden": st.sampled_from([True, False]),
        }
    ),
    max_size=5,
)


def canonical(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Rows with the dtypes of training: floats, text, booleans."""
    frame = pd.DataFrame(rows, columns=["rooms", "area", "town", "garden"])
    return frame.astype({"rooms": "float64", "area": "float64", "town": "str", "garden": "bool"})


def disguised(frame: pd.DataFrame, how: str, rng: Any) -> pd.DataFrame:
    """The same rows with other dtypes."""
    if how == "text":
        text = {
            n: [None if pd.isna(v) else repr(float(v)) for v in frame[n]] for n in ("rooms", "area")
        }
        frame = frame.assign(
            **{n: pd.Series(v, index=frame.index, dtype=object) for n, v in text.items()}
        )
    elif how == "objects":
        frame = frame.astype(object).where(frame.notna(), None)
    elif how == "nullable":
        frame = frame.assign(
            rooms=frame["rooms"].astype("Int64"), garden=frame["garden"].astype("boolean")
        )
    elif how == "whole numbers":
        frame = frame.assign(garden=frame["garden"].astype("int64"))
    frame = frame.assign(extra="ignored", y=1)
    columns = rng.sample(list(frame.columns), len(frame.columns))
    return frame[columns].set_axis([f"row {i}" for i in range(len(frame))])


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    rows=ROWS,
    how=st.sampled_from(["text", "objects", "nullable", "whole numbers", "as they are"]),
    rng=st.randoms(use_true_random=False),
)
@pytest.mark.parametrize(("trainer", "chain"), CASES)
def test_odd_rows_are_predicted_as_in_training(
    bundles: Any, trainer: Any, chain: Any, rows: Any, how: Any, rng: Any
) -> None:
    bundle, fitted, model, _ = bundles[trainer, chain]
    frame = canonical(rows)
    odd = disguised(frame, how, rng)
    got = bundle.model_output(odd)
    read = frame.assign(town=frame["town"].where(frame["town"] != ""))  # an empty text is missing
    expected = model.predict(fitted.transform(read)) if len(frame) else np.zeros(0)
    assert got.tobytes() == np.asarray(expected).tobytes()
    answers = bundle.predict(odd)
    assert list(answers.index) == list(odd.index) and list(answers) == [
        "prediction",
        "probability_0",
        "probability_1",
    ]
    for i in range(len(odd)):  # alone or with others: what is batched together must not matter
        assert bundle.model_output(odd.iloc[[i]]).tobytes() == got[i : i + 1].tobytes()


@pytest.mark.parametrize(("trainer", "chain"), CASES)
def test_the_rows_of_training(bundles: Any, trainer: Any, chain: Any) -> None:
    bundle, _, _, parts = bundles[trainer, chain]
    raw = parts["raw"]
    assert bundle.model_output(raw).tobytes() == parts["expected"].tobytes()
    order = np.random.default_rng(0).permutation(len(raw))
    assert bundle.model_output(raw.iloc[order]).tobytes() == parts["expected"][order].tobytes()


@pytest.mark.parametrize("trainer", TRAINERS)
def test_wrong_rows_are_named_in_a_line(bundles: Any, trainer: Any) -> None:
    bundle = bundles[trainer, "Ray's"][0]
    good = canonical([{"rooms": 1, "area": 2.0, "town": "Nice", "garden": True}])
    with pytest.raises(InputError) as e:
        bundle.predict(good.drop(columns=["area", "town"]))
    assert str(e.value) == "input: columns `area`, `town` are missing"
    with pytest.raises(
        InputError, match="column `rooms` holds 'many' in row 1, but must hold numbers"
    ):
        bundle.predict(good.astype(object).assign(rooms="many"))


@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_bundle_that_predicts_otherwise_is_not_written(
    bundles: Any, trainer: Any, tmp_path: Path
) -> None:
    parts = dict(bundles[trainer, "Ray's"][3])
    parts["expected"] = np.nextafter(parts["expected"], 1)
    with pytest.raises(BundleError, match="predictions differ from the predictions in training"):
        write_parts(tmp_path / "bundle", **parts)

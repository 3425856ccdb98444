"""Parts of a bundle without a sweep: a user's modules on disk, a small table, and the model's
predictions for it.
"""

from __future__ import annotations

import importlib
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from sweeps.bundle.model_code import ModelCode
from sweeps.bundle.write import SINGLE, TrainedModel, write_bundle
from sweeps.data.prepared_store import DatasetInfo
from sweeps.data.preprocessing.fit import fit_chain
from sweeps.space import Step

MODEL = """
    import json
    from pathlib import Path
    import numpy as np
    from {helper} import squash

    def load(folder):
        return Model(json.loads(Path(folder, "weights.json").read_text()))

    def load_codes(folder):
        model = load(folder)
        model.predict = lambda features: (Model.predict(model, features) > 0.5).astype(int)
        return model

    def load_nothing(folder):
        return 3

    class Model:
        def __init__(self, weights):
            self.weights = weights

        def predict(self, features):
            assert list(features.columns) == list(self.weights), list(features.columns)
            return squash(features.to_numpy("float64") @ np.array(list(self.weights.values())))
"""
HELPER = """
    import numpy as np

    def squash(x):
        return 1 / (1 + np.exp(-x))
"""
PREPROCESSOR = """
    class Fitted:
        '''A user's preprocessor: codes for a text column, the mean for gaps.'''

        def fit(self, df):
            self.cities, self.mean = {"Lyon": 0, "Nice": 1, "Paris": 2}, 12.5
            return self

        def transform(self, df):
            assert str(df["rooms"].dtype) in ("int64", "float64"), df["rooms"].dtype
            out = df[["rooms", "area"]].astype("float64").fillna(self.mean)
            return out.assign(city=df["city"].map(self.cities).fillna(-1).astype("float64"), \
garden=df["garden"].astype("float64"))
"""


def modules(folder: Path, monkeypatch: Any, tag: str) -> None:
    """Write the user's modules. Each test has other module names."""
    for name, text in {
        "model": MODEL.format(helper=f"helper_{tag}"),
        "helper": HELPER,
        "prep": PREPROCESSOR,
    }.items():
        (folder / f"{name}_{tag}.py").write_text(textwrap.dedent(text))
    monkeypatch.syspath_prepend(str(folder))


def raw() -> pd.DataFrame:
    """Return raw features of every kind.

    `area` has a missing value; `rooms` has integers without missing values.
    """
    return pd.DataFrame(
        {
            "rooms": [1, 2, 3, 4, 5, 6],
            "city": ["Paris", "Lyon", None, "Paris", "Nice", "Lyon"],
            "area": [10.5, np.nan, 30.0, 40.25, 1 / 3, 60.0],
            "garden": [True, False, True, True, False, False],
        }
    )


def ingredients(folder: Path, monkeypatch: Any, tag: str) -> dict[str, Any]:
    """Return arguments of `write_parts`, for a binary model."""
    modules(folder, monkeypatch, tag)
    checkpoint = folder / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / "weights.json").write_text(
        '{"rooms": 0.25, "city": 0.5, "area": -0.02, "garden": -0.125}'
    )
    steps = (Step(f"prep_{tag}:Fitted", "all", {}),)
    fitted = fit_chain(steps, pa.Table.from_pandas(raw()), None)
    model = importlib.import_module(f"model_{tag}").load(str(checkpoint))
    return {
        "checkpoint": checkpoint,
        "fitted": fitted,
        "load": f"model_{tag}:load",
        "roots": (folder,),
        "label": "sold",
        "task": "binary",
        "classes": ("no", "yes"),
        "raw": raw(),
        "expected": model.predict(fitted.transform(raw())),
        "training": {
            "sweep": "test",
            "params": {"eta": 0.1},
            "value": np.float64(0.25),
            "path": Path("x"),
        },
    }


def write_parts(target: Path, **parts: Any) -> Path:
    """Write the bundle of a single model from its parts, which are all in one dict."""
    rows = pd.DataFrame() if parts["raw"] is None else parts["raw"]
    info = DatasetInfo(
        label=parts["label"],
        task=parts["task"],
        classes=parts["classes"],
        features=tuple(rows.columns),
        fingerprint="",
        rows={},
        check=rows,
    )
    code = ModelCode(parts["load"], parts["roots"])
    return write_bundle(
        target,
        models={SINGLE: TrainedModel(parts["checkpoint"], parts["fitted"], code)},
        info=info,
        expected=parts["expected"],
        training=parts["training"],
    )

"""Bundles for tests of serving, made without a sweep and without an export."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from sweeps.bundle import schema
from sweeps.bundle.bundle_model import Bundle
from sweeps.bundle.manifest import Manifest
from sweeps.core.files.file_format import FORMAT
from sweeps.data.preprocessing.fit import fit_chain
from sweeps.space import Step


def raw(n: int = 60) -> pd.DataFrame:
    """Return raw rows with a column of every type."""
    rng = np.random.default_rng(2)
    return pd.DataFrame(
        {
            "rooms": rng.integers(1, 9, n),
            "city": rng.choice(["Lyon", "Nice", "Pau"], n),
            "area": rng.normal(40, 9, n),
            "garden": rng.random(n) > 0.5,
            "built": pd.date_range("1990-01-01", periods=n).astype("datetime64[us]"),
            "heating": pd.Categorical(rng.choice(["gas", "wood"], n)),
        }
    )


STEPS = (
    Step("sklearn.impute:SimpleImputer", ("rooms", "area"), {}),
    Step("sklearn.preprocessing:StandardScaler", ("rooms", "area"), {}),
    Step("sklearn.preprocessing:OrdinalEncoder", ("city", "heating"), {}),
)


class Model:
    """Model whose prediction is the sum of its inputs."""

    def predict(self, frame: pd.DataFrame) -> np.ndarray:
        numbers = frame.drop(columns="built", errors="ignore").to_numpy("float64", na_value=0.0)
        sums = np.nan_to_num(numbers).sum(axis=1)
        return np.asarray(1 / (1 + np.exp(-sums)))


def bundle(model: Any = None, names: Sequence[str] | None = None) -> Bundle:
    """Return a bundle in memory, with all columns or some of them."""
    rows = raw() if names is None else raw()[list(names)]
    manifest = Manifest(
        format=FORMAT,
        created="2026-01-01T00:00:00+00:00",
        load="tests.serving.served:Model",
        label="sold",
        task="binary",
        classes=["no", "yes"],
        columns=schema.infer_schema(rows),
        checked=False,
        training={"sweep": "houses", "trial": "0003"},
        python="3.11",
        requirements=[],
        pickled={},
    )
    steps = (
        STEPS
        if "heating" in rows
        else (*STEPS[:2], Step("sklearn.preprocessing:OneHotEncoder", ("city",), {}))
    )
    return Bundle(
        Path("bundle"),
        manifest,
        model or Model(),
        fit_chain(steps, pa.Table.from_pandas(rows), None),
    )

"""A loaded XGBoost model predicts few rows in another way than many rows.

Both ways give exactly the same results.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xgboost as xgb

from sweeps.trainers import xgboost as trainer
from sweeps.trainers._dmatrix import matrix


@pytest.mark.parametrize(
    "params",
    [
        {"objective": "binary:logistic"},
        {"objective": "binary:logitraw"},
        {"objective": "multi:softprob", "num_class": 3},
        {"objective": "reg:squarederror", "booster": "dart", "rate_drop": 0.3},
        {"objective": "reg:squarederror", "booster": "gblinear"},
        {"objective": "reg:squarederror", "num_parallel_tree": 3, "subsample": 0.5},
    ],
    ids=lambda p: f"{p['objective']} {p.get('booster', '')}",
)
def test_few_rows_and_many(params: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(rng.normal(size=(300, 4)), columns=["a", "b[0]", "c", "d"])
    frame.loc[::7, "c"] = np.nan
    frame["d"] = frame["d"].gt(0).astype("uint8")
    label = rng.integers(0, 3, 300) if "num_class" in params else rng.integers(0, 2, 300)
    xgb.train(params | {"nthread": 1}, matrix(frame.assign(y=label), "y"), 12).save_model(
        tmp_path / "model.ubj"
    )
    model = trainer.load(str(tmp_path))
    few = model.predict(frame)
    alone = np.concatenate([model.predict(frame.iloc[[i]]) for i in range(20)])
    monkeypatch.setattr(trainer, "FEW", -1)
    many = model.predict(frame)
    assert few.tobytes() == many.tobytes() and alone.tobytes() == many[:20].tobytes()

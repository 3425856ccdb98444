"""Train XGBoost with parts of the rows, and fit a model of its loss: `python -m benchmarks.search_quality.record_rows [TABLE ...]`.

Each of 600 random configurations of 10 dimensions is trained with four parts of the train rows. An ensemble of trees is fitted to the
validation losses, so a task is continuous, and as rough as such ensembles are. The models are stored in `rows.npz`.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.search_quality.axes import draw
from benchmarks.search_quality.rows import AXES, FILE, INSTANCES, STEPS, inputs, load

CONFIGS = 600
PARTS = ((1, 3, 9, 27), (2, 5, 15, 27))  # of 27; configurations have the first and the second in turn
SHARED = "shared/data"  # in ../shared beside the checkout


def data(name: str) -> tuple[np.ndarray, np.ndarray, str]:
    """Return up to 3,000 rows, their labels, and the objective of XGBoost."""
    import pandas as pd
    from sklearn import datasets

    shared = next((folder / SHARED for folder in Path(__file__).parents if (folder / SHARED).exists()), Path())
    if name == "digits":
        x, y = datasets.load_digits(return_X_y=True)
        return x, y, "multi:softprob"
    if name == "cancer":
        x, y = datasets.load_breast_cancer(return_X_y=True)
        return x, y, "binary:logistic"
    if name == "taxi":
        table = pd.read_parquet(shared / "nyc_yellow_parquet" / "yellow_tripdata_2020-01.parquet").sample(3000, random_state=0)
        y = (table["tip_amount"] > 0.2 * table["fare_amount"]).to_numpy(int)
        table = table.select_dtypes("number").drop(columns=["tip_amount", "total_amount"])
        return table.to_numpy(float), y, "binary:logistic"
    table = pd.read_csv(shared / "telco_churn" / "Telco-Customer-Churn.csv").sample(3000, random_state=0)
    y = (table.pop("Churn") == "Yes").to_numpy(int)
    table["TotalCharges"] = pd.to_numeric(table["TotalCharges"], errors="coerce")
    codes = table.drop(columns="customerID").apply(lambda c: c if c.dtype.kind in "if" else pd.Series(pd.factorize(c)[0], c.index))
    return codes.to_numpy(float), y, "binary:logistic"


def loss(x: np.ndarray, y: np.ndarray, objective: str, config: dict, part: int) -> float:
    """Return the logarithm of the validation loss of a configuration that is trained with a part of the train rows."""
    import xgboost as xgb

    valid = len(x) // 3
    rows = np.random.RandomState(0).permutation(len(x))
    train = rows[valid : valid + max(20, (len(x) - valid) * part // STEPS)]
    params = {k: v for k, v in config.items() if k != "rounds"}
    params |= {"objective": objective, "nthread": 1, "verbosity": 0} | ({"num_class": 10} if "multi" in objective else {})
    booster = xgb.train(params, xgb.DMatrix(x[train], y[train]), int(config["rounds"]))
    found = booster.predict(xgb.DMatrix(x[rows[:valid]]))
    right = found[np.arange(valid), y[rows[:valid]]] if found.ndim == 2 else np.where(y[rows[:valid]] == 1, found, 1 - found)
    return float(np.log(-np.log(np.clip(right, 1e-6, 1)).mean()))


def record(name: str) -> dict[str, np.ndarray]:
    """Return the model of one task, its optimum, and the last value of its median random configuration."""
    import xgboost as xgb

    x, y, objective = data(name)
    rng = np.random.RandomState(0)
    configs = [draw(AXES, rng) for _ in range(CONFIGS)]
    pairs = [(config, part) for i, config in enumerate(configs) for part in PARTS[i % 2]]
    losses = np.array([loss(x, y, objective, config, part) for config, part in pairs])
    seen = np.concatenate([inputs(config, [part]) for config, part in pairs])
    held = np.repeat(np.arange(CONFIGS) % 10 == 9, len(PARTS[0]))
    params = {"max_depth": 6, "eta": 0.1, "subsample": 0.7, "colsample_bynode": 0.7, "min_child_weight": 3, "nthread": 1, "seed": 0}
    tried = xgb.train(params, xgb.DMatrix(seen[~held], losses[~held]), 250)
    away = tried.predict(xgb.DMatrix(seen[held])) - losses[held]
    print(name, "R² on other configurations", round(1 - away.var() / losses[held].var(), 3), flush=True)
    model = xgb.train(params, xgb.DMatrix(seen, losses), 250)
    last = model.predict(xgb.DMatrix(np.concatenate([inputs(draw(AXES, rng), [STEPS]) for _ in range(2001)])))
    return {
        f"{name}_model": np.frombuffer(model.save_raw("ubj"), np.uint8),
        f"{name}_ends": np.array([_optimum(model, rng), np.median(last)]),
    }


def _optimum(model: object, rng: np.random.RandomState) -> float:
    """Return the smallest value that a random search from the best of 20,000 random configurations finds."""
    import xgboost as xgb

    def predict(unit: np.ndarray) -> np.ndarray:
        every = [xgb.DMatrix(np.column_stack([unit, np.full(len(unit), part)])) for part in (9, 15, 21, 24, 27)]
        return np.min([model.predict(m) for m in every], axis=0)  # type: ignore[attr-defined]

    best = rng.rand(20_000, len(AXES))
    score = predict(best)
    best, score = best[np.argsort(score)[:300]], np.sort(score)[:300]
    for width in np.geomspace(0.5, 0.02, 150):
        tried = np.clip(best + width * rng.randn(*best.shape) * (rng.rand(*best.shape) < 0.3), 0, 1)
        new = predict(tried)
        best, score = np.where((new < score)[:, None], tried, best), np.minimum(new, score)
    return float(score.min())


def main(names: list[str]) -> None:
    for name in names or INSTANCES:
        began = time.time()
        kept = dict(np.load(FILE)) if FILE.exists() else {}
        np.savez_compressed(FILE, **(kept | record(name)))
        load.cache_clear()
        print(name, f"{time.time() - began:.0f} s", dict(np.load(FILE))[f"{name}_ends"], flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

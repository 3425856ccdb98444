"""Ranking objectives get the queries of `data.group`, and `ndcg@k` is measured query by query."""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sweeps.core.label_columns import GROUP_COLUMN
from sweeps.testing.fake_session import FakeShard, run_loop
from sweeps.trial import Current

OBJECTIVES = {
    "xgboost": {"objective": "rank:ndcg", "num_boost_round": 4, "max_depth": 3},
    "lightgbm": {"objective": "lambdarank", "num_boost_round": 4, "min_data_in_leaf": 2},
    "catboost": {"loss_function": "YetiRank", "iterations": 4, "depth": 3},
}


def queries(seed: int, count: int) -> pd.DataFrame:
    """Return rows whose level depends on the query, so that an order over all rows is another one
    than in each query.
    """
    rng = np.random.default_rng(seed)
    group = np.repeat(rng.permutation(count), rng.integers(2, 9, count))
    level, a, b = rng.normal(0, 3, count)[group], *rng.normal(size=(2, len(group)))
    grade = np.clip(np.round(2 + a + b), 0, 4)
    return pd.DataFrame({"a": a + level, "b": b, "grade": grade, GROUP_COLUMN: group})


def ndcg(frame: pd.DataFrame, scores: np.ndarray, k: int, ties: list[str]) -> float:
    """Compute the mean over the queries by hand: gain 2^grade - 1, discount log2(place + 1), 1 for
    a query of zeros.

    `ties` names the column that orders rows with equal scores. CatBoost takes the worst order.
    """

    def gain(grades: np.ndarray) -> float:
        return float(sum((2.0**g - 1) / math.log2(i + 2) for i, g in enumerate(grades[:k])))

    gains = []
    for _, rows in frame.assign(score=scores).groupby(GROUP_COLUMN):
        grades = rows.sort_values(
            ["score", *ties], ascending=[False, *(True for _ in ties)], kind="stable"
        )
        grades = grades.grade.to_numpy()
        ideal = gain(np.sort(grades)[::-1])
        gains.append(gain(grades) / ideal if ideal else 1.0)
    return float(np.mean(gains))


@pytest.mark.parametrize("name", list(OBJECTIVES))
def test_ndcg_of_a_ranking_model_is_the_mean_over_the_queries(name: Any, tmp_path: Path) -> None:
    pytest.importorskip(name)
    module = importlib.import_module(f"sweeps.trainers.{name}")
    train, valid = queries(1, 40), queries(2, 30)
    metric = "valid-ndcg@3"
    current = Current(
        "0000", 7, "grade", "regression", None, metric, "maximize", None, 1, None, asked=(metric,)
    )
    shards = {"train": FakeShard(train), "valid": FakeShard(valid)}
    run = run_loop(module.train_func, OBJECTIVES[name], current, shards, tmp_path)
    best = max(report[metric] for report in run.metrics)
    model = module.load(str(run.checkpoints[max(run.checkpoints)]))
    scores = model.predict(valid[["a", "b"]])
    ties = ["grade"] if name == "catboost" else []
    assert best == pytest.approx(ndcg(valid, scores, 3, ties), abs=1e-6)
    everything = ndcg(valid.assign(**{GROUP_COLUMN: 0}), scores, 3, ties)
    assert abs(best - everything) > 1e-4, "the rows are not one query"

"""The number and the content of the steps of the trainer sklearn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator

from sweeps.trainers._estimator import EstimatorTraining
from tests.trainers.test_sklearn_trainer import FOREST, HERE, run

LINEAR = "sklearn.linear_model"


@pytest.mark.parametrize(
    ("estimator", "params", "options", "steps"),
    [
        (FOREST, {"n_estimators": 12}, {}, 10),
        (FOREST, {"n_estimators": 12}, {"sweep_max_t": 3, "max_t": 3}, 3),
        (FOREST, {"n_estimators": 12}, {"sweep_max_t": 4, "max_t": 3}, 3),
        (FOREST, {"n_estimators": 2}, {"sweep_max_t": 3}, 2),
        (FOREST, {"n_estimators": 12}, {"sweep_max_t": 3, "steps": 4}, 4),
        (f"{LINEAR}:SGDClassifier", {"loss": "log_loss"}, {}, 10),
        (f"{LINEAR}:SGDClassifier", {"loss": "log_loss", "max_iter": 4}, {"sweep_max_t": 9}, 4),
        (f"{HERE}:scaled_sgd", {"clf__max_iter": 4}, {}, 4),
        (f"{LINEAR}:SGDClassifier", {"loss": "log_loss", "max_iter": 4}, {"steps": 3}, 3),
        (f"{LINEAR}:SGDClassifier", {"loss": "log_loss", "class_weight": "balanced"}, {}, 10),
        ("sklearn.neural_network:MLPClassifier", {"early_stopping": True, "max_iter": 20}, {}, 10),
        ("sklearn.naive_bayes:GaussianNB", {}, {}, 10),
        (f"{LINEAR}:LogisticRegression", {"solver": "liblinear"}, {"sweep_max_t": 3}, 1),
        ("sklearn.neighbors:KNeighborsClassifier", {}, {"sweep_max_t": 3}, 1),
    ],
)
def test_the_number_of_steps(
    tmp_path: Path, estimator: Any, params: Any, options: Any, steps: int
) -> None:
    assert len(run(tmp_path, estimator, params, **options).metrics) == steps


class Counter(BaseEstimator):  # type: ignore[misc]
    """An estimator that records the rows of each call of `partial_fit`."""

    def __init__(self) -> None:
        self.seen: list[list[int]] = []

    def partial_fit(self, x: pd.DataFrame, y: np.ndarray, classes: Any) -> None:
        assert list(classes) == [0, 1] and list(x["row"]) == list(y)
        self.seen.append(list(x["row"]))


def rows_seen(estimator: Counter, batch_size: int | None) -> list[list[int]]:
    """Train two steps of two on ten rows, and return the rows of each call."""
    training = EstimatorTraining(estimator, {}, 2, None, batch_size, 7)
    for step in (1, 2):
        training.run(step, pd.DataFrame({"row": range(10)}), np.arange(10), 2)
    return estimator.seen


def flat(batches: list[list[int]]) -> list[int]:
    return [row for rows in batches for row in rows]


def test_a_step_is_a_part_of_the_rows_without_max_iter() -> None:
    whole = rows_seen(Counter(), None)
    assert [len(rows) for rows in whole] == [5, 5] and sorted(flat(whole)) == list(range(10))
    batches = rows_seen(Counter(), 3)
    assert [len(rows) for rows in batches] == [3, 2, 3, 2] and flat(batches) == flat(whole)

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn import metrics as sk

from sweeps.testing.fake_session import run_loop, small_table
from sweeps.trainers import fill_parameters
from sweeps.trainers._metrics import measure
from sweeps.trainers.torch_tabular import load, train_func


def parameters(config: Any, max_t: Any) -> Any:
    return fill_parameters("torch_tabular", config, max_t)


def test_params_are_filled_in() -> None:
    filled = parameters({"depth": 3.0, "lr": 1}, 7)
    assert (filled["depth"], filled["lr"], filled["width"], filled["epochs"]) == (
        3,
        1,
        64,
        7,
    ) and isinstance(filled["depth"], int)
    assert parameters({"epochs": 4}, 7)["epochs"] == 4
    assert parameters({}, None)["epochs"] == 20


@pytest.mark.parametrize(("optimizer", "depth"), [("adam", 0), ("adamw", 3), ("sgd", 3)])
def test_every_optimizer_and_depth_learns(optimizer: str, depth: int, tmp_path: Path) -> None:
    current, shards = small_table("regression")
    params = {
        "optimizer": optimizer,
        "depth": depth,
        "epochs": 15,
        "lr": 0.01,
        "weight_decay": 1e-4,
        "batch_size": 159,
    }  # a last batch of one row
    values = [
        m["valid-rmse"] for m in run_loop(train_func, params, current(), shards, tmp_path).metrics
    ]
    assert min(values) < 0.9 * values[0]


def test_predict_takes_any_column_order_and_missing_values(tmp_path: Path) -> None:
    current, shards = small_table("multiclass", missing=True)
    run = run_loop(train_func, {"epochs": 2}, current(), shards, tmp_path)
    model = load(str(run.checkpoints[2]))
    check = current().check
    assert check is not None and check.isna().any().any()
    turned = check[check.columns[::-1]].assign(extra=1.0)
    np.testing.assert_array_equal(model.predict(check), model.predict(turned))
    np.testing.assert_allclose(model.predict(check).sum(axis=1), 1.0)
    assert model.predict(check.iloc[:0]).shape == (0, 3)


@pytest.mark.parametrize("threads", [2, 8])
def test_predictions_do_not_depend_on_threads(threads: int, tmp_path: Path) -> None:
    """A bundle is checked with as many threads as its machine has, and with wide layers the
    rounding would depend on this number.
    """
    current, shards = small_table("binary")
    run = run_loop(
        train_func, {"epochs": 2, "width": 1024, "depth": 2}, current(), shards, tmp_path
    )
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        np.testing.assert_array_equal(
            load(str(run.checkpoints[2])).predict(current().check),
            np.load(run.checkpoints[2] / "check.npy"),
        )
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


def test_metrics_are_scikit_learns() -> None:
    rng = np.random.default_rng(0)
    y, p = rng.integers(0, 2, 50), rng.random(50)
    binary = measure("binary", "valid", y, p)
    assert binary["valid-logloss"] == pytest.approx(sk.log_loss(y, p))
    assert (
        binary["valid-accuracy"]
        == pytest.approx(sk.accuracy_score(y, p > 0.5))
        == 1 - binary["valid-error"]
    )
    y, p = rng.integers(0, 3, 50), rng.dirichlet(np.ones(3), 50)
    multi = measure("multiclass", "valid", y, p)
    assert multi["valid-mlogloss"] == pytest.approx(sk.log_loss(y, p))
    assert multi["valid-accuracy"] == pytest.approx(sk.accuracy_score(y, p.argmax(axis=1)))
    numbers, p = rng.normal(size=50), rng.normal(size=50)
    assert measure("regression", "valid", numbers, p) == {
        "valid-rmse": pytest.approx(sk.root_mean_squared_error(numbers, p)),
        "valid-mae": pytest.approx(sk.mean_absolute_error(numbers, p)),
    }
    assert np.isnan(measure("binary", "valid", np.ones(3), np.ones(3))["valid-auc"])
    assert np.isfinite(
        measure("binary", "valid", np.array([0, 1]), np.array([1.0, 0.0]))["valid-logloss"]
    )

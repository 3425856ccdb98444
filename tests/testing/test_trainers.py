"""The built-in trainers pass the conformance suite for trainers."""

from __future__ import annotations

from typing import Any, ClassVar

from sweeps.testing.pytest_trainers import TrainerTests

XGBOOST = {"num_boost_round": 6, "max_depth": 3, "subsample": 0.8}
TORCH = {"epochs": 5, "lr": 0.05, "width": 16, "batch_size": 32, "dropout": 0.1}
# XGBoost's ranking and survival metrics need labels of another kind.
OTHER_LABELS = (
    "pre",
    "map",
    "ndcg",
    "cox",
    "aft",
    "interval",
    "quantile",
    "gamma",
    "poisson",
    "rmsle",
)


class XGBoostTests(TrainerTests):
    module = "sweeps.trainers.xgboost"
    params: ClassVar[dict[str, Any]] = XGBOOST

    def promised(self) -> list[str]:
        return [
            name
            for name in super().promised()
            if not name.removeprefix("valid-").startswith(OTHER_LABELS)
        ]


class TestXGBoostBinary(XGBoostTests):
    task = "binary"


class TestXGBoostMulticlass(XGBoostTests):
    task = "multiclass"


class TestXGBoostRegression(XGBoostTests):
    task = "regression"


class TorchTabularTests(TrainerTests):
    module = "sweeps.trainers.torch_tabular"
    params: ClassVar[dict[str, Any]] = TORCH


class TestTorchTabularBinary(TorchTabularTests):
    task = "binary"


class TestTorchTabularMulticlass(TorchTabularTests):
    task = "multiclass"


class TestTorchTabularRegression(TorchTabularTests):
    task = "regression"

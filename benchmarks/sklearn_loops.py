"""Bare loops of scikit-learn, which run beside the trainer `sklearn` in one trial."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import ray.train
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import SGDClassifier

from benchmarks.loops import in_turn
from sweeps import trial
from sweeps.trainers import sklearn
from sweeps.trainers._metrics import measure

STEPS = 10
TREES = 100
Table = tuple[Any, np.ndarray]


def bare_forest(seed: int, train: Table, valid: Table) -> dict[str, float]:
    """Grow a forest by ten trees in each step; see `_measured`."""
    forest = RandomForestClassifier(0, max_depth=10, n_jobs=2, random_state=seed, warm_start=True)

    def step() -> None:
        forest.set_params(n_estimators=forest.n_estimators + TREES // STEPS).fit(*train)

    def snapshot() -> Any:
        kept = copy.copy(forest)
        kept.estimators_ = list(forest.estimators_)
        return kept

    return _measured(forest, step, snapshot, valid)


def bare_sgd(seed: int, train: Table, valid: Table) -> dict[str, float]:
    """Make a pass over the rows in each step; see `_measured`."""
    model = SGDClassifier(loss="log_loss", alpha=0.01, random_state=np.random.RandomState(seed))
    return _measured(
        model,
        lambda: model.partial_fit(*train, classes=[0, 1]),
        lambda: copy.deepcopy(model),
        valid,
    )


def _measured(
    model: Any, step: Callable[[], Any], snapshot: Callable[[], Any], valid: Table
) -> dict[str, float]:
    """Train ten steps, compute the logloss on valid after each step, and return the metrics of the
    model of the best step.
    """
    best, kept = np.inf, None
    for _ in range(STEPS):
        step()
        loss = _scores(model, valid, ["valid-logloss"])["valid-logloss"]
        if loss < best:
            best, kept = loss, snapshot()
    if hasattr(
        kept, "n_jobs"
    ):  # The last bits of the sum over the trees depend on the order in which several threads end.
        kept.n_jobs = 1
    return _scores(kept, valid, None)


def _scores(model: Any, valid: Table, names: list[str] | None) -> dict[str, float]:
    return measure("binary", "valid", valid[1], model.predict_proba(valid[0])[:, 1], names)


CASES = {
    "forest": (
        bare_forest,
        "sklearn.ensemble:RandomForestClassifier",
        {"n_estimators": TREES, "max_depth": 10},
    ),
    "sgd": (bare_sgd, "sklearn.linear_model:SGDClassifier", {"loss": "log_loss", "alpha": 0.01}),
}


def paired_sklearn(config: dict[str, Any]) -> None:
    """Run the trainer `sklearn` and the bare loop of `params.case` in one trial; see `in_turn`."""
    bare, estimator, params = CASES[config["case"]]
    options = {"estimator": estimator, "steps": STEPS, "batch_size": None, "report": "asked"}
    current = dataclasses.replace(trial.current(), options=options)
    trial.set_current(current)

    def table(name: str) -> Table:
        frame = ray.train.get_dataset_shard(name).materialize().to_pandas()
        return frame.drop(columns=current.label), frame[current.label].to_numpy(np.int64)

    def run_bare() -> dict[str, float]:
        train, valid = (
            current.cached(f"bare.{name}", lambda name=name: table(name))
            for name in ("train", "valid")
        )
        return bare(current.seed, train, valid)

    in_turn(config["times"], lambda: sklearn.train_func(params), run_bare)

"""Compare single models with averages, and models of the search with models of all rows.

    python -m benchmarks.tables.averages FOLDER --cpu-seconds 50

FOLDER has the files of `catalog`. The command trains random configurations of XGBoost, LightGBM and
CatBoost with one thread, on tables that are not held back. Tables with few rows have five folds,
and the others a holdout. Each kind of final model is compared with the best configuration of
XGBoost, trained again on all rows.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import catboost
import lightgbm as lgb
import numpy as np
import pandas as pd
import xgboost as xgb

from benchmarks.tables.catalog import Table, tables
from benchmarks.tables.split import held_out
from benchmarks.tables.tools import native_columns
from sweeps.bundle.averaging import average
from sweeps.bundle.selection import Selection, select
from sweeps.core import metrics

TABLES = (
    "german_credit,stroke,abalone,california_housing,made_many_levels,made_unequal_classes,"
    "pima,ionosphere,made_linear,made_small_regression,made_missing,made_outliers"
)
METRICS = {"binary": "logloss", "multiclass": "mlogloss", "regression": "rmse"}
FOLDS_BELOW = 5_000
PATIENCE = 50
MOST_CONFIGURATIONS = 40
MOST_REFITS = 8
MEMBERS = 8
# How many of the best models an average is chosen from; see `checkpoints.predictions`.
KEPT = (5, 10, 20, 1_000)


@dataclass
class Data:
    """A table: its rows, and the folds on whose rows models are compared."""

    table: Table
    rows: pd.DataFrame
    labels: np.ndarray
    test: pd.DataFrame
    test_labels: np.ndarray
    classes: int
    folds: list[np.ndarray]

    def score(self, labels: np.ndarray, predictions: np.ndarray) -> float:
        """Return the log loss or the RMSE of predictions."""
        value = metrics.score(METRICS[self.table.task], self.table.task, labels, predictions)
        assert value is not None
        return value

    def score_valid(self, predictions: np.ndarray) -> float:
        """Return the mean score over the folds, given the predictions of all folds in order."""
        ends = np.cumsum([len(fold) for fold in self.folds])[:-1]
        parts = np.split(predictions, ends)
        return float(
            np.mean([self.score(self.labels[f], p) for f, p in zip(self.folds, parts, strict=True)])
        )

    def score_test(self, predictions: Sequence[np.ndarray], weights: Sequence[int]) -> float:
        """Return the score of an average on the rows that are held out."""
        return self.score(self.test_labels, average(predictions, list(weights)))


@dataclass
class Configuration:
    """One configuration, its score on valid, and what its models predict.

    Attributes:
        kind: Name of the library.
        seconds: CPU seconds of the training on all folds.
        value: Mean score over the folds.
        valid: Predictions for the rows of all folds.
        test: Mean prediction of the models of all folds for the rows that are held out.
        refitted: Predictions of the model that was trained on all rows; None if it was not.
    """

    kind: str
    params: dict[str, Any]
    rounds: int
    seconds: float
    value: float
    valid: np.ndarray
    test: np.ndarray
    refitted: np.ndarray | None = None


def read(table: Table, folder: Path) -> Data:
    """Split a table, and prepare its rows."""
    rows, test = table.split(folder, 0)
    labels, classes = native_columns.codes_of(rows.pop(table.label), table.task)
    truth = test.pop(table.label)
    if classes:
        truth = truth.map({name: code for code, name in enumerate(classes)})
    columns = native_columns.columns_of(rows)
    if len(rows) < FOLDS_BELOW:
        order = np.random.default_rng(0).permutation(len(rows))
        folds = [np.sort(order[start::5]) for start in range(5)]
    else:
        folds = [np.flatnonzero(held_out(labels if classes else [0] * len(rows), 0))]
    return Data(
        table,
        native_columns.prepared(rows, columns).reset_index(drop=True),
        np.asarray(labels, dtype=float),
        native_columns.prepared(test, columns).reset_index(drop=True),
        np.asarray(truth, dtype=float),
        len(classes),
        folds,
    )


# ---- the libraries: each function trains a model, and returns its rounds and its predictions

Trained = tuple[int, Callable[[pd.DataFrame], np.ndarray]]


def train_xgboost(
    data: Data, params: dict[str, Any], train: np.ndarray, valid: np.ndarray | None, rounds: int
) -> Trained:
    """Train XGBoost. With `valid`, training stops early."""
    options = native_columns.objective_of(data.table.task, data.classes) | params
    options |= {"nthread": 1, "seed": 0}

    def matrix(rows: pd.DataFrame, labels: np.ndarray | None = None) -> xgb.DMatrix:
        return xgb.DMatrix(rows, labels, enable_categorical=True, nthread=1)

    watched: dict[str, Any] = {}
    if valid is not None:
        stop = xgb.callback.EarlyStopping(rounds=PATIENCE, save_best=True)
        evals = [(matrix(data.rows.iloc[valid], data.labels[valid]), "valid")]
        watched = {"evals": evals, "callbacks": [stop], "verbose_eval": False}
    fitted = matrix(data.rows.iloc[train], data.labels[train])
    model = xgb.train(options, fitted, rounds, **watched)
    return model.num_boosted_rounds(), lambda rows: model.predict(matrix(rows))


def train_lightgbm(
    data: Data, params: dict[str, Any], train: np.ndarray, valid: np.ndarray | None, rounds: int
) -> Trained:
    """Train LightGBM. With `valid`, training stops early."""
    options = {"objective": data.table.task, "verbosity": -1, "num_threads": 1, "seed": 0} | params
    if data.classes > 2:
        options["num_class"] = data.classes
    fitted = lgb.Dataset(data.rows.iloc[train], data.labels[train])
    watched: dict[str, Any] = {}
    if valid is not None:
        held = lgb.Dataset(data.rows.iloc[valid], data.labels[valid], reference=fitted)
        stop = lgb.early_stopping(PATIENCE, verbose=False)
        watched = {"valid_sets": [held], "callbacks": [stop]}
    model = lgb.train(options, fitted, rounds, **watched)
    best = model.best_iteration if valid is not None else rounds
    return best, lambda rows: np.asarray(model.predict(rows, num_threads=1))


def train_catboost(
    data: Data, params: dict[str, Any], train: np.ndarray, valid: np.ndarray | None, rounds: int
) -> Trained:
    """Train CatBoost. With `valid`, training stops early."""
    is_regression = data.table.task == "regression"
    kind = catboost.CatBoostRegressor if is_regression else catboost.CatBoostClassifier
    texts = [name for name in data.rows if data.rows[name].dtype == "category"]

    def pool(rows: pd.DataFrame, labels: np.ndarray | None = None) -> catboost.Pool:
        known = {name: rows[name].astype(object).fillna("missing").astype(str) for name in texts}
        return catboost.Pool(rows.assign(**known), labels, cat_features=texts)

    options = {"thread_count": 1, "verbose": False, "allow_writing_files": False, "random_seed": 0}
    if not is_regression:
        options["loss_function"] = "MultiClass" if data.classes > 2 else "Logloss"
    watched: dict[str, Any] = {}
    if valid is not None:
        held = pool(data.rows.iloc[valid], data.labels[valid])
        watched = {"eval_set": held, "early_stopping_rounds": PATIENCE}
    model = kind(iterations=min(rounds, 2_000), **options, **params)
    model.fit(pool(data.rows.iloc[train], data.labels[train]), **watched)

    def predict(rows: pd.DataFrame) -> np.ndarray:
        if is_regression:
            return np.asarray(model.predict(pool(rows)))
        probabilities = np.asarray(model.predict_proba(pool(rows)))
        return probabilities if data.classes > 2 else probabilities[:, 1]

    return model.tree_count_, predict


TRAIN = {"xgboost": train_xgboost, "lightgbm": train_lightgbm, "catboost": train_catboost}
DEFAULTS = {
    "xgboost": {"eta": 0.1, "max_depth": 6},
    "lightgbm": {"learning_rate": 0.05},
    "catboost": {"learning_rate": 0.08},
}


def drawn(kind: str, rng: np.random.Generator) -> dict[str, Any]:
    """Draw the parameters of a configuration from the ranges that `sweeps init` writes."""

    def log(low: float, high: float) -> float:
        return float(np.exp(rng.uniform(np.log(low), np.log(high))))

    if kind == "xgboost":
        return {
            "eta": log(0.01, 0.3),
            "max_depth": int(rng.integers(2, 11)),
            "min_child_weight": log(0.5, 50),
            "subsample": rng.uniform(0.5, 1),
            "colsample_bytree": rng.uniform(0.4, 1),
            "lambda": log(0.01, 30),
        }
    if kind == "lightgbm":
        return {
            "learning_rate": log(0.01, 0.3),
            "num_leaves": int(log(4, 256)),
            "min_child_samples": int(log(3, 100)),
            "subsample": rng.uniform(0.5, 1),
            "subsample_freq": 1,
            "colsample_bytree": rng.uniform(0.4, 1),
            "reg_lambda": log(0.001, 30),
        }
    return {
        "learning_rate": log(0.02, 0.3),
        "depth": int(rng.integers(3, 10)),
        "l2_leaf_reg": log(0.3, 30),
        "random_strength": log(0.1, 10),
    }


# ---- search and compare


def searched(data: Data, kind: str, cpu_seconds: float) -> list[Configuration]:
    """Train configurations of one library for some CPU seconds, the default first."""
    rng = np.random.default_rng(0)
    everything = np.arange(len(data.rows))
    tried: list[Configuration] = []
    spent = 0.0
    while spent < cpu_seconds and len(tried) < MOST_CONFIGURATIONS:
        params = drawn(kind, rng) if tried else DEFAULTS[kind]
        began = time.process_time()
        trained = []
        for valid in data.folds:
            train = np.setdiff1d(everything, valid)
            rounds, predict = TRAIN[kind](data, params, train, valid, 4_000)
            trained.append((rounds, predict(data.rows.iloc[valid]), predict(data.test)))
        seconds = time.process_time() - began
        spent += seconds
        valid_predictions = np.concatenate([part for _, part, _ in trained])
        tried.append(
            Configuration(
                kind,
                params,
                max(1, round(np.mean([rounds for rounds, _, _ in trained]))),
                seconds,
                data.score_valid(valid_predictions),
                valid_predictions,
                np.mean([part for _, _, part in trained], axis=0),
            )
        )
    for best in sorted(tried, key=lambda each: each.value)[:MOST_REFITS]:
        _, predict = TRAIN[kind](data, best.params, everything, None, best.rounds)
        best.refitted = predict(data.test)
    return tried


def within(tried: Sequence[Configuration], cpu_seconds: float) -> Iterator[Configuration]:
    """Yield the configurations that fit into some CPU seconds, at least one."""
    spent = 0.0
    for number, each in enumerate(tried):
        spent += each.seconds
        if number and spent > cpu_seconds:
            return
        yield each


@dataclass
class Comparison:
    """The scores of final models of one table, as a change in percent; below 0 is better."""

    table: str
    folds: int
    changes: dict[str, float] = field(default_factory=dict)


def compare(data: Data, cpu_seconds: float) -> Comparison:
    """Search with each library, and compare the final models."""
    libraries = {kind: searched(data, kind, cpu_seconds) for kind in TRAIN}
    alone = sorted(libraries["xgboost"], key=lambda each: each.value)
    share = cpu_seconds / len(libraries)
    all_three = [each for tried in libraries.values() for each in within(tried, share)]
    together = sorted(all_three, key=lambda each: each.value)
    assert alone[0].refitted is not None
    base = data.score_test([alone[0].refitted], [1])
    result = Comparison(data.table.name, len(data.folds))

    def note(name: str, members: Sequence[Configuration], weights: Sequence[int]) -> None:
        first = data.score_test([member.test for member in members], weights)
        refitted = [m.test if m.refitted is None else m.refitted for m in members]
        second = data.score_test(refitted, weights)
        result.changes[f"{name}, of the search"] = 100 * (first / base - 1)
        result.changes[f"{name}, all rows"] = 100 * (second / base - 1)

    note("xgboost", alone[:1], [1])
    note("three libraries", together[:1], [1])
    note("average of xgboost", *chosen(data, alone[:20]))
    for kept in KEPT:
        note(f"average of three, {kept} kept", *chosen(data, together[:kept]))
    return result


def chosen(
    data: Data, candidates: Sequence[Configuration]
) -> tuple[list[Configuration], list[int]]:
    """Return the members of an average, and their weights."""
    predictions = [each.valid for each in candidates]
    selection: Selection | None = select(predictions, data.score_valid, True, MEMBERS)
    assert selection is not None
    return [candidates[i] for i in selection.weights], list(selection.weights.values())


def main() -> None:
    """Print the changes of each table, and their means over tables with folds and without."""
    cli = argparse.ArgumentParser(prog="python -m benchmarks.tables.averages")
    cli.add_argument("data", type=Path)
    cli.add_argument("--tables", default=TABLES)
    cli.add_argument("--cpu-seconds", type=float, default=50.0)
    given = cli.parse_args()
    known = tables()
    results = []
    for name in given.tables.split(","):
        if known[name].is_held:
            cli.error(f"`{name}` is held back until the report")
        results.append(compare(read(known[name], given.data), given.cpu_seconds))
        shown = {kind: round(change, 2) for kind, change in results[-1].changes.items()}
        print(name, shown, flush=True)
    frame = pd.DataFrame([{"folds": r.folds, **r.changes} for r in results])
    print(frame.groupby("folds").mean().round(2).T)


if __name__ == "__main__":
    main()

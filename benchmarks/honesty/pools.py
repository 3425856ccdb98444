"""Tables of configurations × rows: what real models predict for rows on which none was trained.

They are made once, and simulated sweeps draw their rows of valid and their new rows from them.
"""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import lightgbm as lgb
import numpy as np
import pandas as pd
import xgboost as xgb

from benchmarks.tables import averages, generated
from benchmarks.tables.catalog import tables
from benchmarks.tables.generated import LABEL
from benchmarks.tables.tools import native_columns

# Methods are chosen on the first tables, and judged on the others.
DEVELOPMENT = ("california_housing", "made_noise", "made_rare")
JUDGEMENT = (
    "made_many_levels",
    "made_outliers",
    "made_missing",
    "made_linear",
    "made_drift_regression",
)
GENERATED_ROWS = 16_000

TRAIN_ROWS = 1_000
NEW_ROWS = 12_000
ROUNDS = (12, 25, 50, 100, 200)
SHARES = (1 / 9, 1 / 3)
CONFIGURATIONS = 300

FOLDS = 5
FOLD_ROWS = 400
FOLD_SAMPLES = 10
FOLD_CONFIGURATIONS = 60
FOLD_NEW_ROWS = 4_000
FOLD_ROUNDS = 100


@dataclass(frozen=True)
class Rows:
    """The rows of a table."""

    task: str
    features: pd.DataFrame
    labels: np.ndarray


def read(name: str, folder: Path) -> Rows:
    """Read a table, or make it with more rows than the benchmark of tables has."""
    table = tables()[name]
    if name in generated.RECIPES:
        recipe = replace(generated.RECIPES[name], rows=GENERATED_ROWS)
        rows = generated.table_of(recipe, zlib.crc32(name.encode()))
        label = LABEL
    else:
        rows, label = table.load(folder), table.label
    rows = rows.sample(frac=1.0, random_state=0).reset_index(drop=True)
    labels, _ = native_columns.codes_of(rows.pop(label), table.task)
    columns = native_columns.columns_of(rows)
    return Rows(table.task, native_columns.prepared(rows, columns), np.asarray(labels, float))


def configurations(count: int) -> list[tuple[str, dict[str, Any]]]:
    """Draw configurations of XGBoost and LightGBM in turn, the defaults first."""
    rng = np.random.default_rng(1)
    kinds = ("xgboost", "lightgbm")
    drawn = [(kind, averages.DEFAULTS[kind]) for kind in kinds]
    while len(drawn) < count:
        kind = kinds[len(drawn) % 2]
        drawn.append((kind, averages.drawn(kind, rng)))
    return drawn


def inputs() -> tuple[np.ndarray, np.ndarray]:
    """Return the configurations as inputs of a Gaussian process.

    Returns:
        The inputs, shape (configurations, columns): the kind, and each parameter from 0 to 1, on a
        logarithmic scale if all its values are positive and their range is wide. A parameter of the
        other kind is in the middle. The second array is True for the columns of options.
    """
    drawn = configurations(CONFIGURATIONS)
    columns = [np.array([float(kind == "xgboost") for kind, _ in drawn])]
    for own in ("xgboost", "lightgbm"):
        for name in sorted({name for kind, params in drawn[2:] if kind == own for name in params}):
            values = np.array(
                [float(p[name]) if kind == own and name in p else np.nan for kind, p in drawn]
            )
            if np.nanmin(values) > 0 and np.nanmax(values) > 10 * np.nanmin(values):
                values = np.log(values)
            low, high = np.nanmin(values), np.nanmax(values)
            unit = (values - low) / max(high - low, 1e-12)
            columns.append(np.where(np.isnan(unit), 0.5, unit))
    return np.array(columns).T, np.arange(len(columns)) == 0


def train(
    rows: Rows,
    kind: str,
    params: dict[str, Any],
    train: np.ndarray,
    predicted: np.ndarray,
    rounds: tuple[int, ...],
) -> np.ndarray:
    """Train a model, and return its predictions after some rounds, shape (rounds, predicted)."""
    fitted = rows.features.iloc[train]
    asked = rows.features.iloc[predicted]
    if kind == "xgboost":
        options = native_columns.objective_of(rows.task, 2) | params | {"nthread": 1, "seed": 0}
        matrix = xgb.DMatrix(fitted, rows.labels[train], enable_categorical=True, nthread=1)
        model = xgb.train(options, matrix, rounds[-1])
        held = xgb.DMatrix(asked, enable_categorical=True, nthread=1)
        parts = [model.predict(held, iteration_range=(0, last)) for last in rounds]
    else:
        options = {"objective": rows.task, "verbosity": -1, "num_threads": 1, "seed": 0} | params
        booster = lgb.train(options, lgb.Dataset(fitted, rows.labels[train]), rounds[-1])
        parts = [
            np.asarray(booster.predict(asked, num_iteration=last, num_threads=1)) for last in rounds
        ]
    return np.array(parts, dtype=np.float32)


def make_holdout(rows: Rows, file: Path) -> None:
    """Train configurations on parts of the same rows, and keep what they predict for the others.

    The file has `labels` (n,), `full` (configurations, rounds, n) with the predictions of models of
    all rows of train, and `parts` (configurations, shares, n) with those of parts of these rows.
    """
    everything = np.arange(len(rows.labels))
    new = everything[TRAIN_ROWS : TRAIN_ROWS + NEW_ROWS]
    full, parts = [], []
    for kind, params in configurations(CONFIGURATIONS):
        full.append(train(rows, kind, params, everything[:TRAIN_ROWS], new, ROUNDS))
        smaller = [everything[: int(share * TRAIN_ROWS)] for share in SHARES]
        parts.append([train(rows, kind, params, few, new, (100,))[0] for few in smaller])
    np.savez(
        file,
        labels=rows.labels[new],
        full=np.array(full, dtype=np.float32),
        parts=np.array(parts, dtype=np.float32),
    )


def make_folds(rows: Rows, file: Path) -> None:
    """Train configurations in cross-validations on several samples of rows.

    The file has, for each sample, `labels` (n,), `valid` (configurations, n) with the predictions
    of the folds for their rows, and for the same new rows `new_labels`, `average` with the mean
    prediction of the folds' models, and `refit` with that of a model of all rows.
    """
    kept: dict[str, list[Any]] = {name: [] for name in ("labels", "valid", "average", "refit")}
    everything = np.arange(len(rows.labels))
    new = everything[-FOLD_NEW_ROWS:]
    last = (FOLD_ROUNDS,)
    for sample in range(FOLD_SAMPLES):
        own = everything[sample * FOLD_ROWS : (sample + 1) * FOLD_ROWS]
        valid, average, refit = [], [], []
        for kind, params in configurations(FOLD_CONFIGURATIONS):
            predictions = np.empty(FOLD_ROWS, dtype=np.float32)
            means = []
            for fold in range(FOLDS):
                held = own[fold::FOLDS]
                both = np.concatenate([held, new])
                out = train(rows, kind, params, np.setdiff1d(own, held), both, last)[0]
                predictions[fold::FOLDS] = out[: len(held)]
                means.append(out[len(held) :])
            valid.append(predictions)
            average.append(np.mean(means, axis=0))
            refit.append(train(rows, kind, params, own, new, last)[0])
        for name, values in (("valid", valid), ("average", average), ("refit", refit)):
            kept[name].append(np.array(values, dtype=np.float32))
        kept["labels"].append(rows.labels[own])
    arrays = {name: np.array(values) for name, values in kept.items()}
    np.savez(file, allow_pickle=False, new_labels=rows.labels[new], **arrays)


def make(data: Path, pools: Path, names: tuple[str, ...]) -> None:
    """Make the tables that are missing."""
    pools.mkdir(parents=True, exist_ok=True)
    for name in names:
        for kind, make_one in (("holdout", make_holdout), ("folds", make_folds)):
            file = pools / f"{name}.{kind}.npz"
            if not file.exists():
                part = pools / f"part-{file.name}"
                make_one(read(name, data), part)
                part.rename(file)
                print(file, flush=True)

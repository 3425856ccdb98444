"""Scores of predictions, normalized scores, ranks, and a bootstrap over tables and seeds.

Pure functions.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

# A smaller probability counts as this one. A tool that drops a class would have an infinite log
# loss.
LEAST = 1e-6
LOWEST = -1.0  # A lower normalized score counts as this one, and so does a tool that failed.
DRAWS = 2000


# ---- one table


def class_name(value: object) -> str:
    """Return the name of a class by which tools can be compared: `1`, `1.0` and `True` of a CSV
    file may be the same.
    """
    text = str(value)
    with contextlib.suppress(ValueError):
        return f"{float(text):g}"
    return text


def evaluate(truth: pd.Series, predicted: pd.DataFrame, task: str) -> tuple[float, float | None]:
    """Return the score of predictions, for which lower is better, and the AUC.

    Args:
        truth: Labels of the rows that are held out.
        predicted: One column with the predictions of a regression, or a column of probabilities for
            each class.
        task: `binary`, `multiclass` or `regression`.

    Returns:
        RMSE and None for a regression; else the log loss and the AUC. The AUC is None if the rows
        have not all classes.

    Raises:
        ValueError: The predictions have not the rows of the labels, or have gaps.
    """
    if len(truth) != len(predicted):
        raise ValueError(f"{len(predicted)} predictions for {len(truth)} rows")
    if predicted.isna().to_numpy().any():
        raise ValueError("some predictions are missing")
    if task == "regression":
        errors = truth.to_numpy(dtype=float) - predicted.iloc[:, 0].to_numpy(dtype=float)
        return float(np.sqrt(np.mean(errors**2))), None
    names = truth.map(class_name).to_numpy()
    shares = predicted.rename(columns=class_name)
    shares = shares.reindex(columns=sorted({*shares.columns, *names}), fill_value=0.0)
    values = np.clip(shares.to_numpy(dtype=float), LEAST, None)
    values /= values.sum(axis=1, keepdims=True)
    codes = shares.columns.get_indexer(names)
    log_loss = -np.log(values[np.arange(len(codes)), codes]).mean()
    return float(log_loss), _auc(codes, values)


def _auc(codes: np.ndarray, values: np.ndarray) -> float | None:
    """Return the AUC of two classes, or the mean of each class against the others."""
    from sklearn.metrics import roc_auc_score

    count = values.shape[1]
    if len(set(codes)) < max(count, 2):
        return None
    one_by_one = [1] if count == 2 else range(count)
    return float(np.mean([roc_auc_score(codes == c, values[:, c]) for c in one_by_one]))


def normalized(score: float | None, default: float, best: float) -> float:
    """Return a score on the scale from `default` (0) to `best` (1), and `LOWEST` for what is lower
    or failed.

    If `best` is not better than `default`, the scale has no length: what is as good has 0, and the
    rest `LOWEST`.
    """
    if score is None:
        return LOWEST
    if best >= default:
        return 0.0 if score <= default else LOWEST
    return max(LOWEST, (default - score) / (default - best))


def ranks(scores: Sequence[float | None]) -> np.ndarray:
    """Return the rank of each score.

    1 is the best, equal scores share the mean of their ranks, and failed tools are last.
    """
    from scipy.stats import rankdata

    return rankdata([math.inf if score is None else score for score in scores])


# ---- all tables


@dataclass(frozen=True)
class Estimate:
    """A mean over tables, with the bounds of its 95% interval."""

    mean: float
    low: float
    high: float


def estimates(values: Sequence[np.ndarray]) -> list[Estimate]:
    """Return the estimate of each tool. See `bootstrap` for the arguments."""
    draws = bootstrap(values)
    return [_estimate(mean, of) for mean, of in zip(mean_of(values), draws.T, strict=True)]


def differences(values: Sequence[np.ndarray], reference: int) -> list[Estimate]:
    """Return the paired difference of each tool from the tool with the index `reference`: positive
    if the latter has more.
    """
    return estimates([table[:, [reference]] - table for table in values])


def mean_of(values: Sequence[np.ndarray]) -> np.ndarray:
    """Return the mean of each tool over tables, each of which counts as much as any other."""
    return np.mean([table.mean(axis=0) for table in values], axis=0)


def bootstrap(values: Sequence[np.ndarray], draws: int = DRAWS, seed: int = 0) -> np.ndarray:
    """Draw tables with replacement, and seeds of each drawn table, and return the means of all
    draws.

    A draw takes the same tables and seeds for all tools, so differences between tools are paired.

    Args:
        values: An array for each table, with a row for each seed and a column for each tool.
        draws: Number of draws.
        seed: Seed of the draws.

    Returns:
        An array with a row for each draw and a column for each tool.
    """
    rng = np.random.default_rng(seed)
    chosen = rng.integers(len(values), size=(draws, len(values)))
    means = np.empty((*chosen.shape, values[0].shape[1]))
    for index, table in enumerate(values):
        places = chosen == index
        seeds = rng.integers(len(table), size=(places.sum(), len(table)))
        means[places] = table[seeds].mean(axis=1)
    return means.mean(axis=1)


def _estimate(mean: float, draws: np.ndarray) -> Estimate:
    low, high = np.quantile(draws, [0.025, 0.975])
    return Estimate(float(mean), float(low), float(high))


def compare(
    cells: Sequence[Mapping[str, float | None]], defaults: Sequence[float], tools: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the ranks and the normalized scores of the tools on one table, with a row for each
    seed.

    Args:
        cells: Score of each tool, for each seed.
        defaults: Score of XGBoost's defaults, for each seed.
        tools: Tools in the order of the columns.
    """
    placed = []
    scaled = []
    for cell, default in zip(cells, defaults, strict=True):
        scores = [cell[tool] for tool in tools]
        best = min(default, *(score for score in scores if score is not None), default)
        placed.append(ranks(scores))
        scaled.append([normalized(score, default, best) for score in scores])
    return np.array(placed), np.array(scaled)

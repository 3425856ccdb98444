"""Draws of the rows of valid, and scores on them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.bundle import resampling, valid_scores
from sweeps.bundle.resampling import Units, bootstrap, halves, units_of
from sweeps.bundle.valid_scores import ValidScores
from sweeps.data.splits.valid_rows import ValidRows


def rows_of(labels: np.ndarray, folds: int = 1, **more: np.ndarray) -> ValidRows:
    """Return rows of valid, in folds of about the same size."""
    count = len(labels)
    own = np.sort(np.arange(count) % folds)
    return ValidRows(np.arange(count, dtype=np.uint64), labels, own, **more)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60), st.integers(1, 3))
def test_a_draw_has_as_many_rows_of_each_fold_or_class_as_valid(
    labels: list[int], folds: int
) -> None:
    valid = rows_of(np.array(labels), folds)
    units = units_of(valid, has_classes=True)
    assert units.kind == "rows" and len(units.strata) == len(labels)
    for draw in bootstrap(units, 3, seed=1):
        drawn = np.repeat(np.arange(len(labels)), draw[units.of_row])
        values = valid.labels if folds == 1 or not valid.folds.any() else valid.folds
        assert np.array_equal(np.bincount(values[drawn]), np.bincount(values))


def test_class_shares_vary_as_in_the_rows_from_which_they_are_known() -> None:
    valid = rows_of(np.array([0] * 90 + [1] * 10))
    spread = {}
    for population in (100, 500, 100_000):
        units = units_of(valid, has_classes=True, population=population)
        draws = bootstrap(units, 4000, seed=0)
        shares = draws[:, units.strata == 1].sum(axis=1) / 100
        assert shares.mean() == pytest.approx(0.1, abs=0.003)
        spread[population] = shares.std()
    assert spread[100] == pytest.approx(0.03, rel=0.15)
    assert spread[500] == pytest.approx(np.hypot(0.0134, 0.004), rel=0.15)
    assert spread[100_000] < 0.005


@given(st.lists(st.integers(0, 9), min_size=2, max_size=60))
def test_groups_are_drawn_as_a_whole(groups: list[int]) -> None:
    valid = rows_of(np.zeros(len(groups)), groups=np.array(groups))
    units = units_of(valid, has_classes=False)
    assert units.kind == "groups" and len(units.strata) == len(set(groups))
    for group in set(groups):
        assert len(set(units.of_row[np.array(groups) == group])) == 1


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=300), st.integers(1, 3))
def test_blocks_of_time_have_neighbours_of_one_fold(times: list[int], folds: int) -> None:
    valid = rows_of(np.zeros(len(times)), folds, times=np.array(times))
    units = units_of(valid, has_classes=False)
    for unit in range(len(units.strata)):
        own = units.of_row == unit
        assert len(set(valid.folds[own])) == 1
        first, last = min(np.array(times)[own]), max(np.array(times)[own])
        inside = (np.array(times) > first) & (np.array(times) < last)
        assert (own | ~inside | (valid.folds != valid.folds[own][0])).all()


def test_many_rows_are_pooled_within_strata(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resampling, "MOST_UNITS", 50)
    labels = np.array([0] * 900 + [1] * 100)
    units = units_of(rows_of(labels), has_classes=True)
    assert 50 <= len(units.strata) <= 52
    sizes = np.bincount(units.of_row)
    assert sizes.min() >= 1 and sizes.max() == 20
    assert all(len(set(labels[units.of_row == unit])) == 1 for unit in range(len(units.strata)))


@given(st.lists(st.integers(0, 4), min_size=2, max_size=60), st.integers(1, 3))
def test_halves_share_each_stratum(strata: list[int], count: int) -> None:
    units = Units(np.arange(len(strata)), np.array(strata), "rows")
    masks = halves(units, count, seed=0)
    assert masks.shape == (count, len(strata))
    for mask in masks:
        for stratum in {*strata}:
            own = mask[np.array(strata) == stratum]
            assert abs(own.sum() - (~own).sum()) <= 1


METRICS = {
    "regression": ("rmse", "mse", "mae", "r2"),
    "binary": ("logloss", "error", "accuracy", "auc", "f1", "balanced_accuracy"),
    "multiclass": ("mlogloss", "merror", "auc"),
}


@pytest.mark.parametrize(
    ("task", "metric"), [(task, metric) for task, names in METRICS.items() for metric in names]
)
@pytest.mark.parametrize("folds", [1, 3])
def test_scores_of_draws_are_the_metric_of_the_drawn_rows(
    task: str, metric: str, folds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(valid_scores, "MOST_COUNTS", 180)  # two draws at once
    rng = np.random.default_rng(3)
    classes = {"regression": 0, "binary": 2, "multiclass": 4}[task]
    labels = rng.integers(classes, size=90) if classes else rng.normal(size=90)
    models = [rng.dirichlet(np.ones(max(2, classes)), size=90) for _ in range(2)]
    models[1] = models[1].round(1)  # equal scores of several rows
    if classes < 3:
        models = [model[:, 1] for model in models]
    valid = rows_of(labels, folds)
    scores = ValidScores(metric, task, valid)
    units = units_of(valid, has_classes=bool(classes))
    draws = bootstrap(units, 4, seed=0)
    scored = scores.draw_scores(models, units, draws)
    for draw, row in zip(draws, scored, strict=True):
        rows = np.repeat(np.arange(90), draw[units.of_row])
        expected = [scores.score(model[rows], rows) for model in models]
        np.testing.assert_allclose(row, expected, rtol=1e-12)


def test_a_draw_with_one_class_has_no_auc_and_nan_stays_nan() -> None:
    valid = rows_of(np.array([0, 0, 0, 1]))
    units = Units(np.arange(4), np.zeros(4, dtype=int), "rows")
    draws = np.array([[2, 1, 1, 0], [1, 1, 1, 1]])
    model = np.array([0.1, 0.2, 0.3, 0.9])
    scored = ValidScores("auc", "binary", valid).draw_scores([model], units, draws)
    assert math.isnan(scored[0, 0]) and scored[1, 0] == 1.0
    broken = np.array([0.1, 0.2, 0.3, math.nan])
    scored = ValidScores("logloss", "binary", valid).draw_scores([model, broken], units, draws)
    assert np.isfinite(scored[:, 0]).all() and math.isnan(scored[1, 1])


def test_constant_predictions_of_equal_labels_have_one_score() -> None:
    valid = rows_of(np.full(50, 2.0))
    units = units_of(valid, has_classes=False)
    draws = bootstrap(units, 5, seed=0)
    scored = ValidScores("rmse", "regression", valid).draw_scores([np.full(50, 1.0)], units, draws)
    assert (scored == 1.0).all()

"""Scores of a chosen model on new rows, by its predictions for valid."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.bundle.resampling import units_of
from sweeps.bundle.valid_scores import ValidScores
from sweeps.data.splits.valid_rows import ValidRows
from sweeps.evaluation.model_scores import (
    DRAWS,
    ERROR_OF_OPTIMISM,
    WIDTH,
    ModelScores,
    gain,
    hidden_optimism,
    interval,
    score_folds,
    score_models,
    similar,
)


def scored(models: np.ndarray, labels: np.ndarray) -> ModelScores:
    """Score models of a regression, given their predictions with a row for each model."""
    count = len(labels)
    valid = ValidRows(np.arange(count, dtype=np.uint64), labels, np.zeros(count, dtype=int))
    scores = ValidScores("mse", "regression", valid)
    return score_models(scores, list(models), units_of(valid, has_classes=False), minimize=True)


def equal_models(seed: int, count: int, rows: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Return predictions of models that are equally good, and the labels. Their MSE is 1.25."""
    rng = np.random.default_rng(seed)
    labels = rng.normal(size=rows)
    return rng.normal(scale=0.5, size=(count, rows)), labels


def test_the_optimism_of_the_best_of_equal_models_is_measured() -> None:
    best = []
    corrected = []
    for seed in range(30):
        models = scored(*equal_models(seed, 40))
        model = int(models.values.argmin())
        best.append(models.values[model])
        corrected.append(models.values[model] + models.optimism(model, range(len(models.values))))
    # Each value has a standard error of about 0.02 here.
    assert np.mean(best) < 1.25 - 0.1
    assert np.mean(corrected) == pytest.approx(1.25, abs=0.06)


def test_models_without_predictions_add_what_their_number_tells() -> None:
    best = []
    corrected = []
    for seed in range(30):
        models = scored(*equal_models(seed, 160))
        ranked = [int(i) for i in models.values.argsort()]
        kept = ranked[:20]
        optimism = models.optimism(ranked[0], kept)
        assert hidden_optimism(models, ranked[0], kept, 20) == 0
        best.append(models.values[ranked[0]] + optimism)
        corrected.append(best[-1] + hidden_optimism(models, ranked[0], kept, 160))
    assert np.mean(best) < 1.25 - 0.02
    assert np.mean(best) < np.mean(corrected) == pytest.approx(1.25, abs=0.06)


def test_a_model_that_is_clearly_best_has_no_optimism() -> None:
    predictions, labels = equal_models(0, 5)
    predictions[2] = labels + np.random.default_rng(1).normal(scale=0.1, size=len(labels))
    models = scored(predictions, labels)
    assert models.optimism(2, range(5)) == 0 and similar(models, 2) == [2]


def test_copies_of_the_best_model_are_similar_and_change_no_optimism() -> None:
    predictions, labels = equal_models(3, 8)
    once = scored(predictions, labels)
    twice = scored(np.concatenate([predictions, predictions]), labels)
    model = int(once.values.argmin())
    assert twice.optimism(model, range(16)) == once.optimism(model, range(8))
    assert model + 8 in similar(twice, model)


def test_intervals_have_the_value_that_is_corrected_for_the_choice() -> None:
    models = scored(*equal_models(5, 20))
    model = int(models.values.argmin())
    optimism = models.optimism(model, range(len(models.values)))
    assert optimism > 0
    about = interval(models, model, optimism)
    assert about.value == pytest.approx(models.values[model] + optimism)
    assert about.low < about.value < about.high
    worst = int(models.values.argmax())
    amount = gain(models, model, worst, optimism)
    assert amount.value == pytest.approx(models.values[worst] - models.values[model] - optimism)
    assert interval(models, model, 2 * optimism).high > about.high


def test_of_a_maximized_metric_the_value_becomes_smaller() -> None:
    models = scored(*equal_models(5, 20))
    flipped = ModelScores(-models.values, -models.draws, -models.outside, minimize=False)
    model = int(models.values.argmin())
    optimism = models.optimism(model, range(20))
    assert flipped.optimism(model, range(20)) == optimism > 0
    about = interval(flipped, model, optimism)
    mirrored = interval(models, model, optimism)
    assert (about.low, about.high) == pytest.approx((-mirrored.high, -mirrored.low))
    assert similar(flipped, model) == similar(models, model)


@given(st.integers(0, 50), st.integers(2, 6))
def test_the_model_is_among_those_that_are_similar(seed: int, count: int) -> None:
    models = scored(*equal_models(seed, count, rows=40))
    model = int(models.values.argmin())
    assert model in similar(models, model)
    assert models.optimism(model, [model]) == 0


def test_draws_on_which_a_model_has_no_score_do_not_count() -> None:
    models = scored(*equal_models(7, 6))
    draws = models.draws.copy()
    draws[::2] = np.nan
    partly = ModelScores(models.values, draws, models.outside, minimize=True)
    model = int(models.values.argmin())
    assert np.isfinite(partly.optimism(model, range(6)))
    about = interval(partly, model, 0.0)
    assert np.isfinite([about.low, about.high]).all() and similar(partly, model)


@given(st.integers(5, 10), st.integers(1, 5), st.booleans())
def test_scores_of_folds_are_spread_like_means_of_folds(
    folds: int, count: int, minimize: bool
) -> None:
    values = np.random.default_rng(folds).normal(size=(count, folds))
    models = score_folds(values, minimize)
    np.testing.assert_allclose(models.values, values.mean(axis=1))
    assert models.draws.shape == models.outside.shape == (DRAWS, count)
    error = values.std(axis=1, ddof=1) / np.sqrt(folds)
    # Student's quantile for 4 to 9 degrees of freedom is 1.1 to 1.3 times the normal one.
    ratio = models.draws.std(axis=0) / error
    assert (ratio > 0.9).all() and (ratio < 1.7).all()
    about = interval(models, 0, 0.0)
    assert about.low < models.values[0] < about.high


def test_an_average_of_folds_counts_as_better_and_less_certain() -> None:
    models = score_folds(np.random.default_rng(0).normal(size=(2, 5)), minimize=True)
    own, folds = interval(models, 0, 0.0), interval(models, 0, 0.0, of_folds=True)
    assert folds.value < own.value and folds.high - folds.low > own.high - own.low
    turned = replace(models, minimize=False)
    assert interval(turned, 0, 0.0, of_folds=True).value > own.value


def test_further_values_count_as_much_as_the_value_of_the_search() -> None:
    models = score_folds(np.random.default_rng(0).normal(size=(2, 5)), minimize=True)
    own = interval(models, 0, 0.2)
    further = [own.value + 3, own.value + 6]
    drawn = models.draws[:, 0].std(ddof=1)
    # 3 is the standard deviation of the three scores.
    for overlap, error in ((1.0, drawn), (0.0, np.sqrt((drawn**2 + 3**2) / 2 / 3))):
        about = interval(models, 0, 0.2, further=further, overlap=overlap)
        assert about.value == pytest.approx(own.value + 3)
        expected = 2 * WIDTH * np.hypot(error, ERROR_OF_OPTIMISM * 0.2 / 3)
        assert about.high - about.low == pytest.approx(expected)

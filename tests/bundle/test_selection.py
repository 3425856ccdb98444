"""Choose and average the models of an ensemble."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.bundle.averaging import average, to_numbers
from sweeps.bundle.selection import Gain, Selection, measure_gain, select
from sweeps.core.errors import BundleError

LABELS = np.array([0.0, 1.0, 1.0, 0.0, 1.0])
columns = st.lists(st.floats(0, 1, width=16), min_size=5, max_size=5).map(np.array)
libraries = st.lists(columns, min_size=1, max_size=6)


def mse(predictions: Any) -> float:
    return float(((predictions - LABELS) ** 2).mean())


def r2(predictions: Any) -> float:
    return 1 - mse(predictions) / float(LABELS.var())


def selected(
    predictions: list[np.ndarray], score: Callable[[Any], float], minimize: bool, rounds: int
) -> Selection:
    """Select models of which at least one has a finite score."""
    selection = select(predictions, score, minimize, rounds)
    assert selection is not None
    return selection


def chosen_by(predictions: Any, weights: Any) -> Any:
    return average([predictions[i] for i in weights], list(weights.values()))


@given(libraries, st.integers(1, 8), st.booleans())
def test_ensemble_is_never_worse_than_its_best_model(
    predictions: Any, rounds: Any, minimize: Any
) -> None:
    score = mse if minimize else r2
    selection = selected(predictions, score, minimize, rounds)
    singles = [score(p) for p in predictions]
    best = min if minimize else max
    single, value = singles[selection.single], best(selection.round_values)
    assert single == best(singles) and value == best(value, single)
    assert value == score(chosen_by(predictions, selection.weights))
    assert 1 <= sum(selection.weights.values()) <= rounds == len(selection.round_values)
    assert math.gcd(*selection.weights.values()) == 1 and list(
        selection.weights.values()
    ) == sorted(selection.weights.values(), reverse=True)


@given(libraries, st.integers(1, 6))
def test_the_choice_is_deterministic_and_copies_of_models_change_nothing(
    predictions: Any, rounds: Any
) -> None:
    selection = selected(predictions, mse, True, rounds)
    assert selection == select([p.copy() for p in predictions], mse, True, rounds)
    doubled = selected(predictions + [p.copy() for p in predictions], mse, True, rounds)
    assert selection == doubled, "of equal models, the first is taken"


def test_ensemble_takes_first_of_equal_models() -> None:
    same = np.array([0.25, 0.5, 0.75, 0.25, 0.5])
    selection = selected([same, same, same], mse, True, 5)
    assert selection.weights == {0: 1} and selection.single == 0


def test_a_model_can_be_added_again() -> None:
    """Two models err on opposite sides, one of them three times as far: the best average has the
    weights 3 and 1.
    """
    near, far = LABELS + 0.1, LABELS - 0.3
    selection = selected([far, near], mse, True, 4)
    assert selection.weights == {1: 3, 0: 1} and selection.single == 1
    assert selection.round_values[0] == pytest.approx(0.01)
    assert min(selection.round_values) == pytest.approx(0, abs=1e-12)


def test_models_without_a_finite_score_are_never_chosen() -> None:
    lost = np.full(5, np.nan)
    assert select([lost, lost], mse, True, 3) is None and select([], mse, True, 3) is None
    selection = selected([lost, LABELS * 0.5, lost], mse, True, 3)
    assert selection.weights == {1: 1} and selection.single == 1


def test_the_forms_of_output_become_numbers() -> None:
    second = np.array([0.25, 0.75], dtype="float32")
    for output in (second, second[:, None], np.stack([1 - second, second], axis=1)):
        np.testing.assert_array_equal(to_numbers(output, "binary", 2), [0.25, 0.75])
    np.testing.assert_array_equal(to_numbers(np.array([1, 0]), "binary", 2), [1.0, 0.0])
    np.testing.assert_array_equal(
        to_numbers(np.array([2, 0]), "multiclass", 3), [[0, 0, 1], [1, 0, 0]]
    )
    np.testing.assert_array_equal(to_numbers(np.array([[3.0], [4.0]]), "regression", 0), [3.0, 4.0])
    np.testing.assert_array_equal(to_numbers(np.array([[1], [0]]), "multilabel", 0), [[1.0], [0.0]])
    assert to_numbers(np.zeros((2, 3), "float32"), "multioutput", 0).dtype == np.float64


@pytest.mark.parametrize(
    ("output", "task", "classes"),
    [
        (np.zeros((2, 3)), "binary", 2),
        (np.zeros((2, 2)), "multiclass", 3),
        (np.zeros(2), "multiclass", 3),
        (np.array([0, 3]), "multiclass", 3),
        (np.zeros((2, 2)), "regression", 0),
        (np.zeros(2), "multilabel", 0),
    ],
)
def test_other_forms_are_refused(output: Any, task: str, classes: int) -> None:
    with pytest.raises(
        BundleError, match=r"returned an array of .* with shape .*, but for a .* label"
    ):
        to_numbers(output, task, classes)


def half_score(rows: np.ndarray, predictions: np.ndarray) -> float:
    """Return the squared error of predictions for some of the rows of `gain_of`."""
    return float(((predictions - NOISY_LABELS[rows]) ** 2).mean())


NOISY_LABELS = np.random.default_rng(0).normal(size=400)


def halves(count: int, divisions: int) -> list[np.ndarray]:
    """Divide rows into two halves at random, several times."""
    rng = np.random.default_rng(0)
    return [rng.permutation(count) % 2 == 0 for _ in range(divisions)]


def gain_of(predictions: list[np.ndarray], sign: int = 1) -> Gain:
    """Measure the gain of the ensemble of some models."""
    gain = measure_gain(
        predictions,
        np.mean(predictions, axis=0),
        lambda rows, part: sign * half_score(rows, part),
        halves(400, 5),
        minimize=sign == 1,
        rounds=8,
    )
    assert gain is not None
    return gain


@pytest.mark.parametrize("sign", [1, -1])
def test_average_of_models_with_different_errors_has_a_clear_gain(sign: int) -> None:
    rng = np.random.default_rng(1)
    models = [NOISY_LABELS + rng.normal(size=400) for _ in range(6)]
    gain = gain_of(models, sign)
    assert gain.is_clear and gain.mean > 5 * gain.noise


def test_models_with_the_same_errors_have_no_gain() -> None:
    model = NOISY_LABELS + np.random.default_rng(1).normal(size=400)
    gain = gain_of([model, model.copy()])
    assert gain.mean == 0 and not gain.is_clear


def test_gain_is_unknown_if_a_half_cannot_be_scored() -> None:
    models = [NOISY_LABELS, -NOISY_LABELS]
    unknown = measure_gain(
        models, models[0], lambda *_: math.nan, halves(400, 2), minimize=True, rounds=3
    )
    assert unknown is None

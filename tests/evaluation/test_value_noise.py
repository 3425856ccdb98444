"""The noise of values, from draws of rows and from folds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.bundle.trial_predictions import read_trial_predictions
from sweeps.evaluation.value_noise import (
    fold_values,
    noise_of_draws,
    noise_of_folds,
    value_noise,
)
from tests.bundle.ensemble_sweeps import recorded_sweep


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=8))
def test_folds_have_the_values_of_which_the_reports_are_means(values: list[float]) -> None:
    means = [float(np.mean(values[:count])) for count in range(1, len(values) + 1)]
    np.testing.assert_allclose(fold_values(means), values, atol=1e-9)


def test_noise_that_all_trials_share_does_not_count() -> None:
    rng = np.random.default_rng(0)
    own = rng.normal(size=(4000, 10)) * 0.3
    shared = rng.normal(size=(4000, 1)) * 5
    # The mean of ten trials has a tenth of the noise of one.
    assert noise_of_draws(own + shared) == pytest.approx(0.09 * 0.9, rel=0.05)
    folds = rng.normal(size=(1, 5)) * 5 + rng.normal(size=(400, 1)) * 9
    values = folds + rng.normal(size=(400, 5)) * 0.3
    assert noise_of_folds(values) == pytest.approx(0.09 / 5, rel=0.1)
    values[3, 2] = np.nan
    assert noise_of_folds(values) is None


def test_predictions_tell_the_noise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = recorded_sweep(tmp_path, monkeypatch)
    noise = value_noise(sweep.store, read_trial_predictions(sweep.store))
    assert noise is not None and 0 < noise < 1
    assert value_noise(sweep.store, None) is None

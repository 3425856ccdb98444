"""The benchmark of honest intervals: simulated sweeps, and the report."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.honesty import measure, pools, report, simulate
from benchmarks.honesty.folds import FoldPool, simulate_folds
from benchmarks.honesty.simulate import Pool, Setting
from sweeps.evaluation.racing import ROUNDS


def pool_of(folder: Path, name: str = "made_missing") -> Pool:
    """Write a table of predictions whose models are equally good, and read it."""
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=3000).astype(float)
    logits = 2 * labels - 1 + rng.normal(size=(40, len(pools.ROUNDS), 3000))
    predictions = 1 / (1 + np.exp(-logits))
    parts = predictions[:, :2]
    np.savez(folder / f"{name}.holdout.npz", labels=labels, full=predictions, parts=parts)
    return Pool.read(folder / f"{name}.holdout.npz", "binary")


def folds_of(folder: Path, name: str = "made_missing") -> FoldPool:
    """Write a table of predictions in folds, and read it."""
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=(2, 200)).astype(float)
    new_labels = rng.integers(2, size=400).astype(float)

    def predictions(y: np.ndarray) -> np.ndarray:
        return np.asarray(1 / (1 + np.exp(1 - 2 * y - rng.normal(size=y.shape))))

    valid = predictions(np.repeat(labels[:, None], 30, axis=1))
    average, refit = (predictions(np.tile(new_labels, (2, 30, 1))) for _ in range(2))
    file = folder / f"{name}.folds.npz"
    np.savez(file, labels=labels, valid=valid, average=average, refit=refit, new_labels=new_labels)
    return FoldPool.read(file, "binary")


def test_a_sweep_in_folds_has_the_best_trial_first(tmp_path: Path) -> None:
    sweep = simulate_folds(folds_of(tmp_path), 1, "logloss", np.random.default_rng(0))
    assert np.bincount(sweep.valid.folds).tolist() == [40] * pools.FOLDS
    values = [sweep.scores.score(each) for each in sweep.predictions]
    assert values == sorted(values) and len(values) == min(20, sweep.trials)


def test_real_sweeps_become_a_table(tmp_path: Path) -> None:
    row = {"table": "a", "trials": 9, "printed": 0.1, "value": 0.2, "low": 0.15, "high": 0.25}
    rows = [
        row | {"new": 0.24, "default_low": 0.01},
        row | {"new": 0.3, "default_low": None},
        row | {"new": 0.3, "value": None, "default_low": None},
    ]
    results, page = tmp_path / "real.jsonl", tmp_path / "page.md"
    results.write_text("".join(f"{json.dumps(each)}\n" for each in rows))
    page.write_text(f"# Page\n\n{report.BEGIN_REAL}\n{report.END_REAL}\n")
    report.write_real(results, page)
    text = page.read_text()
    assert "Of 3 sweeps, 2 have an interval. It has the score on new rows in 1, and in 1" in text
    assert "0.3 (outside) |" in text and "1 sweeps say that tuning beats the default" in text


def test_valid_has_the_class_shares_of_more_rows(tmp_path: Path) -> None:
    pool = pool_of(tmp_path)
    rng = np.random.default_rng(1)
    shares = [pool.labels[simulate.draw_valid(pool, 200, rng)].mean() for _ in range(200)]
    assert np.mean(shares) == pytest.approx(pool.labels.mean(), abs=0.005)
    # Of 200 random rows it would be 0.035.
    assert np.std(shares) < 0.02


@pytest.mark.parametrize("asha", [True, False])
def test_a_simulated_sweep_has_the_defaults_and_the_best_trial_first(
    asha: bool, tmp_path: Path
) -> None:
    setting = Setting(200, 27, asha, 2, "logloss")
    sweep = simulate.simulate(pool_of(tmp_path), setting, np.random.default_rng(0))
    assert {0, 1} <= set(sweep.numbers) and len(sweep.numbers) == (4 if asha else 27)
    values = [sweep.scores.score(each) for each in sweep.predictions]
    assert values == sorted(values)
    # Three times as many further rows as valid has, and all others are new.
    assert sweep.further.shape == (len(sweep.numbers), ROUNDS)
    assert len(sweep.new_labels) == 2800 - 200 * ROUNDS == len(sweep.new_predictions[0])


def test_what_is_measured_becomes_the_tables_of_the_report(tmp_path: Path) -> None:
    pool_of(tmp_path)
    folds_of(tmp_path)
    results = tmp_path / "results.jsonl"
    measure.write(measure.measured(tmp_path, ["made_missing"], 6), results)
    page = tmp_path / "page.md"
    page.write_text(f"# Page\n\n{report.BEGIN}\n{report.END}\n")
    report.write(results, page)
    text = page.read_text()
    assert "### Tables that judge: 6 sweeps with a holdout" in text
    assert "### Tables that judge: 12 sweeps in five folds" in text
    assert "| table made_missing | 6 |" in text and "| confirmed: regret |" in text

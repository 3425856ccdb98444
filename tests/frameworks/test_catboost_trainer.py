"""The trainer of CatBoost: resumes, changed parameters and texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("catboost")

from sweeps.testing.fake_session import run_loop, small_table
from sweeps.trainers import catboost
from tests.frameworks.test_boosting_trainers import CATBOOST, with_categories

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(120)]


CATBOOST_CASES: dict[str, dict[str, Any]] = {
    "ordered": {"boosting_type": "Ordered"},
    "drawn rows": {"bootstrap_type": "Bernoulli", "subsample": 0.6, "rsm": 0.6},
    "lossguide": {"grow_policy": "Lossguide", "max_leaves": 8},
}


@pytest.mark.parametrize("case", CATBOOST_CASES)
def test_catboost_resumed_equals_uninterrupted(case: Any, tmp_path: Path) -> None:
    current, shards = small_table("binary", missing=True)
    with_categories(shards)
    check = shards["valid"].frame.drop(columns="y").iloc[:32]
    params = CATBOOST | {"iterations": 6} | CATBOOST_CASES[case]
    whole = run_loop(
        catboost.train_func, params, current(check=check, checkpoint_interval=0.0), shards, tmp_path
    )
    once = run_loop(catboost.train_func, params, current(check=check), shards, tmp_path)
    assert list(whole.checkpoints) == [1, 2, 3, 4, 5, 6] and list(once.checkpoints) == [6]
    assert once.metrics == whole.metrics
    for step in (1, 5):
        rest = run_loop(
            catboost.train_func,
            params,
            current(check=check),
            shards,
            tmp_path,
            resume=whole.checkpoints[step],
        )
        assert rest.metrics == whole.metrics[step:]
        for folder in (once.checkpoints[6], rest.checkpoints[6 - step]):
            np.testing.assert_array_equal(
                np.load(whole.checkpoints[6] / "check.npy"), np.load(folder / "check.npy")
            )
            np.testing.assert_array_equal(
                catboost.load(str(folder)).predict(check), np.load(folder / "check.npy")
            )


def test_catboost_trains_earlier_iterations_again_with_changed_parameters(tmp_path: Path) -> None:
    current, shards = small_table("binary")
    whole = run_loop(
        catboost.train_func, CATBOOST, current(checkpoint_interval=0.0), shards, tmp_path
    )
    changed = CATBOOST | {"depth": 2}
    rest = run_loop(
        catboost.train_func, changed, current(), shards, tmp_path, resume=whole.checkpoints[5]
    )
    assert (
        rest.metrics
        == run_loop(catboost.train_func, changed, current(), shards, tmp_path).metrics[5:]
    )


def test_catboost_reads_text(tmp_path: Path) -> None:
    current, shards = small_table("binary")
    without = run_loop(catboost.train_func, CATBOOST, current(), shards, tmp_path)
    for shard in shards.values():
        quay = np.where(shard.frame["x0"] > 0, "quai", np.array(None))
        text = np.where(shard.frame["y"] > 0, "rue", quay)
        shard.frame = shard.frame.assign(
            street=text,
            floor=pd.Categorical(shard.frame["x4"].round().astype(int)),
            big=shard.frame["x1"] > 0,
        )
    cur = current(check=shards["valid"].frame.drop(columns="y").iloc[:32], _cached_objects={})
    run = run_loop(catboost.train_func, CATBOOST, cur, shards, tmp_path)
    assert run.metrics[-1]["valid-logloss"] < 0.5 * without.metrics[-1]["valid-logloss"]
    model = catboost.load(str(run.checkpoints[12]))
    np.testing.assert_array_equal(
        model.predict(cur.check), np.load(run.checkpoints[12] / "check.npy")
    )
    assert cur.check is not None
    assert np.isfinite(model.predict(cur.check.assign(street="place"))).all()

"""The trainer of LightGBM: resumes, constraints, and the numbers of LightGBM itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("lightgbm")

from sweeps.testing.fake_session import run_loop, small_table
from sweeps.trainers import _lightgbm_booster, lightgbm
from tests.frameworks.test_boosting_trainers import LIGHTGBM

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(120)]


LIGHTGBM_CASES: dict[str, dict[str, Any]] = {
    "rows for three rounds": {"bagging_fraction": 0.7, "bagging_freq": 3},
    "rows by class": {"pos_bagging_fraction": 0.5, "neg_bagging_fraction": 0.8, "bagging_freq": 1},
    "columns": {"feature_fraction": 0.8, "feature_fraction_bynode": 0.5},
    "dart": {"boosting": "dart", "drop_rate": 0.4, "skip_drop": 0.1},
    "goss": {"data_sample_strategy": "goss"},
    "linear": {"linear_tree": True},
}


@pytest.mark.parametrize("case", LIGHTGBM_CASES)
def test_lightgbm_resumed_equals_uninterrupted(
    case: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_lightgbm_booster, "LARGE", 1)
    current, shards = small_table("binary", missing=True)
    params = LIGHTGBM | {"learning_rate": 0.3} | LIGHTGBM_CASES[case]
    whole = run_loop(
        lightgbm.train_func, params, current(checkpoint_interval=0.0), shards, tmp_path
    )
    steps = list(whole.checkpoints)
    assert steps == ([3, 6, 9, 12] if "three" in case else list(range(1, 13)))
    assert (
        whole.metrics
        != run_loop(lightgbm.train_func, params, current(seed=8), shards, tmp_path).metrics
        or case == "linear"
    )
    for step in (steps[0], steps[-2]):
        rest = run_loop(
            lightgbm.train_func, params, current(), shards, tmp_path, resume=whole.checkpoints[step]
        )
        assert rest.metrics == whole.metrics[step:]
        last, resumed = whole.checkpoints[12], rest.checkpoints[12 - step]
        np.testing.assert_array_equal(np.load(last / "check.npy"), np.load(resumed / "check.npy"))
        np.testing.assert_array_equal(
            lightgbm.load(str(resumed)).predict(current().check), np.load(resumed / "check.npy")
        )


def test_lightgbm_renews_seeds_rarely_for_a_small_table(tmp_path: Path) -> None:
    current, shards = small_table("regression")
    params = LIGHTGBM | {"num_boost_round": 70, "bagging_fraction": 0.7, "bagging_freq": 4}
    whole = run_loop(
        lightgbm.train_func,
        params,
        current(checkpoint_interval=0.0, milestones=frozenset({20})),
        shards,
        tmp_path,
    )
    assert list(whole.checkpoints) == [20, 52, 70]
    for step in (20, 52):
        cur = current(milestones=frozenset({20}))
        rest = run_loop(
            lightgbm.train_func, params, cur, shards, tmp_path, resume=whole.checkpoints[step]
        )
        assert rest.metrics == whole.metrics[step:]


def test_lightgbm_gives_what_lightgbm_train_gives(tmp_path: Path) -> None:
    import lightgbm as lgb

    current, shards = small_table("binary")
    run = run_loop(
        lightgbm.train_func,
        LIGHTGBM,
        current(asked=("valid-logloss", "valid-auc")),
        shards,
        tmp_path,
    )
    train, valid = shards["train"].frame, shards["valid"].frame
    data = lgb.Dataset(train.drop(columns="y"), train["y"])
    log: dict[str, dict[str, list[float]]] = {}
    params = {
        "objective": "binary",
        "metric": ["binary_logloss", "auc"],
        "num_leaves": 15,
        "min_data_in_leaf": 3,
        "learning_rate": 0.9,
    }
    fixed = {"num_threads": 1, "deterministic": True, "force_row_wise": True, "verbosity": -1}
    checked = data.create_valid(valid.drop(columns="y"), valid["y"])
    lgb.train(
        params | fixed, data, 12, [checked], ["valid"], callbacks=[lgb.record_evaluation(log)]
    )
    assert [m["valid-logloss"] for m in run.metrics] == log["valid"]["binary_logloss"]
    assert [m["valid-auc"] for m in run.metrics] == log["valid"]["auc"]


@pytest.mark.parametrize(
    ("by_name", "by_position"),
    [
        ({"monotone_constraints": {"x1": -1}}, {"monotone_constraints": [0, -1, 0, 0, 0]}),
        (
            {"interaction_constraints": [["x0"], ["x1", "x2"]]},
            {"interaction_constraints": [[0], [1, 2]]},
        ),
    ],
)
def test_lightgbm_accepts_constraints_by_name(
    by_name: Any, by_position: Any, tmp_path: Path
) -> None:
    current, shards = small_table("regression")
    named = run_loop(lightgbm.train_func, LIGHTGBM | by_name, current(), shards, tmp_path)
    assert (
        named.metrics
        == run_loop(
            lightgbm.train_func, LIGHTGBM | by_position, current(), shards, tmp_path
        ).metrics
    )
    assert (
        named.metrics
        != run_loop(lightgbm.train_func, LIGHTGBM, current(), shards, tmp_path).metrics
    )
    with pytest.raises(
        ValueError, match=r"names the column `nowhere`; the prepared data has: x0, "
    ):
        run_loop(
            lightgbm.train_func,
            LIGHTGBM | {"monotone_constraints": {"nowhere": 1}},
            current(),
            shards,
            tmp_path,
        )


def test_lightgbm_reports_rounds_that_grow_no_tree(tmp_path: Path) -> None:
    current, shards = small_table("binary")
    params = LIGHTGBM | {"min_gain_to_split": 15.0, "learning_rate": 0.3}
    whole = run_loop(
        lightgbm.train_func, params, current(checkpoint_interval=0.0), shards, tmp_path
    )
    assert len(whole.metrics) == 12 and whole.metrics[-1] == whole.metrics[-2] != whole.metrics[0]
    rest = run_loop(
        lightgbm.train_func, params, current(), shards, tmp_path, resume=whole.checkpoints[11]
    )
    assert rest.metrics == whole.metrics[11:]

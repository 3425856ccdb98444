"""Train LightGBM on two ranks, in two processes that LightGBM's network connects, without Ray's
workers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("lightgbm")

from sweeps.testing.fake_session import FakeShard, run_loop, small_table
from sweeps.trainers import _lightgbm_booster, lightgbm
from sweeps.trainers._metrics import measure
from tests.ports import free_port
from tests.ranks import call_on_two_ranks
from tests.trainers.test_weights import assert_weights_count_on_two_ranks, run_on_rank

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(150)]

PARAMS = {
    "num_boost_round": 8,
    "min_data_in_leaf": 3,
    "learning_rate": 0.4,
    "bagging_fraction": 0.7,
    "bagging_freq": 1,
}
TASKS = ("binary", "multiclass", "regression")
RUNS = ("first", "again", "resumed", "after a stop", "dart", "dart resumed", "patience")


def train(rank: int, ports: list[list[int]], folder: str) -> dict[str, Any]:
    """Train each task several times in one process, as consecutive trials on one worker do."""
    from ray.train.lightgbm import config

    _lightgbm_booster.LARGE = 1
    out = {}
    for task in TASKS:
        current, shards = small_table(task, rows=240)
        shards["train"] = FakeShard(shards["train"].frame.iloc[rank::2].reset_index(drop=True))
        results = {}
        for name in RUNS:
            pair = ports.pop()
            config._lightgbm_network_params = None
            config._set_network_params(
                2, pair[rank], ",".join(f"127.0.0.1:{port}" for port in pair)
            )
            keep = Path(folder, f"{task}-{name}-{rank}")
            keep.mkdir()
            params = PARAMS | (
                {"boosting": "dart", "drop_rate": 0.5, "skip_drop": 0.0} if "dart" in name else {}
            )
            if name == "patience":
                params |= {"num_boost_round": 90, "patience": 3}
            checkpoints = {
                "resumed": f"{task}-first-0/3",
                "dart resumed": f"{task}-dart-0/3",
            }  # the checkpoints of step 4
            resume = Path(folder, checkpoints[name]) if name in checkpoints else None
            stop_at = 2 if name == "after a stop" else None
            run = run_loop(
                lightgbm.train_func,
                params,
                current(checkpoint_interval=0.0),
                shards,
                keep,
                resume=resume,
                stop_at=stop_at,
                rank=rank,
                world=2,
            )
            results[name] = (
                run.metrics,
                {step: str(path) for step, path in run.checkpoints.items()},
                run.final,
            )
        out[task] = results
    return out


def train_weighted(rank: int, ports: list[list[int]], folder: str) -> dict[str, Any]:
    from ray.train.lightgbm import config

    def connect() -> None:
        pair = ports.pop()
        config._lightgbm_network_params = None
        config._set_network_params(2, pair[rank], ",".join(f"127.0.0.1:{port}" for port in pair))

    results = {}
    for task in TASKS:
        keep = Path(folder, f"{task}-weighted")
        keep.mkdir(exist_ok=True)  # the ranks share it
        results[task] = run_on_rank("lightgbm", task, rank, connect, keep)
    return results


def train_all(
    rank: int, ports: list[list[int]], folder: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    weighted = train_weighted(rank, ports, folder)
    return train(rank, ports, folder), weighted


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return what both functions return on each rank, in one pair of processes."""
    ports = [[free_port(), free_port()] for _ in range(len(TASKS) * (len(RUNS) + 3))]
    return call_on_two_ranks(
        train_all, ports, str(tmp_path_factory.mktemp("ranks")), timeout=120, group=False
    )


@pytest.mark.parametrize("task", TASKS)
def test_ranks_agree_repeat_and_resume(ranks: Any, task: Any) -> None:
    zero, one = ranks[0][0][task], ranks[1][0][task]
    for name in RUNS:
        assert zero[name][0] == one[name][0] and one[name][1] == {}
    first = zero["first"][0]
    assert len(first) == 8 and zero["again"][0] == first and zero["after a stop"][0] == first[:2]
    assert len(zero["patience"][0]) < 90, "both ranks end early"
    assert zero["resumed"][0] == first[4:] and zero["dart resumed"][0] == zero["dart"][0][4:]
    current, shards = small_table(task, rows=240)
    checkpoint = zero["first"][1][8]
    model = lightgbm.load(checkpoint)
    np.testing.assert_array_equal(
        model.predict(current().check), np.load(Path(checkpoint, "check.npy"))
    )
    valid = shards["valid"].frame
    measured = measure(task, "valid", valid["y"].to_numpy(), model.predict(valid.drop(columns="y")))
    metric = current().metric
    assert metric is not None
    assert measured[metric] == pytest.approx(min(m[metric] for m in first), rel=1e-6)
    assert min(m[metric] for m in first) < 0.9 * first[0][metric]
    assert {name: zero["first"][2][name] for name in measured if name != metric} == pytest.approx(
        {name: value for name, value in measured.items() if name != metric}, rel=1e-6
    )


def test_weights_count_on_two_ranks_as_repeated_rows(ranks: Any) -> None:
    for task in TASKS:
        assert_weights_count_on_two_ranks([weighted[task] for _, weighted in ranks])

"""Train on two ranks with DDP and XGBoost's collective, in two processes without Ray."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sweeps.testing.fake_session import FakeShard, run_loop, small_table
from sweeps.trainers import torch_tabular, xgboost
from sweeps.trainers._metrics import measure
from tests.ranks import call_on_two_ranks
from tests.trainers.test_weights import assert_weights_count_on_two_ranks, run_on_rank

pytestmark = [pytest.mark.integration, pytest.mark.slow]

TASKS = ("binary", "multiclass", "regression")
XGBOOST = {"num_boost_round": 12, "subsample": 0.8}
TORCH = {"epochs": 12, "lr": 0.02, "dropout": 0.1, "batch_size": 32}


def _halves(task: Any, rank: Any) -> Any:
    current, shards = small_table(task)
    train = shards["train"].frame
    return current, {
        "train": FakeShard(train.iloc[rank::2].reset_index(drop=True)),
        "valid": shards["valid"],
    }


def _train(rank: Any, tracker: Any, folder: Any) -> Any:
    """Run every task twice with each trainer in one process."""
    import xgboost as xgb

    out: dict[Any, Any] = {}
    with xgb.collective.CommunicatorContext(**tracker, dmlc_task_id=str(rank)):
        for module, params in ((xgboost, XGBOOST), (torch_tabular, TORCH)):
            for task in TASKS:
                current, shards = _halves(task, rank)
                keep = Path(folder, f"{module.__name__}-{task}-{rank}")
                keep.mkdir()
                once, again = (
                    run_loop(module.train_func, params, current(), shards, keep, rank=rank, world=2)
                    for _ in range(2)
                )
                checkpoint = str(once.checkpoints[12]) if rank == 0 else None
                out[module.__name__, task] = once.metrics, again.metrics, checkpoint, once.final
        current, shards = _halves("binary", rank)
        patient = XGBOOST | {"num_boost_round": 400, "patience": 5}
        run = run_loop(xgboost.train_func, patient, current(), shards, keep, rank=rank, world=2)
        out["patience"] = run.steps, run.metrics
        folders = {task: Path(folder, f"weights-{task}") for task in TASKS}
        for each in folders.values():
            each.mkdir(exist_ok=True)
        out["weights"] = {
            task: run_on_rank("xgboost", task, rank, lambda: None, each)
            for task, each in folders.items()
        }
    return out


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from xgboost.tracker import RabitTracker

    tracker = RabitTracker(n_workers=2, host_ip="127.0.0.1", sortby="task")
    tracker.start()
    return call_on_two_ranks(
        _train, tracker.worker_args(), str(tmp_path_factory.mktemp("ranks")), timeout=80
    )


@pytest.mark.timeout(120)
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("name", ["sweeps.trainers.xgboost", "sweeps.trainers.torch_tabular"])
def test_ranks_agree_and_repeat(ranks: Any, name: str, task: Any) -> None:
    (once, again, checkpoint, final), (once_1, again_1, none, _) = (
        ranks[0][name, task],
        ranks[1][name, task],
    )
    assert len(once) == 12 and checkpoint and none is None
    assert once == again == once_1 == again_1
    current, shards = small_table(task)
    module = {"sweeps.trainers.xgboost": xgboost, "sweeps.trainers.torch_tabular": torch_tabular}[
        name
    ]
    model = module.load(checkpoint)
    np.testing.assert_array_equal(
        model.predict(current().check), np.load(Path(checkpoint, "check.npy"))
    )
    valid = shards["valid"].frame
    measured = measure(task, "valid", valid["y"].to_numpy(), model.predict(valid.drop(columns="y")))
    metric = current().metric
    assert metric is not None
    assert measured[metric] == pytest.approx(min(m[metric] for m in once), rel=1e-5)
    assert min(m[metric] for m in once) < once[0][metric]
    train = shards["train"].frame
    every = measured | measure(
        task, "train", train["y"].to_numpy(), model.predict(train.drop(columns="y"))
    )
    assert (
        final == pytest.approx({k: every[k] for k in final}, rel=2e-3)
        and {f"train-{metric.partition('-')[2]}"} <= final.keys()
    )


@pytest.mark.timeout(120)
def test_patience_ends_all_ranks_after_the_same_round(ranks: Any) -> None:
    assert ranks[0]["patience"] == ranks[1]["patience"]
    assert ranks[0]["patience"][0][-1] < 400


@pytest.mark.timeout(120)
@pytest.mark.parametrize("task", TASKS)
def test_weights_count_on_two_ranks_as_repeated_rows(ranks: Any, task: Any) -> None:
    assert_weights_count_on_two_ranks([rank["weights"][task] for rank in ranks])

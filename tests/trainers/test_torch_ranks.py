"""Train with the trainer `torch` on two ranks in two processes without Ray."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sweeps.testing.fake_session import FakeShard, run_loop, small_table
from sweeps.trainers.torch import load, train_func
from tests.ranks import call_on_two_ranks

pytestmark = [pytest.mark.integration, pytest.mark.extended, pytest.mark.timeout(120)]

OPTIONS = {"model": "tests.networks:Net", "loss": None, "dataset": None}
SAME_ROWS = {
    "epochs": 4,
    "lr": 0.02,
    "batch_size": 16,
    "accumulate": 2,
    "shuffle": False,
    "clip_norm": 1.0,
}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "ddp": ("regression", SAME_ROWS),
    "ddp-dropout": (
        "binary",
        {"epochs": 4, "lr": 0.02, "dropout": 0.2, "norm": True, "precision": "bf16"},
    ),
}


def _run(
    task: Any, params: Any, folder: Any, resume: Any = None, rank: int = 0, world: int = 1
) -> Any:
    make, shards = small_table(task)
    train = shards["train"].frame.iloc[rank::world].reset_index(drop=True)
    folder.mkdir(parents=True)
    current = make(options=OPTIONS, checkpoint_interval=0.0)
    return run_loop(
        train_func,
        params,
        current,
        shards | {"train": FakeShard(train)},
        folder,
        resume=resume,
        rank=rank,
        world=world,
    )


def _train(rank: Any, folder: Any) -> Any:
    """Run every case on one rank: a whole training, and one that continues from the checkpoint of
    step 2.
    """
    results = {}
    for name, (task, params) in CASES.items():
        whole = _run(task, params, Path(folder, name, f"rank-{rank}"), rank=rank, world=2)
        checkpoints = [whole.checkpoints]
        torch.distributed.broadcast_object_list(checkpoints)
        resumed = _run(
            task,
            params,
            Path(folder, name, f"resumed-{rank}"),
            checkpoints[0][2],
            rank=rank,
            world=2,
        )
        results[name] = whole, resumed
    return results


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return call_on_two_ranks(_train, str(tmp_path_factory.mktemp("ranks")), timeout=80)


@pytest.mark.parametrize("name", CASES)
def test_ranks_agree_and_a_resumed_run_equals_an_uninterrupted_one(ranks: Any, name: Any) -> None:
    (whole, resumed), (other, other_resumed) = ranks[0][name], ranks[1][name]
    assert (
        len(whole.metrics) == 4
        and list(whole.checkpoints) == [1, 2, 3, 4]
        and not other.checkpoints
    )
    assert whole.metrics == other.metrics
    assert resumed.metrics == other_resumed.metrics == whole.metrics[2:]
    assert whole.final == other.final == resumed.final


def test_two_ranks_equal_one_rank_with_doubled_batches(ranks: Any, tmp_path: Path) -> None:
    task, params = CASES["ddp"]
    one = _run(task, params | {"batch_size": 32}, tmp_path / "one")
    two = ranks[0]["ddp"][0]
    metric = "valid-rmse"
    np.testing.assert_allclose(
        [m[metric] for m in two.metrics], [m[metric] for m in one.metrics], rtol=1e-5
    )
    wanted = load(str(one.checkpoints[4])).network.state_dict()
    for key, tensor in load(str(two.checkpoints[4])).network.state_dict().items():
        torch.testing.assert_close(tensor, wanted[key], rtol=1e-4, atol=1e-5)
    assert two.final == pytest.approx(one.final, rel=1e-5)

"""Train a Keras model on two ranks, in two processes without Ray."""

from __future__ import annotations

import multiprocessing
import socket
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from sweeps.testing.fake_session import FakeShard, run_loop, small_table

pytestmark = pytest.mark.timeout(240)

MODELS = "tests.frameworks.keras_models"
EPOCHS = 4
# Every batch has all rows of its rank, so two ranks and one rank apply the same gradients.
WHOLE = ("not_compiled", {"epochs": EPOCHS, "optimizer": "sgd", "learning_rate": 0.1, "batch_size": 1_000})
RUNS = {
    "binary": ("compiled", {"epochs": EPOCHS, "batch_size": 16}),
    "regression": ("own", {"epochs": EPOCHS, "batch_size": 16, "learning_rate": 0.02}),
    "multiclass": WHOLE,
}


def _rank(rank, world, port, framework, folder, answers):
    """Train every model, and train it again from its second checkpoint."""
    import torch

    from sweeps.trainers import keras

    torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    out = {}
    for task, (model, params) in RUNS.items():
        current, shards = small_table(task)
        shards["train"] = FakeShard(shards["train"].frame.iloc[rank::world].reset_index(drop=True))
        options = {"model": f"{MODELS}:{model}", "framework": framework, "standardize_target": True}
        found = []
        for resume in (None, Path(folder, f"{task}-{world}-0-0", "1")):
            keep = Path(folder, f"{task}-{world}-{rank}-{len(found)}")
            keep.mkdir()
            cur = current(options=options, checkpoint_interval=0.0)
            torch.distributed.barrier()  # rank 0 has written the checkpoint
            found.append(run_loop(keras.train_func, params, cur, shards, keep, resume=resume, rank=rank, world=world))
        checkpoint = found[0].checkpoints.get(EPOCHS)
        out[task] = [each.metrics for each in found], found[0].final, checkpoint and str(checkpoint)
    torch.distributed.destroy_process_group()
    answers.put((rank, out))


def _train(world: int, framework: str, folder: Path) -> dict:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    started = [context.Process(target=_rank, args=(rank, world, port, framework, str(folder), answers)) for rank in range(world)]
    for process in started:
        process.start()
    try:
        return dict(answers.get(timeout=200) for _ in started)
    finally:
        for process in started:
            process.join(10)
            process.kill()


@pytest.mark.parametrize(
    "framework",
    [pytest.param("torch", marks=pytest.mark.frameworks), pytest.param("tensorflow", marks=pytest.mark.frameworks_all)],
)
def test_two_ranks_train_one_model(tmp_path, framework):
    if not find_spec("keras") or not find_spec(framework):
        pytest.skip(f"needs keras and {framework}")
    two, one = _train(2, framework, tmp_path), _train(1, framework, tmp_path)
    for task in RUNS:
        ((whole, resumed), final, checkpoint), (others, _, none) = two[0][task], two[1][task]
        assert len(whole) == EPOCHS and checkpoint and none is None
        assert others == [whole, resumed], "the ranks report the same numbers"
        assert resumed == whole[2:], "a resumed trial repeats the numbers"
        metric = small_table(task)[0]().metric
        assert {f"{split}-{metric.partition('-')[2]}" for split in ("train",)} <= final.keys()
        check = np.load(Path(checkpoint, "check.npy"))
        assert np.isfinite(check).all()
    task = "multiclass"
    alone, together = one[0][task][0][0], two[0][task][0][0]
    assert [each["valid-mlogloss"] for each in together] == pytest.approx([each["valid-mlogloss"] for each in alone], rel=1e-4)
    assert two[0][task][1]["train-mlogloss"] == pytest.approx(one[0][task][1]["train-mlogloss"], rel=1e-4)

"""Train Keras models on two ranks, in two processes without Ray."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sweeps.testing.fake_session import FakeShard, run_loop, small_table
from tests.ranks import call_on_two_ranks

pytestmark = pytest.mark.timeout(240)

MODELS = "tests.frameworks.keras_models"
EPOCHS = 4
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "binary": ("compiled", {"epochs": EPOCHS, "batch_size": 16}),
    "regression": ("own", {"epochs": EPOCHS, "batch_size": 16, "learning_rate": 0.02}),
    # Every batch has all rows of its rank, so two ranks and one rank apply the same gradients.
    "multiclass": (
        "not_compiled",
        {"epochs": EPOCHS, "optimizer": "sgd", "learning_rate": 0.1, "batch_size": 1_000},
    ),
}


def _train(rank: Any, framework: Any, folder: Any) -> Any:
    """Train each model on one rank of two, then again from the second checkpoint.

    Rank 0 also trains the last model alone.
    """
    import torch

    from sweeps.trainers import keras

    def run(task: Any, name: Any, shards: Any, rank: Any, world: Any, resume: Any = None) -> Any:
        model, params = RUNS[task]
        options = {"model": f"{MODELS}:{model}", "framework": framework, "standardize_target": True}
        cur = small_table(task)[0](options=options, checkpoint_interval=0.0)
        keep = Path(folder, f"{task}-{name}", str(rank))
        keep.mkdir(parents=True)
        return run_loop(
            keras.train_func, params, cur, shards, keep, resume=resume, rank=rank, world=world
        )

    results = {}
    for task in RUNS:
        shards = small_table(task)[1]
        part = shards | {
            "train": FakeShard(shards["train"].frame.iloc[rank::2].reset_index(drop=True))
        }
        whole = run(task, "whole", part, rank, 2)
        torch.distributed.barrier()  # rank 0 has written the checkpoints
        rest = run(task, "rest", part, rank, 2, resume=Path(folder, f"{task}-whole", "0", "1"))
        results[task] = (
            whole.metrics,
            rest.metrics,
            whole.final,
            {step: str(path) for step, path in whole.checkpoints.items()},
        )
    alone = run("multiclass", "alone", shards, 0, 1) if rank == 0 else None
    return results, alone and (alone.metrics, alone.final)


@pytest.mark.parametrize(
    "framework",
    [
        pytest.param("torch", marks=pytest.mark.frameworks),
        pytest.param("tensorflow", marks=pytest.mark.frameworks_all),
    ],
)
def test_two_ranks_train_one_model(tmp_path: Path, framework: str) -> None:
    if not find_spec("keras") or not find_spec(framework):
        pytest.skip(f"needs keras and {framework}")
    (results, (alone, final)), (others, _) = call_on_two_ranks(
        _train, framework, str(tmp_path), timeout=200
    )
    for task, (whole, rest, _, checkpoints) in results.items():
        assert len(whole) == EPOCHS and list(checkpoints) == [1, 2, 3, 4]
        assert rest == whole[2:], "a resumed trial repeats the numbers"
        assert others[task] == (*results[task][:3], {}), (
            "the ranks report the same numbers, and only rank 0 writes checkpoints"
        )
        assert np.isfinite(np.load(Path(checkpoints[EPOCHS], "check.npy"))).all()
    together, _, final_together, _ = results["multiclass"]
    assert [each["valid-mlogloss"] for each in together] == pytest.approx(
        [each["valid-mlogloss"] for each in alone], rel=1e-4
    )
    assert final_together == pytest.approx(final, rel=1e-4)

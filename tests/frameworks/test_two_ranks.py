"""Train with Lightning and Transformers on two ranks, in two processes without Ray."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("lightning")
pytest.importorskip("transformers")

from sweeps.testing.fake_session import FakeShard, run_loop, small_table
from tests.ranks import call_on_two_ranks

pytestmark = [pytest.mark.frameworks_all, pytest.mark.timeout(150)]
MODULES, MODELS = "tests.frameworks.user_modules", "tests.frameworks.user_models"
LIGHTNING = {"module": f"{MODULES}:Net", "datamodule": None, "output": "logits", "strategy": "ddp"}
BERT = {
    "model": f"{MODELS}:bert",
    "tokenizer": None,
    "dataset": f"{MODELS}:bins",
    "standardize_target": True,
}
TASKS = ("binary", "regression")
# Batches that do not divide the 80 rows of a rank.
CASES = {
    "lightning": (LIGHTNING, {"max_epochs": 4, "batch_size": 33, "lr": 0.05}),
    "lightning-datamodule": (
        LIGHTNING
        | {"datamodule": f"{MODULES}:Shuffled", "strategy": "ddp_find_unused_parameters_true"},
        {"max_epochs": 4, "lr": 0.05, "schedule": "plateau"},
    ),
    "transformers": (
        BERT,
        {"num_train_epochs": 4, "per_device_train_batch_size": 33, "learning_rate": 0.01},
    ),
    "transformers-steps": (
        BERT,
        {
            "num_train_epochs": 3,
            "per_device_train_batch_size": 16,
            "eval_strategy": "steps",
            "eval_steps": 4,
            "learning_rate": 0.01,
        },
    ),
}


def _train(rank: Any, folder: Any) -> Any:
    """Run every case on one rank: a whole run, and a resume from its second checkpoint."""
    import torch

    from sweeps.trainers import lightning, transformers

    out = {}
    for name, (options, params) in CASES.items():
        module = lightning if name.startswith("lightning") else transformers
        for task in TASKS[: 1 if "-" in name else 2]:
            current, shards = small_table(task)
            own = {
                "train": FakeShard(shards["train"].frame.iloc[rank::2].reset_index(drop=True)),
                "valid": shards["valid"],
            }
            metric = {"binary": "valid-logloss", "regression": "valid-rmse"}[task]

            def run(
                label: Any,
                resume: Any = None,
                module: Any = module,
                options: Any = options,
                params: Any = params,
                current: Any = current,
                own: Any = own,
                metric: Any = metric,
            ) -> Any:
                cur = current(
                    metric=metric,
                    asked=(metric,),
                    options=options,
                    checkpoint_interval=0.0 if rank == 0 else 1e9,
                )
                keep = Path(folder, label, str(rank))
                keep.mkdir(parents=True)
                return run_loop(
                    module.train_func,
                    dict(params),
                    cur,
                    own,
                    keep,
                    resume=resume,
                    rank=rank,
                    world=2,
                )

            whole = run(f"{name}-{task}")
            checkpoints = [str(path) for path in whole.checkpoints.values()]
            every: list[Any] = [None, None]
            torch.distributed.all_gather_object(every, checkpoints)
            rest = run(f"{name}-{task}-rest", Path(every[0][1]))
            out[name, task] = (
                whole.metrics,
                rest.metrics,
                every[0],
                checkpoints,
                whole.final,
                metric,
            )
    return out


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return call_on_two_ranks(_train, str(tmp_path_factory.mktemp("ranks")), timeout=120)


@pytest.mark.parametrize(
    "name, task", [(name, task) for name in CASES for task in TASKS[: 1 if "-" in name else 2]]
)
def test_ranks_train_one_model_and_a_resume_equals_an_uninterrupted_run(
    ranks: Any, name: Any, task: Any
) -> None:
    from sweeps.trainers import lightning, transformers
    from sweeps.trainers._metrics import measure

    (whole, rest, checkpoints, own, final, metric), (other, _, _, none, other_final, _) = (
        ranks[0][name, task],
        ranks[1][name, task],
    )
    assert (
        len(whole) == len(checkpoints) >= 3
        and own == checkpoints
        and none == []
        and other_final == final
    )
    # Equal but for rounding: DistributedDataParallel orders gradients in memory by the order in
    # which they arrive.
    assert len(rest) == len(whole) - 2
    for resumed, uninterrupted in zip(rest, whole[2:], strict=True):
        assert resumed == pytest.approx(uninterrupted, rel=1e-5)
    assert [each[metric] for each in other] == [each[metric] for each in whole]
    assert min(each[metric] for each in whole) < whole[0][metric]
    current, shards = small_table(task)
    model = (lightning if name.startswith("lightning") else transformers).load(checkpoints[-1])
    np.testing.assert_array_equal(
        model.predict(current().check), np.load(Path(checkpoints[-1], "check.npy"))
    )
    measured: dict[str, float] = {}
    for split, shard in shards.items():
        measured |= measure(
            task, split, shard.frame["y"].to_numpy(), model.predict(shard.frame.drop(columns="y"))
        )
    assert measured[metric] == pytest.approx(min(each[metric] for each in whole), rel=1e-4)
    assert final == pytest.approx({each: measured[each] for each in final}, rel=1e-3) and (
        final == {}
    ) == (name == "lightning-datamodule")

"""Contract test of the Ray adapter: run Ray's documented loops unchanged, and stop them up to 200
times on one warm gang.

No loop may hang or leak. If a new Ray version changes private parts of Ray, this test fails first.
In most cases, only `sweeps/execution/ray_apis/ray_train_adapter.py` then needs changes.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sweeps.core.trial import State
from sweeps.execution.messages import Ranks
from tests.execution.driving import Gang
from tests.processes import wait_until_clean

RUNGS = (1, 2, 3, 4)


def test_ray_still_has_the_names_that_the_adapter_replaces() -> None:
    from ray.train.v2._internal.execution.train_fn_utils import TrainFnUtils

    from sweeps.execution.ray_apis import ray_train_adapter

    ours = {
        "report",
        "get_checkpoint",
        "get_dataset_shard",
        "get_context",
        "get_all_reported_checkpoints",
        "get_preemption_info",
    }
    collectives = {"is_distributed", "barrier", "broadcast_from_rank_zero"}
    assert TrainFnUtils.__abstractmethods__ == ours | collectives, (
        "Ray's TrainFnUtils has other methods now: look at each"
    )
    theirs = set(inspect.signature(TrainFnUtils.report).parameters)
    assert theirs == set(inspect.signature(ray_train_adapter.Utils.report).parameters)


def shard_of(names: list[str], name: str) -> Any:
    """What a loop gets that asks for a dataset by this name, of datasets of these names."""
    from sweeps.execution.messages import Data
    from sweeps.execution.worker.dataset_cache import DatasetCache

    cache = DatasetCache(Data(dict.fromkeys(names, ()), None))
    rows: Any = {n: f"the {n} rows" for n in names}
    cache.opened.update(rows)
    return cache.shard(name, Ranks())


@pytest.mark.parametrize("name", ["validation", "val", "eval", "evaluation"])
def test_the_names_of_the_valid_shard_in_rays_tutorials_work(name: str) -> None:
    assert shard_of(["train", "valid"], name) == "the valid rows"
    assert shard_of(["train", "valid", name], name) == f"the {name} rows"


def test_a_dataset_that_is_not_there_is_named() -> None:
    with pytest.raises(KeyError, match=r"`tset`.* train, valid"):
        shard_of(["train", "valid"], "tset")
    with pytest.raises(KeyError, match=r"never sees the split `test`; evaluate on `valid`"):
        shard_of(["train", "valid"], "test")
    with pytest.raises(KeyError, match=r"`train`.* has no section `data`"):
        shard_of([], "train")


def test_ray_still_reads_the_session_of_train_v1() -> None:
    from ray.train._internal import session as first_version

    from sweeps.execution.ray_apis import ray_train_adapter

    session: Any = SimpleNamespace(name="a", folder="b", ranks=Ranks())
    context = ray_train_adapter.Context(session.ranks, session)
    ours = ray_train_adapter.TuneSession(session, context)
    asked = set(
        re.findall(r"(?:get_session\(\)|return session)\.(\w+)", inspect.getsource(first_version))
    )
    assert "loaded_checkpoint" in asked
    of_workers_of_the_first_version = {"accelerator"}
    assert not {
        name
        for name in asked - of_workers_of_the_first_version
        if not (name in vars(ours) or hasattr(type(ours), name))
    }


@pytest.mark.parametrize("distributed", [False, True])
def test_every_way_to_report_reaches_the_trial_while_it_is_in_place(
    tmp_path: Path, distributed: bool
) -> None:
    import ray.train
    import ray.tune
    from ray.air import session as air
    from ray.train._internal.session import get_session
    from ray.tune import get_checkpoint, report

    from sweeps.execution.ray_apis import ray_train_adapter

    seen = []
    trial = SimpleNamespace(
        name="t-0001",
        folder=str(tmp_path),
        report=lambda metrics, checkpoint: seen.append((metrics, checkpoint)),
    )
    trial.checkpoint, trial.shard = lambda: "checkpoint", lambda name: f"shard {name}"
    trial.ranks = Ranks(0, 2, 0, 2) if distributed else Ranks()
    with ray_train_adapter.redirect_calls(trial):
        for by in (ray.train.report, ray.tune.report, air.report, report):
            by({"loss": 1.0}, checkpoint="mine")
        assert (
            get_checkpoint()
            == ray.tune.get_checkpoint()
            == ray.train.get_checkpoint()
            == air.get_checkpoint()
            == "checkpoint"
        )
        assert (
            ray.train.get_dataset_shard("valid") == air.get_dataset_shard("valid") == "shard valid"
        )
        context = ray.tune.get_context()
        assert (
            context.get_trial_id() == context.get_experiment_name() == "t-0001"
            and context.get_trial_dir() == str(tmp_path)
        )
        assert air.get_world_size() == context.get_world_size() == (2 if distributed else 1)
    assert seen == [({"loss": 1.0}, "mine")] * 4
    assert get_session() is None


def test_a_dataset_method_that_shards_lack_is_refused_with_an_alternative() -> None:
    from sweeps.execution.ray_apis import ray_data_adapter

    dataset: Any = SimpleNamespace()
    shard = ray_data_adapter.Shard(dataset)
    with pytest.raises(
        ray_data_adapter.LazyData,
        match=r"map_batches: a training loop cannot transform a Ray Dataset, .*; put the "
        r"transformation into `space.preprocessor`",
    ):
        shard.map_batches(len)
    with pytest.raises(
        ray_data_adapter.LazyData,
        match=r"random_shuffle: .*`local_shuffle_buffer_size`.*`iter_batches`",
    ):
        shard.random_shuffle()
    with pytest.raises(AttributeError, match="'Shard' object has no attribute 'nothing'"):
        shard.nothing  # noqa: B018
    assert not hasattr(shard, "map") and shard.materialize() is not None


KINDS = [("torch", 2), ("xgboost", 2), ("torch", 1)]
ONLY_TORCH = pytest.mark.parametrize("gang", KINDS[:1], ids=["torch-2"], indirect=True)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(kind, id="{}-{}".format(*kind), marks=[pytest.mark.extended] * (kind[1] == 1))
        for kind in KINDS
    ],
)
def gang(
    request: pytest.FixtureRequest, local_ray: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gang]:
    """One gang of each backend and size for all tests that ask for it.

    It holds its CPUs: tests without it come first in this file. The loop `reads` patches Ray Data
    in the gang's processes for good.
    """
    backend, workers = request.param
    metric = {"torch": "loss", "xgboost": "valid-rmse"}[backend]
    gang = Gang(workers, backend, tmp_path_factory.mktemp("gang"), RUNGS, metric)
    yield gang
    gang.close()
    wait_until_clean(local_ray)


@pytest.mark.integration
@pytest.mark.timeout(180)
@ONLY_TORCH
def test_shard_is_read_in_place_without_ray_data_actor(gang: Any) -> None:
    state, reports = gang.run("reads")
    assert state is State.COMPLETE and reports[0].metrics["loss"] == 256 / gang.workers


@pytest.mark.integration
@pytest.mark.timeout(180)
@ONLY_TORCH
def test_a_data_loader_is_shared_out_and_the_storage_is_the_trials_folder(gang: Any) -> None:
    workers, t = gang.workers, gang.trial("loads_and_stores")
    state, reports = gang.driving.reports_of(t)
    assert state is State.COMPLETE
    assert reports[0].metrics == {"loss": 256 / workers, "world": workers}
    folder = gang.folder / t.id
    seen = [
        int(n)
        for rank in range(workers)
        for n in (folder / f"seen-test-{t.id}-{rank}").read_text().split()
    ]
    assert sorted(seen) == list(range(256)) and seen != sorted(seen)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "stops",
    [pytest.param(4, marks=pytest.mark.integration), pytest.param(200, marks=pytest.mark.long)],
)
def test_documented_loops_stop_anywhere_and_leave_nothing(gang: Any, stops: int) -> None:
    def run(
        stop_at: int | None, lr: float, seed: int | None = None
    ) -> tuple[State | None, list[float]]:
        state, reports = gang.run(f"{gang.backend}_loop", stop_at, seed=seed, lr=lr)
        return state, [
            r.metrics["loss" if gang.backend == "torch" else "valid-rmse"] for r in reports
        ]

    first = run(None, 0.05, seed=7)
    assert first[0] is State.COMPLETE
    for i in range(1, stops + 1):
        stop_at = RUNGS[i % len(RUNGS)]
        state, losses = run(stop_at, 0.01 + 0.0005 * i)
        assert (state, len(losses)) == (State.PRUNED, stop_at)
    last = run(None, 0.05, seed=7)
    assert last == first, "the same trial first and last on a warm gang gives other metrics"

"""The one place that knows Ray Train's insides: it puts a trial where Ray Train keeps its session.

`ray.train.report`, `get_checkpoint`, `get_dataset_shard` and `get_context`, imported by name or not, all go through one object,
`TrainFnUtils` ("This class can be patched if new user APIs behaviors is wanted"). Around each trial we put our own subclass in its
place. `ray.tune.report` and the rest of Tune's functions, and the older `ray.air.session`, all go through another object, the
session of Ray Train's first version; each trial has one of those too. Both are private all the same
(ray/train/v2/_internal/execution/train_fn_utils.py, ray/train/_internal/session.py), hence in this file alone, with
tests/execution/test_seam.py to say what broke when Ray changes. So are the network parameters of Ray's LightGBM backend, and the
executor of Ray Data, which is asked to refuse what would hang, and its statistics.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import ray
import ray.data
import ray.train
from ray.data._internal.execution.operators.input_data_buffer import InputDataBuffer
from ray.data._internal.execution.operators.limit_operator import LimitOperator
from ray.data._internal.execution.streaming_executor import StreamingExecutor
from ray.data._internal.iterator.iterator_impl import DataIteratorImpl
from ray.data._internal.stats import _StatsManager
from ray.train._internal import session as first_version
from ray.train.v2._internal.execution.storage import StorageContext
from ray.train.v2._internal.execution.train_fn_utils import TrainFnUtils, set_train_fn_utils
from ray.train.v2.api.context import TrainContext

from sweeps.execution.messages import Ranks


class Session(Protocol):
    """What this module asks of the running trial; `trial_session.TrialSession` is the real one."""

    name: str
    folder: str
    ranks: Ranks

    def report(self, metrics: dict[str, Any], checkpoint: ray.train.Checkpoint | None) -> None:
        """Record a report."""

    def checkpoint(self) -> ray.train.Checkpoint | None:
        """Return the checkpoint to continue from."""

    def shard(self, name: str) -> Any:
        """Return this rank's part of a dataset."""

    def exchange(self, value: Any) -> list[Any]:
        """Wait for a value of every rank; return all values by rank."""


class Context(TrainContext):
    """What `ray.train.get_context()` returns: the ranks of the gang, and name and folder of the trial.

    Args:
        ranks: Place of this process in its gang.
        session: The trial; None between trials, when backends connect a gang.
    """

    def __init__(self, ranks: Ranks, session: Session | None = None):
        self._ranks, self._session = ranks, session

    def get_experiment_name(self) -> str:
        return "" if self._session is None else self._session.name

    def get_trial_name(self) -> str:  # Ray deprecated these two with Train V2; its older tutorials still call them.
        return self.get_experiment_name()

    def get_trial_id(self) -> str:
        return self.get_experiment_name()

    def get_world_size(self) -> int:
        return self._ranks.world_size

    def get_world_rank(self) -> int:
        return self._ranks.rank

    def get_local_rank(self) -> int:
        return self._ranks.local_rank

    def get_local_world_size(self) -> int:
        return self._ranks.local_world_size

    def get_node_rank(self) -> int:
        return self._ranks.node_rank

    def get_storage(self) -> StorageContext:
        if self._session is None:
            raise RuntimeError("there is no storage between trials")
        folder = Path(self._session.folder)
        return StorageContext(storage_path=str(folder.parent), experiment_dir_name=folder.name)


class Utils(TrainFnUtils):
    """What all functions of `ray.train` go through.

    Args:
        ranks: Place of this process in its gang.
        session: The trial; None between trials.
    """

    def __init__(self, ranks: Ranks, session: Session | None = None):
        self._ranks, self._session = ranks, session

    @property
    def session(self) -> Session:
        """The trial."""
        if self._session is None:
            raise RuntimeError("no trial is running in this process")
        return self._session

    def report(
        self,
        metrics,
        checkpoint=None,
        checkpoint_dir_name=None,
        checkpoint_upload_mode=None,
        delete_local_checkpoint_after_upload=None,
        checkpoint_upload_fn=None,
        validation=False,
    ) -> None:
        if checkpoint is not None and checkpoint_upload_fn is not None:
            checkpoint = checkpoint_upload_fn(checkpoint, checkpoint_dir_name or "checkpoint")
        self.session.report(metrics, checkpoint)
        if checkpoint is not None and delete_local_checkpoint_after_upload:
            shutil.rmtree(checkpoint.path, ignore_errors=True)

    def get_checkpoint(self):
        return self.session.checkpoint()

    def get_dataset_shard(self, dataset_info):
        return self.session.shard(dataset_info.dataset_name)

    def get_context(self) -> TrainContext:
        return Context(self._ranks, self._session)

    def get_all_reported_checkpoints(self, *args, **kwargs):
        return []

    def get_preemption_info(self):
        return None

    def is_distributed(self) -> bool:
        return self._ranks.world_size > 1

    def barrier(self) -> None:
        self.session.exchange(None)

    def broadcast_from_rank_zero(self, data: Any) -> Any:
        return self.session.exchange(data if self._ranks.rank == 0 else None)[0]


class TuneSession:
    """A trial as Tune's functions and callbacks and `ray.air.session` see it.

    Has what `ray.train._internal.session` reads of its `_TrainSession`. `world_rank` is a number, though a Tune function has none:
    without it `ray.train.report` would be refused, which a loop may call as well.
    """

    metadata = None

    def __init__(self, session: Session, context: Any):
        self._session, self._context = session, context
        self.experiment_name = self.trial_name = self.trial_id = self.run_id = session.name
        self.trial_dir = session.folder
        self.world_rank, self.world_size = context.get_world_rank(), context.get_world_size()
        self.local_rank, self.local_world_size = context.get_local_rank(), context.get_local_world_size()
        self.node_rank = context.get_node_rank()

    def report(self, metrics: dict[str, Any], checkpoint: ray.train.Checkpoint | None = None) -> None:
        self._session.report(metrics, checkpoint)

    @property
    def loaded_checkpoint(self) -> ray.train.Checkpoint | None:
        return self._session.checkpoint()

    def get_dataset_shard(self, dataset_name: str | None = None) -> Any:
        return self._session.shard(dataset_name or ray.train.TRAIN_DATASET_KEY)

    @property
    def storage(self) -> StorageContext:
        return self._context.get_storage()

    @property
    def trial_resources(self) -> Any:
        from ray.tune import PlacementGroupFactory

        return PlacementGroupFactory([ray.get_runtime_context().get_assigned_resources()] * self.world_size)


class Shard(DataIteratorImpl):
    """What `get_dataset_shard` gives of a Ray Dataset in memory: it is read where it lies.

    Ray's own would run an executor to materialize it once more, which starts an actor for the cluster's autoscaling.
    """

    def materialize(self):
        return self._base_dataset

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and hasattr(ray.data.Dataset, name):
            raise LazyData(f"{name}: {REFUSAL}: {_instead(name)}")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


class LazyData(RuntimeError, AttributeError):
    """A loop has Ray Data transform rows: its tasks would wait for a CPU that the gangs hold until the trial ends.

    An AttributeError as well, so that `hasattr` of what a shard has not says False.
    """


# What else of a Dataset runs tasks: none of it goes through the executor.
TASKS = ("split", "split_at_indices", "split_proportionately", "train_test_split", "to_arrow_refs", "to_numpy_refs", "to_pandas_refs")
REFUSAL = "shards are ready to be read; a transformation of a Ray Dataset inside a loop would wait for CPUs that the trials hold"
INSTEAD = "put it into `space.preprocessor`, or transform what `to_pandas()` or a batch gives"
SHUFFLE = "pass `local_shuffle_buffer_size` to `iter_batches` or `iter_torch_batches` of the shard, which shuffles as it reads"


def _instead(what: str) -> str:
    """What a loop can do in place of a transformation."""
    return SHUFFLE if "shuffle" in what.lower() else INSTEAD


def read_data_in_place() -> None:
    """From now on a Ray Dataset can be read in this process but not transformed, which would hang; and what is read is not counted.

    Ray Data would start an actor for counting it, two seconds of a core.
    """
    executor: Any = StreamingExecutor
    manager: Any = _StatsManager
    plain = executor.execute

    def refused(what: str) -> Any:
        def refuse(*args: Any, **kwargs: Any) -> Any:
            raise LazyData(f"{what}: {REFUSAL}: {_instead(what)}")

        return refuse

    def execute(self: Any, dag: Any, *args: Any, **kwargs: Any) -> Any:
        reads = dag.input_dependencies[0] if isinstance(dag, LimitOperator) else dag  # `take` and `show` slice, without a task
        if not isinstance(reads, InputDataBuffer):
            refused(" -> ".join(op.name for op in dag.post_order_iter() if not isinstance(op, InputDataBuffer)))()
        return plain(self, dag, *args, **kwargs)

    executor.execute = execute
    for name in TASKS:
        setattr(ray.data.Dataset, name, refused(name))
    manager.update_iteration_metrics = lambda *args, **kwargs: None


def refuse_shutdown() -> None:
    """From now on `ray.shutdown()` is refused in this process: it is a worker, and `ray.train` would start a Ray of its own in it."""

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("ray.shutdown() inside a training loop would end its worker; leave it out")

    ray.shutdown = refuse


def set_ranks(ranks: Ranks | None) -> None:
    """Tell `ray.train` in this process its place in a gang, between trials; None if it is in no gang."""
    set_train_fn_utils(None if ranks is None else Utils(ranks))


@contextlib.contextmanager
def in_place(session: Session) -> Iterator[None]:
    """While this lasts, the functions of `ray.train`, `ray.tune` and `ray.air.session` in this process use `session`."""
    utils = Utils(session.ranks, session)
    set_train_fn_utils(utils)
    place: Any = first_version
    place._session = TuneSession(session, utils.get_context())
    try:
        yield
    finally:
        place._session = None
        set_ranks(session.ranks)

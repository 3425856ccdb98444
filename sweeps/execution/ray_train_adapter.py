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
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import ray
import ray.data
import ray.train
from ray._common.network_utils import build_address, is_ipv6
from ray.data._internal.execution.operators.input_data_buffer import InputDataBuffer
from ray.data._internal.execution.operators.limit_operator import LimitOperator
from ray.data._internal.execution.streaming_executor import StreamingExecutor
from ray.data._internal.iterator.iterator_impl import DataIteratorImpl
from ray.data._internal.stats import _StatsManager
from ray.train._internal import session as first_version
from ray.train.v2._internal.execution.storage import StorageContext
from ray.train.v2._internal.execution.train_fn_utils import (
    DistributedTrainFnUtils,
    LocalTrainFnUtils,
    get_train_fn_utils,
    set_train_fn_utils,
)
from ray.train.v2.api.context import DistributedTrainContext, LocalTrainContext


class Session(Protocol):
    """What the seam asks of the trial at hand; `rank.TrialSession` is the real one."""

    name: str
    folder: str

    def report(self, metrics: dict[str, Any], checkpoint: ray.train.Checkpoint | None) -> None: ...

    def checkpoint(self) -> ray.train.Checkpoint | None: ...

    def shard(self, name: str) -> Any: ...


class _TrialUtils:
    """The methods of `TrainFnUtils` that a trial answers itself; mixed into Ray's own two classes, which keep the rest."""

    session: Session

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
            import shutil

            shutil.rmtree(checkpoint.path, ignore_errors=True)

    def get_checkpoint(self):
        return self.session.checkpoint()

    def get_dataset_shard(self, dataset_info):
        return self.session.shard(dataset_info.dataset_name)

    def get_all_reported_checkpoints(self, *args, **kwargs):
        return []

    def get_preemption_info(self):
        return None


class _TrialContext:
    """`get_context()` of a trial: the gang's ranks, the trial's name and folder."""

    session: Session

    def get_experiment_name(self) -> str:
        return self.session.name

    def get_trial_name(self) -> str:  # Ray deprecated these two with Train V2; its older tutorials still call them
        return self.session.name

    def get_trial_id(self) -> str:
        return self.session.name

    def get_storage(self) -> StorageContext:
        folder = Path(self.session.folder)
        return StorageContext(storage_path=str(folder.parent), experiment_dir_name=folder.name)


class _LocalContext(_TrialContext, LocalTrainContext):
    pass


class _DistributedContext(_TrialContext, DistributedTrainContext):
    pass


class _LocalUtils(_TrialUtils, LocalTrainFnUtils):
    def get_context(self):
        context = _LocalContext(experiment_name=self.session.name)
        context.session = self.session
        return context


class _DistributedUtils(_TrialUtils, DistributedTrainFnUtils):
    def get_context(self):
        context = _DistributedContext()
        context.session = self.session
        return context


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


def read_data_where_it_lies() -> None:
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


def keep_ray() -> None:
    """From now on `ray.shutdown()` is refused in this process: it is a worker, and `ray.train` would start a Ray of its own in it."""

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("ray.shutdown() inside a training loop would end its worker; leave it out")

    ray.shutdown = refuse


@contextlib.contextmanager
def in_place(session: Session, distributed: bool) -> Iterator[None]:
    """While this lasts, the functions of `ray.train`, `ray.tune` and `ray.air.session` in this process speak to `session`.

    Args:
        session: the trial at hand.
        distributed: the process is a rank of a Ray Train run, whose ranks and collectives stay in force.
    """
    try:
        outer = get_train_fn_utils()
    except RuntimeError:
        outer = None
    utils: Any = _DistributedUtils() if distributed else _LocalUtils(experiment_name=session.name)
    utils.session = session
    set_train_fn_utils(utils)
    place: Any = first_version
    older, place._session = place._session, TuneSession(session, utils.get_context())
    try:
        yield
    finally:
        place._session = older
        set_train_fn_utils(outer)


@contextlib.contextmanager
def free_address() -> Iterator[tuple[str, int]]:
    """This node's address and a port of it that nobody else is given while this lasts."""
    node = ray.util.get_node_ip_address()
    with socket.socket(socket.AF_INET6 if is_ipv6(node) else socket.AF_INET, socket.SOCK_STREAM) as held:
        held.bind(("", 0))
        yield node, held.getsockname()[1]


def renew_lightgbm_network(rank: int, addresses: Sequence[tuple[str, int]]) -> None:
    """Have `ray.train.lightgbm.get_network_params` name another network, which no trial has used.

    Ray's backend names one in the life of a process. LightGBM cannot bind its ports again: a model that is still referenced holds them,
    and after that the kernel does for a minute.

    Args:
        rank: of this process.
        addresses: of all ranks, in their order.
    """
    from ray.train.lightgbm import config

    if (lightgbm := sys.modules.get("lightgbm.basic")) is not None:
        lightgbm._LIB.LGBM_NetworkFree()
    config._lightgbm_network_params = None
    machines = ",".join(build_address(node, port) for node, port in addresses)
    config._set_network_params(num_machines=len(addresses), local_listen_port=addresses[rank][1], machines=machines)


def ranks() -> tuple[int, int]:
    """(rank, world size) of this process in its Ray Train run."""
    context = ray.train.get_context()
    return context.get_world_rank(), context.get_world_size()

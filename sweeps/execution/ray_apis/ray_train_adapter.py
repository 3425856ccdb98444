"""Connect the functions of `ray.train` and `ray.tune` in a training loop to the running trial.

`ray.train.report`, `get_checkpoint`, `get_dataset_shard` and `get_context` all use one object, an
instance of `TrainFnUtils`. Ray documents that this class may be patched. While a trial runs, the
object is replaced by an instance of the subclass `Utils`.

`ray.tune.report`, Tune's other functions and the older `ray.air.session` use another object, the
session of Ray Train's first version. While a trial runs, this session is replaced by a
`TuneSession`.

Both objects are private parts of Ray (ray/train/v2/_internal/execution/train_fn_utils.py,
ray/train/_internal/session.py). No other module replaces these objects. The contract test,
tests/execution/test_ray_train_adapter.py, shows what a new Ray version breaks.
"""

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn, Protocol

import ray
import ray.data
import ray.train
from ray.train._internal import session as first_version
from ray.train.v2._internal.data_integration.interfaces import DatasetShardMetadata
from ray.train.v2._internal.execution.storage import StorageContext
from ray.train.v2._internal.execution.train_fn_utils import TrainFnUtils, set_train_fn_utils
from ray.train.v2.api.context import TrainContext

from sweeps.execution.messages import Ranks

# Uploads a checkpoint to the folder of the given name, and returns the uploaded checkpoint.
Upload = Callable[[ray.train.Checkpoint, str], ray.train.Checkpoint]


class Session(Protocol):
    """Interface of a running trial that this module uses.

    `trial_session.TrialSession` implements this interface.

    Attributes:
        name: Name of the sweep, a hyphen and the id of the trial.
        folder: The trial's folder.
        ranks: Place of this process in its gang.
    """

    name: str
    folder: str
    ranks: Ranks

    def report(self, metrics: dict[str, Any], checkpoint: ray.train.Checkpoint | None) -> None:
        """Record a report of the loop."""

    def checkpoint(self) -> ray.train.Checkpoint | None:
        """Return the checkpoint to continue from; None if the trial starts from scratch."""

    def shard(self, name: str) -> ray.data.DataIterator:
        """Return this rank's part of a dataset."""

    def exchange(self, value: Any) -> list[Any]:
        """Wait until every rank has given a value; return all values, ordered by rank."""


class Context(TrainContext):
    """Object that `ray.train.get_context()` returns in a worker.

    It tells the process its rank, and the name and folder of the trial.

    Args:
        ranks: Place of this process in its gang.
        session: The running trial; None between trials, while a backend connects a gang.
    """

    def __init__(self, ranks: Ranks, session: Session | None = None):
        self._ranks = ranks
        self._session = session

    def get_experiment_name(self) -> str:
        """Return the name of the sweep, a hyphen and the id of the trial; "" between trials."""
        return "" if self._session is None else self._session.name

    # Train V2 deprecates the next two methods. Older tutorials of Ray still call them.

    def get_trial_name(self) -> str:
        """Return the same name as `get_experiment_name`."""
        return self.get_experiment_name()

    def get_trial_id(self) -> str:
        """Return the same name as `get_experiment_name`."""
        return self.get_experiment_name()

    def get_world_size(self) -> int:
        """Return the number of workers in the gang."""
        return self._ranks.world_size

    def get_world_rank(self) -> int:
        """Return the rank of this process in the gang."""
        return self._ranks.rank

    def get_local_rank(self) -> int:
        """Return the rank of this process among the gang's workers on this node."""
        return self._ranks.local_rank

    def get_local_world_size(self) -> int:
        """Return the number of the gang's workers on this node."""
        return self._ranks.local_world_size

    def get_node_rank(self) -> int:
        """Return the rank of this node among the gang's nodes."""
        return self._ranks.node_rank

    def get_storage(self) -> StorageContext:
        """Return a storage context for the trial's folder.

        Raises:
            RuntimeError: No trial is running.
        """
        if self._session is None:
            raise RuntimeError("no trial is running in this process, so there is no storage")
        folder = Path(self._session.folder)
        return StorageContext(storage_path=str(folder.parent), experiment_dir_name=folder.name)


class Utils(TrainFnUtils):
    """Implementation of the functions of `ray.train` in a worker.

    Args:
        ranks: Place of this process in its gang.
        session: The running trial; None between trials.
    """

    def __init__(self, ranks: Ranks, session: Session | None = None):
        self._ranks = ranks
        self._session = session

    @property
    def session(self) -> Session:
        """The running trial.

        Raises:
            RuntimeError: No trial is running.
        """
        if self._session is None:
            raise RuntimeError("no trial is running in this process")
        return self._session

    def report(
        self,
        metrics: dict[str, Any],
        checkpoint: ray.train.Checkpoint | None = None,
        checkpoint_dir_name: str | None = None,
        checkpoint_upload_mode: object = None,
        delete_local_checkpoint_after_upload: bool | None = None,
        checkpoint_upload_fn: Upload | None = None,
        validation: object = False,
    ) -> None:
        """Implement `ray.train.report`.

        Args:
            metrics: Dict of metrics.
            checkpoint: A `ray.train.Checkpoint`; None to report without a checkpoint.
            checkpoint_dir_name: Argument for `checkpoint_upload_fn`. Ignored without this function.
            checkpoint_upload_mode: Ignored. Checkpoints are copied before the call returns.
            delete_local_checkpoint_after_upload: True to delete the reported folder after the
                copy.
            checkpoint_upload_fn: Function that uploads the checkpoint and returns the uploaded
                checkpoint, which is then copied; None to copy `checkpoint`.
            validation: Ignored.
        """
        if checkpoint is not None and checkpoint_upload_fn is not None:
            checkpoint = checkpoint_upload_fn(checkpoint, checkpoint_dir_name or "checkpoint")
        self.session.report(metrics, checkpoint)
        if checkpoint is not None and delete_local_checkpoint_after_upload:
            shutil.rmtree(checkpoint.path, ignore_errors=True)

    def get_checkpoint(self) -> ray.train.Checkpoint | None:
        """Return the checkpoint to continue from; None if the trial starts from scratch."""
        return self.session.checkpoint()

    def get_dataset_shard(self, dataset_info: DatasetShardMetadata) -> ray.data.DataIterator:
        """Return this rank's part of the dataset whose name is in `dataset_info`."""
        return self.session.shard(dataset_info.dataset_name)

    def get_context(self) -> Context:
        """Return the context of the trial."""
        return Context(self._ranks, self._session)

    def get_all_reported_checkpoints(self, *args: object, **kwargs: object) -> list[Any]:
        """Return an empty list: workers do not store the list of reported checkpoints."""
        return []

    def get_preemption_info(self) -> None:
        """Return None, which means that the worker is not about to be preempted."""
        return None

    def is_distributed(self) -> bool:
        """Return whether the gang has several workers."""
        return self._ranks.world_size > 1

    def barrier(self) -> None:
        """Wait until every rank has called this method."""
        self.session.exchange(None)

    def broadcast_from_rank_zero(self, data: Any) -> Any:
        """Return the `data` of rank 0 on every rank."""
        return self.session.exchange(data if self._ranks.rank == 0 else None)[0]


class TuneSession:
    """Session by which Tune's functions, callbacks and `ray.air.session` reach the running trial.

    This class has every attribute that `ray.train._internal.session` reads from a `_TrainSession`.
    In Ray Tune, `world_rank` of such a session is None. Here it is a number, because with None Ray
    would reject calls of `ray.train.report` in the same loop.

    Args:
        session: The running trial.
        context: Context of the trial, as `ray.train.get_context()` returns it.
    """

    metadata = None

    def __init__(self, session: Session, context: Context):
        self._session = session
        self._context = context
        self.experiment_name = self.trial_name = self.trial_id = self.run_id = session.name
        self.trial_dir = session.folder
        ranks = session.ranks
        self.world_rank = ranks.rank
        self.world_size = ranks.world_size
        self.local_rank = ranks.local_rank
        self.local_world_size = ranks.local_world_size
        self.node_rank = ranks.node_rank

    def report(
        self, metrics: dict[str, Any], checkpoint: ray.train.Checkpoint | None = None
    ) -> None:
        """Record a report of the loop."""
        self._session.report(metrics, checkpoint)

    @property
    def loaded_checkpoint(self) -> ray.train.Checkpoint | None:
        """The checkpoint to continue from; None if the trial starts from scratch."""
        return self._session.checkpoint()

    def get_dataset_shard(self, dataset_name: str | None = None) -> ray.data.DataIterator:
        """Return this rank's part of a dataset. If the name is None, the dataset is "train"."""
        return self._session.shard(dataset_name or ray.train.TRAIN_DATASET_KEY)

    @property
    def storage(self) -> StorageContext:
        """Storage context for the trial's folder."""
        return self._context.get_storage()

    @property
    def trial_resources(self) -> Any:
        """Placement group factory with one bundle for each worker of the gang."""
        from ray.tune import PlacementGroupFactory

        return PlacementGroupFactory(
            [ray.get_runtime_context().get_assigned_resources()] * self.world_size
        )


def refuse_shutdown() -> None:
    """Patch `ray.shutdown` in this process, so that each call raises an exception.

    After a shutdown, this process would no longer be a worker, and `ray.train` would start another
    Ray in this process.
    """

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(
            "a training loop must not call ray.shutdown(), because the call would end the loop's "
            "worker; remove the call"
        )

    ray.shutdown = refuse


def set_ranks(ranks: Ranks | None) -> None:
    """Set what `ray.train.get_context()` returns in this process while no trial runs.

    Args:
        ranks: Place in the gang; None if this process belongs to no gang.
    """
    set_train_fn_utils(None if ranks is None else Utils(ranks))


@contextlib.contextmanager
def redirect_calls(session: Session) -> Iterator[None]:
    """Let functions of Ray in this process call `session` while the `with` block runs.

    They are the functions of `ray.train`, `ray.tune` and `ray.air.session`.
    """
    utils = Utils(session.ranks, session)
    set_train_fn_utils(utils)
    module: Any = first_version  # Its types lack the private attribute.
    module._session = TuneSession(session, utils.get_context())
    try:
        yield
    finally:
        module._session = None
        set_ranks(session.ranks)

"""Shards of Ray Datasets in a training loop, and a patch of Ray Data's executor.

The patch rejects transformations that would hang, and turns off Ray Data's statistics. It uses
private parts of Ray (ray/data/_internal). The contract test,
tests/execution/test_ray_train_adapter.py, shows what a new Ray version breaks.
"""

import functools
from typing import Any, NoReturn

import ray
import ray.data
import ray.train
from ray.actor import ActorHandle
from ray.data._internal.execution.interfaces import PhysicalOperator
from ray.data._internal.execution.operators.input_data_buffer import InputDataBuffer
from ray.data._internal.execution.operators.limit_operator import LimitOperator
from ray.data._internal.execution.streaming_executor import StreamingExecutor
from ray.data._internal.iterator.iterator_impl import DataIteratorImpl
from ray.data._internal.stats import _StatsManager


class DatasetIterator(DataIteratorImpl):
    """Dataset shard that refuses the methods of a `ray.data.Dataset` that it lacks."""

    def __getattr__(self, name: str) -> NoReturn:
        if not name.startswith("_") and hasattr(ray.data.Dataset, name):
            raise self.refusal(name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def refusal(self, name: str) -> AttributeError:
        """Return the error for a method of a `Dataset`, which says what to do instead."""
        return LazyData(_refusal(name))


class Shard(DatasetIterator):
    """Dataset shard that `get_dataset_shard` returns. Its Ray Dataset is already in memory.

    Ray's own class would execute the dataset again, and start an actor for the cluster's
    autoscaling.
    """

    def materialize(self) -> Any:
        """Return the dataset of this shard, which is already in memory."""
        return self._base_dataset


class Stream(DatasetIterator):
    """Dataset shard that `get_dataset_shard` returns if the data is streamed.

    Each iteration reads the rows anew.
    """

    def refusal(self, name: str) -> AttributeError:
        """Return the error for a method of a `Dataset`."""
        return AttributeError(
            f"a streamed shard has no method `{name}`; call `materialize().{name}(...)`, or "
            "transform its batches"
        )


def coordinator_of(part: ray.data.DataIterator) -> ActorHandle[Any]:
    """Return the handle of the actor that feeds one iterator of `Dataset.streaming_split`."""
    iterator: Any = part  # Its types lack the private attribute.
    handle: ActorHandle[Any] = iterator._coord_actor
    return handle


class LazyData(RuntimeError, AttributeError):
    """Raised when a loop transforms a Ray Dataset.

    The transformation would run in Ray tasks. They would wait for a CPU, but workers hold all CPUs
    until the trial ends.

    The class is also an AttributeError, so that `hasattr(shard, name)` is False for the methods
    that a shard lacks.
    """


# Methods of a Dataset that run Ray tasks without the executor.
METHODS_WITH_TASKS = (
    "split",
    "split_at_indices",
    "split_proportionately",
    "train_test_split",
    "to_arrow_refs",
    "to_numpy_refs",
    "to_pandas_refs",
)
REFUSAL = (
    "a training loop cannot transform a Ray Dataset, because the transformation would wait for "
    "CPUs that the trials hold"
)
INSTEAD = (
    "put the transformation into `space.preprocessor`, or transform the batches or the result of "
    "`to_pandas()`"
)
SHUFFLE = (
    "to shuffle the rows, pass `local_shuffle_buffer_size` to `iter_batches` or "
    "`iter_torch_batches` of the shard"
)


def _refusal(transformation: str) -> str:
    """Return the message that refuses a transformation, such as `map_batches`."""
    hint = SHUFFLE if "shuffle" in transformation.lower() else INSTEAD
    return f"{transformation}: {REFUSAL}; {hint}"


def read_data_in_place() -> None:
    """Patch Ray Data in this process.

    A loop can then read a Ray Dataset, but a transformation of a Ray Dataset raises `LazyData`.

    Without the patch, the transformation would hang. The patch also turns off Ray Data's statistics
    of iterations, because Ray Data would start an actor for the statistics, which takes two seconds
    on one core.
    """
    executor: Any = StreamingExecutor
    manager: Any = _StatsManager
    original = executor.execute

    def execute(self: Any, dag: PhysicalOperator, *args: Any, **kwargs: Any) -> Any:
        # `take` and `show` slice without a task.
        source = dag.input_dependencies[0] if isinstance(dag, LimitOperator) else dag
        if not isinstance(source, InputDataBuffer):
            operators = [op for op in dag.post_order_iter() if not isinstance(op, InputDataBuffer)]
            raise LazyData(_refusal(" -> ".join(op.name for op in operators)))
        return original(self, dag, *args, **kwargs)

    def refuse(dataset: Any, name: str, *args: Any, **kwargs: Any) -> NoReturn:
        raise LazyData(_refusal(name))

    executor.execute = execute
    for name in METHODS_WITH_TASKS:
        setattr(ray.data.Dataset, name, functools.partialmethod(refuse, name))
    manager.update_iteration_metrics = lambda *args, **kwargs: None

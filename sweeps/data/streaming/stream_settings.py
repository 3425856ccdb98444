"""Settings of Ray Data in all processes that read or consume streams."""

from dataclasses import dataclass
from typing import Any

# Largest size of a block in bytes. It is fixed, because the sizes of blocks decide which rows a
# rank gets. It is far below Ray Data's default, so that streams also run with a small object store.
BLOCK_BYTES = 16 << 20
# Share of the object store that the streams of all trials together may fill. The rest is for
# batches that loops hold.
STORE_SHARE = 0.5


@dataclass(frozen=True)
class StreamSettings:
    """Resources for the tasks of Ray Data.

    Streams cannot deadlock with gangs or with each other, for two reasons. Workers never hold the
    CPUs that are reserved for Ray Data. And a task never waits for the consumer of its rows while
    it holds a CPU, so each task ends, whatever the loops do.

    Attributes:
        cpus: Number of CPUs that no worker holds. The tasks of one dataset use at most this number.
        trials: Number of trials that may run at the same time. They share the object store.
    """

    cpus: float
    trials: int = 1

    def apply(self) -> None:
        """Change Ray Data's settings for all datasets that this process creates from now on."""
        from ray.data import DataContext, ExecutionResources

        context: Any = DataContext.get_current()
        context.enable_progress_bars = False
        # The newer reader of Parquet files starts 32 actors for each pass over the rows, which
        # takes seconds.
        context.use_datasource_v2 = False
        context.target_max_block_size = BLOCK_BYTES
        # Frames then have NumPy's dtypes, as those of data in memory.
        context.enable_arrow_backed_pandas_conversion = False
        context.override_object_store_memory_limit_fraction = STORE_SHARE / self.trials
        # By default, a task stops after a few blocks until they are consumed, and keeps its CPU. A
        # loop that reads `valid` in the middle of an epoch would then wait forever for a CPU.
        # Without this limit, Ray spills the blocks that do not fit into the object store.
        context._max_num_blocks_in_streaming_gen_buffer = None
        context.execution_no_progress_timeout_s = -1  # A loop may pause for as long as it likes.
        # Otherwise the order of the rows would differ from trial to trial.
        context.execution_options.preserve_order = True
        context.execution_options.resource_limits = ExecutionResources.for_limits(cpu=self.cpus)

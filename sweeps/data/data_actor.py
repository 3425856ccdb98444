"""The data actor: a Ray actor that holds the data of a sweep and prepares the data for trials.

A data variant is the `data` section with one choice for each tuned key. The data actor fits each
preprocessing chain once per data variant. It then cuts the prepared rows of train into shards, one
for each worker of a trial.

A sweep has one data actor. The data is in Ray's object store, so trials on one machine read it
without a copy. The actor owns the data: if the actor's process dies, the data is lost. Ray then
starts a new process, which reads and prepares the data again when a trial needs it.

The worker pool calls `prepare` only while it reserves a CPU for the actor. Otherwise, workers could
hold every CPU, and the tasks of Ray Data would wait forever.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray

from sweeps.core.errors import InputError, SweepsError
from sweeps.core.host import exit_causes
from sweeps.core.text.secrets import remember_variables
from sweeps.space.sections.trainer_definition import UNKNOWN, TrainerDefinition

from .chain_fitter import CHECK_ROWS, ChainFitter, is_large
from .checks.preflight import locate_problems
from .freed_memory import return_freed_memory
from .load_request import LoadRequest, ReloadError
from .prepared_data import PreparedData
from .prepared_store import DatasetInfo, PreparedStore, fold_key
from .preprocessing.fit import data_key
from .splits.row_parts import check_parts
from .splits.split_tables import Splits
from .splits.valid_rows import valid_rows
from .splits.variants import DataVariants, TunedData, variant_name
from .streaming.stream_splits import StreamSplits, StreamVariants

if TYPE_CHECKING:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    from sweeps.space import Space, Step

    from .splits.refit_rows import RefitRows
    from .streaming.stream_settings import StreamSettings


def _import_all(modules: Iterable[str]) -> None:
    """Import modules, so that the first fit need not wait for them."""
    for module in modules:
        with contextlib.suppress(Exception):  # the fit will report the error
            importlib.import_module(module)


@dataclass(frozen=True)
class DataActorConfig:
    """Configuration of the data actor.

    Attributes:
        roots: Folders of the user's modules.
        folder: Folder of the sweep.
        workers: Every number of workers that a trial can have, such as (1, 2, 4).
        cpus: Limit on the CPUs for Ray Data's tasks; None for no limit. The limit is needed if Ray
            counts more CPUs than the machine has.
        trainers: Definition of each trainer, by label. A chain is an error if no trainer can read
            all columns of its output.
        modules: Modules to import in the background while the data is read. For example, importing
            scikit-learn takes a second.
        once: True if all trials have the same data and the same chain. Large tables of raw rows are
            then dropped after the chain is fitted.
        stream: Settings of Ray Data if the data is streamed. None if the rows are held in memory.
        secrets: Environment variables with which the actor reaches S3-compatible storage.
        secret_names: Names of the environment variables whose values are secrets.
        row_steps: If the scheduler counts rows, the steps at which trials train, in ascending
            order. Otherwise (). The last step has all train rows, and each earlier step a part of
            these rows; see `row_parts`.
    """

    roots: tuple[str, ...]
    folder: Path
    workers: tuple[int, ...]
    cpus: float | None = None
    trainers: Mapping[str, TrainerDefinition] = field(default_factory=lambda: {"": UNKNOWN})
    modules: tuple[str, ...] = ()
    once: bool = False
    stream: StreamSettings | None = None
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    secret_names: tuple[str, ...] = ()
    row_steps: tuple[int, ...] = ()


class _DataActor:
    """Implementation of the data actor; see the module's docstring.

    Attributes:
        fitter: Fits chains on the rows, and stores them in the sweep's folder.
        variants: The raw rows. None while the process has none, and if the space names no data.
        is_new: True if this process has no raw rows, because it has not read or has dropped them.
    """

    def __init__(self, config: DataActorConfig):
        # Not at the top: others import this module for the actor's handle.
        import ray.data

        os.environ.update(config.secrets)
        remember_variables(config.secret_names)
        threading.Thread(target=_import_all, args=(config.modules,), daemon=True).start()
        sys.path[:0] = [root for root in config.roots if root not in sys.path]
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        if config.cpus is not None:
            limits = ray.data.ExecutionResources.for_limits(cpu=config.cpus)
            context.execution_options.resource_limits = limits
        if config.stream is not None:
            config.stream.apply()
        self.fitter = ChainFitter(
            store=PreparedStore(config.folder),
            roots=config.roots,
            workers=config.workers,
            trainers=config.trainers,
            row_steps=config.row_steps,
        )
        self.once = config.once
        self.is_new = True
        self.variants: DataVariants | StreamVariants | None = None
        self.prepared: dict[str, PreparedData] = {}  # results of `prepare`, by `data_key`
        self.stored_variants: set[str] = set()  # names of the variants whose information is stored

    def load(self, request: LoadRequest) -> DatasetInfo:
        """Read and split the data.

        Returns:
            The information about the data. The fingerprint covers all variants. The other fields
            describe the data before tuned keys other than `train` are applied. If `data.train` is
            tuned, they describe the first option.

        Raises:
            InputError: See `DataVariants`. Also raised if the fingerprint of the data has changed;
                in this case, nothing is written.
        """
        kind = StreamVariants if request.spec.ingest == "stream" else DataVariants
        self.variants = kind(request.spec, request.variants, request.seed, request.tuned)
        fingerprint = self.variants.fingerprint
        request.check_unchanged(fingerprint)
        if isinstance(self.variants, DataVariants):
            for i, splits in enumerate(self.variants.sources.values()):
                if self.fitter.row_steps:
                    check_parts(
                        self.fitter.row_steps,
                        splits.train.num_rows,
                        len(splits.classes or ()),
                        workers=max(self.fitter.workers),
                    )
                if splits.test is not None:
                    name = f"test-{i}" if request.tuned else "test"
                    self.fitter.store.save_table(name, splits.test)
        self.is_new = False
        info = self._save_info(self.variants.first, "test", fingerprint)
        if self._holds_large_tables:
            return_freed_memory()
        return info

    def without_data(self, fingerprint: str, notes: tuple[str, ...] = ()) -> DatasetInfo:
        """Store and return the information for a space that names no data.

        Args:
            fingerprint: Fingerprint of the code of the user's loop.
            notes: Notes for the user.

        Returns:
            The stored information.
        """
        import pandas as pd

        self.is_new = False
        info = DatasetInfo(None, None, None, (), fingerprint, {}, pd.DataFrame(), notes=notes)
        self.fitter.store.save_info(info, None)
        return info

    def _save_info(
        self,
        splits: Splits | StreamSplits,
        test: str,
        fingerprint: str,
        data: TunedData | None = None,
    ) -> DatasetInfo:
        """Write the information about a data variant to the sweep's folder, and return it.

        Args:
            splits: The rows of the variant.
            test: Name of the file with the test split; see `DatasetInfo.test`.
            fingerprint: Fingerprint of the data.
            data: The variant's values of the tuned keys of `data`. None for the whole data.
        """
        check = splits.first_valid(CHECK_ROWS)
        info = DatasetInfo(
            label=splits.label,
            task=splits.task,
            classes=splits.classes,
            features=splits.features,
            fingerprint=fingerprint,
            rows=splits.rows,
            check=check.to_pandas(),
            test=test,
            notes=splits.notes + splits.class_notes,
            summary=splits.summary,
            missing=splits.missing,
        )
        self.fitter.store.save_info(info, check, data)
        self.fitter.store.save_valid(valid_rows(splits), data)
        return info

    def runs_tasks(self) -> bool:
        """Return whether `prepare` runs Ray tasks: to read the data again, or to read a stream."""
        return self.is_new or isinstance(self.variants, StreamVariants)

    def prepare(
        self,
        steps: tuple[Step, ...],
        data: TunedData | None = None,
        reload: LoadRequest | None = None,
        refit: RefitRows | None = None,
    ) -> PreparedData:
        """Fit a chain on a variant's train split, transform train and valid, and cut shards.

        The shards are cut for every number of workers. A stream is not cut.

        Args:
            steps: The chain.
            data: The trial's values of the tuned keys of `data`. None or empty if nothing is tuned.
            reload: Request for `load`. It is used only if Ray has restarted the actor, so that this
                process has not read the data yet. None if the space names no data.
            refit: The rows on which a trial is trained again. These rows take the place of train.
                If they are also in valid, metrics on valid are meaningless. None for a trial of the
                search.

        Raises:
            InputError: The chain cannot be fitted.
            ReloadError: The data has changed since the sweep began, or cannot be read again.
        """
        data = data or {}
        if self.is_new and reload is not None:
            try:
                self.load(reload)
            except InputError as e:
                raise ReloadError(e.problems) from e
        self.is_new = False
        if self.variants is None:  # the space names no data
            return PreparedData("none", {number: {} for number in self.fitter.workers}, None)
        if refit is not None:
            return self._prepare_refit(steps, data, refit)
        key = data_key(self.variants.fingerprint_of(data), steps)
        had_large_tables = self._holds_large_tables  # `_prepare` may drop them
        if key not in self.prepared:
            self.prepared[key] = self._prepare(self.fitter, key, steps, data)
        if data and variant_name(data) not in self.stored_variants:
            splits = self.variants.splits(data)
            test = f"test-{self.variants.source_index(data)}"
            self._save_info(splits, test, splits.fingerprint, data)
            self.stored_variants.add(variant_name(data))
        if had_large_tables:
            self._drop_raw_rows()
            return_freed_memory()
        return self.prepared[key]

    def _prepare_refit(
        self, steps: tuple[Step, ...], data: TunedData, refit: RefitRows
    ) -> PreparedData:
        """Prepare the rows for a trial that is trained again; see `prepare`.

        Nothing that the search has prepared changes.
        """
        assert self.variants is not None
        key = data_key(self.variants.fingerprint_of(data), steps)
        if refit.division:
            key += f"-{refit.division}"
        fitter = replace(self.fitter, store=PreparedStore(Path(refit.folder)), row_steps=())
        prepared = self._prepare(fitter, key, steps, data, refit)
        self._drop_raw_rows()
        # Workers cache rows by their key.
        return replace(prepared, key=f"{key}-{'-'.join(refit.splits)}")

    @property
    def _holds_large_tables(self) -> bool:
        """True if the raw rows of train of a source are at least `LARGE_TABLE` bytes."""
        return isinstance(self.variants, DataVariants) and any(
            is_large(splits.train) for splits in self.variants.sources.values()
        )

    def _prepare(
        self,
        fitter: ChainFitter,
        key: str,
        steps: tuple[Step, ...],
        data: TunedData,
        refit: RefitRows | None = None,
    ) -> PreparedData:
        """Prepare the rows of a variant; see `prepare`. `key` is the name of the prepared data."""
        assert self.variants is not None
        added = () if refit is None else refit.splits[1:]  # not train
        division = 0 if refit is None else refit.division
        if isinstance(self.variants, StreamVariants):
            return fitter.fit_streams(key, steps, self.variants.splits(data, added))
        seed = self.variants.seed
        if self.variants.spec.folds and not added:
            folds = tuple(
                fitter.put(fitter.fit_rows(fold_key(key, number), steps, fold, seed))
                for number, fold in enumerate(self.variants.folds(data, division), 1)
            )
            size = sum(fold.size for fold in folds)
            return replace(folds[0], key=key, size=size, folds=folds)
        rows = fitter.fit_rows(key, steps, self.variants.splits(data, added, division), seed)
        self._drop_raw_rows()  # before the prepared rows are copied to Ray's object store
        return fitter.put(rows)

    def _drop_raw_rows(self) -> None:
        """Drop large tables of raw rows if no other chain is fitted on them."""
        if self.once and self._holds_large_tables:
            self.variants = None
            self.is_new = True
            return_freed_memory()

    def pid(self) -> int:
        """Return the id of this process.

        The id is part of the name of Ray's log file, which tells why the process died.
        """
        return os.getpid()


DataActor = ray.remote(num_cpus=0, max_restarts=-1)(_DataActor)


def start(where: NodeAffinitySchedulingStrategy, config: DataActorConfig) -> Any:
    """Start the data actor of a sweep on a node, and return the actor's handle."""
    return DataActor.options(scheduling_strategy=where).remote(config)


def load(actor: Any, space: Space, before: str | None) -> DatasetInfo:
    """Let the data actor read the data of a space.

    Args:
        actor: See `start`.
        space: The search space.
        before: See `LoadRequest`.

    Returns:
        See `_DataActor.load`.

    Raises:
        InputError: See `_DataActor.load`. The place of each problem is a position in the space
            file.
        SweepsError: The actor's process was lost.
    """
    pid = None
    kills = exit_causes.kills_for_memory()
    try:
        pid = ray.get(actor.pid.remote())
        info: DatasetInfo = ray.get(actor.load.remote(LoadRequest.of_space(space, before)))
        return info
    except ray.exceptions.RayTaskError as e:
        if isinstance(e.cause, InputError):
            raise locate_problems(space, e.cause.problems) from None
        raise
    except ray.exceptions.RayActorError as e:
        raise SweepsError(
            f"{describe_loss(e, pid, kills)} while it read {space.data.source}"
        ) from None


def describe_loss(error: ray.exceptions.RayActorError, pid: int | None, kills: int) -> str:
    """Return the reason why the data actor's process died.

    Args:
        error: The error of the call during which the process died.
        pid: Id of the process. None if it is not known.
        kills: Number of processes that the kernel had killed for lack of memory before the call;
            see `exit_causes.kills_for_memory`.

    Returns:
        A message of one line.
    """
    log = ""
    node = ray._private.worker._global_node
    if pid is not None and node is not None:
        log = "".join(
            exit_causes.last_attempt_log(file)
            for file in Path(node.get_logs_dir_path()).glob(f"worker-*-{pid}.err")
        )
    cause = exit_causes.exit_cause(error, log, exit_causes.kills_for_memory() > kills)
    return f"the process that holds the data was lost: {cause or exit_causes.KILLED}"

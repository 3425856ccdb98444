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
import copy
import dataclasses
import importlib
import os
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import ray

from sweeps.core.errors import InputError, SweepsError
from sweeps.core.host import exit_causes
from sweeps.core.label_columns import QUERY, label_columns
from sweeps.core.text.secrets import remember_variables
from sweeps.data.checks.preflight import locate_problems
from sweeps.data.columns.columns import check_readable
from sweeps.data.columns.tables import arrays_to_tensors, split_equally
from sweeps.data.columns.weights import COLUMN, row_weights
from sweeps.data.freed_memory import return_freed_memory
from sweeps.data.load_data import Splits
from sweeps.data.prepared_data import PreparedData, Shards
from sweeps.data.prepared_store import DatasetInfo, PreparedStore
from sweeps.data.preprocessing.fit import data_key, fit_transform
from sweeps.data.splits.row_parts import check_parts, nested_order, rows_at
from sweeps.data.splits.variants import DataVariants, TunedData, variant_name
from sweeps.data.streaming.splits import StreamSplits, StreamVariants, first_rows
from sweeps.data.streaming.streamed_fit import FIRST_ROWS, RowStream, prepared_stream
from sweeps.space.model.templates import tuned_data
from sweeps.space.sections.trainer_definition import UNKNOWN, TrainerDefinition

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from sweeps.data.preprocessing.fitted_chain import FittedChain
    from sweeps.data.splits.refit_rows import RefitRows
    from sweeps.data.streaming.stream_settings import StreamSettings
    from sweeps.space import DataSpec, Space, Step

# Number of rows of valid for which a trainer stores predictions with its checkpoints. A bundle must
# reproduce these predictions.
CHECK_ROWS = 32
# From this size in bytes, a table is stored without a copy in the data actor's own memory: columns
# of numbers stay separate arrays. Below this size, columns of the same type are one array. pandas
# works faster with such an array, and it warns about more than `MOST_ARRAYS`.
LARGE = 64 << 20
MOST_ARRAYS = 100
# Arguments of `_DataActor.load`, with which a new process reads the same data again.
LoadArguments = tuple["DataSpec", int, Sequence["DataSpec"], Sequence[str], str | None]


def _import_all(modules: Iterable[str]) -> None:
    for module in modules:
        with contextlib.suppress(Exception):  # the fit will report the error
            importlib.import_module(module)


class ReloadError(InputError):
    """Raised when a new process of the data actor cannot read the same data again."""


@dataclasses.dataclass(frozen=True)
class PreparedRows:
    """The prepared rows of a chain.

    Attributes:
        key: Name of the prepared data.
        train: Rows of train, with the label, and with the column of weights if there is one.
        valid: Rows of valid, with the label.
        check: The first rows of valid, without the label.
        weight: Name of the column of weights; None if there is none.
        copied: True if the columns of a shard may be copied into one array.
    """

    key: str
    train: pa.Table
    valid: pd.DataFrame
    check: pd.DataFrame
    weight: str | None
    copied: bool


class _DataActor:
    """Implementation of the data actor; see the module's docstring.

    Args:
        roots: Folders of the user's modules.
        folder: Folder of the sweep.
        workers: Every number of workers that a trial can have, such as (1, 2, 4).
        cpus: Limit on the CPUs for Ray Data's tasks; None for no limit. The limit is needed if Ray
            counts more CPUs than the machine has.
        trainer: Definition of the trainer. A chain is an error if the trainer cannot read a column
            of its output.
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

    def __init__(
        self,
        roots: tuple[str, ...],
        folder: str,
        workers: tuple[int, ...],
        cpus: float | None = None,
        trainer: TrainerDefinition = UNKNOWN,
        modules: Sequence[str] = (),
        once: bool = False,
        stream: StreamSettings | None = None,
        secrets: Mapping[str, str] = MappingProxyType({}),
        secret_names: Sequence[str] = (),
        row_steps: tuple[int, ...] = (),
    ):
        # Not at the top: others import this module for the actor's handle.
        import ray.data

        os.environ.update(secrets)
        remember_variables(secret_names)
        threading.Thread(target=_import_all, args=(modules,), daemon=True).start()
        self.store = PreparedStore(Path(folder))
        self.workers = workers
        self.trainer = trainer
        self.once = once
        self.row_steps = row_steps
        self.added: tuple[str, ...] = ()  # splits whose rows are added to train
        sys.path[:0] = [r for r in roots if r not in sys.path]
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        if cpus is not None:
            limits = ray.data.ExecutionResources.for_limits(cpu=cpus)
            context.execution_options.resource_limits = limits
        if stream is not None:
            stream.apply()
        self.roots = roots
        # whether this process does not have the raw rows, because it has not read or has dropped
        # them
        self.is_new = True
        # None while the process has no raw rows, and if the space names no data
        self.variants: DataVariants | StreamVariants | None = None
        self.prepared: dict[str, PreparedData] = {}  # results of `prepare`, by `data_key`
        self.stored_variants: set[str] = set()  # names of the variants whose information is stored

    def load(
        self,
        spec: DataSpec,
        seed: int,
        variants: Sequence[DataSpec] = (),
        tuned: Sequence[str] = (),
        before: str | None = None,
    ) -> DatasetInfo:
        """Read and split the data.

        Args:
            spec: See `sweeps.space.Space.data`.
            seed: Seed of the sweep.
            variants: See `sweeps.space.Space.variants`.
            tuned: Names of the keys of the `data` section that are tuned.
            before: Fingerprint of the data when the sweep began. None if the sweep is new.

        Returns:
            The information about the data. The fingerprint covers all variants. The other fields
            describe the data before tuned keys other than `train` are applied. If `data.train` is
            tuned, they describe the first option.

        Raises:
            InputError: See `DataVariants`. Also raised if the fingerprint of the data is not
                `before`; in this case, nothing is written.
        """
        variants = variants or (spec,)
        if spec.ingest == "stream":
            self.variants = StreamVariants(spec, variants, seed, tuned)
        else:
            self.variants = DataVariants(spec, variants, seed, tuned)
        now = self.variants.fingerprint
        check_unchanged(now, before)
        if isinstance(self.variants, DataVariants):
            for i, splits in enumerate(self.variants.sources.values()):
                if self.row_steps:
                    check_parts(
                        self.row_steps,
                        splits.train.num_rows,
                        len(splits.classes or ()),
                        workers=max(self.workers),
                    )
                if splits.test is not None:
                    self.store.save_table(f"test-{i}" if tuned else "test", splits.test)
        self.is_new = False
        info = self._save_info(self.variants.first, "test", now)
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
        self.store.save_info(info, None)
        return info

    def _save_info(
        self,
        splits: Splits | StreamSplits,
        test: str,
        fingerprint: str,
        data: TunedData | None = None,
    ) -> DatasetInfo:
        """Write the information about a data variant to the sweep's folder, and return it."""
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
            notes=splits.notes + splits.lacking,
            summary=None if splits.summary is None else dataclasses.asdict(splits.summary),
            missing=splits.missing,
        )
        self.store.save_info(info, check, data)
        return info

    def runs_tasks(self) -> bool:
        """Return whether `prepare` runs Ray tasks: to read the data again, or to read a stream."""
        return self.is_new or isinstance(self.variants, StreamVariants)

    def prepare(
        self,
        steps: tuple[Step, ...],
        data: TunedData | None = None,
        reload: LoadArguments | None = None,
        refit: RefitRows | None = None,
    ) -> PreparedData:
        """Fit a chain on a variant's train split, transform train and valid, and cut shards.

        The shards are cut for every number of workers. A stream is not cut.

        Args:
            steps: The chain.
            data: The trial's values of the tuned keys of `data`. None or empty if nothing is tuned.
            reload: Arguments for `load`. They are used only if Ray has restarted the actor, so that
                this process has not read the data yet. None if the space names no data.
            refit: The rows on which a trial is trained again. These rows take the place of train.
                They are also in valid, so metrics on valid are then meaningless. None for a trial
                of the search.

        Raises:
            InputError: The chain cannot be fitted.
            ReloadError: The data has changed since the sweep began, or cannot be read again.
        """
        data = data or {}
        if self.is_new and reload is not None:
            try:
                self.load(*reload)
            except InputError as e:
                raise ReloadError(e.problems) from e
        self.is_new = False
        if self.variants is None:
            return PreparedData("none", {number: {} for number in self.workers}, None)
        if refit is not None:
            return self._prepare_refit(steps, data, refit)
        key = data_key(self.variants.fingerprint_of(data), steps)
        large = self._holds_large_tables
        if key not in self.prepared:
            self.prepared[key] = self._prepare(key, steps, data)
        if data and variant_name(data) not in self.stored_variants:
            splits = self.variants.splits(data)
            test = f"test-{self.variants.source_index(data)}"
            self._save_info(splits, test, splits.fingerprint, data)
            self.stored_variants.add(variant_name(data))
        if large:
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
        again = copy.copy(self)
        self._drop_raw_rows()
        again.store = PreparedStore(Path(refit.folder))
        again.added = refit.splits[1:]
        again.row_steps = ()
        # Workers cache rows by their key.
        prepared = again._prepare(key, steps, data)
        return dataclasses.replace(prepared, key=f"{key}-{'-'.join(refit.splits)}")

    @property
    def _holds_large_tables(self) -> bool:
        """True if the raw rows of train of a source are at least `LARGE` bytes."""
        held = self.variants.sources.values() if isinstance(self.variants, DataVariants) else ()
        return any(splits.train.nbytes >= LARGE for splits in held)

    def _prepare(self, key: str, steps: tuple[Step, ...], data: TunedData) -> PreparedData:
        assert self.variants is not None
        if isinstance(self.variants, StreamVariants):
            return self._prepare_streams(key, steps, self.variants.splits(data, self.added))
        if self.variants.spec.folds and not self.added:
            folds = tuple(
                self._put(self._fit(f"{key}-fold-{number}", steps, fold))
                for number, fold in enumerate(self.variants.folds(data), 1)
            )
            size = sum(fold.size for fold in folds)
            return dataclasses.replace(folds[0], key=key, size=size, folds=folds)
        rows = self._fit(key, steps, self.variants.splits(data, self.added))
        self._drop_raw_rows()  # before the prepared rows are copied to Ray's object store
        return self._put(rows)

    def _prepare_streams(
        self, key: str, steps: tuple[Step, ...], splits: StreamSplits
    ) -> PreparedData:
        """Fit a chain on the train split, and return the prepared streams."""
        first = first_rows(splits.train, FIRST_ROWS, splits.schema)
        stream = RowStream(splits.train, self.roots)
        fitted, prepared = self._fit_once(key, steps, first, splits=splits, stream=stream)
        check_readable(prepared, splits.label, self.trainer)
        check = fitted.transform(splits.first_valid(CHECK_ROWS).to_pandas())
        streams = {"train": splits.train, "valid": splits.valid}
        shards = {
            name: (ray.put(prepared_stream(dataset, fitted, splits.schema, self.roots)),)
            for name, dataset in streams.items()
        }
        by_workers = dict.fromkeys(self.workers, shards)
        return PreparedData(key, by_workers, ray.put(check), stream=True)

    def _fit_once(
        self,
        key: str,
        steps: tuple[Step, ...],
        rows: pa.Table,
        *,
        splits: Splits | StreamSplits,
        copied: bool = True,
        stream: RowStream | None = None,
    ) -> tuple[FittedChain, pd.DataFrame]:
        """Fit and store a chain, or load it in a resumed sweep. Also return its prepared rows."""
        stored = None
        with contextlib.suppress(InputError):  # damaged or not trusted: the chain is fitted again
            stored = self.store.find_chain(key)
        if stored is not None:
            return stored, stored.transform(rows.to_pandas(split_blocks=True), copied)
        fitted, prepared = fit_transform(
            steps, rows, splits.label, copy=copied, stream=stream, parse=splits.parse
        )
        self.store.save_chain(key, fitted)
        return fitted, prepared

    def _drop_raw_rows(self) -> None:
        """Drop large tables of raw rows if no other chain is fitted on them."""
        if self.once and self._holds_large_tables:
            self.variants = None
            self.is_new = True
            return_freed_memory()

    def _fit(self, key: str, steps: tuple[Step, ...], splits: Splits) -> PreparedRows:
        """Fit a chain on train, and transform train and valid."""
        import pyarrow as pa

        label = splits.label
        weights = row_weights(splits)
        copied = splits.train.nbytes < LARGE or splits.train.num_columns > MOST_ARRAYS
        wanted = {*splits.features, *label_columns(label)}
        rows = splits.train.select([n for n in splits.train.column_names if n in wanted])
        fitted, prepared = self._fit_once(key, steps, rows, splits=splits, copied=copied)
        valid = fitted.transform(splits.valid.to_pandas(split_blocks=True), copied)
        check_readable(valid, label, self.trainer)
        check = valid.head(
            CHECK_ROWS
        )  # with arrays instead of Ray Data's tensors, as a bundle passes rows to the model
        tensors = {f.name for f in splits.train.schema if isinstance(f.type, pa.BaseExtensionType)}
        prepared = arrays_to_tensors(prepared, tensors)
        valid = arrays_to_tensors(valid, tensors)
        if weights is not None:
            if COLUMN in prepared.columns:
                raise InputError(
                    "data.drop",
                    f"the prepared rows have a column `{COLUMN}`, which is the name of the column "
                    "of weights; rename the column, or drop it",
                )
            prepared[COLUMN] = weights
        if QUERY in splits.train.column_names:
            prepared[QUERY] = splits.train.column(QUERY).to_numpy()
            valid[QUERY] = splits.valid.column(QUERY).to_numpy()
        if self.row_steps:
            codes = None
            if isinstance(label, str) and splits.classes:
                codes = splits.train.column(label).to_numpy()
            assert self.variants is not None
            prepared = prepared.iloc[nested_order(len(prepared), codes, self.variants.seed)]
        features = check.drop(columns=list(label_columns(label)), errors="ignore")
        return PreparedRows(
            key,
            pa.Table.from_pandas(prepared, preserve_index=False),
            valid,
            features,
            None if weights is None else COLUMN,
            copied,
        )

    def _put(self, rows: PreparedRows) -> PreparedData:
        """Copy prepared rows to Ray's object store, and return the references."""
        # The blocks are pandas frames, because NumPy reads the columns from `to_pandas` of an Arrow
        # block as objects. `from_pandas` would run a task for each frame, to find out the frame's
        # schema.
        valid = (ray.put(ray.data.from_blocks([rows.valid])),)
        check = ray.put(rows.check)

        def put_train(train: pa.Table) -> PreparedData:
            return PreparedData(
                rows.key,
                self._shards(train, valid, rows.copied),
                check,
                size=train.nbytes,
                rows=train.num_rows,
                weight=rows.weight,
            )

        n = rows.train.num_rows
        whole = put_train(rows.train)
        parts = {
            step: put_train(rows.train.slice(0, rows_at(step, self.row_steps[-1], n)))
            for step in self.row_steps[:-1]
        }
        size = sum(part.size for part in (whole, *parts.values()))
        size += int(rows.valid.memory_usage(index=False).sum())
        return dataclasses.replace(whole, size=size, parts=parts)

    def _shards(
        self,
        train: pa.Table,
        valid: tuple[ray.ObjectRef[ray.data.Dataset], ...],
        copied: bool,
    ) -> dict[int, Shards]:
        """Cut prepared rows into shards for every number of workers; see `prepare`."""
        shards: dict[int, Shards] = {}
        for workers in self.workers:
            parts = (
                part.to_pandas(split_blocks=not copied) for part in split_equally(train, workers)
            )
            shards[workers] = {
                "train": tuple(ray.put(ray.data.from_blocks([part])) for part in parts),
                "valid": valid,
            }
        return shards

    def pid(self) -> int:
        """Return the id of this process.

        The id is part of the name of Ray's log file, which tells why the process died.
        """
        return os.getpid()


def check_unchanged(now: str, before: str | None) -> None:
    """Raise an InputError if the fingerprint of the data is not the one of the sweep's start."""
    if before is not None and now != before:
        raise InputError(
            "data.train",
            f"the data has changed since the sweep began: its fingerprint was {before[:12]} "
            f"and is now {now[:12]}",
        )


DataActor = ray.remote(num_cpus=0, max_restarts=-1)(_DataActor)


def start(where: Any, **arguments: Any) -> Any:
    """Start the data actor of a sweep.

    Args:
        where: Ray's scheduling strategy.
        **arguments: Arguments of `_DataActor`.

    Returns:
        The actor's handle.
    """
    return DataActor.options(scheduling_strategy=where).remote(**arguments)


def load(actor: Any, space: Space, before: str | None) -> DatasetInfo:
    """Let the data actor read the data of a space.

    Args:
        actor: See `start`.
        space: The search space.
        before: See `_DataActor.load`.

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
        info: DatasetInfo = ray.get(actor.load.remote(*load_arguments(space, before)))
        return info
    except ray.exceptions.RayTaskError as e:
        if isinstance(e.cause, InputError):
            raise locate_problems(space, e.cause.problems) from None
        raise
    except ray.exceptions.RayActorError as e:
        raise SweepsError(
            f"{describe_loss(e, pid, kills)} while it read {space.data.source}"
        ) from None


def load_arguments(space: Space, before: str | None) -> LoadArguments:
    """Return the arguments with which `_DataActor.load` reads the data of a space.

    For `before`, see that method.
    """
    return (
        space.data,
        space.search.seed,
        space.variants,
        tuple(tuned_data(space.sections)),
        before,
    )


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

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

from sweeps.core import exit_causes
from sweeps.core.errors import InputError, SweepsError
from sweeps.core.freed_memory import return_freed_memory
from sweeps.core.label_columns import QUERY, label_columns
from sweeps.core.secrets import remember_variables
from sweeps.data.columns import check_readable
from sweeps.data.load import Splits, add_to_train
from sweeps.data.preflight import locate_problems
from sweeps.data.prepared_store import DatasetInfo, PreparedStore
from sweeps.data.preprocessing.fit import data_key, fit_transform
from sweeps.data.row_parts import check_parts, nested_order, rows_at
from sweeps.data.streaming.prepare import describe_streams, prepare_streams
from sweeps.data.streaming.splits import StreamSplits, StreamVariants
from sweeps.data.tables import arrays_to_tensors, split_equally
from sweeps.data.variants import DataVariants, variant_name
from sweeps.data.weights import COLUMN, row_weights
from sweeps.space.trainer_definition import UNKNOWN, TrainerDefinition

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import pyarrow as pa

    from sweeps.data.refit_rows import RefitRows
    from sweeps.data.streaming.settings import StreamSettings
    from sweeps.data.summary import DataSummary
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
        key: name of the prepared data.
        train: rows of train, with the label, and with the column of weights if there is one.
        valid: rows of valid, with the label.
        check: the first rows of valid, without the label.
        weight: name of the column of weights; None if there is none.
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
        roots: folders of the user's modules.
        folder: folder of the sweep.
        workers: every number of workers that a trial can have, such as (1, 2, 4).
        cpus: limit on the CPUs for Ray Data's tasks; None for no limit. The limit is needed if Ray
            counts more CPUs than the machine has.
        trainer: definition of the trainer. A chain is an error if the trainer cannot read a column
            of its output.
        modules: modules to import in the background while the data is read. For example, importing
            scikit-learn takes a second.
        once: True if all trials have the same data and the same chain. Large tables of raw rows are
            then dropped after the chain is fitted.
        stream: settings of Ray Data if the data is streamed. None if the rows are held in memory.
        secrets: environment variables with which the actor reaches S3-compatible storage.
        secret_names: names of the environment variables whose values are secrets.
        row_steps: if the scheduler counts rows, the steps at which trials train, in ascending
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
        self.store, self.workers = PreparedStore(Path(folder)), workers
        self.trainer, self.once = trainer, once
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
        self.prepared: dict[str, dict[str, Any]] = {}  # results of `prepare`, by `data_key`
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
            spec: see `sweeps.space.Space.data`.
            seed: seed of the sweep.
            variants: see `sweeps.space.Space.variants`.
            tuned: names of the keys of the `data` section that are tuned.
            before: fingerprint of the data when the sweep began. None if the sweep is new.

        Returns:
            The information about the data. The fingerprint covers all variants. The other fields
            describe the data before tuned keys other than `train` are applied. If `data.train` is
            tuned, they describe the first option.

        Raises:
            InputError: see `DataVariants`. Also raised if the fingerprint of the data is not
                `before`; in this case, nothing is written.
        """
        variants = variants or (spec,)
        streamed = spec.ingest == "stream"
        self.variants = (
            StreamVariants(spec, variants, seed)
            if streamed
            else DataVariants(spec, variants, seed, tuned)
        )
        now = self.variants.fingerprint
        check_unchanged(now, before)
        if isinstance(self.variants, StreamVariants):
            self.is_new = False
            return self._save_stream_info(
                self.variants.splits({}), now, summary=self.variants.summary
            )
        for i, splits in enumerate(self.variants.sources.values()):
            self._check_row_steps(splits)
            if splits.test is not None:
                self.store.save_table(f"test-{i}" if tuned else "test", splits.test)
        self.is_new = False
        first = next(iter(self.variants.sources.values()))
        info = self._save_info(first, "test", now)
        if self._holds_large_tables:
            return_freed_memory()
        return info

    def _check_row_steps(self, splits: Splits) -> None:
        """Raise an InputError if the rows of a step are too few; see `check_parts`."""
        if self.row_steps:
            check_parts(
                self.row_steps,
                splits.train.num_rows,
                len(splits.classes or ()),
                workers=max(self.workers),
            )

    def without_data(self, fingerprint: str, notes: tuple[str, ...] = ()) -> DatasetInfo:
        """Store and return the information for a space that names no data.

        Args:
            fingerprint: fingerprint of the code of the user's loop.
            notes: notes for the user.

        Returns:
            The stored information.
        """
        import pandas as pd

        self.is_new = False
        info = DatasetInfo(None, None, None, (), fingerprint, {}, pd.DataFrame(), notes=notes)
        self.store.save_info(info, None)
        return info

    def _save_info(
        self, splits: Splits, test: str, fingerprint: str, data: Mapping[str, Any] | None = None
    ) -> DatasetInfo:
        """Write the information about a data variant to the sweep's folder, and return it."""
        tables = {"train": splits.train, "valid": splits.valid, "test": splits.test}
        parts = {name: table for name, table in tables.items() if table is not None}
        check = splits.valid.slice(0, CHECK_ROWS).select(list(splits.features))
        rows = {name: table.num_rows for name, table in parts.items()}
        notes = splits.notes + splits.lacking
        about = (splits.label, splits.task, splits.classes, splits.features)
        summary = None if splits.summary is None else splits.summary.to_json()
        info = DatasetInfo(
            *about, fingerprint, rows, check.to_pandas(), test, notes, summary, splits.missing
        )
        self.store.save_info(info, check, data)
        return info

    def _save_stream_info(
        self,
        splits: StreamSplits,
        fingerprint: str,
        data: Mapping[str, Any] | None = None,
        summary: DataSummary | None = None,
    ) -> DatasetInfo:
        """Write the information about a data variant that is streamed, and return it."""
        info, check = describe_streams(splits, fingerprint, CHECK_ROWS)
        info = dataclasses.replace(info, summary=None if summary is None else summary.to_json())
        self.store.save_info(info, check, data)
        return info

    def runs_tasks(self) -> bool:
        """Return whether `prepare` runs Ray tasks: to read the data again, or to read a stream."""
        return self.is_new or isinstance(self.variants, StreamVariants)

    def prepare(
        self,
        steps: tuple[Step, ...],
        data: Mapping[str, Any] | None = None,
        reload: LoadArguments | None = None,
        refit: RefitRows | None = None,
    ) -> dict[str, Any]:
        """Fit a chain on a variant's train split, transform train and valid, and cut shards.

        The shards are cut for every number of workers.

        Args:
            steps: the chain.
            data: the trial's values of the tuned keys of `data`. None or empty if nothing is tuned.
            reload: arguments for `load`. They are used only if Ray has restarted the actor, so that
                this process has not read the data yet. None if the space names no data.
            refit: the rows on which a trial is trained again. These rows take the place of train.
                They are also in valid, so metrics on valid are then meaningless. None for a trial
                of the search.

        Returns:
            A dict with these entries. `key`: name of the prepared data. `bytes`: size of the
            prepared rows. `shards`: maps each number of workers to references of Ray Datasets: for
            `train`, one reference for each rank; for `valid`, a single reference that all ranks
            share. `check`: reference of the first prepared rows of valid (at most `CHECK_ROWS`),
            without the label. If the space names no data, there are no references, and `check` is
            None. `weight`: name of the column of train with the weights of the rows; None if there
            are no weights. `stream`: True if the references are to lazy Ray Datasets, one for train
            and one for valid; otherwise absent. `folds`: for a cross-validation, such a dict for
            each fold; the other entries then describe the first fold, and `bytes` is the size of
            all folds. `parts`: if the scheduler counts rows, such a dict for each step below the
            last one, by step; `bytes` is the size of all parts. `rows`: number of rows of train.

        Raises:
            InputError: the chain cannot be fitted.
            ReloadError: the data has changed since the sweep began, or cannot be read again.
        """
        data = data or {}
        self._load_again(reload)
        if self.variants is None:
            return _no_rows(self.workers)
        if refit is not None:
            return self._prepare_refit(steps, data, refit)
        key, large = data_key(self.variants.fingerprint_of(data), steps), self._holds_large_tables
        if key not in self.prepared:
            self.prepared[key] = self._prepare(key, steps, data)
        if data and variant_name(data) not in self.stored_variants:
            self._save_variant(data)
        if large:
            self._drop_raw_rows()
            return_freed_memory()
        return self.prepared[key]

    def _prepare_refit(
        self, steps: tuple[Step, ...], data: Mapping[str, Any], refit: RefitRows
    ) -> dict[str, Any]:
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
        return again._prepare(key, steps, data) | {"key": f"{key}-{'-'.join(refit.splits)}"}

    def _load_again(self, reload: LoadArguments | None) -> None:
        """Read the data if this process does not have the raw rows; see `prepare`."""
        if self.is_new and reload is not None:
            try:
                self.load(*reload)
            except InputError as e:
                raise ReloadError(e.problems) from e
        self.is_new = False

    def _save_variant(self, data: Mapping[str, Any]) -> None:
        """Store the information about a data variant whose keys are tuned."""
        assert self.variants is not None
        if isinstance(self.variants, StreamVariants):
            self._save_stream_info(
                self.variants.splits(data), self.variants.fingerprint_of(data), data
            )
        else:
            splits = self.variants.splits(data)
            self._save_info(
                splits, f"test-{self.variants.source_index(data)}", splits.fingerprint, data
            )
        self.stored_variants.add(variant_name(data))

    @property
    def _holds_large_tables(self) -> bool:
        """True if the raw rows of train of a source are at least `LARGE` bytes."""
        held = self.variants.sources.values() if isinstance(self.variants, DataVariants) else ()
        return any(splits.train.nbytes >= LARGE for splits in held)

    def _prepare(
        self, key: str, steps: tuple[Step, ...], data: Mapping[str, Any]
    ) -> dict[str, Any]:
        assert self.variants is not None
        if isinstance(self.variants, StreamVariants):
            streams = self.variants.splits(data, self.added)
            ready = prepare_streams(
                key, steps, streams, self.store, self.roots, CHECK_ROWS, self.trainer
            )
            return ready | {"shards": dict.fromkeys(self.workers, ready["shards"]), "stream": True}
        if self.variants.spec.folds and not self.added:
            fitted = [
                self._put(self._fit(f"{key}-fold-{number}", steps, fold))
                for number, fold in enumerate(self.variants.folds(data), 1)
            ]
            size = sum(fold["bytes"] for fold in fitted)
            return fitted[0] | {"key": key, "bytes": size, "folds": fitted}
        rows = self._fit(key, steps, self._splits(data))
        self._drop_raw_rows()  # before the prepared rows are copied to Ray's object store
        return self._put(rows)

    def _splits(self, data: Mapping[str, Any]) -> Splits:
        assert isinstance(self.variants, DataVariants)
        splits = self.variants.splits(data)
        return add_to_train(splits, self.added) if self.added else splits

    def _drop_raw_rows(self) -> None:
        """Drop large tables of raw rows if no other chain is fitted on them."""
        if self.once and self._holds_large_tables:
            self.variants, self.is_new = None, True
            return_freed_memory()

    def _fit(self, key: str, steps: tuple[Step, ...], splits: Splits) -> PreparedRows:
        """Fit a chain on train, and transform train and valid.

        Store the chain if it is not stored yet.
        """
        import pyarrow as pa

        label, weights = splits.label, row_weights(splits)
        copied = splits.train.nbytes < LARGE or splits.train.num_columns > MOST_ARRAYS
        rows = splits.train.select(
            [
                name
                for name in splits.train.column_names
                if name in (*splits.features, *label_columns(label))
            ]
        )
        stored = None
        with contextlib.suppress(InputError):  # damaged or not trusted: the chain is fitted again
            stored = self.store.find_chain(key)  # exists in a resumed sweep
        if stored is None:
            fitted, prepared = fit_transform(steps, rows, label, copied, parse=splits.parse)
        else:
            fitted, prepared = stored, stored.transform(rows.to_pandas(split_blocks=True), copied)
        valid = fitted.transform(splits.valid.to_pandas(split_blocks=True), copied)
        check_readable(valid, label, self.trainer)
        check = valid.head(
            CHECK_ROWS
        )  # with arrays instead of Ray Data's tensors, as a bundle passes rows to the model
        tensors = {f.name for f in splits.train.schema if isinstance(f.type, pa.BaseExtensionType)}
        prepared, valid = arrays_to_tensors(prepared, tensors), arrays_to_tensors(valid, tensors)
        if weights is not None:
            _require_free_name(prepared)
            prepared[COLUMN] = weights
        if QUERY in splits.train.column_names:
            prepared[QUERY] = splits.train.column(QUERY).to_numpy()
            valid[QUERY] = splits.valid.column(QUERY).to_numpy()
        if self.row_steps:
            prepared = prepared.iloc[self._nested_order(splits)]
        if stored is None:
            self.store.save_chain(key, fitted)
        features = check.drop(columns=list(label_columns(label)), errors="ignore")
        return PreparedRows(
            key,
            pa.Table.from_pandas(prepared, preserve_index=False),
            valid,
            features,
            None if weights is None else COLUMN,
            copied,
        )

    def _nested_order(self, splits: Splits) -> np.ndarray:
        """Return the order in which the train rows are cut into parts; see `row_parts`."""
        assert isinstance(self.variants, DataVariants)
        strata = (
            splits.train.column(splits.label).to_numpy()
            if isinstance(splits.label, str) and splits.classes
            else None
        )
        return nested_order(splits.train.num_rows, strata, self.variants.seed)

    def _put(self, rows: PreparedRows) -> dict[str, Any]:
        """Copy prepared rows to Ray's object store, and return the entries of `prepare`.

        The method `prepare` describes these entries.
        """
        # The blocks are pandas frames, because NumPy reads the columns from `to_pandas` of an Arrow
        # block as objects. `from_pandas` would run a task for each frame, to find out the frame's
        # schema.
        valid_shard = (ray.put(ray.data.from_blocks([rows.valid])),)
        about = {"key": rows.key, "check": ray.put(rows.check), "weight": rows.weight}

        def put_train(train: pa.Table) -> dict[str, Any]:
            return about | {
                "bytes": train.nbytes,
                "shards": self._shards(train, valid_shard, rows.copied),
                "rows": train.num_rows,
            }

        whole, n = put_train(rows.train), rows.train.num_rows
        parts = {
            step: put_train(rows.train.slice(0, rows_at(step, self.row_steps[-1], n)))
            for step in self.row_steps[:-1]
        }
        size = sum(part["bytes"] for part in (whole, *parts.values())) + int(
            rows.valid.memory_usage(index=False).sum()
        )
        return whole | {"bytes": size} | ({"parts": parts} if parts else {})

    def _shards(
        self, train: pa.Table, valid_shard: tuple[Any, ...], copied: bool
    ) -> dict[int, dict[str, tuple[Any, ...]]]:
        """Cut prepared rows into shards for every number of workers; see `prepare`."""
        shards = {}
        for workers in self.workers:
            parts = (
                part.to_pandas(split_blocks=not copied) for part in split_equally(train, workers)
            )
            shards[workers] = {
                "train": tuple(ray.put(ray.data.from_blocks([part])) for part in parts),
                "valid": valid_shard,
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
        text = (
            f"the data has changed since the sweep began: its fingerprint was {before[:12]} "
            f"and is now {now[:12]}"
        )
        raise InputError("data.train", text)


def _no_rows(workers: Iterable[int]) -> dict[str, Any]:
    """Return the result of `prepare` for a space that names no data."""
    return {
        "key": "none",
        "bytes": 0,
        "shards": {number: {} for number in workers},
        "check": None,
        "weight": None,
    }


def _require_free_name(prepared: pd.DataFrame) -> None:
    """Raise an InputError if a prepared column has the name of the column of weights."""
    if COLUMN in prepared.columns:
        text = (
            f"the prepared rows have a column `{COLUMN}`, which is the name of the column of "
            "weights; rename the column, or drop it"
        )
        raise InputError("data.drop", text)


DataActor = ray.remote(num_cpus=0, max_restarts=-1)(_DataActor)


def start(where: Any, **arguments: Any) -> Any:
    """Start the data actor of a sweep.

    Args:
        where: Ray's scheduling strategy.
        **arguments: arguments of `_DataActor`.

    Returns:
        The actor's handle.
    """
    return DataActor.options(scheduling_strategy=where).remote(**arguments)


def load(actor: Any, space: Space, before: str | None) -> DatasetInfo:
    """Let the data actor read the data of a space.

    Args:
        actor: see `start`.
        space: the search space.
        before: see `_DataActor.load`.

    Returns:
        See `_DataActor.load`.

    Raises:
        InputError: see `_DataActor.load`. The place of each problem is a position in the space
            file.
        SweepsError: the actor's process was lost.
    """
    pid, kills = None, exit_causes.kills_for_memory()
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
        tuple(space.sections.get("data", ())),
        before,
    )


def describe_loss(error: ray.exceptions.RayActorError, pid: int | None, kills: int) -> str:
    """Return the reason why the data actor's process died.

    Args:
        error: the error of the call during which the process died.
        pid: id of the process. None if it is not known.
        kills: number of processes that the kernel had killed for lack of memory before the call;
            see `exit_causes.kills_for_memory`.

    Returns:
        A message of one line.
    """
    log, node = "", ray._private.worker._global_node
    if pid is not None and node is not None:
        log = "".join(
            exit_causes.last_attempt_log(file)
            for file in Path(node.get_logs_dir_path()).glob(f"worker-*-{pid}.err")
        )
    cause = exit_causes.exit_cause(error, log, exit_causes.kills_for_memory() > kills)
    return f"the process that holds the data was lost: {cause or exit_causes.KILLED}"

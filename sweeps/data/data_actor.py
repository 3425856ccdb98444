"""The data actor: one actor that owns a sweep's data, fits each chain of preprocessing once a variant and cuts shards for gangs.

Everything lies in the object store, owned by the data actor, so that trials on one machine read it without a copy. The pool calls
`prepare` only while it holds a CPU for it: Ray Data runs tasks, which would hang while gangs hold every CPU.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray
from ray.data import ExecutionResources

from sweeps.core import exit_causes
from sweeps.core.errors import InputError, Problem, SweepsError
from sweeps.core.processes import is_alive
from sweeps.data.columns import check_all_numeric
from sweeps.data.label_checks import missing_class_notes
from sweeps.data.load import Splits, add_valid_to_train
from sweeps.data.preflight import locate_problems
from sweeps.data.prepared_store import DatasetInfo, PreparedStore
from sweeps.data.preprocessing.fit import data_key, fit_transform, runs_tasks
from sweeps.data.sources import arrays_to_tensors
from sweeps.data.tables import split_equally
from sweeps.data.variants import DataVariants, variant_name

if TYPE_CHECKING:
    from sweeps.space import DataSpec, Space, Step

# Rows of `valid` whose predictions a trainer keeps beside its checkpoints and a bundle must reproduce.
CHECK_ROWS = 32
# What is said when the data actor's process is lost, and with it the data.
LOST_MESSAGE = "the process that holds the data was lost"
DEATH_TIMEOUT = 10.0  # seconds, until Ray knows that it is dead
_kills = 0  # for memory, before the data actor was started


def _import_all(modules: Iterable[str]) -> None:
    for module in modules:
        with contextlib.suppress(Exception):  # the fit will say what is wrong with it
            importlib.import_module(module)


class _DataActor:
    """See the module.

    Args:
        roots: folders of the user's modules.
        folder: the sweep's.
        workers: every number of workers that a trial can have.
        cpus: on which Ray Data may run its tasks, where Ray counts more than there are.
        numbers: what a chain leaves must be numbers, as of nothing else the trainer makes a model.
        together: `train` has the rows of valid too; they stay in `valid`, whose metrics then mean nothing.
        modules: imported while the data is being read, which takes a second of scikit-learn's.
    """

    def __init__(
        self,
        roots: tuple[str, ...],
        folder: str,
        workers: tuple[int, ...],
        cpus: float | None = None,
        numbers: bool = False,
        together: bool = False,
        modules: Sequence[str] = (),
    ):
        threading.Thread(target=_import_all, args=(modules,), daemon=True).start()
        self.store, self.workers, self.numbers, self.together = PreparedStore(Path(folder)), workers, numbers, together
        sys.path[:0] = [r for r in roots if r not in sys.path]
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        if cpus is not None:
            context.execution_options.resource_limits = ExecutionResources.for_limits(cpu=cpus)
        self.variants: DataVariants | None = None  # None too for a space that names no data
        self.prepared: dict[str, dict[str, Any]] = {}
        self.noted: set[str] = set()  # names of the variants whose facts are on the store

    def load(
        self, spec: DataSpec, seed: int, variants: Sequence[DataSpec] = (), tuned: Sequence[str] = (), before: str | None = None
    ) -> DatasetInfo:
        """Read and split the data.

        Args:
            spec, variants: see `sweeps.space.Space`.
            seed: the sweep's.
            tuned: the keys of `data` that are tuned.
            before: the fingerprint of the data as it was when the sweep began; None if it is being begun.

        Returns:
            The facts of all variants together: the fingerprint is of all; the rest is the first one's.

        Raises:
            InputError: see `Variants`; or the data is not the same as `before`. Then nothing is kept of it.
        """
        self.variants = DataVariants(spec, variants or (spec,), seed, tuned)
        now = self.variants.fingerprint
        if before is not None and now != before:
            said = f"the data has changed since the sweep began (its fingerprint was {before[:12]}, now it is {now[:12]})"
            raise InputError(Problem("data.train", said))
        for i, s in enumerate(self.variants.sources.values()):
            if s.test is not None:
                self.store.save_table(f"test-{i}" if tuned else "test", s.test)
        whole = next(iter(self.variants.sources.values()))
        return self._save_info(whole, "test", now)

    def without_data(self, fingerprint: str, notes: tuple[str, ...] = ()) -> DatasetInfo:
        """Prepare nothing: the space names no data.

        Args:
            fingerprint: of the code.
            notes: what the user should know of it.
        """
        import pandas as pd

        facts = DatasetInfo(None, None, None, (), fingerprint, {}, pd.DataFrame(), notes=notes)
        self.store.save_info(facts, None)
        return facts

    def _save_info(self, s: Splits, test: str, fingerprint: str, data: Mapping[str, Any] | None = None) -> DatasetInfo:
        """Put the facts of a variant of the data on the store."""
        parts = {"train": s.train, "valid": s.valid, "test": s.test}
        check = s.valid.slice(0, CHECK_ROWS).select(list(s.features))
        facts = DatasetInfo(
            label=s.label,
            task=s.task,
            classes=s.classes,
            features=s.features,
            fingerprint=fingerprint,
            rows={name: table.num_rows for name, table in parts.items() if table is not None},
            check=check.to_pandas(),
            test=test,
            notes=s.notes + missing_class_notes(s.label, s.classes, {name: table for name, table in parts.items() if table is not None}),
        )
        self.store.save_info(facts, check, data)
        return facts

    def runs_tasks(self, steps: tuple[Step, ...]) -> bool:
        """Whether `prepare` runs tasks for a chain."""
        return runs_tasks(steps)

    def prepare(self, steps: tuple[Step, ...], data: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """A variant of the data passed through a chain fitted on its `train`, cut for every number of ranks.

        Args:
            steps: the chain.
            data: what a trial has of the data; nothing where nothing is tuned.

        Returns:
            `key`; `bytes` of the prepared rows; `shards`: for a number of workers, references of materialized Ray Datasets, one a rank
            (`train`) or one for all (`valid`); `check`: a reference of the prepared check rows, without the label. Without data there
            are no shards, and `check` is None.
        """
        data = data or {}
        if self.variants is None:
            return {"key": "none", "bytes": 0, "shards": {workers: {} for workers in self.workers}, "check": None}
        key = data_key(self.variants.fingerprint_of(data), steps)
        if key not in self.prepared:
            splits = self.variants.splits(data)
            if self.together:
                splits = add_valid_to_train(splits)
            self.prepared[key] = self._fit(key, steps, splits)
        if data and variant_name(data) not in self.noted:
            splits = self.variants.splits(data)
            self._save_info(splits, f"test-{self.variants.source_index(data)}", splits.fingerprint, data)
            self.noted.add(variant_name(data))
        return self.prepared[key]

    def _fit(self, key: str, steps: tuple[Step, ...], splits: Splits) -> dict[str, Any]:
        import pyarrow as pa

        label = splits.label
        kept = None
        with contextlib.suppress(InputError):  # damaged, or not to be trusted: it is fitted anew
            kept = self.store.find_chain(key)  # a sweep that is resumed has it
        if kept is None:
            fitted, prepared = fit_transform(steps, splits.train, label)
        else:
            fitted, prepared = kept, kept.transform(splits.train.to_pandas())
        valid = fitted.transform(splits.valid.to_pandas())
        if self.numbers:
            check_all_numeric(valid, label)
        check = valid.head(CHECK_ROWS)  # as a bundle hands rows to the model: arrays where Ray Data has tensors
        tensors = {f.name for f in splits.train.schema if isinstance(f.type, pa.BaseExtensionType)}
        prepared, valid = arrays_to_tensors(prepared, tensors), arrays_to_tensors(valid, tensors)
        train = pa.Table.from_pandas(prepared, preserve_index=False)
        # Of pandas, as a loop expects to get it back: from Arrow, `to_pandas` gives columns that NumPy takes for objects. By
        # `from_pandas` a task would be run for each, to learn its schema.
        whole = (ray.put(ray.data.from_blocks([valid])),)
        shards = {}
        for workers in self.workers:
            parts = [part.to_pandas() for part in split_equally(train, workers)]
            shards[workers] = {"train": tuple(ray.put(ray.data.from_blocks([part])) for part in parts), "valid": whole}
        if kept is None:
            self.store.save_chain(key, fitted)
        size = train.nbytes + int(valid.memory_usage(index=False).sum())
        return {
            "key": key,
            "bytes": size,
            "shards": shards,
            "check": ray.put(check.drop(columns=[label]) if label in check.columns else check),
        }

    def count(self) -> int:
        """Distinct chains fitted so far, by earlier drivers of the sweep too."""
        return self.store.count_chains()

    def pid(self) -> int:
        """Of its process, by which one on the same machine sees whether it lives: it may be at a fit for long."""
        return os.getpid()


DataActor = ray.remote(num_cpus=0, max_restarts=0)(_DataActor)


def start(
    roots: tuple[str, ...],
    folder: Path,
    workers: tuple[int, ...],
    cpus: float | None = None,
    where: Any = "DEFAULT",
    numbers: bool = False,
    together: bool = False,
    modules: Sequence[str] = (),
) -> Any:
    """Start the data actor's actor for a sweep's folder; `where` is Ray's scheduling strategy."""
    global _kills
    _kills = exit_causes.kills_for_memory()
    return DataActor.options(scheduling_strategy=where).remote(roots, str(folder), workers, cpus, numbers, together, modules)


def process_id(actor: Any) -> int | None:
    """The data actor's process, to be asked for before it has anything else to do; None if it is not to be seen from here.

    Raises:
        SweepsError: it was lost.
    """
    try:
        pid = ray.get(actor.pid.remote())
    except ray.exceptions.RayActorError:
        raise SweepsError(describe_loss(actor)) from None
    return pid if is_alive(pid) else None


def load(actor: Any, space: Space, before: str | None) -> DatasetInfo:
    """Have the data actor read the data of a space.

    Args:
        actor: see `start`.
        space: whose data it is.
        before: see `_Keeper.load`.

    Raises:
        InputError: as `_Keeper.load`, at its place in the space file.
        SweepsError: its process was lost.
    """
    try:
        return ray.get(actor.load.remote(space.data, space.search.seed, space.variants, tuple(space.sections.get("data", ())), before))
    except ray.exceptions.RayTaskError as e:
        if isinstance(e.cause, InputError):
            raise locate_problems(space, e.cause.problems) from None
        raise
    except ray.exceptions.RayActorError:
        raise SweepsError(f"{describe_loss(actor)}, as it read {space.data.source}") from None


def describe_loss(actor: Any, pid: int | None = None) -> str:
    """Say what the data actor's process died of.

    Args:
        actor: see `start`.
        pid: of its process, if it was seen on this machine.
    """
    error, log = None, ""
    try:
        ray.get(actor.pid.remote(), timeout=DEATH_TIMEOUT)
    except ray.exceptions.RayError as e:
        error = e
    node = ray._private.worker._global_node
    if pid is not None and node is not None:
        log = "".join(exit_causes.last_attempt_log(file) for file in Path(node.get_logs_dir_path()).glob(f"worker-*-{pid}.err"))
    return f"{LOST_MESSAGE}: {exit_causes.exit_cause(error, log, exit_causes.kills_for_memory() > _kills) or 'it does not answer'}"

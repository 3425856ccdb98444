"""Set up an attempt at a trial in a worker's process, and save its files in the sweep's store."""

import contextlib
import faulthandler
import logging
import math
import os
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import ray
import ray.data

from sweeps.core.errors import StoreError
from sweeps.core.files import stores
from sweeps.core.files.checkpoint_files import checkpoint_root_in
from sweeps.core.files.sweep_folder import FILES, ORIGIN
from sweeps.core.host.processes import working_directory
from sweeps.core.loop_context import Current
from sweeps.core.loop_spec import LoopSpec
from sweeps.core.plugins import references
from sweeps.execution.messages import Assignment, Job

from .dataset_cache import DatasetCache

log = logging.getLogger(__name__)


def current_of(job: Job, assignment: Assignment, cache: DatasetCache) -> Current:
    """Return what `sweeps.trial.current()` returns in the loop of an attempt."""
    label = assignment.labels.label
    cpus = dict(assignment.trial.shape.per_worker).get("CPU", 1)
    # The fields that a `Job` has under the same names
    names = [field.name for field in fields(Current) if hasattr(job, field.name)]
    own_values = {
        "trial": assignment.trial.id,
        "seed": assignment.trial.seed,
        "label": list(label) if isinstance(label, tuple) else label,
        "task": assignment.labels.task,
        "classes": assignment.labels.classes,
        "max_t": job.max_t_of(assignment.trial),
        "threads": max(job.threads, math.floor(cpus)),
        "check": cache.check,
        "options": dict(job.trainer_of(assignment.trial).options),
        "roots": _code_folders(job),
        "weight": cache.data.weight,
        "_folder": Path(assignment.folder, FILES),
        "_cached_objects": cache.cached_objects,
    }
    return Current(**{name: getattr(job, name) for name in names} | own_values)


def _code_folders(job: Job) -> tuple[Path, ...]:
    """Return the folders with the user's files.

    They are the copy that Ray made for the workers, if there is one, and the original folders.
    """
    folders = [Path(root) for root in job.roots]
    if ray.get_runtime_context().runtime_env.get("working_dir"):
        folders.insert(0, Path(working_directory()))
    return tuple(folders)


def import_loop(trainer: LoopSpec, seconds: float | None) -> None:
    """Import the module of a training loop before the worker's first trial with this loop.

    The trial's time does not include this import.

    If the import changes the process, for example its environment variables, the changes stay
    for all trials.

    Args:
        trainer: The trainer with the loop.
        seconds: See `write_stacks_after`.
    """
    with (
        write_stacks_after(seconds),
        contextlib.suppress(BaseException),
    ):  # The trial reports errors.
        os.environ.update(trainer.environment)
        for reference in (trainer.loop, *trainer.references):
            references.resolve(reference)


def folder_on_node(folder: str) -> str:
    """Return the folder for a trial's logs and other files on this node.

    If this node does not see the sweep's folder, it is a folder in the files of the Ray session.
    This user may not be able to write to the driver's path.

    Args:
        folder: The trial's folder on the driver's node.
    """
    sweep = Path(folder).parent.parent
    if (sweep / ORIGIN).is_file():
        return folder
    node: Any = ray._private.worker._global_node
    return str(Path(node.get_session_dir_path(), "sweeps", sweep.name, "trials", Path(folder).name))


def save_files(store: str | None, log_file: Path, assignment: Assignment) -> None:
    """Copy this rank's log to the sweep's store. On rank 0, also copy the trial's other files.

    An error is only logged.

    Args:
        store: Address of the store; None if the sweep has none.
        log_file: The log of this rank.
        assignment: The attempt that has ended.
    """
    if store is None:
        return
    folder = Path(assignment.folder)
    root = checkpoint_root_in(store, assignment.folder)
    try:
        trial_store = stores.open_store(root, patient=False)
        trial_store.put(log_file, log_file.relative_to(folder).as_posix())
        if assignment.ranks.rank == 0 and (folder / FILES).is_dir():
            trial_store.put(folder / FILES, FILES)
    except StoreError as e:
        log.warning("%s", e)


@contextlib.contextmanager
def write_stacks_after(seconds: float | None) -> Iterator[None]:
    """Write the stacks of all threads to the trial's log if the block takes too long.

    Args:
        seconds: The trial's time limit, so the pool kills the worker soon after the stacks are
            written. None to write no stacks.
    """
    if seconds is not None:
        faulthandler.dump_traceback_later(seconds, file=2)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()

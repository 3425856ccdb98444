"""One run of the training loop in a trial that runs its loop several times.

A trial runs its loop once for each fold of a cross-validation, and once for each part of the train
rows if the scheduler counts rows. The loop's own reports stay in this process. After each run, the
trial sends one report.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import ray.train
from ray.data import DataIterator

from sweeps.core import loop_context
from sweeps.core.best_step import UNKNOWN, StepOrder
from sweeps.core.files.sweep_folder import LOOP_RUNS
from sweeps.core.loop_context import CHECKPOINT_NOTE, Current, take_step
from sweeps.execution.isolation.seeds import seed_trial
from sweeps.execution.ray_apis import ray_train_adapter

from .dataset_cache import DatasetCache
from .trial_session import TrialSession


class RankLoop:
    """One run of the loop on one rank. The functions of `ray.train` in the loop call this object.

    Args:
        session: The session of the trial.
        data: The data of this run.
        latest: Folder for a copy of the loop's latest checkpoint, which does not exist yet.

    Attributes:
        name, folder, ranks, job: See `TrialSession`.
        assignment: The attempt, without a checkpoint, because the loop starts from scratch in each
            run.
        metrics: Metrics of each report of the loop in this run, by the loop's step.
        model_step: The loop's step whose model is in the latest checkpoint. None if the loop has
            reported no checkpoint.
    """

    def __init__(self, session: TrialSession, data: DatasetCache, latest: Path):
        self.name = session.name
        self.folder = session.folder
        self.ranks = session.ranks
        self.job = session.job
        self.assignment = dataclasses.replace(session.assignment, checkpoint=None)
        self.metrics: dict[int, dict[str, float]] = {}
        self.model_step: int | None = None
        self._session = session
        self._data = data
        self._latest = latest

    def run(
        self, current: Current, train: Callable[[RankLoop], None], place: str, **more: Any
    ) -> Current:
        """Run the loop. The functions of `ray.train` in the loop then call this object.

        Args:
            current: Description of the trial. The loop gets a copy of it. The scheduler's steps are
                runs, so they do not limit the steps of the loop.
            train: Function that calls the loop.
            place: Text that says in an error which run this is, such as `in fold 1 of 5`.
            more: Values of further attributes of the loop's `Current`.

        Returns:
            The loop's copy of `current`, with what the loop has passed to it.

        Raises:
            ValueError: The loop reported nothing.
        """
        own_current = dataclasses.replace(
            current,
            max_t=None,
            milestones=range(0),
            required_steps=range(0),
            check=self._data.check,
            checkpoint_interval=math.inf,
            final={},
            _cached_objects=self._data.cached_objects,
            **more,
        )
        loop_context.set_current(own_current)
        with (
            ray_train_adapter.redirect_calls(self),
            seed_trial(self.assignment.trial.seed, current.threads),
        ):
            train(self)
        if not self.metrics:
            raise ValueError(f"the loop reported nothing {place}")
        return own_current

    @property
    def reports(self) -> int:
        """Number of reports of the loop in this run."""
        return len(self.metrics)

    def report(self, metrics: dict[str, Any], checkpoint: ray.train.Checkpoint | None) -> None:
        """Record a report of the loop, and keep a copy of the checkpoint if `_keeps` agrees.

        The copy replaces the previous checkpoint of this run.
        """
        step = take_step(max(self.metrics, default=0))
        self.metrics[step] = self._session.admit(metrics, step)
        if checkpoint is None:
            return
        with checkpoint.as_directory() as folder:
            note = Path(folder, CHECKPOINT_NOTE)
            noted = json.loads(note.read_text())["best_step"] if note.is_file() else None
            # A loop may count its steps in another way.
            model_step = noted if noted in self.metrics else step
            if not self._keeps(model_step):
                return
            shutil.rmtree(self._latest, ignore_errors=True)
            shutil.copytree(folder, self._latest)
        self.model_step = model_step

    def _keeps(self, model_step: int) -> bool:
        """Return whether a new checkpoint with the model of this step replaces the copy."""
        return True

    @property
    def checkpoint_folder(self) -> Path | None:
        """Folder of this rank's copy of the loop's latest checkpoint; None if there is none."""
        return None if self.model_step is None else self._latest

    def checkpoint(self) -> ray.train.Checkpoint | None:
        """Return None, because the loop starts from scratch."""
        return None

    def shard(self, name: str) -> DataIterator:
        """Return this rank's part of a dataset of this run; see `TrialSession.shard`."""
        return self._data.shard(name, self.ranks)

    def exchange(self, value: Any) -> list[Any]:
        """Wait until every rank has given a value; return all values, ordered by rank."""
        return self._session.exchange(value)


@contextlib.contextmanager
def scratch_folder(session: TrialSession) -> Iterator[Path]:
    """Make a temporary folder for the latest checkpoints of a trial's runs of the loop.

    It is in the sweep's folder, which the sweep cleans up, because a killed worker cannot delete
    its files.
    """
    runs = Path(session.folder).parent.parent / LOOP_RUNS
    runs.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=runs, ignore_cleanup_errors=True) as scratch:
        yield Path(scratch)


def best_step(reports: Mapping[int, Mapping[str, float]], order: StepOrder) -> int:
    """Return the step of the best report of a run.

    Args:
        reports: Metrics of each report, by step; at least one.
        order: Order of the reports. If its metric has no value, the last report is the best.
    """
    best = min(reports, key=lambda step: order.key(reports[step]))
    return max(reports) if order.key(reports[best]) == UNKNOWN else best

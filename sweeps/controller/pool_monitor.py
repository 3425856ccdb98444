"""Watch the pool of a sweep, without ever waiting for it."""

import contextlib
import json
from pathlib import Path
from typing import Any

import ray
from ray import ObjectRef

from sweeps.core.errors import InputError
from sweeps.core.files.atomic_files import write_text
from sweeps.core.files.sweep_folder import SweepFolder
from sweeps.execution.pool_usage import Stage, Usage

from .ports import PoolHandle


class PoolMonitor:
    """Watches the worker pool, and keeps the latest state that it reported.

    Args:
        pool: Handle of the pool.
        folder: The sweep's folder. The monitor writes `stages.json` into it (see `_save_stages`).
        prefit: Ray reference that resolves when the chains that are known before the first trial
            are fitted; None if there are no such chains.

    Attributes:
        usage: The pool's latest report: the resources that it uses, and what its trials are doing.
            None before the first report.
        data_error: Error if the process that held the data has died, and the data has changed since
            the sweep began; else None.
    """

    def __init__(self, pool: PoolHandle, folder: Path, prefit: ObjectRef[None] | None = None):
        self.usage: Usage | None = None
        self._pool = pool
        self._stages_file = SweepFolder(folder).stages
        self.data_error: InputError | None = None
        self._prefit = prefit
        # Reference to the pool's next report.
        self._requested_usage: ObjectRef[Usage] | None = None
        # Reference that fails when the pool's process is lost.
        self._life: ObjectRef[None] | None = None
        self._stages: dict[str, str] = {}
        self._all_started = False  # what the pool was told last
        self._stages_file.unlink(missing_ok=True)  # A killed driver may have left the file behind.

    def prefit_error(self) -> InputError | None:
        """Return the error of the first chain whose fit failed because of the space file.

        Return None if there is none.

        Return an error only once.
        """
        if self._prefit is None or not _is_ready(self._prefit):
            return None
        reference = self._prefit
        self._prefit = None
        # If the pool was lost, the chains are fitted when trials need them.
        return _input_error(reference)

    def pool_was_restarted(self) -> bool:
        """Return whether the pool's process was lost since the last call.

        If so, Ray has started a new process, which knows no trials.

        If the pool reports that the data has changed, set `data_error`.
        """
        if self._life is None:
            self._life = self._pool.life.remote()
        if not _is_ready(self._life):
            return False
        self._all_started = False
        reference = self._life
        self._life = self._pool.life.remote()
        self.data_error = _input_error(reference)
        return self.data_error is None

    def update_usage(self) -> None:
        """Store the pool's report if it has arrived, and request the next report."""
        if self._requested_usage is not None and _is_ready(self._requested_usage):
            reference = self._requested_usage
            self._requested_usage = None
            with contextlib.suppress(ray.exceptions.RayError):
                self.usage = ray.get(reference)
                self._save_stages(self.usage)
        self._requested_usage = self._requested_usage or self._pool.usage.remote()

    def set_all_started(self, all_started: bool) -> None:
        """Tell the pool whether all trials have started, if this has changed.

        Elastic trials get more workers only after all trials have started.
        """
        if all_started != self._all_started:
            self._all_started = all_started
            self._pool.set_all_started.remote(all_started)

    def close(self) -> None:
        """Delete the file that `_save_stages` writes."""
        self._stages_file.unlink(missing_ok=True)

    def _save_stages(self, usage: Usage) -> None:
        """Write `stages.json`: stages of trials that do not train yet or have a silent rank.

        A silent rank has not reported for a long time.

        A stage says what the trial is doing, such as "waiting for workers". `sweeps show` reads the
        file, because the study does not have this information.
        """
        stages = {}
        for name, trial in usage.trials.items():
            if trial.silent:
                stages[name] = f"silent: {trial.silent}"
            elif trial.stage is not Stage.TRAINING:
                stages[name] = trial.missing or trial.stage.value
        if stages != self._stages:
            self._stages = stages
            write_text(self._stages_file, json.dumps(stages) + "\n")


def _is_ready(reference: ObjectRef[Any]) -> bool:
    ready, _ = ray.wait([reference], timeout=0)
    return bool(ready)


def _input_error(reference: ObjectRef[None]) -> InputError | None:
    """Return the `InputError` that a call to the pool raised.

    Return None if it raised no such error, or if the pool was lost.
    """
    try:
        ray.get(reference)
    except ray.exceptions.RayActorError:
        pass
    except ray.exceptions.RayTaskError as e:
        if isinstance(e.cause, InputError):
            return e.cause
    return None

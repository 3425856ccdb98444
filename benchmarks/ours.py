"""Run a sweep for a benchmark, and read from its study when each trial started and ended."""

from __future__ import annotations

import textwrap
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.common import Task, steady
from benchmarks.running import local_ray


@dataclass(frozen=True)
class Swept:
    """Result of a sweep.

    Attributes:
        begins, ends: Time at which each ended trial started and ended, in seconds since the epoch,
            in the order of the trials' numbers.
        whole: Duration of `sweeps.run` in seconds, including the export.
        result: Return value of `sweeps.run`.
        tried: The `params` of each trial, in the order of the trials' numbers.
    """

    begins: tuple[float, ...]
    ends: tuple[float, ...]
    whole: float
    result: Any
    tried: tuple[dict[str, Any], ...] = ()

    @property
    def numbers(self) -> dict[str, Any]:
        """Return the measures of the sweep.

        `trial` is the time for each trial, see `steady`. `search` is the time from the start of the
        first trial to the end of the last trial. `whole` is the duration of `sweeps.run`.
        """
        search = max(self.ends) - min(self.begins)
        best = self.result.best["value"] if self.result.best else None
        return {"trial": steady(self.ends), "search": search, "whole": self.whole, "best": best}


def sweep(task: Task, space: str, *, cpus: int = 2, name: str = "bench") -> Swept:
    """Run a sweep in a Ray that starts before the measurement, as for the other tools.

    Args:
        task: Parameters of the run. The number of trials is in `space`.
        space: Text of the space file, without its name.
        cpus: Number of CPUs of Ray.
        name: Name of the sweep.

    Raises:
        RuntimeError: A trial failed or is missing.
    """
    import sweeps
    from sweeps.study import record_reader

    file = task.folder / f"{name}.yaml"
    file.write_text(f"name: {name}\n" + textwrap.dedent(space))
    with local_ray(cpus):
        began = time.time()
        result = sweeps.run(file, dir=task.folder / "runs")
        whole = time.time() - began
    begins, ends = times_of(result.dir, name)
    if len(ends) < task.trials:
        raise RuntimeError(f"{len(ends)} of {task.trials} trials came to their end: {result.notes}")
    known = record_reader.read(result.dir)
    return Swept(
        begins,
        ends,
        whole,
        result,
        tuple(t.params for t in known.trials) if known is not None else (),
    )


def times_of(folder: Path, name: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the times at which the complete trials of a sweep's study started and ended."""
    import optuna
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.load_study(
        study_name=name,
        storage=optuna.storages.JournalStorage(JournalFileBackend(str(folder / "study.journal"))),
    )
    done = [t for t in study.trials if t.state is optuna.trial.TrialState.COMPLETE]
    times = [(t.datetime_start, t.datetime_complete) for t in done]
    return tuple(a.timestamp() for a, _ in times if a), tuple(b.timestamp() for _, b in times if b)

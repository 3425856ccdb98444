"""Our side of the benchmarks: a sweep from its space file, and when its trials began and ended, by its study."""

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
    """What a sweep came to.

    Attributes:
        begins, ends: of each trial that ended, seconds since the epoch, by number.
        whole: seconds of `sweeps.run`, its export and all.
        result: what it returned.
        tried: the `params` of each trial, by number.
    """

    begins: tuple[float, ...]
    ends: tuple[float, ...]
    whole: float
    result: Any
    tried: tuple[dict[str, Any], ...] = ()

    @property
    def numbers(self) -> dict[str, Any]:
        """`trial`, see `steady`; `search`, from the first trial's beginning to the last one's end; `whole`."""
        search = max(self.ends) - min(self.begins)
        best = self.result.best["value"] if self.result.best else None
        return {"trial": steady(self.ends), "search": search, "whole": self.whole, "best": best}


def sweep(task: Task, space: str, *, cpus: int = 2, name: str = "bench") -> Swept:
    """Run a sweep in a Ray that is started before the clock, as the peers' is.

    Args:
        task: where; its number of trials stands in the space.
        space: the space file's text, without its name.
        cpus: of Ray.
        name: of the sweep.

    Raises:
        RuntimeError: a trial failed, or is missing.
    """
    import sweeps
    from sweeps.study import record

    file = task.folder / f"{name}.yaml"
    file.write_text(f"name: {name}\n" + textwrap.dedent(space))
    with local_ray(cpus):
        began = time.time()
        result = sweeps.run(file, dir=task.folder / "runs")
        whole = time.time() - began
    begins, ends = times_of(result.dir, name)
    if len(ends) < task.trials:
        raise RuntimeError(f"{len(ends)} of {task.trials} trials came to their end: {result.notes}")
    known = record.read(result.dir)
    return Swept(begins, ends, whole, result, tuple(t.params for t in known.trials) if known is not None else ())


def times_of(folder: Path, name: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """When the complete trials of a sweep's study began and ended."""
    import optuna
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.load_study(study_name=name, storage=optuna.storages.JournalStorage(JournalFileBackend(str(folder / "study.journal"))))
    done = [t for t in study.trials if t.state is optuna.trial.TrialState.COMPLETE]
    times = [(t.datetime_start, t.datetime_complete) for t in done]
    return tuple(a.timestamp() for a, _ in times if a), tuple(b.timestamp() for _, b in times if b)

"""Build trials from the keys that the search chose, or rebuild them from the study."""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Callable, Container, Iterator
from pathlib import Path
from typing import Any

from optuna.trial import FrozenTrial

from sweeps.core.resources import shape_of
from sweeps.core.trial import Report, Result, Trial, format_trial_id
from sweeps.space import Space
from sweeps.study import record, storage
from sweeps.study.objectives import Objectives


def seed_of(seed: int, number: int, purpose: str) -> int:
    """Return a seed for one purpose of one trial, from the sweep's seed; 0 <= seed < 2**32."""
    digest = hashlib.sha256(f"{seed}/{number}/{purpose}".encode()).digest()
    return int.from_bytes(digest[:4], "big")


def assembled(space: Space, number: int, choose: Callable[[Any], Any], origin: int | None = None) -> Trial:
    """Build a trial from the key of each dimension that it has; see `sweeps.space.Space.fill`."""
    values = {}

    def chosen(dimension: Any) -> Any:
        key = choose(dimension)
        values[dimension.name] = key if dimension.options else dimension.value(key)
        return key

    filled = space.fill(chosen)
    return Trial(
        number=number,
        id=format_trial_id(number),
        params=filled["params"],
        preprocessor=tuple(filled["preprocessor"]),
        shape=shape_of(filled["scaling"], space.trainer.backend),
        seed=seed_of(space.search.seed, number, "trial"),
        labels=values,
        data=filled["data"],
        origin=origin,
    )


def as_begun(space: Space, t: FrozenTrial) -> Trial:
    """Rebuild a recorded trial with the parameters that it started with, which perturbations may have changed."""
    trial = assembled(space, t.number, lambda dimension: t.params[dimension.name], record.origin_of(t))
    return dataclasses.replace(trial, lineage=record.in_short(record.lineage_of(t)))


def rebuilt(space: Space, t: FrozenTrial) -> Trial:
    """Rebuild a recorded trial with its current parameters."""
    keys = record.keys_of(t)
    trial = assembled(space, t.number, lambda dimension: keys[dimension.name], record.origin_of(t))
    return dataclasses.replace(trial, lineage=record.in_short(record.lineage_of(t)))


@dataclasses.dataclass(frozen=True)
class OnRecord:
    """Reads what there is to tell of the trials of a sweep; can be pickled, and called in another process.

    Attributes:
        folder, space: the sweep's.
        url: of the database that the study is in, with its password; None for a journal.
    """

    folder: Path
    space: Space
    url: str | None = dataclasses.field(default=None, repr=False)

    def __call__(self, whole: Container[int] = ()) -> Iterator[tuple[Trial, float, tuple[Report, ...], Result, float]]:
        """Of each trial that was begun, but for those of these numbers: itself, its begin, its reports, how it stands, its end.

        Under PBT a trial is told as it was begun, and how it was perturbed is among its reports.
        """
        if self.url is not None:
            storage.remember(self.url)
        judge = Objectives.of(self.space)
        for t in record.trials_of(self.folder):
            if t.number not in whole:
                begin, end = (at.timestamp() if at else time.time() for at in (t.datetime_start, t.datetime_complete))
                perturbed = (Report(taken.origin, taken.metrics, taken.time) for taken in record.lineage_of(t))
                reports = *record.reports_of(t, judge.metric), *perturbed
                yield as_begun(self.space, t), begin, reports, record.result_of(t, judge), end

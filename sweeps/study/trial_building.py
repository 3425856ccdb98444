"""Build trials from sampled keys, and rebuild recorded trials from the study."""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Callable, Container, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeps.core.resources import shape_of
from sweeps.core.trial import Report, Result, Trial, format_trial_id
from sweeps.space import Space
from sweeps.study import record, storage
from sweeps.study.objectives import Objectives

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial


def seed_of(seed: int, number: int, purpose: str) -> int:
    """Derive a seed from the sweep's seed.

    Args:
        seed: Seed of the sweep.
        number: Number of the trial or configuration.
        purpose: Purpose of the seed, such as "trial". Different purposes get independent seeds.

    Returns:
        A seed with 0 <= seed < 2**32.
    """
    digest = hashlib.sha256(f"{seed}/{number}/{purpose}".encode()).digest()
    return int.from_bytes(digest[:4], "big")


def build_trial(
    space: Space, number: int, choose: Callable[[Any], Any], repeat_of: int | None = None
) -> Trial:
    """Build a trial from the key that is chosen for each active dimension.

    The key stands for a value; see `Dimension.value`.

    Args:
        space: The search space.
        number: Number of the trial.
        choose: Function that returns the chosen key of a dimension; see `Space.fill`.
        repeat_of: Number of the trial that this trial repeats with another seed; None for a new
            configuration.
    """
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
        repeat_of=repeat_of,
    )


def recorded_trial(space: Space, t: FrozenTrial, initial: bool = False) -> Trial:
    """Build the `Trial` of a trial that is recorded in the study.

    Args:
        space: The search space.
        t: The trial as Optuna recorded it.
        initial: True to use the parameters from before the first perturbation; False to use the
            current parameters.
    """
    keys = t.params if initial else record.keys_of(t)
    trial = build_trial(
        space, t.number, lambda dimension: keys[dimension.name], record.repeat_of(t)
    )
    return dataclasses.replace(
        trial, lineage=record.lineage_text(record.lineage_of(t)), enqueued=record.is_enqueued(t)
    )


@dataclasses.dataclass(frozen=True)
class RecordedTrials:
    """Reader of a sweep's recorded trials.

    The reader can be pickled, so that another process can call it.

    Attributes:
        folder: The sweep's folder.
        space: The search space.
        url: URL of the study's database, including the password; None if the study is a journal.
    """

    folder: Path
    space: Space
    url: str | None = dataclasses.field(default=None, repr=False)

    def __call__(
        self, skip: Container[int] = ()
    ) -> Iterator[tuple[Trial, float, tuple[Report, ...], Result, float]]:
        """Yield the started trials with their reports (see `Report.logged`) and results.

        If a trial was perturbed by PBT, the yielded trial has its initial parameters. Each
        perturbation is yielded as one of the trial's reports; see `Perturbation.metrics`. Each
        number of workers of an elastic trial is also yielded as one of the reports; see
        `GangSizePeriod.metrics`.

        Args:
            skip: Numbers of the trials to skip.

        Yields:
            (trial, start time, reports, result, end time). Times are in seconds since the epoch. If
            the study does not have a time, the current time is used.
        """
        if self.url is not None:
            storage.remember(self.url)
        objectives = Objectives.from_space(self.space)
        for t in record.trials_of(self.folder):
            if t.number not in skip:
                begin, end = (
                    at.timestamp() if at else time.time()
                    for at in (t.datetime_start, t.datetime_complete)
                )
                perturbed = (
                    Report(perturbation.donor_step, perturbation.metrics, perturbation.time)
                    for perturbation in record.lineage_of(t)
                )
                sizes = (Report(size.step, size.metrics, size.time) for size in record.sizes_of(t))
                own = (report.logged for report in record.reports_of(t, objectives.metric))
                reports = *own, *perturbed, *sizes
                yield (
                    recorded_trial(self.space, t, initial=True),
                    begin,
                    reports,
                    record.result_of(t, objectives),
                    end,
                )

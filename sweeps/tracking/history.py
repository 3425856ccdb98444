"""The events of trials that earlier drivers of a sweep started, read from the study."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from sweeps.space import Space
from sweeps.study.trial_building import RecordedTrials
from sweeps.tracking.events import TrialEnded, TrialEvent, TrialPaused, TrialReported, TrialStarted


@dataclass(frozen=True)
class TrialHistory:
    """A `sweeps.tracking.events.History` that reads the study.

    It can be pickled and called in another process.

    Attributes:
        folder: The sweep's folder.
        space: The sweep's space.
        url: URL of the database that holds the study, with its password; None for a journal in the
            folder.
    """

    folder: Path
    space: Space
    url: str | None = field(default=None, repr=False)

    def __call__(self, skip: Container[int] = ()) -> Iterator[TrialEvent]:
        """Yield TrialStarted, TrialReported and TrialEnded of each trial.

        The trials whose numbers are in `skip` are left out.

        A paused trial has TrialPaused in place of TrialEnded.

        TrialStarted contains the parameters with which the trial started. Changes by PBT are among
        the reported metrics.
        """
        for trial, started, reports, result, ended in RecordedTrials(
            self.folder, self.space, self.url
        )(skip):
            yield TrialStarted(started, trial.number, trial)
            if reports:
                yield TrialReported(reports[-1].time, trial.number, reports)
            yield (
                TrialPaused(ended, trial.number, result.steps)
                if result.paused
                else TrialEnded(ended, trial.number, result)
            )

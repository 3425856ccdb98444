"""The events of trials that earlier drivers of a sweep started, read from the study."""

from collections.abc import Container, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from sweeps.study import record_reader, storage
from sweeps.study.events import TrialEvent, TrialReported


@dataclass(frozen=True)
class TrialHistory:
    """A `sweeps.study.events.History` that reads the study.

    It can be pickled and called in another process.

    Attributes:
        folder: The sweep's folder.
        url: URL of the database that holds the study, with its password; None for a journal in the
            folder.
    """

    folder: Path
    url: str | None = field(default=None, repr=False)

    def __call__(self, skip: Container[int] = ()) -> Iterator[TrialEvent]:
        """Yield the events of each trial, one trial after the other.

        Args:
            skip: Numbers of the trials to leave out.
        """
        if self.url is not None:
            storage.remember_secrets(self.url)
        for event in record_reader.events_of(self.folder, skip):
            if concerns_trackers(event):
                yield rename_metrics(event)


def concerns_trackers(event: TrialEvent) -> bool:
    """Return False for a `TrialReported` without reports, which has only a checkpoint or costs."""
    return not isinstance(event, TrialReported) or bool(event.reports)


def rename_metrics(event: TrialEvent) -> TrialEvent:
    """Return an event with the names of metrics that trackers get; see `Report.logged`."""
    if isinstance(event, TrialReported):
        return replace(event, reports=tuple(report.logged for report in event.reports))
    return event

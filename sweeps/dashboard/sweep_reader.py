"""Read a sweep's folder for the page, and keep what was read until the folder changes."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sweeps.core.errors import InputError, SweepsError
from sweeps.core.files.folder_lock import is_driven
from sweeps.core.files.sweep_folder import SweepFolder
from sweeps.space.python.saved_space import recorded_space
from sweeps.stored.sweep_summary import SweepSummary, summarize
from sweeps.study import record_reader, storage
from sweeps.sweep_report import plots
from sweeps.sweep_report.figures import Figure
from sweeps.sweep_report.plot_data import PlotData, plot_data

# After each reading and each figure, a running sweep is not read again for this multiple of the
# time that was spent, but at most for `MAX_REST` seconds. So the page takes about 3% of a core.
REST = 30.0
MAX_REST = 30.0
# Seconds after which a study in a database counts as changed, because the files in the folder do
# not show its changes.
DATABASE_SECONDS = 5.0
# The largest number of figures that are kept for one state of a sweep.
KEPT_FIGURES = 64


@dataclass(frozen=True)
class Snapshot:
    """A sweep as read at one time.

    Attributes:
        version: Text that changes if the folder changes; see `version_of`.
        summary: The summary of the sweep.
        study: The study; None if there is none yet, or if it cannot be read.
        data: The values for the figures. None if there is no study, or if the space file cannot be
            read.
        problem: Message that says why the study or the space file cannot be read; "" if they can be
            read.
    """

    version: str
    summary: SweepSummary
    study: record_reader.Record | None
    data: PlotData | None
    problem: str


class SweepReader:
    """Reads one sweep. Threads may share a reader.

    Args:
        folder: The sweep's folder.
        clock: Returns monotonic time in seconds.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic):
        self.folder = folder
        self._clock = clock
        self._lock = threading.Lock()
        self._record = record_reader.RecordReader(folder)
        self._snapshot: Snapshot | None = None
        self._summary: tuple[str, SweepSummary] | None = None
        self._version = ""
        self._next_reading = 0.0  # the earliest time; 0 before the first reading
        self._figures: dict[str, Figure] = {}

    def snapshot(self) -> Snapshot:
        """Return the sweep.

        It is read if its folder has changed, but not right after the previous reading.
        """
        with self._lock:
            return self._read()

    def summary(self) -> SweepSummary:
        """Return the summary of the sweep. For an ended sweep, the study is not read."""
        with self._lock:
            if self._snapshot is not None:
                return self._read().summary
            version = version_of(self.folder)
            if self._summary is None or (self._summary[0] != version and not self.rest()):
                with self._resting():
                    self._summary = version, summarize(self.folder, self._record)
            return self._summary[1]

    def version(self) -> str:
        """Return the version of the folder that a reading would show now.

        The version stays the same while the reader rests.
        """
        if not self.rest():
            self._version = version_of(self.folder)
        return self._version

    def rest(self) -> float:
        """Return the number of seconds until a changed folder is read again.

        Until then, a snapshot may be older than the folder.
        """
        return max(0.0, self._next_reading - self._clock())

    def figure(self, key: str, **options: str | Sequence[str]) -> Figure:
        """Return a figure of the sweep; see `sweeps.sweep_report.plots.figure`."""
        with self._lock:
            snapshot = self._read()
            data = snapshot.data
            if data is None:
                reason = "The study cannot be read." if snapshot.problem else ""
                return Figure(key, "", note=reason or "The sweep has no trials yet.")
            cache_key = repr((key, sorted(options.items())))
            if cache_key not in self._figures:
                if len(self._figures) >= KEPT_FIGURES:
                    self._figures.clear()
                with self._resting():
                    self._figures[cache_key] = plots.figure(data, key, **options)
            return self._figures[cache_key]

    def _read(self) -> Snapshot:
        old = self._snapshot
        version = version_of(self.folder)
        if old is not None and (old.version == version or self.rest()):
            return old
        with self._resting():
            self._snapshot = read(self._record, version)
        self._figures.clear()
        return self._snapshot

    @contextlib.contextmanager
    def _resting(self) -> Iterator[None]:
        """Let the next reading wait for `REST` times as long as the `with` block takes.

        Waits of several blocks add up, to at most `MAX_REST` seconds. No reading waits after the
        first block, because the first reading takes longer than later ones.
        """
        start = self._clock()
        yield
        end = self._clock()
        rest = REST * (end - start) if self._next_reading else 0.0  # none after the first block
        self._next_reading = min(max(self._next_reading, end) + rest, end + MAX_REST)


def read(reader: record_reader.RecordReader, version: str) -> Snapshot:
    """Read a sweep's folder.

    Args:
        reader: Reads the study.
        version: Version of the snapshot.
    """
    folder = reader.folder
    summary = summarize(folder, reader)
    study = None
    data = None
    problem = ""
    try:
        study = reader.read()
        if study is not None:
            data = plot_data(study, recorded_space(folder), summary.is_running, summary.result)
    except SweepsError as e:
        problem = str(e)
    return Snapshot(version, summary, study, data, problem)


def version_of(folder: Path) -> str:
    """Return a text that changes if what the page shows of a sweep changes.

    This function raises no error.
    """
    paths = SweepFolder(folder)
    driven = is_driven(folder)
    files = (paths.journal, paths.origin, paths.result, paths.stages)
    states: list[tuple[int, int] | int | None] = [driven, *map(_stamp, files)]
    with contextlib.suppress(InputError):  # `origin.json` is damaged, which the summary reports
        if driven and storage.place_of(folder) is not None:
            states.append(int(time.time() / DATABASE_SECONDS))
    return repr(states)


def _stamp(file: Path) -> tuple[int, int] | None:
    try:
        status = file.lstat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size

"""Follow a running sweep from another process: read its status from its folder or its store whenever something has changed."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from sweeps.controller import stored_sweeps
from sweeps.controller.status import BestTrial, Pairs, SweepStatus, TrialRow, value_text
from sweeps.controller.sweep_summary import SweepSummary, summarize
from sweeps.core.errors import SweepsError
from sweeps.core.resources import shape_of
from sweeps.core.sweep_folder import SweepFolder
from sweeps.core.trial import State, without_repetition
from sweeps.space.saved_space import saved_space
from sweeps.study.record import Record, RecordReader, TrialRecord

# Seconds between two looks at the files of a sweep.
LOOK_EVERY = 0.3
# Seconds between two looks at a sweep whose study is in a database, or whose files must be copied
# from a store.
SLOW_LOOK_EVERY = 3.0
# After a look that took some time, the next look waits at least this many times as long.
REST = 4.0


def statuses(
    sweep: str, root: str | Path, wait: Callable[[float], None] = time.sleep
) -> Iterator[SweepStatus]:
    """Yield the status of a sweep now, and again whenever it has changed, until no process runs the sweep.

    Args:
        sweep: The sweep, in any form that `show` takes.
        root: Root folder of all sweeps, or the address of all sweeps.
        wait: Waits for a number of seconds.

    Raises:
        InputError: No sweep matches, or several sweeps match.
    """
    before: object = None
    max_t: tuple[int | None] | None = None
    found = stored_sweeps.find(sweep, root)
    reader: RecordReader | None = None
    while True:
        began, pause = time.monotonic(), LOOK_EVERY
        with stored_sweeps.opened(str(found), root) as (folder, is_copy):
            now = _state_of(folder)
            if is_copy or not SweepFolder(folder).journal.is_file():
                now, pause = None, SLOW_LOOK_EVERY
            if now is None or now != before:
                if reader is None or is_copy:  # Each copy is in another folder.
                    reader = RecordReader(folder)
                before, summary = now, summarize(folder, reader)
                if not summary.is_running:
                    return
                max_t = max_t or (_max_t(folder),)
                yield status_of(summary, reader.read(), max_t[0], time.time())
        wait(max(pause, REST * (time.monotonic() - began)))


def _state_of(folder: Path) -> object:
    """Return a value that changes whenever a file changes that the status of the sweep is computed from."""
    from sweeps.core.folder_lock import is_driven

    paths = SweepFolder(folder)
    found = []
    for path in (paths.journal, paths.stages, paths.result):
        with contextlib.suppress(OSError):
            stat = path.stat()
            found.append((path.name, stat.st_size, stat.st_mtime_ns))
    return is_driven(folder), found


def _max_t(folder: Path) -> int | None:
    """Return the step at which the scheduler ends trials; None if there is none, or if the space file cannot be read."""
    try:
        return saved_space(folder)[0].scheduler.max_t
    except (SweepsError, OSError):
        return None


def status_of(
    summary: SweepSummary, study: Record | None, max_t: int | None, now: float
) -> SweepStatus:
    """Return the status of a running sweep.

    The resources in use and the time left are not known outside the sweep's process. Pure.

    Args:
        summary: Summary of the sweep.
        study: The sweep's study; None before it exists.
        max_t: Step at which the scheduler ends trials; None if there is none.
        now: The current time, in seconds since the epoch.
    """
    trials = study.ran if study is not None else ()
    unfinished = [t for t in trials if t.result.state is State.RUNNING]
    running = [t for t in unfinished if not t.result.paused]
    states = Counter(t.result.state_name(is_driven=True) for t in trials)
    failed = next((t for t in reversed(trials) if (t.result.error or "").strip()), None)
    total = summary.total or len(trials)
    ended = len(trials) - len(unfinished)
    stage = (
        None
        if unfinished or (0 < ended < total)
        else "starting"
        if not ended
        else "exporting the winner or writing the report"
    )
    return SweepStatus(
        states=states,
        total=total,
        best=None if study is None else _best(study),
        seconds=now - summary.began,
        name=summary.name,
        metric=", ".join(o.metric for o in study.objectives.objectives)
        if study is not None
        else summary.metric or "objective",
        goal=study.goal if study is not None else "minimize",
        failure=None
        if failed is None
        else (failed.id, (failed.result.error or "").strip().splitlines()[-1]),
        rows=tuple(_row(t, summary, max_t, now) for t in running),
        front=len(study.front) if study is not None else 0,
        stage=stage,
        paused=summary.state == "paused",
        from_outside=True,
    )


def _best(study: Record) -> BestTrial | None:
    """Return the best trial that has ended; None if there is none."""
    best = study.best
    if best is None or best.result.value is None:
        return None
    value = study.configurations.results()[best.first_trial].value
    return BestTrial(
        best.id,
        best.result.value if value is None else value,
        best.result.best_step or 0,
        _configuration(best),
    )


def _row(t: TrialRecord, summary: SweepSummary, max_t: int | None, now: float) -> TrialRow:
    stage = summary.stages.get(t.id, "")
    last = t.curve[-1] if t.curve else None
    silent, waits = stage.startswith("silent: "), stage.startswith("waiting since")
    return TrialRow(
        trial=t.id,
        stage="silent" if silent else "waiting for nodes" if waits else stage or "training",
        step=last[0] if last else t.result.steps,
        max_t=max_t,
        value=last[1] if last else None,
        best=t.result.value,
        shape=shape_of(t.scaling, ""),
        seconds=now - t.began.timestamp() if t.began else 0.0,
        attempt=max(1, t.attempts),
        configuration=_configuration(t),
        notice=stage.removeprefix("silent: ") if silent or waits else "",
    )


def _configuration(t: TrialRecord) -> Pairs:
    """Return (name, value) pairs for the preprocessor, if it is tuned, and for each other dimension. `scaling` is left out."""
    pairs = (
        [("preprocessor", without_repetition(t.preprocessor))]
        if any(name.startswith("preprocessor") for name in t.labels)
        else []
    )
    for name, value in t.labels.items():
        section, _, rest = name.partition(".")
        if section not in ("preprocessor", "scaling"):
            pairs.append((rest if section == "params" else name, value_text(value)))
    return tuple(pairs)

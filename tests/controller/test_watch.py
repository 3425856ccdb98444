"""The status of a sweep as another process sees it."""

from __future__ import annotations

import io
import time

import pytest

from sweeps.controller import watch
from sweeps.controller.status import status_line
from sweeps.controller.sweep_summary import summarize
from sweeps.core.folder_lock import FolderLock
from sweeps.core.sweep_folder import SweepFolder
from sweeps.core.trial import Report, State
from sweeps.search.search_loop import SearchLoop
from sweeps.space.saved_space import save_space
from sweeps.study import record
from sweeps.study.live_trial import ProgressUpdate
from sweeps.terminal.live_layout import View
from sweeps.terminal.watch import watch as show
from tests.commands import invoke

NAME = "made-20260102-120000"


@pytest.fixture
def sweep(make_space, tmp_path):
    """The folder of a sweep without trials, and its search."""
    space, folder = (
        make_space("params: {eta: {uniform: [0, 1]}}", max_trials=3),
        tmp_path / "runs" / NAME,
    )
    folder.mkdir(parents=True)
    save_space(folder, space, time.time())
    return folder, SearchLoop.open(folder, space)


def report(search: SearchLoop, number: int, *values: float) -> None:
    reports = tuple(Report(step, {"loss": value}, 1.0) for step, value in enumerate(values, 1))
    search.report(number, ProgressUpdate(reports, None, None, 1, 2.0))


def test_a_status_has_the_trials_of_the_study_and_the_stages_of_the_pool(sweep):
    folder, search = sweep
    for values in ((0.5, 0.4), (0.9,), ()):
        report(search, search.ask().number, *values)
    search.tell(0, State.COMPLETE)
    SweepFolder(folder).stages.write_text('{"0002": "waiting since 14:03:12 for nodes: 1 GPU"}')
    with FolderLock(folder):
        status = watch.status_of(summarize(folder), record.read(folder), 9, time.time() + 5)
    assert (status.states, status.total, status.ended, status.stage) == (
        {"COMPLETE": 1, "RUNNING": 2},
        3,
        1,
        None,
    )
    assert (
        status.best is not None
        and status.best[:3] == ("0000", 0.4, 2)
        and status.best.configuration[0][0] == "eta"
    )
    assert [(r.trial, r.stage, r.step, r.value, r.max_t) for r in status.rows] == [
        ("0001", "training", 1, 0.9, 9),
        ("0002", "waiting for nodes", 0, None, 9),
    ]
    assert (
        status.rows[1].notice == "waiting since 14:03:12 for nodes: 1 GPU"
        and status.from_outside
        and not status.paused
    )
    text = "\n".join(line.plain for line in View().lines(status, 100, 30))
    assert (
        NAME in text
        and "1/3" in text
        and "0001" in text
        and "in use" not in text
        and "left" not in text
    )


def test_a_trial_that_the_scheduler_has_paused_does_not_run(sweep):
    folder, search = sweep
    for values in ((0.5, 0.4), (0.9,), (0.3,)):
        report(search, search.ask().number, *values)
    search.store.record_pause(1, 1)
    with FolderLock(folder):
        summary, study = summarize(folder), record.read(folder)
        status = watch.status_of(summary, study, 9, time.time())
    assert summary.trials == {"completed": 0, "pruned": 0, "failed": 0, "paused": 1, "running": 2}
    assert [summary.state_of(t) for t in study.trials] == ["RUNNING", "PAUSED", "RUNNING"]
    assert [row.trial for row in status.rows] == ["0000", "0002"] and status.states == {
        "RUNNING": 2,
        "PAUSED": 1,
    }
    assert status_line(status).startswith("0/3 trials · 2 running · 1 paused · 0 pruned")
    assert "1 paused" in "\n".join(line.plain for line in View().lines(status, 100, 30))
    killed = summarize(folder)
    assert killed.trials == {
        "completed": 0,
        "pruned": 0,
        "failed": 0,
        "paused": 1,
        "interrupted": 2,
    }
    assert [killed.state_of(t) for t in study.trials] == ["INTERRUPTED", "PAUSED", "INTERRUPTED"]


def test_the_status_follows_the_study_and_ends_with_the_process(sweep):
    folder, search = sweep
    lock = FolderLock(folder)
    steps = iter(
        [
            lambda: None,
            lambda: report(search, search.ask().number, 0.5),
            lambda: search.store.record_sweep_pause(True),
            lambda: None,
            lambda: search.tell(0, State.COMPLETE),
            lock.release,
        ]
    )
    stream = io.StringIO()
    show(watch.statuses(NAME, folder.parent, wait=lambda seconds: next(steps)()), stream)
    lines = [line.rpartition(" · ")[0] for line in stream.getvalue().splitlines()]
    assert lines == [
        "0/3 trials · 0 running · 0 pruned · starting",
        "0/3 trials · 1 running · 0 pruned",
        "0/3 trials · paused · 1 running · 0 pruned",
        "1/3 trials · paused · 0 running · 0 pruned · best 0.5 (trial 0000)",
    ]
    assert next(steps, None) is None


def test_show_watch_of_a_sweep_that_does_not_run_shows_it_as_show_does(sweep):
    folder, search = sweep
    search.ask()
    assert invoke("show", folder, "--watch").output == invoke("show", folder).output
    done = invoke("show", folder, "--watch", "--json")
    assert done.exit_code == 2 and "--watch shows the progress of the whole sweep" in done.output

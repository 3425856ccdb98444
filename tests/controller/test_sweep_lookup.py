"""`ls`, `show` and `logs` read what a sweep's folder holds, also while somebody writes to it, and
change nothing.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from sweeps import cli
from sweeps.core.errors import InputError
from sweeps.core.files.folder_lock import FolderLock
from sweeps.core.files.sweep_folder import JOURNAL, RESULT, STAGES
from sweeps.core.result import SweepResult
from sweeps.core.trial import Checkpoint, Report, State
from sweeps.execution.worker import trial_logs
from sweeps.search.search_loop import SearchLoop
from sweeps.space import load
from sweeps.space.python.saved_space import save_space
from sweeps.stored import log_reader, sweep_lookup
from sweeps.stored.sweep_summary import list_sweeps
from sweeps.study import record_reader
from sweeps.study.events import TrialReported
from sweeps.terminal import terminal_text
from tests.search.next_trial import next_trial
from tests.waiting import wait_until

SPACE = """\
name: made
trainer: xgboost
data: {train: "sklearn:iris", label: target, valid: 0.2}
objective: {metric: loss, goal: minimize}
scheduler: {name: asha, max_t: 9}
limits: {max_trials: 6}
space:
  preprocessor: {grid: [StandardScaler, MinMaxScaler]}
  params: {eta: {loguniform: [1e-3, 1.0]}, nested: {depth: {randint: [1, 9]}, fixed: 3}}
"""


def recorded_sweep(root: Any, name: str = "made-1", began: float = 1000.0) -> Any:
    """A sweep's folder with four trials on record: complete, pruned, failed, and one that was
    begun.
    """
    folder = root / name
    folder.mkdir(parents=True)
    (root / "made.yaml").write_text(SPACE)
    space = load(root / "made.yaml")
    save_space(folder, space, began)
    loop = SearchLoop.open(folder, space)
    now = time.time()
    states = (
        (State.COMPLETE, (0.5, 0.25, 0.3)),
        (State.PRUNED, (0.75,)),
        (State.FAIL, (math.nan,)),
        (None, ()),
    )
    for state, values in states:
        trial = next_trial(loop)
        at = folder / "trials" / trial.id / "checkpoint_000002"
        kept = Checkpoint(at.name, 2, 2) if state is State.COMPLETE else None
        if kept is not None:
            at.mkdir(parents=True)
        reports = tuple(Report(i + 1, {"loss": v}, now) for i, v in enumerate(values))
        loop.store.append(TrialReported(1.0, trial.number, reports, kept, kept, 1.25))
        if state is not None:
            loop.store.end(
                trial.number,
                state,
                "Traceback: boom" if state is State.FAIL else None,
                "asha at step 1" if state is State.PRUNED else None,
            )
    return folder


def sweeps_command(*args: object) -> str:
    done = CliRunner().invoke(cli.main, list(map(str, args)))
    assert done.exit_code == 0, done.output
    return done.output


def test_ls_shows_every_sweep_the_newest_first(tmp_path: Path) -> None:
    recorded_sweep(tmp_path, "made-1", 1000.0)
    folder = recorded_sweep(tmp_path, "made-2", 2000.0)
    (tmp_path / "mlartifacts").mkdir()
    lines = sweeps_command("ls", "--dir", tmp_path).splitlines()
    assert [line.split()[0] for line in lines] == ["SWEEP", "made-2", "made-1"]
    assert (
        "killed" in lines[1]
        and "3/6" in lines[1]
        and "0.25 (0000)" in lines[1]
        and "loss" in lines[1]
    )
    lock = FolderLock(folder)
    assert "running" in sweeps_command("ls", "--dir", tmp_path).splitlines()[1]
    lock.release()
    listed = json.loads(sweeps_command("ls", "--dir", tmp_path, "--json"))
    assert listed[0]["trials"] == {"completed": 1, "pruned": 1, "failed": 1, "interrupted": 1}
    assert listed[0]["best"] == {"trial": "0000", "value": 0.25} and listed[0]["total"] == 6


def test_to_look_changes_nothing_and_harms_no_driver_that_starts(tmp_path: Path) -> None:
    folder = recorded_sweep(tmp_path)
    with (folder / JOURNAL).open("ab") as journal:
        journal.write(b'{"op_code": 5, "half')  # the driver is in the middle of a record
    before = {f: (f.stat().st_mtime_ns, f.read_bytes()) for f in folder.rglob("*") if f.is_file()}
    for args in (["ls", "--dir", tmp_path], ["show", folder], ["show", folder, "--trial", "0"]):
        sweeps_command(*args)
    assert {
        f: (f.stat().st_mtime_ns, f.read_bytes()) for f in folder.rglob("*") if f.is_file()
    } == before
    stop = threading.Event()

    def watch() -> None:
        from sweeps.core.files.folder_lock import is_driven

        while not stop.is_set():
            is_driven(folder)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        for _ in range(20):
            FolderLock(folder).release()
    finally:
        stop.set()
        watcher.join()


def test_show_tells_of_the_sweep_and_its_trials_the_best_first(tmp_path: Path) -> None:
    folder = recorded_sweep(tmp_path)
    text = sweeps_command("show", folder)
    assert (
        "made-1: killed; 1 completed, 1 pruned, 1 failed, 1 interrupted of 6" in text
        and "minimize loss" in text
    )
    rows = text.partition("TRIAL")[2].splitlines()
    assert [row.split()[:2] for row in rows[1:]] == [
        ["0000", "COMPLETE"],
        ["0001", "PRUNED"],
        ["0002", "FAIL"],
        ["0003", "INTERRUPTED"],
    ]
    assert rows[0].split()[-3:] == ["preprocessor", "eta", "nested.depth"]
    shown = json.loads(sweeps_command("show", folder, "--json"))
    assert [t["trial"] for t in shown["all"]] == ["0000", "0001", "0002", "0003"]


def test_trial_without_workers_is_shown_as_waiting(tmp_path: Path) -> None:
    folder = recorded_sweep(tmp_path)
    (folder / STAGES).write_text(
        json.dumps({"0003": "waiting for workers", "0000": "training"})
    )  # the second has ended meanwhile
    assert "1 interrupted of 6" in sweeps_command("show", folder), (
        "nobody drives it, so nothing waits"
    )
    lock = FolderLock(folder)
    try:
        text = sweeps_command("show", folder)
        assert "made-1: running; 1 completed, 1 pruned, 1 failed, 1 waiting of 6" in text
        rows = [row.split()[:2] for row in text.partition("TRIAL")[2].splitlines()[1:]]
        assert rows[0] == ["0000", "COMPLETE"] and rows[-1] == ["0003", "WAITING"]
        assert sweeps_command("show", folder, "--trial", "3").startswith("trial 0003: WAITING")
        trials = json.loads(sweeps_command("ls", "--dir", tmp_path, "--json"))[0]["trials"]
        assert trials["waiting"] == 1 and trials["running"] == 0
        (folder / STAGES).write_text("{}")
        assert "1 running of 6" in sweeps_command("show", folder)
    finally:
        lock.release()


def test_show_of_a_trial_has_its_configuration_curve_and_error(tmp_path: Path) -> None:
    folder = recorded_sweep(tmp_path)
    best = sweeps_command("show", folder, "--trial", "best")
    assert (
        best.startswith("trial 0000: COMPLETE after 3 steps")
        and "nested.fixed  3" in best
        and "best 0.25 at step 2" in best
    )
    assert "step 1: 0.5  step 3: 0.3" in best and "checkpoint_000002" in best
    assert "Traceback: boom" in sweeps_command("show", folder, "--trial", "2")
    assert json.loads(sweeps_command("show", folder, "--trial", "1", "--json"))["curve"] == [
        [1, 0.75]
    ]


def ended(folder: Any, **more: Any) -> None:
    """Leave the result of a sweep that has come to its end."""
    best = {"trial": "0000", "value": 0.25, "test": None, "params": {}, "preprocessor": "none"}
    best["scaling"] = {"num_workers": 1, "resources_per_worker": {"CPU": 1.0}}
    known = {
        "sweep": folder.name,
        "dir": folder,
        "trials": {"completed": 1, "pruned": 1, "failed": 1},
        "best": best,
        "checkpoint": None,
    }
    known |= {
        "bundle": folder / "bundle",
        "mlflow": {"tracking_uri": "sqlite:///x.db"},
        "fits": 1,
        "seconds": 2.0,
    }
    (folder / RESULT).write_text(SweepResult(**{**known, **more}).as_text())


def test_a_folder_that_was_moved_is_shown_with_what_is_there_now(tmp_path: Path) -> None:
    folder = recorded_sweep(tmp_path / "first")
    (folder / "bundle").mkdir()
    ended(folder)
    here = tmp_path / "second" / "made-9"
    here.parent.mkdir()
    folder.rename(here)
    for args in (["show", here], ["show", here, "--trial", "best"]):
        text = sweeps_command(*args)
        assert str(tmp_path / "first") not in text and "made-9" in text
    assert f"bundle        {here / 'bundle'}" in sweeps_command("show", here)
    shutil.rmtree(here / "bundle")
    shutil.rmtree(here / "trials" / "0000")
    assert "bundle" not in sweeps_command("show", here) and "checkpoint" not in sweeps_command(
        "show", here, "--trial", "0"
    )


def test_a_sweep_is_opened_by_path_name_or_start_of_name(tmp_path: Path) -> None:
    one, two = recorded_sweep(tmp_path, "made-1", 1.0), recorded_sweep(tmp_path, "other-2", 2.0)
    for name in (one, "made-1", "made-1/", "made"):
        assert sweep_lookup.find(name, tmp_path) == one
    assert sweep_lookup.find("latest", tmp_path) == two
    whole = recorded_sweep(tmp_path, "ma-20261123-043308", 0.5)
    assert sweep_lookup.find("ma", tmp_path) == whole, (
        "a sweep of that name goes before those whose names start with it"
    )
    recorded_sweep(tmp_path, "made-3", 3.0)
    for name, said in (
        ("made", "several sweeps"),
        ("nade-1", "did you mean `made-1`?"),
        (tmp_path, "is not a sweep's folder"),
    ):
        with pytest.raises(InputError, match=said.replace("?", r"\?")):
            sweep_lookup.find(name, tmp_path)
    with pytest.raises(InputError, match="does not exist"):
        list_sweeps(tmp_path / "absent")
    with pytest.raises(InputError, match="has no sweeps"):
        sweep_lookup.find("latest", tmp_path / "absent")


def test_a_bundle_is_opened_by_its_path_or_by_its_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = recorded_sweep(tmp_path / "root", "made-1", 1.0)
    (folder / "bundle").mkdir()
    (folder / "exports" / "0000").mkdir(parents=True)
    for name in (folder, "made-1", "made", "latest"):
        assert sweep_lookup.bundle_of(name, tmp_path / "root") == folder / "bundle"
    monkeypatch.chdir(tmp_path / "root")
    # what is there is taken as it is, a bundle or not, and a path is no name of a sweep
    for path in ("made-1/exports/0000", folder / "bundle", tmp_path, "made-1/absent"):
        assert sweep_lookup.bundle_of(path, tmp_path / "root") == Path(path)
    recorded_sweep(tmp_path / "root", "made-2", 2.0)
    for name in ("absent", "latest"):  # no such sweep; one that has no bundle
        with pytest.raises(InputError):
            sweep_lookup.bundle_of(name, tmp_path / "root")


def test_a_sweep_without_trials_can_be_shown(tmp_path: Path) -> None:
    folder = tmp_path / "made-1"
    folder.mkdir()
    (tmp_path / "made.yaml").write_text(SPACE)
    save_space(folder, load(tmp_path / "made.yaml"), 5.0)
    assert "0/6" in sweeps_command("ls", "--dir", tmp_path) and "no trial yet" in sweeps_command(
        "show", folder
    )
    with pytest.raises(InputError, match="no trial has started"):
        sweep_lookup.trial_of(record_reader.read(folder), "0")


def test_logs_are_those_of_the_trial_rank_by_rank(tmp_path: Path) -> None:
    folder = recorded_sweep(tmp_path)
    for rank in (0, 1):
        with trial_logs.redirect_output(
            trial_logs.log_of(folder / "trials" / "0000", rank), "the title"
        ) as say:
            say(f"from {rank}")
    text = sweeps_command("logs", folder, "0")
    assert "rank-0 | --- from 0" in text and "rank-1 | --- from 1" in text
    assert sweeps_command("logs", folder, "0", "--rank", 1).splitlines()[-1] == "--- from 1"
    for args, said in (
        (("0", 7, False), "no rank 7; the ranks are 0 to 1"),
        (("1", None, False), "has no log"),
        (("9", None, False), "no trial"),
    ):
        with pytest.raises(InputError, match=said):
            list(log_reader.read_logs(folder, *args))


def test_logs_follow_a_trial_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reader, "POLL_INTERVAL", 0.02)
    folder = recorded_sweep(tmp_path)
    heard: list[str] = []
    log = trial_logs.log_of(folder / "trials" / "0003", 0)
    lock = FolderLock(folder)
    listener = threading.Thread(
        target=lambda: heard.extend(log_reader.read_logs(folder, "3", None, True)), daemon=True
    )
    lines = iter(log_reader.read_logs(folder, "3", None, True))
    log.parent.mkdir(parents=True)
    log.write_text("one\ntw")
    assert next(lines) == "one"
    listener.start()
    log.write_text("one\ntwo\nthree")
    assert next(lines) == "two"
    lock.release()
    assert list(lines) == ["three"]
    wait_until(lambda: heard == ["one", "two", "three"], 10, "all lines")


# ---- how it is printed


@given(
    st.lists(st.lists(st.text("abc ", max_size=12), min_size=3, max_size=3), max_size=5),
    st.integers(8, 60),
)
def test_a_table_keeps_to_the_width(rows: Any, width: Any) -> None:
    text = terminal_text.format_table(("ONE", "TWO", "THREE"), rows, width)
    assert all(len(line) <= width for line in text.splitlines())


def test_export_without_ended_trial_names_trials_with_checkpoint(tmp_path: Path) -> None:
    from sweeps.bundle.trial_choice import find_trial_number

    file = tmp_path / "own.yaml"
    file.write_text(SPACE)
    loop = SearchLoop.open(tmp_path, load(file))
    for saved in (None, Checkpoint("checkpoint_000002", 2, 2)):
        trial = next_trial(loop)
        loop.store.append(
            TrialReported(1.0, trial.number, (Report(2, {"loss": 0.5}, 0.0),), saved, saved, 1, 0.1)
        )
        loop.store.end(trial.number, State.RUNNING)
    with pytest.raises(
        InputError, match="use --trial with the id of a trial that has a checkpoint: 0001"
    ):
        find_trial_number(loop.store, None)
    assert find_trial_number(loop.store, "1") == 1


def test_show_names_the_best_checkpoint_of_a_trial_while_it_exists(finished_sweep: Any) -> None:
    def shown() -> str:
        done = CliRunner().invoke(cli.main, ["show", str(finished_sweep), "--trial", "best"])
        assert done.exit_code == 0, done.output
        return done.output

    (best,) = re.findall(r"checkpoint +step \d+, (\S+)", shown())
    saved = Path(best) if Path(best).is_absolute() else Path.cwd() / best
    assert saved.is_dir() and saved.is_relative_to(finished_sweep)
    shutil.rmtree(saved)
    assert "checkpoint" not in shown()

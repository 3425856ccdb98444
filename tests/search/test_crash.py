"""A driver that dies at any record of the journal, once or again and again: the next one comes to the same end as if nothing had been."""

from __future__ import annotations

import dataclasses
import json
import random
import shutil
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sweeps.conductor import Conductor
from sweeps.gangs.booking import Book
from sweeps.gangs.messages import News, Past, Progress
from sweeps.search import study
from sweeps.search.study import JOURNAL, Ledger, OnRecord
from sweeps.search.verdicts import scheduler_of
from sweeps.trial import Checkpoint, Report, State, Trial, Verdict

BODY = """
preprocessor: {grid: [StandardScaler, MinMaxScaler]}
params: {eta: {loguniform: [1e-3, 1.0]}, kind: {choice: [a, b]}, drop: {uniform: [0, 1], when: {params.kind: b}}}
"""
TRIALS, MAX_T = 8, 9


class Killed(BaseException):
    """The process is gone."""


class Deaf:
    def __getattr__(self, name: str) -> Any:
        return Deaf()

    def __call__(self, *args: Any) -> None:
        return None


class Pool(Deaf):
    """Remembers what it was told to start."""

    def __init__(self) -> None:
        self.started: dict[str, tuple[Trial, Past | None]] = {}
        self.start = self

    def remote(self, trial: Trial, folder: str, past: Past | None = None) -> None:
        self.started[trial.id] = (trial, past)


def loss(trial: Trial, step: int) -> float:
    return trial.params["eta"] + trial.params.get("drop", 0.3) + 1 / step


def drive(space, folder) -> Ledger:
    """One driver with one slot, to the end of the sweep: a loop of nine steps with a checkpoint at every other one."""
    scheduler = scheduler_of(space.scheduler)
    ledger, pool = Ledger(folder, space, scheduler.rungs), Pool()
    deaf: Any = Deaf()
    going = Conductor(space, ledger, scheduler, pool, deaf, folder, time.time() - ledger.spent, lambda: False, lambda s: None, lambda: None)
    going.settle()
    while True:
        try:
            name = going.begin()
        except StopIteration:
            return ledger
        trial, past = pool.started[name]
        kept = past.checkpoint if past else None
        verdict, attempts = Verdict.CONTINUE, past.attempts + 1 if past else 1
        for step in range(kept.step + 1 if kept else 1, MAX_T + 1):
            if step % 2 == 0:
                path = folder / "trials" / name / f"checkpoint_{step:06d}"
                path.mkdir(exist_ok=True)
                kept = Checkpoint(str(path), step, step)
            told = (Report(step, {"loss": loss(trial, step), "other": float(step)}, time.time()),)
            rung = step if step in scheduler.rungs else None
            verdict = going.hear(name, Progress(told, kept if step % 2 == 0 else None, kept, rung, None, attempts=attempts))
            if verdict is Verdict.STOP:
                break
        if verdict is not Verdict.STOP:
            going.hear(name, Progress(state=State.COMPLETE, best=kept, attempts=attempts))


def outcome(ledger: Ledger) -> list[Any]:
    """What a sweep came to, without times."""
    told = {told[0].number: told for told in OnRecord(ledger.folder, ledger.space)()}
    return [
        (t.number, t.state.name, t.params, t.user_attrs["begun"], t.intermediate_values, [(r.step, r.metrics) for r in told[t.number][2]])
        for t in ledger.study.get_trials(deepcopy=False)
    ] + [ledger.winner(), [r.value for r in ledger.results().values()]]


def dying(monkeypatch, at: int, part: float) -> None:
    """Let a driver die when it writes its record of this number, of which this part comes to the disk."""
    whole, count = study._Journal.append_logs, 0

    def append_logs(self, logs):
        nonlocal count
        count += 1
        if count == at:
            text = "".join(json.dumps(entry, separators=(",", ":")) + "\n" for entry in logs).encode()
            with open(self._file_path, "ab") as f:
                f.write(text[: int(len(text) * part)])
            raise Killed
        whole(self, logs)

    monkeypatch.setattr(study._Journal, "append_logs", append_logs)


@pytest.fixture
def undisturbed(make_space, tmp_path):
    space = make_space(BODY, max_trials=TRIALS)
    (tmp_path / "whole").mkdir()
    return space, outcome(drive(space, tmp_path / "whole")), (tmp_path / "whole" / JOURNAL).read_bytes().count(b"\n")


@pytest.mark.timeout(120)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_driver_may_die_at_any_record_and_any_byte_of_it(undisturbed, tmp_path, data):
    space, expected, records = undisturbed
    assert {state for _, state, *_ in expected[:TRIALS]} == {"COMPLETE", "PRUNED"}
    folder = tmp_path / "cut"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for _ in range(data.draw(st.integers(1, 4))):
        with pytest.MonkeyPatch.context() as patch:
            dying(patch, data.draw(st.integers(1, records)), data.draw(st.floats(0, 1)))
            try:
                drive(space, folder)
            except Killed:
                continue
            break  # there was less left to write than that
    assert outcome(drive(space, folder)) == expected


def test_the_time_that_was_used_is_on_record(make_space, tmp_path):
    space = make_space(BODY, max_trials=2)
    ledger = Ledger(tmp_path, space, ())
    ledger.clock = lambda: 12.5
    trial = ledger.next()
    ledger.record(trial.number, (Report(1, {"loss": 1.0}, 1.0),), None, None, 1, 0.1)
    again = Ledger(tmp_path, space, ())
    assert again.spent == 12.5 and list(again.interrupted) == [0] and again.to_run == 2


@pytest.mark.parametrize(
    "steps, expected", [(0, None), (1, State.PRUNED), (2, None), (MAX_T, State.COMPLETE)], ids=["new", "at a rung", "past it", "at max_t"]
)
def test_a_trial_that_only_lacked_its_end_gets_it_and_does_not_run(make_space, tmp_path, steps, expected):
    """Three good trials at the first rung; the fourth is worse, and its driver died before the verdict, or long after another one."""
    space = make_space(BODY, max_trials=4)
    scheduler = scheduler_of(space.scheduler)
    ledger = Ledger(tmp_path, space, scheduler.rungs)
    for _ in range(3):
        done = ledger.next()
        ledger.record(done.number, (Report(1, {"loss": 0.1}, 1.0),), None, None, 1, 0.1)
        ledger.finish(done.number, State.COMPLETE)
    trial = ledger.next()
    ledger.record(trial.number, tuple(Report(s, {"loss": 9.0}, float(s)) for s in range(1, steps + 1)), None, None, 1, 0.1)
    ledger, pool, deaf = Ledger(tmp_path, space, scheduler.rungs), Pool(), Deaf()
    going = Conductor(space, ledger, scheduler, pool, deaf, tmp_path, time.time(), lambda: False, lambda s: None, lambda: None)
    going.settle()
    if expected is None:
        assert going.begin() == trial.id and trial.id in pool.started
        assert going.hear(trial.id, Progress((), rung=1)) is (Verdict.CONTINUE if steps > 1 else Verdict.STOP)
    else:
        with pytest.raises(StopIteration):
            going.begin()
        assert ledger.results()[3].state is expected and not pool.started


def test_a_driver_that_died_of_a_limit_that_was_reached_begins_nothing_more(make_space, tmp_path):
    space = make_space(BODY, max_trials=4)
    space = dataclasses.replace(space, limits=dataclasses.replace(space.limits, target=0.5))
    scheduler = scheduler_of(space.scheduler)
    ledger = Ledger(tmp_path, space, scheduler.rungs)
    done = ledger.next()
    ledger.record(done.number, (Report(1, {"loss": 0.1}, 1.0),), None, None, 1, 0.1)
    ledger.finish(done.number, State.COMPLETE)
    ledger, pool, deaf = Ledger(tmp_path, space, scheduler.rungs), Pool(), Deaf()
    going = Conductor(space, ledger, scheduler, pool, deaf, tmp_path, time.time(), lambda: False, lambda s: None, lambda: None)
    going.settle()
    assert going.reason.startswith("limits.target")
    with pytest.raises(StopIteration):
        going.begin()


@pytest.mark.parametrize("seed", range(20))
def test_what_the_record_names_is_never_deleted(seed):
    """News, hearings, records and new runners in any order: the checkpoints that the driver has on record are always there."""
    chance = random.Random(seed)
    book, disk, on_record, heard = Book(1, "loss", True), set(), set(), None
    attempt = book.begin()
    for step in range(1, 30):
        saved = Checkpoint(f"/t/checkpoint_{step:06d}", step, step)
        disk.add(saved.path)
        book.take(attempt, News(0, step, (Report(step, {"loss": chance.random()}, 0.0),), (saved,)))
        disk -= set(book.drop())
        if chance.random() < 0.5:
            heard = book.hear(0.0)
            how = chance.random()
            if how < 0.7:  # the driver records it, and the runner asks for more
                names = {c.path for c in (heard.checkpoint, heard.best) if c}
                on_record = names if heard.checkpoint else on_record | names
                book.on_record()
            elif how < 0.9:  # the runner died, before or after the driver had it
                if how < 0.8:
                    on_record = {c.path for c in (heard.checkpoint, heard.best) if c}
                book.repeat()
                book.on_record()
            disk -= set(book.drop())
        assert on_record <= disk
    assert len(disk) <= 6

"""A damaged journal is noticed, and rebuilt from its whole trials."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeps.core.errors import DamagedStudy
from sweeps.core.files.result_file import find_contradiction
from sweeps.core.files.sweep_folder import JOURNAL
from sweeps.core.result import ENDED, SweepResult
from sweeps.search.search_loop import SearchLoop
from sweeps.study import record_reader
from sweeps.study.journal import torn_tail_start
from sweeps.study.journal_repair import RebuiltJournal, rebuild
from tests.fuzz.damaging import damaged_journal
from tests.fuzz.harness import EXAMPLES, fuzzed
from tests.search.test_crash import ASKED, BODY, PLAIN, drive, enqueue_after_two, outcome

RANDOM = {"algorithm": "random", "scheduler": "{name: none, max_t: 9}", "max_trials": 6}
TWO = {
    "objective": "[{metric: loss, goal: minimize}, {metric: other, goal: maximize}]",
    "extra": "constraints: {other: '<= 100'}",
    "scheduler": "{name: none, max_t: 9}",
    "max_trials": 5,
}
KINDS: dict[str, dict[str, Any]] = {
    "asha": PLAIN,
    "random": RANDOM,
    "two objectives": TWO,
    "enqueued, points and repeats": ASKED,
}


@dataclasses.dataclass(frozen=True)
class Sweep:
    """A sweep that ran to its end."""

    space: Any
    lines: list[bytes]
    outcome: list[Any]


@pytest.fixture
def sweep(make_space: Any, tmp_path: Path, request: pytest.FixtureRequest) -> Sweep:
    space, folder = make_space(BODY, **KINDS[request.param]), tmp_path / "whole"
    folder.mkdir()
    before = enqueue_after_two if "enqueued" in request.param else lambda loop: None
    loop = drive(space, folder, before=before)
    lines = (folder / JOURNAL).read_bytes().splitlines(keepends=True)
    return Sweep(space, lines, outcome(loop))


every = pytest.mark.parametrize("sweep", KINDS, indirect=True)
asha = pytest.mark.parametrize("sweep", ["asha"], indirect=True)


def read(data: bytes, folder: Path) -> record_reader.Record | None:
    folder.mkdir(exist_ok=True)
    (folder / JOURNAL).write_bytes(data)
    return record_reader.read(folder)


def states(sweep: Sweep, rebuilt: RebuiltJournal, folder: Path) -> dict[str, str]:
    """Check what holds of any rebuilt journal, and return the states of its trials."""
    assert rebuild(rebuilt.data, sweep.space).data == rebuilt.data
    study = read(rebuilt.data, folder)
    assert study is not None
    known = {fields["id"]: (state, fields) for _, state, _, fields, *_ in sweep.outcome[:-2]}
    state_of_trial = {t.id: t.result.state.name for t in study.trials}
    for t in study.trials:
        assert t.params == known[t.id][1]["params"], "nobody gets another's configuration"
        assert t.result.state.name in ("RUNNING", known[t.id][0]), "nor another's end"
    assert {n for n, state in state_of_trial.items() if state == "RUNNING"} == set(
        rebuilt.unfinished
    )
    assert set(state_of_trial) == {*rebuilt.unfinished, *rebuilt.ended}
    assert not set(state_of_trial) & set(rebuilt.lost)
    return state_of_trial


def changed(line: bytes, **more: Any) -> bytes:
    return json.dumps({**json.loads(line), **more}).encode() + b"\n"


def without(line: bytes, key: str) -> bytes:
    return json.dumps({k: v for k, v in json.loads(line).items() if k != key}).encode() + b"\n"


def with_event(line: bytes, **more: Any) -> bytes:
    """Change the last event of a batch."""
    ((name, batch),) = json.loads(line)["user_attr"].items()
    *others, last = batch["events"]
    return changed(line, user_attr={name: {**batch, "events": [*others, last | more]}})


DAMAGE: dict[str, tuple[str, Callable[[bytes], bytes], str]] = {
    "no JSON": ('"events.1"', lambda line: b'{"op_code": 8, "tri\n', "not JSON"),
    "a list": ('"events.1"', lambda line: b"[1, 2]\n", "not an object"),
    "NUL bytes": ('"events.1"', lambda line: b"\0" * 40 + b"\n", "not JSON"),
    "invalid UTF-8": ('"events.1"', lambda line: line[:20] + b"\xff" + line[20:], "not JSON"),
    "nested": ('"events.1"', lambda line: b"[" * 100_000 + b"\n", "not JSON"),
    "an unknown operation": ('"events.1"', lambda line: changed(line, op_code=77), "77"),
    "of another trial": ('"events.1"', lambda line: changed(line, trial_id=4711), "4711"),
    "without a worker": ('"events.1"', lambda line: without(line, "worker_id"), "worker_id"),
    "two on a line": ('"events.1"', lambda line: line[:-1] + line, "not JSON"),
    "no report": ('"events.1"', lambda line: with_event(line, reports=1), "reports"),
    "another trial begins": ('"events.0"', lambda line: with_event(line, number=7), "trial 0007"),
    "no number of workers": (
        '"events.0"',
        lambda line: with_event(line, trial={"number": 10**400}),
        "record",
    ),
    "ends at no time": ('"op_code":6', lambda line: changed(line, datetime_complete="x"), "time"),
    "ends without values": ('"state":1', lambda line: changed(line, values=None), "values"),
    "no distribution": ('"op_code":5', lambda line: changed(line, distribution="{}"), "read"),
    "outside its distribution": (
        '"params.eta"',
        lambda line: changed(line, param_value_internal=1e9),
        "outside",
    ),
}


@pytest.mark.parametrize("kind", DAMAGE)
@asha
def test_a_bad_line_is_named_and_its_trial_is_lost(sweep: Any, tmp_path: Path, kind: Any) -> None:
    part, damage, said = DAMAGE[kind]
    at = next(i for i, line in enumerate(sweep.lines) if part.encode() in line)
    data = b"".join([*sweep.lines[:at], damage(sweep.lines[at]), *sweep.lines[at + 1 :]])
    folder = tmp_path / "damaged"
    for reads in (
        lambda: read(data, folder),
        lambda: record_reader.copy_study(folder),
        lambda: SearchLoop.open(folder, sweep.space),
    ):
        with pytest.raises(DamagedStudy) as e:
            reads()
        (problem,) = e.value.problems
        assert problem.place == f"{folder / JOURNAL}:{at + 1}" and "\n" not in problem.text
        assert said in problem.text and "repair" in problem.text and len(problem.text) < 400
    rebuilt = rebuild(data, sweep.space)
    number = json.loads(sweep.lines[at])["trial_id"]
    count = len(sweep.outcome) - 2
    ends = '"op_code":6' in part or '"state"' in part
    assert rebuilt.lost == (() if ends else (f"{number:04d}",))
    assert len(states(sweep, rebuilt, tmp_path / "repaired")) == (count if ends else count - 1)


@asha
@pytest.mark.parametrize(
    "part, twice, said",
    [
        ('"op_code":4', False, "exist at this line"),
        ('"op_code":4', True, "must come next"),
        ('"op_code":5', False, "parameters"),
        ('"events.0"', False, "events.0"),
        ('"events.1"', False, "events.1"),
        ('"events.1"', True, "events.2"),
        ('"op_code":6', True, "ended"),
        ('"judged"', False, "judged"),
        ('"op_code":0', False, "begins the study"),
    ],
)
def test_lines_that_are_missing_or_doubled_are_noticed(
    sweep: Any, tmp_path: Path, part: str, twice: bool, said: str
) -> None:
    at = next(i for i, line in enumerate(sweep.lines) if part.encode() in line)
    data = b"".join([*sweep.lines[: at + twice], *sweep.lines[at + (not twice) :]])
    with pytest.raises(DamagedStudy) as e:
        read(data, tmp_path / "damaged")
    assert said in e.value.problems[0].text, e.value
    rebuilt = rebuild(data, sweep.space)
    lost = json.loads(sweep.lines[at]).get("trial_id")
    is_whole = twice or lost is None
    assert rebuilt.lost == (() if is_whole else (f"{lost:04d}",)), "a doubled line loses nothing"
    states(sweep, rebuilt, tmp_path / "repaired")


@asha
def test_what_a_crash_leaves_is_no_damage(sweep: Any, tmp_path: Path) -> None:
    data, last = b"".join(sweep.lines), sweep.lines[-1]
    for torn in (b"", last[:7], b"\0" * 50, last[:9] + b"\0\0\0\n", last[:9] + b"\0\n" + last[:5]):
        assert torn_tail_start(data + torn) == len(data)
        study = read(data + torn, tmp_path)
        assert study is not None and len(study.trials) == len(sweep.outcome) - 2
        assert (tmp_path / JOURNAL).read_bytes() == data + torn, "to look changes nothing"
        SearchLoop.open(tmp_path, sweep.space)
        assert (tmp_path / JOURNAL).read_bytes().startswith(data)
        assert record_reader.read(tmp_path) is not None
    assert read(data.replace(b"\n", b"\r\n"), tmp_path) is not None, "an editor's line ends"


counts = st.fixed_dictionaries({}, optional=dict.fromkeys(ENDED, st.integers(0, 30)))


@given(counts, st.integers(0, 100), st.integers(0, 5), st.integers(0, 120))
def test_study_without_a_recorded_end_contradicts_result(
    trials: Any, ended: Any, given_: Any, best: Any
) -> None:
    ids = [f"{n:04d}" for n in range(ended + given_)]
    winner = {"trial": f"{best:04d}"}
    result = SweepResult("x", Path(), trials, winner, None, None, mlflow={}, fits=0, seconds=1.0)
    said = find_contradiction(ids[:ended], ids[ended:], result)
    assert (said is not None) == (ended < sum(trials.values()) or best >= ended + given_)


@every
@settings(fuzzed, max_examples=max(1, EXAMPLES // 4))
@given(data=st.data())
@pytest.mark.timeout(max(60, EXAMPLES))
def test_any_damage_leaves_a_study_that_opens_and_goes_on(
    sweep: Any, tmp_path: Path, data: Any
) -> None:
    damaged = damaged_journal(b"".join(sweep.lines), data)
    lines = damaged.splitlines(keepends=True)
    rebuilt = rebuild(damaged, sweep.space)
    state_of_trial = states(sweep, rebuilt, tmp_path / "repaired")
    by_trial: dict[int, list[bytes]] = {}
    for line in sweep.lines:
        by_trial.setdefault(json.loads(line).get("trial_id", -1), []).append(line)
    join_first = {number: first for number, *_, first, _, _ in sweep.outcome[:-2]}
    for number, own in by_trial.items():
        is_whole = [line for line in lines if line in own] == own
        first = join_first.get(number)
        if number >= 0 and is_whole and (first is None or f"{first:04d}" in state_of_trial):
            assert state_of_trial[f"{number:04d}"] == sweep.outcome[number][1], (
                "whole trials are kept"
            )
    SearchLoop.open(tmp_path / "repaired", sweep.space)


@pytest.mark.parametrize("sweep", ["random", "enqueued, points and repeats"], indirect=True)
@settings(fuzzed, max_examples=8)
@given(lost=st.sets(st.integers(0, 5), min_size=1, max_size=3))
def test_lost_trials_are_sampled_again_under_their_numbers(
    sweep: Sweep, tmp_path: Path, lost: set[int]
) -> None:
    """Random search draws by the number of a trial, so the sweep has the same end as before."""
    numbers = [json.loads(line).get("trial_id", -1) for line in sweep.lines]
    lines = [line for line, number in zip(sweep.lines, numbers, strict=True) if number not in lost]
    rebuilt = rebuild(b"".join(lines), sweep.space)
    kept = {int(name) for name in rebuilt.ended}
    assert not kept & lost
    read(rebuilt.data, tmp_path / "repaired")
    loop = drive(sweep.space, tmp_path / "repaired")
    assert all(t.state.is_finished() for t in loop.store.trials() if t.number in kept)
    if sweep.space.search.algorithm == "random":
        assert outcome(loop) == sweep.outcome


def test_a_number_that_no_sweep_has_makes_no_room(make_space: Any) -> None:
    create = {"op_code": 4, "worker_id": "w", "study_id": 0, "datetime_start": None, "state": 4}
    data = json.dumps(create | {"trial_id": 99_999_999}).encode() + b"\n"
    assert rebuild(data, make_space(BODY, max_trials=4)).data.count(b"\n") == 2

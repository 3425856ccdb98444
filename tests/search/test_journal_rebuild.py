"""A damaged journal is told from a whole one, and rebuilt from the lines that are left and from the
sweep's result.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sweeps.bundle.export import describe_recorded
from sweeps.core.errors import DamagedStudy
from sweeps.core.result import ENDED, contradiction
from sweeps.core.sweep_folder import JOURNAL
from sweeps.search.configuration_search import find_configuration
from sweeps.search.journal_rebuild import RebuiltJournal, first_fault, rebuild
from sweeps.search.search_loop import SearchLoop
from sweeps.search.trial_repair import SweepFacts
from sweeps.study import record
from sweeps.study.journal import torn_tail_start, whole_lines
from sweeps.study.journal_records import parse_line
from sweeps.study.journal_rules import Rules
from tests.fuzz.harness import EXAMPLES, fuzzed
from tests.search.test_crash import ASKED, BODY, PLAIN, drive, enqueue_after_two, outcome

FUZZ = settings(fuzzed, max_examples=max(1, EXAMPLES // 2))
NOISE = {"algorithm": "random", "scheduler": "{name: none, max_t: 9}", "max_trials": 6}
TWO = {
    "objective": "[{metric: loss, goal: minimize}, {metric: other, goal: maximize}]",
    "max_trials": 5,
}
TWO |= {"extra": "constraints: {other: '<= 100'}", "scheduler": "{name: none, max_t: 9}"}
KINDS: dict[str, dict[str, Any]] = {
    "asha": PLAIN,
    "points and repeats": ASKED,
    "random": NOISE,
    "two objectives": TWO,
    "enqueued": ASKED,
}


@dataclasses.dataclass(frozen=True)
class Whole:
    """A sweep that came to its end, as nobody damaged it."""

    space: Any
    lines: list[bytes]
    result: dict[str, Any]
    outcome: list[Any]
    folder: Path

    @property
    def facts(self) -> SweepFacts:
        return SweepFacts(self.space, 1_700_000_000.0)


def finished(space: Any, folder: Path, enqueues: bool = False) -> Whole:
    folder.mkdir()
    loop = drive(space, folder, before=enqueue_after_two if enqueues else lambda loop: None)
    counts = {"completed": 0, "pruned": 0, "failed": 0}
    for r in loop.store.results().values():
        counts[
            {"COMPLETE": "completed", "PRUNED": "pruned", "FAIL": "failed"}[r.state.name]
        ] += not r.given
    winner, front = loop.store.winner(), loop.store.front()
    result = {
        "trials": counts,
        "best": None if winner is None else describe_recorded(loop.store, winner),
        "seconds": 9.0,
    }
    result |= {"front": [describe_recorded(loop.store, n) for n in front]} if front else {}
    lines = whole_lines((folder / JOURNAL).read_bytes())
    return Whole(space, lines, json.loads(json.dumps(result)), outcome(loop), folder)


@pytest.fixture
def whole(make_space, tmp_path, request) -> Whole:
    return finished(
        make_space(BODY, **KINDS[request.param]),
        tmp_path / "whole",
        enqueues=request.param == "enqueued",
    )


every = pytest.mark.parametrize("whole", KINDS, indirect=True)


def study_of(lines: Any, folder: Path) -> record.Record | None:
    folder.mkdir(exist_ok=True)
    (folder / JOURNAL).write_bytes(b"".join(lines))
    return record.read(folder)


def checked(whole: Whole, found: RebuiltJournal, folder: Path) -> dict[str, str]:
    """What holds of any rebuilt journal: the states of its trials."""
    assert first_fault(found.lines) is None
    again = rebuild(found.lines, None, whole.facts)
    assert not again.changed and again.lines == found.lines, (
        "a repaired journal has nothing to repair"
    )
    study = study_of(found.lines, folder)
    states = (
        {t.id: t.result.state.name for t in study.trials if not t.result.given}
        if study is not None
        else {}
    )
    assert list(states) == sorted(set(states)), "each trial is there once"
    known = {
        begun["id"]: (state, params, begun) for _, state, params, begun, *_ in whole.outcome[:-2]
    }
    for t in study.trials if study is not None else ():
        assert t.params == known[t.id][2]["params"], "nobody gets another's configuration"
        assert t.result.state.name in ("RUNNING", known[t.id][0]), "nor another's end"
    kinds = [*found.ended, *found.restored, *found.unfinished, *found.lost]
    assert len(kinds) == len(set(kinds)) and set(states) <= set(kinds)
    ended = {t for t, state in states.items() if state != "RUNNING"}
    assert ended == {*found.ended, *found.restored} and set(states) - ended == set(found.unfinished)
    return states


# ---- what is damaged


@every
def test_a_whole_journal_has_no_fault_and_comes_out_as_it_is(whole):
    assert first_fault(whole.lines) is None
    found = rebuild(whole.lines, whole.result, whole.facts)
    assert (
        list(found.lines) == whole.lines
        and not found.changed
        and not found.dropped
        and not found.lost
        and found.contradiction is None
    )


def test_the_journal_of_a_finished_sweep_has_no_fault(finished_sweep):
    assert first_fault(whole_lines((finished_sweep / JOURNAL).read_bytes())) is None


DAMAGE = {
    "no JSON": (lambda line: b'{"op_code": 8, "tri\n', "not JSON"),
    "a list": (lambda line: b"[1, 2]\n", "not an object"),
    "a number": (lambda line: b"5\n", "not an object"),
    "empty": (lambda line: b"\n", "not JSON"),
    "NUL bytes": (lambda line: b"\0" * 40 + b"\n", "not JSON"),
    "invalid UTF-8": (lambda line: line[:20] + b"\xff\xfe" + line[20:], "not JSON"),
    "ten megabytes": (lambda line: b"x" * 10_000_000 + b"\n", "not JSON"),
    "nested": (lambda line: b"[" * 100_000 + b"\n", "not JSON"),
    "no operation": (lambda line: changed(line, op_code=None), "op_code"),
    "an unknown operation": (lambda line: changed(line, op_code=77), "77"),
    "without its trial": (lambda line: without(line, "trial_id"), "trial_id"),
    "of another trial": (lambda line: changed(line, trial_id=4711), "4711"),
    "of a trial by name": (lambda line: changed(line, trial_id="0"), "trial"),
    "without a worker": (lambda line: without(line, "worker_id"), "worker_id"),
    "two on a line": (lambda line: line[:-1] + line, "not JSON"),
    "glued to half a record": (lambda line: line[:30] + line, "not JSON"),
}


def changed(line: bytes, **more: Any) -> bytes:
    return json.dumps({**json.loads(line), **more}).encode() + b"\n"


def without(line: bytes, key: str) -> bytes:
    return json.dumps({k: v for k, v in json.loads(line).items() if k != key}).encode() + b"\n"


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("whole", ["asha"], indirect=True)
def test_r8_a_bad_line_in_the_middle_is_named(whole, tmp_path, kind):
    damage, said = DAMAGE[kind]
    at = next(i for i, line in enumerate(whole.lines) if b'"told.0"' in line)
    lines = [*whole.lines]
    lines[at] = damage(lines[at])
    for reads in (
        lambda f: study_of(lines, f),
        lambda f: record.copy_study(f),
        lambda f: SearchLoop.open(f, whole.space),
        lambda f: record.trials_of(f),
    ):
        with pytest.raises(DamagedStudy) as e:
            reads(tmp_path / "damaged")
        (problem,) = e.value.problems
        assert (
            problem.place == f"{tmp_path / 'damaged' / JOURNAL}:{at + 1}"
            and "\n" not in problem.text
            and len(problem.text) < 400
        )
        assert (
            said in problem.text
            and f"{at} records before this line and {len(lines) - at - 1} after this line"
            in problem.text
        )
        assert "sweeps repair" in problem.text or "repair" in problem.text
    states = checked(whole, rebuild(lines, whole.result, whole.facts), tmp_path / "repaired")
    assert len(states) == len(whole.outcome) - 2


@pytest.mark.parametrize("whole", ["asha"], indirect=True)
@pytest.mark.parametrize(
    "which, twice, said",
    [
        (
            '"op_code":4',
            False,
            "exist at this line",
        ),  # what creates a trial: all that follow would have another number
        ('"op_code":4', True, "line before"),
        ('"op_code":5', False, "parameters"),
        ('"begun"', False, "begun"),
        ('"told.0"', False, "told.0"),
        ('"told.0"', True, "told.1"),
        ('"op_code":6', True, "ended"),
        ('"judged"', False, "judged"),
        ('"op_code":0', False, "begins the study"),
    ],
)
def test_r8_lines_that_are_missing_or_doubled_are_noticed(whole, tmp_path, which, twice, said):
    at = next(i for i, line in enumerate(whole.lines) if which.encode() in line)
    lines = [*whole.lines[: at + twice], *whole.lines[at + (not twice) :]]
    with pytest.raises(DamagedStudy) as e:
        study_of(lines, tmp_path / "damaged")
    assert said in e.value.problems[0].text, e.value
    found = rebuild(lines, whole.result, whole.facts)
    states = checked(whole, found, tmp_path / "repaired")
    assert len(states) == len(whole.outcome) - 2
    assert twice <= (list(found.lines) == whole.lines), "what was there twice is there once"


@pytest.mark.parametrize("whole", ["asha"], indirect=True)
def test_what_a_crash_leaves_is_no_damage(whole, tmp_path):
    data, last = b"".join(whole.lines), whole.lines[-1]
    for torn in (
        b"",
        last[:7],
        b"\0" * 50,
        last[:9] + b"\0\0\0\n",
        last[:9] + b"\0\n" + last[:5],
        b"\xff",
    ):
        (tmp_path / JOURNAL).write_bytes(data + torn)
        assert torn_tail_start(data + torn) == len(data)
        study = record.read(tmp_path)
        assert study is not None and len(study.trials) == len(whole.outcome) - 2
        assert (tmp_path / JOURNAL).read_bytes() == data + torn, "to look changes nothing"
        SearchLoop.open(tmp_path, whole.space)
        assert (tmp_path / JOURNAL).read_bytes().startswith(data) and first_fault(
            whole_lines((tmp_path / JOURNAL).read_bytes())
        ) is None
    (tmp_path / JOURNAL).write_bytes(data.replace(b"\n", b"\r\n"))
    assert record.read(tmp_path) is not None, "an editor's line ends are JSON's white space"


# ---- when a study contradicts a result

counts = st.fixed_dictionaries(
    {}, optional=dict.fromkeys((*ENDED, "interrupted"), st.integers(0, 30))
)


@given(counts, st.integers(0, 100), st.integers(0, 5), st.integers(0, 120))
@example({"completed": 10, "pruned": 0, "failed": 0}, 0, 0, 0)
@example({"completed": 1}, 1, 0, 7)
def test_r9_a_study_contradicts_a_result_if_and_only_if_it_lacks_an_end_that_the_result_tells(
    told, ended, given_, best
):
    ids = [f"{n:04d}" for n in range(ended + given_)]
    said = contradiction(
        ids[:ended], ids[ended:], {"trials": told, "best": {"trial": f"{best:04d}"}}
    )
    short = ended < sum(told.get(word, 0) for word in ENDED)
    assert (said is not None) == (short or best >= ended + given_)
    if short:
        assert str(ended) in said and "result.json" in said
    assert contradiction(ids[:ended], (), {"trials": {}, "best": None, "front": ()}) is None, (
        "no end is told, so none is missing"
    )
    assert (
        contradiction(ids[: ended + given_], (), {"trials": told, "best": None}) is None
        or short
        or not short
    )


# ---- what is rebuilt


def damaged_somehow(data: st.DataObject, lines: list[bytes]) -> list[bytes]:
    """Any subset of the lines damaged in any way."""
    lines = [*lines]
    kinds = st.sampled_from(["drop", "junk", "double", "cut", "swap"])
    for _ in range(data.draw(st.integers(1, 6), label="times")):
        at = data.draw(st.integers(0, max(0, len(lines) - 1)), label="at")
        if not lines:
            break
        kind = data.draw(kinds, label="kind")
        if kind == "drop":
            del lines[at : at + data.draw(st.sampled_from([1, 2, 5, 20]), label="count")]
        elif kind == "junk":
            lines[at] = data.draw(
                st.sampled_from(
                    [b"\n", b"{}\n", b"[]\n", b"\0\0\n", b'{"op_code":4}\n', b"\xff\n"]
                ),
                label="junk",
            )
        elif kind == "double":
            lines.insert(data.draw(st.integers(0, len(lines)), label="where"), lines[at])
        elif kind == "cut":
            lines[at] = (
                lines[at][: data.draw(st.integers(0, len(lines[at])), label="byte")].replace(
                    b"\n", b""
                )
                + b"\n"
            )
        else:
            other = data.draw(st.integers(0, len(lines) - 1), label="other")
            lines[at], lines[other] = lines[other], lines[at]
    return lines


@every
@FUZZ
@given(data=st.data())
@pytest.mark.timeout(max(60, EXAMPLES))
def test_r8_any_damage_leaves_a_study_that_opens_and_goes_on(whole, tmp_path, data):
    lines = damaged_somehow(data, whole.lines)
    found = rebuild(lines, data.draw(st.sampled_from([None, whole.result])), whole.facts)
    if lines == whole.lines:
        assert not found.changed
    checked(whole, found, tmp_path / "repaired")
    SearchLoop.open(tmp_path / "repaired", whole.space)


@every
@FUZZ
@given(data=st.data())
@pytest.mark.timeout(max(60, EXAMPLES))
def test_r8_lost_lines_lose_nothing_that_other_lines_tell(whole, tmp_path, data):
    """With its beginning on record, a trial keeps its configuration; with all that was told of it,
    its end.
    """
    lost = data.draw(st.sets(st.integers(0, len(whole.lines) - 1), max_size=len(whole.lines) // 2))
    lines = [line for i, line in enumerate(whole.lines) if i not in lost]
    found = rebuild(lines, None, whole.facts)
    states = checked(whole, found, tmp_path / "repaired")
    by_trial: dict[int, list[bytes]] = {}
    for line in whole.lines:
        if (number := parse_line(line).get("trial_id")) is not None:
            by_trial.setdefault(number, []).append(line)
    for number, own in by_trial.items():
        left = [line for line in own if line in lines]
        if any(b'"begun"' in line for line in left):
            assert f"{number:04d}" in states
        if left == own:
            assert states[f"{number:04d}"] != "RUNNING"


@every
@pytest.mark.parametrize("left", [0, 1, 9], ids=["empty", "one line", "nine lines"])
def test_r9_the_best_of_an_empty_or_short_journal_is_rebuilt_from_the_result(whole, tmp_path, left):
    found = rebuild(whole.lines[:left], whole.result, whole.facts)
    assert (
        list(found.lines[: min(left, 5)]) == whole.lines[: min(left, 5)]
        and found.contradiction is not None
    )
    checked(whole, found, tmp_path / "repaired")
    study = study_of(found.lines, tmp_path / "repaired")
    trials = {t.id: t for t in study.trials}
    for best in [whole.result["best"]] if whole.result["best"] else whole.result["front"]:
        own = best.get("repeats", {"values": {best["trial"]: best["value"]}})["values"][
            best["trial"]
        ]
        t = trials[best["trial"]]
        assert (t.result.state.name, t.result.value, t.params) == ("COMPLETE", own, best["params"])
        assert find_configuration(whole.space, int(best["trial"]), best) == t.keys
        assert best["trial"] in found.restored


@pytest.mark.parametrize("whole", ["random"], indirect=True)
@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(lost=st.sets(st.integers(0, 5), min_size=1, max_size=4))
def test_r8_trials_of_which_nothing_is_left_are_run_again_under_their_numbers(
    whole, tmp_path, lost
):
    """Random search draws by the number of a trial, so the sweep comes to the same as if nothing
    had been.
    """
    folder = tmp_path / "repaired"
    numbered = list[bytes]()
    created = -1
    for line in whole.lines:
        said = parse_line(line)
        created += said["op_code"] == 4
        if (created if said["op_code"] == 4 else said.get("trial_id", -1)) not in lost:
            numbered.append(line)
    found = rebuild(numbered, None, whole.facts)
    assert study_of(found.lines, folder) is not None and set(found.lost) <= {
        f"{n:04d}" for n in lost
    }
    assert outcome(drive(whole.space, folder)) == whole.outcome


@every
def test_r8_a_sweep_that_lost_an_end_is_driven_to_the_same_end(whole, tmp_path):
    """Each of the ends in turn."""
    folder = tmp_path / "repaired"
    for at in [
        i
        for i, line in enumerate(whole.lines)
        if parse_line(line)["op_code"] == 6 and parse_line(line)["state"] in (1, 2)
    ][:4]:
        lines = [*whole.lines[:at], *whole.lines[at + 1 :]]
        found = rebuild(lines, None if first_fault(lines) else whole.result, whole.facts)
        study_of(found.lines, folder)
        loop = drive(whole.space, folder)
        states = [t[1] for t in outcome(loop)[:-2]]
        assert states == [t[1] for t in whole.outcome[:-2]]
        assert outcome(loop)[-1] == whole.outcome[-1], "and all are worth the same"


def test_numbers_of_records_that_no_sweep_has_make_no_room(make_space):
    """A damaged number is not believed: it would make millions of trials."""
    space = make_space(BODY, max_trials=4)
    rules = Rules()
    assert (
        rules.fault(
            {
                "op_code": 4,
                "worker_id": "w",
                "study_id": 0,
                "datetime_start": "2026-11-23T13:49:58+00:00",
            }
        )
        is not None
    )
    begun = {
        "op_code": 8,
        "worker_id": "w",
        "trial_id": 99_999_999,
        "user_attr": {"begun": {"id": "99999999"}},
    }
    best = {"trial": "99999999", "value": 0.5, "params": {}, "preprocessor": "none", "scaling": {}}
    found = rebuild(
        [json.dumps(begun).encode() + b"\n"] * 3,
        {"trials": {"completed": 9}, "best": best},
        SweepFacts(space, 1e9),
    )
    assert len(found.lines) < 10


FOUND: dict[str, tuple[str, Any]] = {
    "a beginning without an id": ('"begun"', lambda said: said["user_attr"]["begun"].pop("id")),
    "an end at no time": ('"op_code":6', lambda said: said.update(datetime_complete="never")),
    "an end without values": ('"state":1', lambda said: said.update(values=None)),
    "a trial that begins at no time": ('"op_code":4', lambda said: said.update(datetime_start=5)),
    "news that are no object": ('"told.0"', lambda said: said["user_attr"].update({"told.0": [1]})),
    "news by name": ('"told.0"', lambda said: said.update(user_attr={"told.x": {}})),
    "a distribution that is none": ('"op_code":5', lambda said: said.update(distribution="{}")),
    "a parameter outside its distribution": (
        '"params.eta"',
        lambda said: said.update(param_value_internal=1e9),
    ),
    "a configuration that is nested": (
        '"begun"',
        lambda said: said["user_attr"]["begun"].update(params=nested(100)),
    ),
    "a huge number": (
        '"begun"',
        lambda said: said["user_attr"]["begun"]["scaling"].update(num_workers=10**400),
    ),
}


@pytest.mark.parametrize("kind", ["user_attr", "system_attr"])
@pytest.mark.parametrize("whole", ["asha"], indirect=True)
def test_r8_attributes_of_the_study_with_odd_names_do_no_harm(whole, tmp_path, kind):
    record = {"op_code": 2 if kind == "user_attr" else 3, "worker_id": "w", "study_id": 0}
    odd = [
        json.dumps(record | {kind: {name: 1}}).encode() + b"\n"
        for name in ("", "judged", "stops", "new")
    ]
    found = rebuild([*odd, *whole.lines[:-1], *odd], whole.result, whole.facts)
    assert len(checked(whole, found, tmp_path / "repaired")) == len(whole.outcome) - 2


def nested(depth: int) -> Any:
    return {"a": nested(depth - 1)} if depth else {}


@pytest.mark.parametrize("kind", FOUND)
@pytest.mark.parametrize("whole", ["asha"], indirect=True)
def test_r8_records_of_another_shape_are_named_and_mended(whole, tmp_path, kind):
    """Cases that fuzzing found, and their neighbors."""
    which, damage = FOUND[kind]
    at = next(i for i, line in enumerate(whole.lines) if which.encode() in line)
    said = json.loads(whole.lines[at])
    damage(said)
    lines = [*whole.lines[:at], json.dumps(said).encode() + b"\n", *whole.lines[at + 1 :]]
    with pytest.raises(DamagedStudy, match=f"{JOURNAL}:{at + 1}: "):
        study_of(lines, tmp_path / "damaged")
    found = rebuild(lines, whole.result, whole.facts)
    assert (
        len(checked(whole, found, tmp_path / "repaired")) == len(whole.outcome) - 2
        and not found.lost
    )

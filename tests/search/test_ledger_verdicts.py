"""Verdicts over what is on record: the same after a driver that starts anew, in brackets, and at every report."""

from __future__ import annotations

import pytest

from sweeps.core.trial import Decision, State
from sweeps.search.study_store import StudyStore
from sweeps.study import record
from tests.search.test_study import reports

BODY = "params: {x: {uniform: [0.0, 1.0]}}"
SCHEDULERS = [
    "{name: asha, max_t: 9}",
    "{name: hyperband, max_t: 27, brackets: 3}",
    "{name: median, max_t: 9, grace_period: 2, min_trials: 2}",
]


def opened(folder, space) -> StudyStore:
    return StudyStore(folder, space)


def train(study_store: StudyStore, steps: range) -> dict[int, list[Decision]]:
    """Eight trials of their number's quality, side by side; the verdicts on each."""
    trials = [study_store.next() for _ in range(8)]
    verdicts = {t.number: [] for t in trials}
    for step in steps:
        for t in trials:
            if Decision.STOP in verdicts[t.number]:
                continue
            study_store.record(t.number, reports((t.number * 5) % 8 + 1 / step, start=step), None, None, 1, 0.0)
            if step in study_store.scheduler.rungs:
                verdicts[t.number].append(study_store.verdict(t.number, step))
                if verdicts[t.number][-1] is Decision.STOP:
                    study_store.finish(t.number, State.PRUNED)
    return verdicts


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_some_are_stopped_and_the_best_is_not(make_space, tmp_path, scheduler):
    verdicts = train(opened(tmp_path, make_space(BODY, scheduler=scheduler)), range(1, 9))
    assert Decision.STOP not in verdicts[0], "0 has the least value"
    assert sum(Decision.STOP in told for told in verdicts.values()) >= 2


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_a_driver_that_starts_anew_gives_the_verdict_that_would_have_been_given(make_space, tmp_path, scheduler):
    space = make_space(BODY, scheduler=scheduler)
    told = []
    for name in ("goes on", "starts anew"):
        (tmp_path / name).mkdir()
        study_store = opened(tmp_path / name, space)
        train(study_store, range(1, 4))
        if name == "starts anew":
            study_store = opened(tmp_path / name, space)
        late = [study_store.next() for _ in range(4)]
        for step in (1, 2, 3):
            for t in late:
                study_store.record(t.number, reports(t.number - 8.5 + 1 / step, start=step), None, None, 1, 0.0)
        told.append([(t.id, study_store.verdict(t.number, 3)) for t in late])
    assert told[0] == told[1]


def test_the_bracket_is_on_record_and_only_its_trials_are_compared(make_space, tmp_path):
    space = make_space(BODY, scheduler="{name: hyperband, max_t: 27, brackets: 3}")
    study_store = opened(tmp_path, space)
    trials = [study_store.next() for _ in range(40)]
    brackets = {t.number: t.bracket for t in record.read(tmp_path).trials}
    assert brackets == {t.number: study_store.bracket(t.number) for t in trials} and set(brackets.values()) == {0, 1, 2}
    first, second = (next(n for n, b in brackets.items() if b == bracket) for bracket in (0, 1))
    for n, b in brackets.items():
        if b == 0 and n != first:
            study_store.record(n, reports(0.1, start=3), None, None, 1, 0.0)
    for n in (first, second):
        study_store.record(n, reports(0.5, start=3), None, None, 1, 0.0)
    assert study_store.verdict(first, 3) is Decision.STOP and study_store.verdict(second, 3) is Decision.CONTINUE
    assert "bracket" in record.read(tmp_path).trials[0].to_json()


def test_under_another_scheduler_no_bracket_is_on_record(make_space, tmp_path):
    opened(tmp_path, make_space(BODY)).next()
    (trial,) = record.read(tmp_path).trials
    assert trial.bracket is None and "bracket" not in trial.to_json()


def test_the_median_rule_knows_the_reports_before_its_first_decision(make_space, tmp_path):
    space = make_space(BODY, scheduler="{name: median, max_t: 9, grace_period: 3, min_trials: 2}")
    study_store = opened(tmp_path, space)
    trials = [study_store.next() for _ in range(3)]
    for t, values in zip(trials, ([0.5, 0.5, 0.5], [0.5, 0.5, 0.5], [0.1, 0.9, 0.9]), strict=True):
        for step, value in enumerate(values, 1):
            study_store.record(t.number, reports(value, start=step), None, None, 1, 0.0)
    early = trials[2].number
    for known in (study_store, opened(tmp_path, space)):
        assert known.verdict(early, 3) is Decision.CONTINUE, "its best was its first"
        assert known.verdict(trials[0].number, 3) is Decision.CONTINUE, "the mean of the third is above"


def test_repeats_are_not_compared_after_a_driver_that_starts_anew_either(make_space, tmp_path):
    space = make_space(
        BODY,
        max_trials=1,
        scheduler="{name: median, max_t: 9, grace_period: 2, min_trials: 1}",
        extra="repeats: {count: 2, aggregate: mean}",
    )
    study_store = opened(tmp_path, space)
    first = study_store.next()
    for step in (1, 2, 3):
        study_store.record(first.number, reports(0.5, start=step), None, None, 1, 0.0)
    study_store.finish(first.number, State.COMPLETE)
    repeat = study_store.next()
    assert repeat.origin == first.number
    for step in (1, 2, 3):
        study_store.record(repeat.number, reports(0.1, start=step), None, None, 1, 0.0)
    again = opened(tmp_path, space)
    assert {key: dict(shown) for key, shown in again._shown.items()} == {key: dict(shown) for key, shown in study_store._shown.items()}


def test_that_a_trial_went_on_is_one_attribute_and_no_report(make_space, tmp_path):
    space = make_space(BODY, scheduler="{name: asha, max_t: 9}")
    study_store = opened(tmp_path, space)
    trial = study_store.next()
    for step in (1, 3):
        study_store.record(trial.number, reports(0.5, start=step), None, None, 1, 0.0)
        study_store.passed(trial.number, step)
    assert study_store.standing(trial.number).told == 2
    assert opened(tmp_path, space).standing(trial.number).passed == 3

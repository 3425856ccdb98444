"""Schedulers decide from the recorded study: the same after a new driver, within a bracket, and at
every report.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sweeps.core.trial import Action, State
from sweeps.search.search_loop import SearchLoop
from sweeps.study.events import TrialReported
from tests.search.decisions import decided
from tests.search.next_trial import next_trial
from tests.study.studies import recorded_study
from tests.study.test_study_store import reports

BODY = "params: {x: {uniform: [0.0, 1.0]}}"
SCHEDULERS = [
    "{name: asha, max_t: 9}",
    "{name: hyperband, max_t: 27, brackets: 3}",
    "{name: median, max_t: 9, grace_period: 2, min_trials: 2}",
]


def opened(folder: Any, space: Any) -> SearchLoop:
    return SearchLoop.open(folder, space)


def train(loop: SearchLoop, steps: range) -> dict[int, list[Action]]:
    """Eight trials of their number's quality, side by side; the verdicts on each."""
    trials = [next_trial(loop) for _ in range(8)]
    verdicts: dict[int, list[Action]] = {t.number: [] for t in trials}
    for step in steps:
        for t in trials:
            if Action.STOP in verdicts[t.number]:
                continue
            loop.store.append(
                TrialReported(
                    1.0,
                    t.number,
                    reports((t.number * 5) % 8 + 1 / step, start=step),
                    seconds=0.0,
                ),
            )
            if step in loop.scheduler.rungs():
                verdicts[t.number].append(decided(loop, t.number, step))
                if verdicts[t.number][-1] is Action.STOP:
                    loop.store.end(t.number, State.PRUNED)
    return verdicts


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_new_driver_decides_as_the_killed_driver_would_have(
    make_space: Any, tmp_path: Path, scheduler: Any
) -> None:
    space = make_space(BODY, scheduler=scheduler)
    decisions = []
    for name in ("goes on", "starts anew"):
        (tmp_path / name).mkdir()
        loop = opened(tmp_path / name, space)
        train(loop, range(1, 4))
        if name == "starts anew":
            loop = opened(tmp_path / name, space)
        late = [next_trial(loop) for _ in range(4)]
        for step in (1, 2, 3):
            for t in late:
                loop.store.append(
                    TrialReported(
                        1.0,
                        t.number,
                        reports(t.number - 8.5 + 1 / step, start=step),
                        seconds=0.0,
                    ),
                )
        decisions.append([(t.id, decided(loop, t.number, 3)) for t in late])
    assert decisions[0] == decisions[1]


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("constraints", ["", "constraints: {other: '<= 1'}"])
def test_a_trial_that_ended_on_its_own_is_known_with_its_best_value(
    make_space: Any, tmp_path: Path, scheduler: Any, constraints: str
) -> None:
    space = make_space(BODY, scheduler=scheduler, extra=constraints)
    loop = opened(tmp_path, space)
    short, stopped, late = (next_trial(loop) for _ in range(3))
    for trial in (short, stopped):
        loop.store.append(TrialReported(1.0, trial.number, reports(0.5, 0.1, 0.4), seconds=0.0))
    loop.store.end(short.number, State.COMPLETE)
    loop.store.end(stopped.number, State.PRUNED)
    loop.store.append(TrialReported(1.0, late.number, reports(*[0.3] * 9), seconds=0.0))
    for known in (loop, opened(tmp_path, space)):
        assert known.view.trials[short.number].value_at(9) == 0.1
        assert known.view.trials[short.number].has_reached(9)
        assert not known.view.trials[stopped.number].has_reached(9)
    assert shown(loop) == shown(opened(tmp_path, space))


def shown(loop: SearchLoop) -> list[tuple[Any, ...]]:
    """The facts about each trial that a scheduler sees."""
    return [
        (t.number, t.bracket, t.values, t.running, t.failed, t.paused_at, t.checkpoint_step)
        for t in loop.view.trials.values()
    ]


def test_the_bracket_is_on_record_and_only_its_trials_are_compared(
    make_space: Any, tmp_path: Path
) -> None:
    space = make_space(BODY, scheduler="{name: hyperband, max_t: 27, brackets: 3}")
    loop = opened(tmp_path, space)
    for _ in range(40):
        loop.ask()
    brackets = {t.number: t.started.bracket for t in recorded_study(tmp_path).trials}
    assert brackets == {n: t.bracket for n, t in loop.view.trials.items()} and set(
        brackets.values()
    ) == {0, 1, 2}
    first, second = (next(n for n, b in brackets.items() if b == bracket) for bracket in (0, 1))
    for n, b in brackets.items():
        if b == 0 and n != first:
            loop.store.append(TrialReported(1.0, n, reports(0.1, start=3), seconds=0.0))
    for n in (first, second):
        loop.store.append(TrialReported(1.0, n, reports(0.5, start=3), seconds=0.0))
    assert decided(loop, first, 3) is Action.STOP and decided(loop, second, 3) is Action.CONTINUE
    assert "bracket" in recorded_study(tmp_path).trials[0].to_json()


def test_the_median_rule_knows_the_reports_before_its_first_decision(
    make_space: Any, tmp_path: Path
) -> None:
    space = make_space(BODY, scheduler="{name: median, max_t: 9, grace_period: 3, min_trials: 2}")
    loop = opened(tmp_path, space)
    trials = [next_trial(loop) for _ in range(3)]
    for t, values in zip(trials, ([0.5, 0.5, 0.5], [0.5, 0.5, 0.5], [0.1, 0.9, 0.9]), strict=True):
        for step, value in enumerate(values, 1):
            loop.store.append(TrialReported(1.0, t.number, reports(value, start=step), seconds=0.0))
    early = trials[2].number
    for known in (loop, opened(tmp_path, space)):
        assert decided(known, early, 3) is Action.CONTINUE, "its best was its first"
        assert decided(known, trials[0].number, 3) is Action.CONTINUE, (
            "the mean of the third is above"
        )

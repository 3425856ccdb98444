"""Samplers learn the aggregate value of a repeated configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.trial import FrozenTrial, TrialState

from sweeps.core.trial import Trial
from sweeps.search.samplers.configuration_view import ByConfiguration, merge_repeats
from sweeps.search.samplers.trial_groups import FULL, History
from sweeps.search.search_loop import SearchLoop
from sweeps.space.sections.search_models import Repeats
from sweeps.study.event_records import REPEAT_OF
from tests.search.test_samplers import BODY, end

REPEATED = "repeats: {count: 2}"


def with_repeats(loop: SearchLoop, n: int, value: Any, apart: float) -> list[Trial]:
    """Begin n configurations one after the other, each with a repeat; the values of the two lie so
    far around that of the configuration.
    """
    asked: list[Trial] = []
    while (trial := loop.ask()) is not None and len(asked) < n:
        asked += [trial] if trial.repeat_of is None else []
        end(loop, trial, lambda t: value(t) + (apart if t.repeat_of is None else -apart))
    return asked


def on_a_grid(trial: Any) -> float:
    """A value whose mean with others is exact."""
    x: float = trial.params["x"]
    return round((x - 0.3) ** 2 * 4096) / 4096


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "algorithm", ["tpe", "random", "qmc", "nsga2"]
)  # `gp` also learns the noise from the repeats.
def test_repeats_teach_what_their_configurations_are_worth(
    make_space: Any, tmp_path: Path, algorithm: str
) -> None:
    """Whatever the single values are: with the same means the same is suggested, as if each
    configuration were one trial.
    """
    asked = []
    for repeats, apart in (("", 0.0), (REPEATED, 0.0), (REPEATED, 0.25)):
        folder = tmp_path / f"{repeats}{apart}"
        folder.mkdir()
        options = "{population_size: 4}" if algorithm == "nsga2" else "{}"
        loop = SearchLoop.open(
            folder,
            make_space(
                BODY, 80, algorithm, scheduler="{name: none}", extra=repeats, options=options
            ),
        )
        asked.append([(t.params, t.chain) for t in with_repeats(loop, 24, on_a_grid, apart)])
        assert len(loop.store.study.trials) >= 24 * (2 if repeats else 1) - 1
    assert asked[0] == asked[1] == asked[2]


def repeated(*ends: tuple[TrialState, float], limit: float | None = None) -> list[FrozenTrial]:
    """The trials of a configuration, as they are on record."""

    def attributes(index: int) -> dict[str, int]:
        return {} if index == 0 else {REPEAT_OF: 0}

    def violations(value: float) -> dict[str, float] | None:
        return None if limit is None else {"m": value - limit}

    create = optuna.trial.create_trial
    return [
        create(state=state, value=value, user_attrs=attributes(i), constraints=violations(value))
        if state is TrialState.COMPLETE
        else create(state=state, user_attrs=attributes(i))
        for i, (state, value) in enumerate(ends)
    ]


C, F, P, R = TrialState.COMPLETE, TrialState.FAIL, TrialState.PRUNED, TrialState.RUNNING


@pytest.mark.parametrize(
    "ends, state, value",
    [
        ([(C, 1.0)], R, None),
        ([(C, 1.0), (C, 2.0)], R, None),
        ([(C, 1.0), (C, 2.0), (R, 0.0)], R, None),
        ([(C, 1.0), (C, 2.0), (C, 6.0)], C, 3.0),
        ([(C, 1.0), (F, 0.0), (C, 6.0)], C, 3.5),
        ([(P, 1.0)], P, None),
        ([(F, 1.0)], F, None),
    ],
    ids=["none begun", "one to come", "one runs", "all", "one failed", "stopped", "failed"],
)
def test_a_configuration_is_observed_when_its_last_trial_has_ended(
    ends: Any, state: Any, value: float | None
) -> None:
    seen = merge_repeats(repeated(*ends), Repeats(3))
    assert (seen.state, seen.value if seen.values else None) == (state, value)


def test_a_constraint_that_one_repeat_breaks_is_broken() -> None:
    trials = repeated((C, 1.0), (C, 4.0), limit=3.0)
    seen = merge_repeats(trials, Repeats(2))
    assert seen.constraints == {"m": 1.0} and trials[0].constraints == {"m": -2.0}, (
        "and the record is as it was"
    )


def test_an_algorithm_that_knows_of_no_repeats_sees_configurations() -> None:
    study = optuna.create_study()
    for t in [*repeated((C, 1.0), (C, 3.0)), *repeated((P, 0.0))]:
        study.add_trial(t)
    seen = ByConfiguration(study, Repeats(2))
    assert [(t.number, t.state, t.value) for t in seen.get_trials()] == [(0, C, 2.0), (2, P, None)]
    assert [t.number for t in seen._get_trials(deepcopy=False, states=(C,), use_cache=True)] == [0]
    assert seen.direction == study.direction


@settings(deadline=None, max_examples=30)
@given(
    st.lists(
        st.tuples(st.sampled_from([C, P, F]), st.floats(-9, 9), st.floats(-9, 9)),
        min_size=1,
        max_size=8,
    ),
    st.data(),
)
def test_history_of_repeats_learnt_in_pieces_is_the_one_learnt_at_once(
    ends: Any, data: Any
) -> None:
    study, pieces, once = optuna.create_study(), History((), Repeats(2)), History((), Repeats(2))
    firsts = []
    for state, value, _ in ends:
        firsts.append((len(study.trials), state))
        study.add_trial(repeated((state, value))[0])
        if data.draw(st.booleans()):
            pieces.refresh(study)
    for (number, state), (_, _, value) in zip(firsts, ends, strict=True):
        if state is C:
            study.add_trial(optuna.trial.create_trial(value=value, user_attrs={REPEAT_OF: number}))
        if data.draw(st.booleans()):
            pieces.refresh(study)
    for history in (pieces, once):
        history.refresh(study)
    assert once.levels == pieces.levels and once.running == pieces.running == {}
    assert once.count(FULL) == sum(state is C for state, *_ in ends)

"""Only the best trials and the default configurations keep their predictions."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sweeps.checkpoints import kept_predictions
from sweeps.checkpoints.kept_predictions import PredictionKeeper
from sweeps.core.files.sweep_folder import PREDICTIONS
from sweeps.core.trial import Result, State, format_trial_id
from sweeps.study import ranking

VALUES = st.one_of(st.none(), st.floats(-3, 3), st.just(math.nan))
RESULTS = st.lists(
    st.builds(
        Result,
        state=st.sampled_from([State.COMPLETE, State.COMPLETE, State.PRUNED, State.FAIL]),
        value=VALUES,
        feasible=st.booleans(),
        reason=st.sampled_from([None, "--minutes", "asha at step 3"]),
    ),
    max_size=14,
)


def study_of(
    folder: Path, minimize: bool, results: list[Result], ended: int, defaults: set[int]
) -> Any:
    states = {
        n: SimpleNamespace(has_ended=n < ended, result=result, keys={"is default": n in defaults})
        for n, result in enumerate(results)
    }
    objectives = SimpleNamespace(minimize=minimize)
    return SimpleNamespace(folder=folder, objectives=objectives, states=states, space=None)


def file_of(folder: Path, number: int) -> Path:
    return folder / "trials" / format_trial_id(number) / PREDICTIONS


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(RESULTS, st.integers(1, 4), st.booleans(), st.integers(0, 14), st.sets(st.integers(0, 5)))
def test_best_trials_keep_their_predictions(
    tmp_path_factory: pytest.TempPathFactory,
    results: list[Result],
    count: int,
    minimize: bool,
    resumed_after: int,
    defaults: set[int],
) -> None:
    folder = tmp_path_factory.mktemp("sweep")
    with_file = []
    for number, result in enumerate(results):
        file_of(folder, number).parent.mkdir(parents=True)
        if result.state is State.COMPLETE or result.ended_by_time:
            file_of(folder, number).touch()
            with_file.append(number)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept_predictions, "default_points", lambda _: [{"is default": True}])
        keep(folder, results, count, minimize, resumed_after, defaults)
    worst = (math.inf, math.inf)
    ranks = {n: ranking.rank(results[n], minimize) or worst for n in with_file}
    others = [n for n in with_file if n not in defaults]
    best = {*sorted(others, key=lambda n: (ranks[n], n))[:count], *defaults.intersection(with_file)}
    assert {n for n in with_file if file_of(folder, n).exists()} == best


def keep(
    folder: Path,
    results: list[Result],
    count: int,
    minimize: bool,
    resumed_after: int,
    defaults: set[int],
) -> None:
    """Run a keeper over all results, with another one from one of them on."""
    keeper = PredictionKeeper(study_of(folder, minimize, results, 0, defaults), count)
    for number, result in enumerate(results):
        if number == resumed_after:
            keeper.close()
            study = study_of(folder, minimize, results, number, defaults)
            keeper = PredictionKeeper(study, count)
        keeper.trial_ended(number, result)
    keeper.close()

"""A space with few configurations: no configuration runs twice while others are left, and the
search ends when all were tried.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sweeps.core.trial import State
from sweeps.plan import plan
from sweeps.plan.plan_text import render
from sweeps.runs.resumption import nothing_left_note
from sweeps.search.configurations import most_trials
from sweeps.search.search_loop import SearchLoop
from tests.search.next_trial import next_trial
from tests.search.test_search_loop import end

NONE = "{name: none}"
FOUR = "params: {max_depth: {choice: [3, 5]}, booster: {choice: [gbtree, dart]}}"


def run(folder: Any, space: Any, reopen: bool = False) -> list[dict[str, Any]]:
    """Run all trials of a sweep without Ray, and return their values.

    `reopen` opens the study again before each trial.
    """
    loop, labels = SearchLoop.open(folder, space), []
    while (trial := loop.ask()) is not None:
        labels.append(trial.labels)
        end(loop, trial, loss=float(len(labels) % 3))
        loop = SearchLoop.open(folder, space) if reopen else loop
    return labels


def distinct(labels: Any) -> int:
    return len({repr(sorted(values.items(), key=str)) for values in labels})


@pytest.mark.parametrize(
    "algorithm",
    [
        "random",
        "tpe",
        "gp",
        "qmc",
        "nsga2",
        "'optuna.samplers:TPESampler'",
        "'optuna.samplers:RandomSampler'",
    ],
)
def test_each_configuration_runs_once_with_every_sampler(
    make_space: Any, tmp_path: Path, algorithm: str
) -> None:
    points = (
        "[{params.max_depth: 3, params.booster: dart}, {params.max_depth: 3, params.booster: dart}]"
    )
    space = make_space(FOUR, algorithm=algorithm, max_trials=9, scheduler=NONE, points=points)
    labels = run(tmp_path, space)
    assert len(labels) == distinct(labels) == 4
    assert labels[0] == {"params.max_depth": 3, "params.booster": "dart"}
    assert (
        SearchLoop.open(tmp_path, space).queue.exhausted
        == "all 4 configurations of the space were tried"
    )


SPACES = {
    "params: {max_depth: {grid: [3, 5]}, eta: {choice: [0.1, 0.2, 0.3]}}": 6,
    "params: {max_depth: {grid: [3, 5]}}\nscaling: {num_workers: {grid: [1, 2]}}": 4,
    "params: {max_depth: {randint: [1, 4]}, eta: {quniform: [0.1, 0.5, 0.1]}}": 15,
    "params: {eta: {qloguniform: [0.1, 0.8, 0.1]}}": 8,
    "params: {max_depth: {qlograndint: [2, 8, 2]}, seed: {qrandint: [0, 4, 2]}}": 12,
    "params: {max_depth: {choice: [3, 5]}, eta: {choice: [0.1, 0.2], "
    "when: {params.max_depth: 3}}}": 3,
    "params: {opts: {choice: [none, {depth: {grid: [1, 2]}}]}}": 3,
    "preprocessor: {choice: [StandardScaler, MinMaxScaler, [StandardScaler, MinMaxScaler]]}": 3,
    "params: {flag: {choice: [true, 1, 1.5, null]}}": 4,
}


@pytest.mark.parametrize("body", SPACES)
def test_the_search_ends_when_all_configurations_were_tried(
    make_space: Any, tmp_path: Path, body: Any
) -> None:
    body = body.replace("params: {", "params: {alpha: 1, ")
    space = make_space(
        body,
        max_trials=30,
        scheduler=NONE,
        algorithm="tpe" if "choice" in body or "q" in body else "auto",
    )
    number = SPACES[body.replace("alpha: 1, ", "")]
    labels = run(tmp_path, space)
    assert len(labels) == distinct(labels) == number == most_trials(space)
    assert f"has {number} configurations, and each is tried once" in " ".join(
        render(plan(space, {"CPU": 2.0})).split()
    )


def test_a_resume_of_an_exhausted_sweep_advises_no_limit() -> None:
    assert "--set" not in nothing_left_note("all 4 configurations of the space were tried")
    assert "--set" in nothing_left_note("limits.patience: 3 trials without an improvement")
    assert nothing_left_note("--minutes").endswith("(--minutes); to continue, add --minutes N")


def test_a_resumed_search_makes_the_same_decisions(make_space: Any, tmp_path: Path) -> None:
    body = (
        "params: {max_depth: {grid: [3, 5]}, eta: {choice: [0.1, 0.2, 0.3]}, booster: {choice: "
        "[gbtree, dart]}}"
    )
    space = make_space(body, max_trials=30, scheduler=NONE)
    folders = tmp_path / "a", tmp_path / "b"
    for folder in folders:
        folder.mkdir()
    assert run(folders[0], space) == run(folders[1], space, reopen=True)


def test_an_exhausted_cell_leaves_its_trials_to_the_others(make_space: Any, tmp_path: Path) -> None:
    body = "params: {opts: {grid: [{kind: plain}, {kind: deep, eta: {uniform: [0, 1]}}]}}"
    space = make_space(body, max_trials=7, scheduler=NONE)
    labels = run(tmp_path, space)
    assert len(labels) == distinct(labels) == 7
    assert sum(len(values) > 1 for values in labels) == 6


def test_a_choice_without_numbers_is_not_repeated_beside_a_continuous_one(
    make_space: Any, tmp_path: Path
) -> None:
    body = "params: {opts: {choice: [plain, {eta: {uniform: [0, 1]}}]}}"
    labels = run(tmp_path, make_space(body, max_trials=12, scheduler=NONE))
    assert len(labels) == distinct(labels) == 12


def test_a_doubled_initial_point_is_sampled_instead(make_space: Any, tmp_path: Path) -> None:
    space = make_space(
        "params: {eta: {uniform: [0, 1]}, max_depth: {choice: [3, 5]}}",
        max_trials=5,
        scheduler=NONE,
        points="[{params.eta: 0.5, params.max_depth: 3}, {params.eta: 0.5, params.max_depth: 3}, "
        "{params.eta: 0.5}]",
    )
    labels = run(tmp_path, space)
    assert distinct(labels) == 5
    assert labels[2] == {"params.eta": 0.5, "params.max_depth": 5}, "a part of a point is kept"


def test_a_known_result_counts_as_tried(make_space: Any, tmp_path: Path) -> None:
    points = "[{params.max_depth: 3, params.booster: dart, value: 0.5}]"
    space = make_space(FOUR, max_trials=9, scheduler=NONE, points=points)
    labels = run(tmp_path, space)
    assert len(labels) == distinct(labels) == 3 == most_trials(space)
    assert {"params.max_depth": 3, "params.booster": "dart"} not in labels


def test_an_enqueued_configuration_runs_again(make_space: Any, tmp_path: Path) -> None:
    space = make_space(FOUR, max_trials=9, scheduler=NONE)
    loop = SearchLoop.open(tmp_path, space)
    first = next_trial(loop)
    end(loop, first, loss=1.0)
    loop.enqueue(first.labels, "again")
    again = next_trial(loop)
    assert again.labels == first.labels and again.enqueued
    end(loop, again, loss=1.0)
    rest = run(tmp_path, space)
    assert len(rest) == 3 and distinct([first.labels, *rest]) == 4


def test_repeats_are_trials_of_the_same_configuration(make_space: Any, tmp_path: Path) -> None:
    space = make_space(FOUR, max_trials=9, scheduler=NONE, extra="repeats: 2")
    labels = run(tmp_path, space)
    assert len(labels) == 8 and distinct(labels) == 4


def test_a_failed_configuration_is_tried(make_space: Any, tmp_path: Path) -> None:
    loop = SearchLoop.open(tmp_path, make_space(FOUR, max_trials=9, scheduler=NONE))
    labels = []
    while (trial := loop.ask()) is not None:
        labels.append(trial.labels)
        loop.store.end(trial.number, State.FAIL, "no")
    assert len(labels) == distinct(labels) == 4


def test_the_known_total_is_the_number_of_configurations(make_space: Any, tmp_path: Path) -> None:
    loop = SearchLoop.open(tmp_path, make_space(FOUR, max_trials=9, scheduler=NONE))
    assert loop.queue.known_total == loop.to_run == 4
    loop.ask()
    assert loop.queue.known_total == 4 and loop.to_run == 3


def test_population_is_filled_with_different_seeds(make_space: Any, tmp_path: Path) -> None:
    pbt = make_space(
        FOUR, max_trials=6, scheduler="{name: pbt, max_t: 9, perturbation_interval: 3}"
    )
    assert most_trials(pbt) == 6
    constant = make_space("params: {max_depth: 3}", max_trials=3, scheduler=NONE)
    assert len(run(tmp_path, constant)) == 3

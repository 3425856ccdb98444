"""`search.from`: find and read earlier sweeps, and what `plan` and `validate` say about them."""

from __future__ import annotations

import json
import math
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from optuna.study._constrained_optimization import _CONSTRAINTS_KEY
from optuna.trial import TrialState, create_trial

from sweeps.core.errors import InputError
from sweeps.core.trial import Report, State
from sweeps.runs import earlier_sweeps
from sweeps.runs.earlier_sweeps import read_earlier_sweeps
from sweeps.search import earlier_trials
from sweeps.search.samplers.sampler import SamplerContext
from sweeps.search.samplers.warm_start import history_of
from sweeps.search.search_loop import SearchLoop
from sweeps.space import load
from sweeps.space.python.saved_space import save_space
from sweeps.study.events import TrialReported
from tests.commands import invoke
from tests.search.next_trial import next_trial
from tests.search.test_earlier_sweeps import values_of

SPACE_FILE = """\
name: churn
trainer: xgboost
data: {train: "sklearn:iris", label: target, valid: 0.2}
objective: {metric: loss, goal: minimize}
search: {algorithm: gp}
scheduler: {name: none}
limits: {max_trials: 12}
space:
  params: {eta: {loguniform: [0.001, 1.0]}, max_depth: {randint: [1, 9]}, subsample: 0.5}
"""


def write(root: Path, changes: dict[str, str], name: str = "new.yaml") -> Path:
    text = SPACE_FILE
    for before, after in changes.items():
        assert before in text
        text = text.replace(before, after)
    file = root / name
    file.write_text(text)
    return file


def recorded(root: Path, name: str, trials: int = 8, **changes: str) -> Path:
    """Write a sweep's folder in which the loss of a trial is its `eta`.

    The first trial fails, and the second reports nothing yet.
    """
    folder = root / f"{name}-20260102-120000"
    folder.mkdir(parents=True)
    space = load(write(root, {"churn": name, **changes}, f"{name}.yaml"))
    save_space(folder, space, 1000.0)
    loop = SearchLoop.open(folder, space)
    for i in range(trials):
        trial = loop.ask()
        assert trial is not None
        if i == 1:
            continue
        if i:
            loop.store.append(
                TrialReported(
                    1.0,
                    trial.number,
                    (Report(1, {"loss": trial.params["eta"]}, time.time()),),
                    seconds=2.0,
                ),
            )
        loop.store.end(trial.number, State.COMPLETE if i else State.FAIL, error=None if i else "no")
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    recorded(root, "first")
    return root


def space_with(root: Path, earlier: str, **changes: str) -> Any:
    return load(write(root, {"algorithm: gp": f"algorithm: gp, from: {earlier}", **changes}))


def test_trials_with_a_value_are_read(runs: Any, tmp_path: Path) -> None:
    space = space_with(tmp_path, "[latest]")
    (sweep,) = read_earlier_sweeps(space, runs)
    assert (
        sweep.name == "first-20260102-120000"
        and sweep.place == str(runs / sweep.name)
        and sweep.new == ()
    )
    assert len(sweep.trials) == 6 and sweep.left_out == {"without a value": 2}
    for trial in sweep.trials:
        (value,) = values_of(trial)
        assert value == pytest.approx(trial.keys["params.eta"])


def trial_of(
    state: TrialState, value: float | None, violation: float = 0.0, rung: float = 0.5
) -> Any:
    attrs = {f"{_CONSTRAINTS_KEY}:c": violation} if violation else {}
    return create_trial(state=state, value=value, intermediate_values={1: rung}, system_attrs=attrs)


@pytest.mark.parametrize(
    ("trial", "values", "violation"),
    [
        (trial_of(TrialState.COMPLETE, 0.5), (0.5,), 0.0),
        (trial_of(TrialState.COMPLETE, math.inf), None, math.inf),
        (trial_of(TrialState.COMPLETE, 1e305), None, math.inf),
        (trial_of(TrialState.PRUNED, None, sys.float_info.max), None, earlier_sweeps.LARGEST),
        (trial_of(TrialState.PRUNED, None, rung=math.inf), None, 0.0),
    ],
)
def test_extreme_values_can_be_saved_and_read(
    tmp_path: Path, trial: Any, values: Any, violation: Any
) -> None:
    earlier = earlier_sweeps._earlier_trial({"params.eta": 0.1}, trial, False)
    assert (earlier.values, earlier.violation) == (values, violation)
    space = load(write(tmp_path, {}))
    earlier_trials.save(tmp_path, [earlier_trials.EarlierSweep("first", "somewhere", (earlier,))])
    (back,) = earlier_trials.read(tmp_path, space)
    assert back.trials[0].values == values and back.trials[0].violation == violation
    assert history_of(back, SamplerContext(space)).number == 1


def test_a_space_that_was_changed_in_the_middle(runs: Any, tmp_path: Path) -> None:
    changed = {
        "[0.001, 1.0]": "[0.001, 0.05]",
        "subsample: 0.5": "subsample: {uniform: [0.4, 1]}, gamma: {uniform: [0, 1]}",
    }
    (sweep,) = read_earlier_sweeps(space_with(tmp_path, "[first]", **changed), runs)
    assert (
        sweep.left_out["outside the domain of params.eta"] + len(sweep.trials) == 6 and sweep.trials
    )
    for trial in sweep.trials:
        assert trial.keys["params.subsample"] == 0.5, "the constant is taken too"
        eta = trial.keys["params.eta"]
        assert isinstance(eta, float) and eta <= 0.05
    assert sweep.new == ("params.gamma",)


def test_a_new_sweep_needs_the_earlier_one_no_longer(runs: Any, tmp_path: Path) -> None:
    root = tmp_path / "runs"
    shutil.copytree(runs, root)
    space = space_with(tmp_path, "[first]")
    folder = tmp_path / "new"
    folder.mkdir()
    earlier_trials.save(folder, read_earlier_sweeps(space, root))
    shutil.rmtree(root)
    best = min(earlier_trials.read(folder, space)[0].trials, key=values_of)
    loop = SearchLoop.open(folder, space)
    _, second = next_trial(loop), next_trial(loop)
    assert second.params["eta"] == best.keys["params.eta"]
    assert SearchLoop.open(folder, space).interrupted, "the study is opened again"


def test_no_code_of_an_earlier_sweep_runs(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    folder = recorded(root, "strange")
    mark = root / "imported"
    (root / "marks.py").write_text(
        f"open({str(mark)!r}, 'w')\ndef train(config): ...\ndef rows(): ...\n"
    )
    text = (
        (folder / "space.yaml")
        .read_text()
        .replace("trainer: xgboost", 'trainer: {loop: "marks:train", backend: none}')
    )
    (folder / "space.yaml").write_text(text.replace('"sklearn:iris"', '"marks:rows"'))
    (sweep,) = read_earlier_sweeps(space_with(tmp_path, "[strange]"), root)
    assert len(sweep.trials) == 6 and not mark.exists()
    (folder / "study.journal").write_text("{}\n")
    with pytest.raises(InputError, match=r"search\.from\.0: "):
        read_earlier_sweeps(space_with(tmp_path, "[strange]"), root)


@pytest.mark.parametrize(
    ("earlier", "changes", "problem"),
    [
        (
            "[first, second]",
            {},
            "search.from.1: second: is neither a sweep's folder nor the name of a sweep",
        ),
        (
            "[first, latest]",
            {},
            (
                "search.from.1: `latest` is the sweep first-20260102-120000, which is named "
                "twice; "
                "name each sweep once"
            ),
        ),
        (
            "[first]",
            {"metric: loss": "metric: auc", "minimize": "maximize"},
            (
                "search.from.0: first-20260102-120000 has the objective minimize loss, but this "
                "sweep "
                "has maximize auc; a sweep learns"
            ),
        ),
        (
            "[first]",
            {
                "{eta: {loguniform: [0.001, 1.0]}, max_depth: {randint: [1, 9]}, "
                "subsample: 0.5}": "{gamma: {uniform: [0, 1]}}"
            },
            "search.from.0: no trial of first-20260102-120000 fits this space",
        ),
        (
            "[first]",
            {"[0.001, 1.0]": "[2.0, 3.0]"},
            (
                "fits this space (6 outside the domain of params.eta, 2 without a value); name "
                "another sweep, or leave it out"
            ),
        ),
    ],
)
def test_problems_are_one_clear_line(
    runs: Any, tmp_path: Path, earlier: str, changes: Any, problem: str
) -> None:
    with pytest.raises(InputError) as error:
        read_earlier_sweeps(space_with(tmp_path, earlier, **changes), runs)
    assert (
        len(error.value.problems) == 1
        and problem in str(error.value)
        and "new.yaml:5:" in str(error.value)
    )


@pytest.mark.parametrize(
    ("earlier", "problem"),
    [
        (
            "latest",
            "new.yaml:5:31: search.from: must be a list of sweeps, such as [latest], got latest",
        ),
        ("[3]", "new.yaml:5:32: search.from.0: must be text, got 3"),
        ('[""]', "new.yaml:5:32: search.from.0: must not be empty"),
        ("{choice: [a]}", "search.from: cannot be tuned"),
    ],
)
def test_validate_checks_the_form(tmp_path: Path, earlier: str, problem: str) -> None:
    file = write(tmp_path, {"algorithm: gp": f"algorithm: gp, from: {earlier}"})
    done = invoke("validate", file)
    assert done.exit_code == 2 and problem in done.stderr, done.stderr


def test_without_a_sampled_dimension_the_key_has_no_effect(tmp_path: Path) -> None:
    grids = {"{loguniform: [0.001, 1.0]}": "{grid: [0.1, 0.2]}", "{randint: [1, 9]}": "3"}
    file = write(tmp_path, {"algorithm: gp": "algorithm: grid, from: [first]", **grids})
    assert (
        "search.from: has no effect, because no dimension is sampled; leave this key out"
        in invoke("validate", file).stderr
    )


def test_plan_says_what_is_taken_and_what_is_left_out(runs: Any, tmp_path: Path) -> None:
    file = write(tmp_path, {"algorithm: gp": "algorithm: gp, from: [first]"})
    done = invoke("plan", file, "--dir", runs)
    assert done.exit_code == 0, done.stderr
    text = " ".join(done.stdout.split())
    assert (
        "learns from 6 of 8 configurations of first-20260102-120000; left out: 2 without a value"
        in text
    )
    assert "one is suggested, and the best configuration of each earlier sweep is next" in text
    shown = json.loads(invoke("plan", file, "--dir", runs, "--json").stdout)["learns_from"]
    assert shown == [
        {
            "name": "first-20260102-120000",
            "place": str(runs / "first-20260102-120000"),
            "taken": 6,
            "left_out": {"without a value": 2},
            "new": [],
        }
    ]

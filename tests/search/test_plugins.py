"""The examples of `docs/how-to/own-scheduler.md` and `own-sampler.md`, and samplers and schedulers
of the user's in general.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

import sweeps
from sweeps.core.errors import InputError
from sweeps.core.trial import Action, Report, State
from sweeps.plan import plan
from sweeps.search.plugins import check_plugins, row_problems
from sweeps.search.schedulers.asha import Asha
from sweeps.search.schedulers.none import NoScheduler
from sweeps.search.search_loop import SearchLoop
from sweeps.space import Space, load
from sweeps.space.sections.key_types import ROWS
from sweeps.space.sections.search_models import SchedulerSpec
from sweeps.study.events import TrialReported
from sweeps.testing.pytest_samplers import SamplerTests
from sweeps.testing.pytest_schedulers import SchedulerTests
from tests.search.decisions import decided

PAGES = Path(__file__).parents[2] / "docs" / "how-to"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def write_example(page: str, folder: Path) -> list[Path]:
    """Write the modules of a page to a folder, and its space files; return the latter."""
    spaces = []
    for language, text in BLOCK.findall((PAGES / page).read_text()):
        if language == "python":
            (folder / text.partition("\n")[0].removeprefix("# ")).write_text(text)
        elif language == "yaml" and text.startswith("name:"):
            spaces.append(folder / f"{text.split()[1]}.yaml")
            spaces[-1].write_text(text)
    return spaces


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("examples")
    for page in ("own-scheduler.md", "own-sampler.md"):
        write_example(page, folder)
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))


def run(space: Space, folder: Path, steps: int = 20) -> SearchLoop:
    """Run all trials one after the other."""
    folder.mkdir(exist_ok=True)
    loop = SearchLoop.open(folder, space)
    while (trial := loop.ask()) is not None:
        for step in range(1, steps + 1):
            loss = trial.params["eta"] + 1 / step
            loop.store.append(
                TrialReported(
                    1.0,
                    trial.number,
                    (Report(step, {"valid-logloss": loss}, float(step)),),
                    seconds=0.1,
                ),
            )
            if step in loop.scheduler.rungs() and decided(loop, trial.number, step) is Action.STOP:
                loop.store.end(trial.number, State.PRUNED)
                break
        else:
            loop.store.end(trial.number, State.COMPLETE)
    return loop


@pytest.mark.parametrize("name", ["random-stop", "optuna-tpe", "near-best"])
def test_the_example_searches_and_repeats_itself(examples: Any, tmp_path: Path, name: str) -> None:
    space = load(examples / f"{name}.yaml")
    assert check_plugins(space) == []
    assert plan(space, {"CPU": 2}).trials == space.limits.max_trials, (
        "a plan imports no code of the user's"
    )
    runs = [run(space, tmp_path / folder) for folder in "ab"]
    assert len({str([(t.params, t.state) for t in loop.store.trials()]) for loop in runs}) == 1
    states = {r.state for r in runs[0].store.results().values()}
    assert (State.PRUNED in states) == (name == "random-stop")


@pytest.mark.integration
@pytest.mark.extended
@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", ["random-stop", "near-best"])
def test_the_example_runs(examples: Any, tmp_path: Path, name: str) -> None:
    result = sweeps.run(examples / f"{name}.yaml", dir=tmp_path)
    assert result.best is not None and sum(result.trials.values()) == 6


class TestRandomStop(SchedulerTests):
    @pytest.fixture(autouse=True)
    def _examples(self, examples: Any) -> None:
        pass

    def scheduler(self) -> Any:
        from random_stop import RandomStop

        return RandomStop(max_t=20)


class TestNearBest(SamplerTests):
    algorithm = "near_best:NearBest"
    options: ClassVar = {"n_startup_trials": 3}

    @pytest.fixture(autouse=True)
    def _examples(self, examples: Any) -> None:
        pass


class TestOptunasTpe(SamplerTests):
    algorithm = "optuna.samplers:TPESampler"
    options: ClassVar = {"n_startup_trials": 4}


BAD = {
    'scheduler: {name: "random_stop:RandomStop", max_t: 20, probability: 3}': (
        "`random_stop:RandomStop` does not take these options: ValueError: `probability` must be "
        "between 0 and 1, got 3"
    ),
    'scheduler: {name: "random_stop:RandomStop", max_t: 20, often: 3}': (
        "unexpected keyword argument 'often'"
    ),
    'scheduler: {name: "near_best:NearBest"}': (
        "`near_best:NearBest` must be a class that inherits from sweeps.search.schedulers.Scheduler"
    ),
    'search: {algorithm: "near_best:NearBest", options: {widht: 1}}': (
        "unexpected keyword argument 'widht'"
    ),
    'search: {algorithm: "optuna.samplers:TPESampler", options: {seed: 1}}': (
        "`seed` is not an option"
    ),
    'search: {algorithm: "json:dumps", options: {obj: 1}}': (
        "must be a sampler of Optuna, or have a method `suggest(history, cell, rng)`"
    ),
}


@pytest.mark.parametrize("line", BAD)
def test_run_refuses_a_bad_plugin_in_one_line(examples: Any, line: Any) -> None:
    text = (examples / "near-best.yaml").read_text()
    key = line.partition(":")[0]
    text = re.sub(rf"^{key}:.*\n", "", text, flags=re.MULTILINE) + line + "\n"
    (examples / "bad.yaml").write_text(text)
    (problem,) = check_plugins(load(examples / "bad.yaml"))
    assert BAD[line] in str(problem) and "\n" not in str(problem)


@pytest.mark.parametrize(
    "line",
    [
        'search: {algorithm: "near_best:Nearest"}',
        'scheduler: {name: "random_stop:Stop"}',
        'search: {algorithm: "no_such:Thing"}',
    ],
)
def test_validate_refuses_dangling_reference_and_imports_nothing(tmp_path: Path, line: str) -> None:
    for page in ("own-scheduler.md", "own-sampler.md"):
        write_example(page, tmp_path)
    (tmp_path / "near_best.py").write_text("raise RuntimeError\nclass NearBest: pass\n")
    text = (tmp_path / "near-best.yaml").read_text()
    text = re.sub(rf"^{line.partition(':')[0]}:.*\n", "", text, flags=re.MULTILINE) + line + "\n"
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(InputError) as caught:
        load(tmp_path / "bad.yaml")
    assert len(caught.value.problems) == 1


@pytest.mark.parametrize(
    ("scheduler", "options", "message"),
    [
        (Asha(9, resource=ROWS), {"resource": ROWS}, None),
        (Asha(9), {}, None),
        (
            Asha(9, resource=ROWS),
            {},
            "`my:Own` and the file must agree; write `resource: data.rows` in the file",
        ),
        (NoScheduler(9), {"resource": ROWS}, "`my:Own` and the file must agree"),
    ],
)
def test_a_scheduler_of_the_users_may_count_rows(
    scheduler: Any, options: Any, message: str | None
) -> None:
    problems = row_problems(SchedulerSpec("my:Own", options), scheduler)
    assert (
        not problems
        if message is None
        else message in str(problems[0]) and problems[0].place == "scheduler.resource"
    )

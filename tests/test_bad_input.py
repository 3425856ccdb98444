"""Check every bad input of the table: its exact answer, exit code 2, no traceback, no files left
behind, no heavy import.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sweeps import cli
from sweeps.runs import api
from tests.bad_input import Case, furnish, parquet, top
from tests.bad_input.page import COMMAND, FILE, METRIC, METRIC_TEST, TABLE, page
from tests.commands import REPO

CASES = [
    pytest.param(case, id=f"{title}: {case.name}")
    for title, cases in TABLE.items()
    for case in cases
]
LIMIT = (
    3.0  # CPU seconds; an answer takes 0.1 to 0.7 on a quiet machine, and twice that on a slow one
)
HEAVY = ("ray", "torch", "mlflow", "optuna", "xgboost", "sklearn")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a working directory with a pipe, an empty folder and a module.

    A sweep that starts is a failure.
    """

    def fail(*args: Any) -> None:
        raise AssertionError("a sweep has begun")

    monkeypatch.setattr(api, "create_sweep_folder", fail)
    monkeypatch.setattr(api, "SweepRun", fail)
    monkeypatch.chdir(tmp_path)
    furnish(tmp_path)
    return tmp_path


def listing(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_size for path in folder.rglob("*")}


def typed(*args: str) -> Any:
    """Run `sweeps ARGS` in this process. Return the result and the CPU seconds."""
    start = time.process_time()
    done = CliRunner().invoke(cli.main, args, prog_name="sweeps", env={"COLUMNS": "120"})
    return done, time.process_time() - start


@pytest.mark.parametrize("case", CASES)
def test_each_bad_input_gets_its_answer(case: Case, folder: Any) -> None:
    case.write(folder)
    before, modules = listing(folder), set(sys.modules)
    for verb in case.verbs:
        done, seconds = typed(verb, *case.args)
        assert tuple(done.output.splitlines()) == case.answer
        assert done.exit_code == 2 and "Traceback" not in done.output
        assert seconds < LIMIT
    if case.sound:
        done, _ = typed("validate", *case.args)
        assert done.exit_code == 0, f"`validate` opens no data, but says: {done.output}"
    assert listing(folder) == before, "nothing is left behind, and no code of the user's was run"
    assert not [name for name in HEAVY if name in set(sys.modules) - modules]


def test_the_table_has_many_cases_with_distinct_names() -> None:
    assert len(CASES) > 150
    ids = [param.id for param in CASES]
    assert len(ids) == len(set(ids))


def test_the_page_is_the_table() -> None:
    assert FILE.is_file() and FILE.read_text(encoding="utf-8") == page(), (
        f"docs/bad_input.md is out of date; renew it: {COMMAND}"
    )


def test_the_unchanged_space_file_is_valid(folder: Any) -> None:
    Case("", "", (), top(), {"valid.csv": "age,plan,y\n", "rows.parquet": parquet}).write(folder)
    done, _ = typed("validate", "space.yaml")
    assert done.exit_code == 0
    with pytest.raises(AssertionError, match="a sweep has begun"):
        CliRunner().invoke(cli.main, ["run", "space.yaml"], catch_exceptions=False)


def test_validating_runs_no_code_of_the_users(folder: Any) -> None:
    text = top(
        trainer="{loop: marks:train, load: marks:load}",
        data='{train: "marks:rows", valid: 0.25}',
        space="{preprocessor: marks:clip, params: {eta: {uniform: [0, 1]}}}",
    )
    (folder / "space.yaml").write_text(text)
    before = listing(folder)
    assert typed("validate", "space.yaml")[0].exit_code == 0
    for verb in ("validate", "run"):
        wrong = typed(
            verb,
            "space.yaml",
            "--set",
            "trainer.load=marks:laod",
            "--set",
            "space.preprocessor=marks:clp",
        )[0]
        assert (
            wrong.exit_code == 2
            and "did you mean `load`?" in wrong.output
            and "did you mean `clip`?" in wrong.output
        )
    assert listing(folder) == before, "marks.py was imported"


def test_a_metric_that_is_never_reported_is_named_at_the_first_report() -> None:
    from sweeps.core.resources import Shape
    from sweeps.core.trial import Trial
    from sweeps.execution.messages import Assignment, Data, Job, Labels, Ranks
    from sweeps.execution.worker.dataset_cache import DatasetCache
    from sweeps.execution.worker.trial_session import TrialSession

    job = Job(
        sweep="s",
        trainers={},
        roots=(),
        metric="loss",
        goal="minimize",
        max_t=None,
        rungs=frozenset(),
        asked=("loss",),
        goals={"loss": "minimize"},
    )
    assignment = Assignment(
        trial=Trial(0, {}, (), Shape(1, (("CPU", 1.0),)), 0, {}),
        attempt=1,
        ranks=Ranks(),
        folder="",
        data_key="",
        cached=(),
        labels=Labels(),
        data=None,
        checkpoint=None,
    )
    session = TrialSession(None, job, assignment, DatasetCache(Data({}, None)))
    with pytest.raises(ValueError) as e:
        session.report({"accuracy": 1.0, "f1": 0.5}, None)
    assert str(e.value) == METRIC
    assert f"def {METRIC_TEST}(" in (REPO / "tests" / "controller" / "test_run.py").read_text()


# ---- with a stop-watch, as a user types it

LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 497131\n"
WATCHED = {
    "sweeps --help": (["--help"], 0, 0.3),
    "sweeps validate, nothing wrong": (["validate", "space.yaml"], 0, 0.3),
    "sweeps validate, a bad bound": (
        ["validate", "space.yaml", "--set", "space.params.eta={uniform: [1, 0]}"],
        2,
        0.3,
    ),
    "sweeps run, a bad bound": (
        ["run", "space.yaml", "--set", "space.params.eta={uniform: [1, 0]}"],
        2,
        1.0,
    ),
    "sweeps run, no such label": (["run", "space.yaml", "--set", "data.label=Y"], 2, 1.0),
    "sweeps run, not what its name says": (
        ["run", "space.yaml", "--set", "data.train=pointer.tsv.gz"],
        2,
        1.0,
    ),
    "sweeps run, one class in a million rows": (
        ["run", "space.yaml", "--set", "data.train=many.csv"],
        2,
        1.0,
    ),
    "sweeps run, no such file": (["run", "absent.yaml"], 2, 1.0),
}


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("watched")
    Case(
        "", "", (), top(), {"pointer.tsv.gz": LFS, "many.csv": "age,y\n" + "12,no\n" * 1_000_000}
    ).write(folder)
    return folder


@pytest.mark.long
@pytest.mark.parametrize("args, code, limit", WATCHED.values(), ids=WATCHED)
def test_an_answer_comes_within_its_time_limit(
    args: Any, code: Any, limit: Any, watched: Any
) -> None:
    """The limit is on CPU seconds, the least of three runs, so other processes do not matter."""
    before, spent = listing(watched), []
    for _ in range(3):
        begin = resource.getrusage(resource.RUSAGE_CHILDREN)
        env = {**os.environ, "PYTHONPATH": str(REPO)}
        command = [sys.executable, "-m", "sweeps.cli", *args]
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=watched, env=env, timeout=15
        )
        end = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert done.returncode == code and "Traceback" not in done.stderr, done.stderr
        assert len(done.stderr.splitlines()) == (code == 2)
        spent.append(end.ru_utime - begin.ru_utime + end.ru_stime - begin.ru_stime)
        if spent[-1] < limit:
            break
    assert min(spent) < limit
    assert listing(watched) == before

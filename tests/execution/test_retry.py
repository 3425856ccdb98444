"""`limits.retry_on`: which ends of an attempt are worth another one, and that it goes on from the
newest checkpoint.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sweeps.core.trial import State
from sweeps.execution.worker.training_loop import names_error, run_loop
from sweeps.space import TrainerSpec
from tests.execution.driving import Driving, job, trial


class Own(ConnectionError):
    pass


@pytest.mark.parametrize(
    "names, worth",
    [
        (("Own",), True),
        ((f"{__name__}.Own",), True),
        (("builtins.OSError",), True),
        (("OSError",), True),
        (("lost", "ConnectionError"), True),
        (("lost", "ValueError"), False),
        (("own", "other.Own"), False),
        ((), False),
    ],
)
def test_retry_name_matches_class_or_base_with_or_without_module(names: Any, worth: bool) -> None:
    assert names_error(names, Own("gone")) is worth


def driving_of(
    tmp_path: Path,
    retry_on: Any,
    *,
    max_failures: int = 2,
    loop: str = "tests.execution.loops:fails_once",
    rungs: Any = (),
) -> Any:
    return Driving(
        replace(job(loop, "none", rungs=rungs), retry_on=retry_on),
        tmp_path,
        max_failures=max_failures,
    )


def attempted(driving: Any, number: int = 0, workers: int = 1, **params: Any) -> Any:
    """Run a trial whose loop fails in its third step; its last outcome, the steps it reported, and
    its logs.
    """
    t = trial(
        number,
        {"at": 3, "folder": str(driving.folder / f"{number:04d}"), **params},
        workers,
        "none",
    )
    driving.start(t)
    outcome, reports = driving.finish(t)
    return (
        outcome,
        [r.step for r in reports],
        [f.read_text() for f in sorted((driving.folder / t.id / "logs").iterdir())],
    )


pytestmark = pytest.mark.timeout(180)


@pytest.mark.integration
@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.extended), 2])
def test_retry_continues_from_newest_checkpoint(
    clean_ray: Any, tmp_path: Path, workers: int
) -> None:
    with driving_of(tmp_path, ("lost", "ConnectionError"), rungs=(2, 4)) as driving:
        for rank in range(workers):
            outcome, steps, logs = attempted(driving, number=rank, workers=workers, rank=rank)
            assert (outcome.state, outcome.attempt, steps) == (
                State.COMPLETE,
                2,
                [1, 2, 3, 4, 5],
            ), outcome.error
            assert [attempt.error for attempt in outcome.failed_attempts] == [
                "ConnectionResetError: the feature store hung up"
            ]
            assert len(outcome.places) == workers, "each attempt says where its ranks are"
            assert "attempt 2" in logs[rank] and "ConnectionResetError" in logs[rank]
            assert (
                "--- attempt 1 ended: ConnectionResetError: the feature store hung up; the trial "
                "is tried again" in logs[0]
            )
            assert logs[rank].rstrip().endswith("COMPLETE after 3 reports"), (
                "it went on from the checkpoint of step 2"
            )


@pytest.mark.integration
@pytest.mark.extended
def test_exceptions_are_retried_up_to_max_failures(clean_ray: Any, tmp_path: Path) -> None:
    with driving_of(tmp_path, ("OSError",), max_failures=1) as driving:
        outcome, _, _ = attempted(driving, once=False)
    assert (outcome.state, outcome.attempt) == (State.FAIL, 2)
    assert (
        "`limits.max_failures` allows only 1" in outcome.error
        and "`limits.retry_on`" in outcome.error
    )
    assert outcome.error.splitlines()[-1] == "ConnectionResetError: the feature store hung up"


@pytest.mark.integration
@pytest.mark.extended
def test_a_lost_worker_is_not_retried_where_retry_on_leaves_lost_out(
    clean_ray: Any, tmp_path: Path
) -> None:
    with driving_of(
        tmp_path, ("ConnectionError",), loop="tests.faults.loops:kills_itself"
    ) as driving:
        outcome, _, _ = attempted(driving)
    assert (outcome.state, outcome.attempt) == (
        State.FAIL,
        1,
    ) and "limits.retry_on" in outcome.error


@pytest.mark.integration
@pytest.mark.extended
def test_returned_rank_leaves_group_so_peer_does_not_hang(clean_ray: Any, tmp_path: Path) -> None:
    with Driving(job("tests.execution.loops:returns_early", "torch"), tmp_path) as driving:
        t = trial(0, {}, 2, "torch")
        driving.start(t)
        outcome, _ = driving.finish(t)
        assert outcome.state is State.FAIL and outcome.error is not None
        assert "rank 0: Traceback" in outcome.error


@pytest.mark.parametrize("broken", ["loop", "reference"])
def test_a_module_that_cannot_be_imported_ends_the_sweep_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    (tmp_path / "broken_loop.py").write_text("import json\n\njson.loads('{')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    loop, references = (
        ("broken_loop:train", ()) if broken == "loop" else ("json:loads", ("broken_loop:callback",))
    )
    trainer = TrainerSpec(None, loop, "none", None, references=references)
    session: Any = SimpleNamespace(
        job=SimpleNamespace(trainer_of=lambda trial: trainer, retry_on=()),
        assignment=SimpleNamespace(trial=SimpleNamespace(preprocessor=())),
        rank=0,
        stopped=False,
        cache=SimpleNamespace(opened={}),
    )
    current: Any = None
    ended = run_loop(session, current)
    assert ended.state is State.FAIL and ended.refused is not None and not ended.retry
    place, text = ended.refused
    assert place == "trainer" and "\n" not in text
    assert "cannot be imported: JSONDecodeError: " in text and text.endswith(
        "(broken_loop.py, line 3)"
    )

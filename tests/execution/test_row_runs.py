"""A trial runs its loop again on more and more train rows, and reports once after each run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import ray.train
from hypothesis import given
from hypothesis import strategies as st

from sweeps.core import loop_context
from sweeps.core.best_step import StepOrder
from sweeps.core.files.sweep_folder import LOOP_RUNS
from sweeps.core.loop_context import BEST_LOOP_STEP, CHECKPOINT_NOTE, TRAIN_ROWS, Current
from sweeps.core.trial import Checkpoint
from sweeps.execution.messages import Assignment, Data, Labels, Ranks
from sweeps.execution.worker.dataset_cache import DatasetCache
from sweeps.execution.worker.loop_run import RankLoop, best_step
from sweeps.execution.worker.row_runs import run_on_rows
from sweeps.execution.worker.trial_session import TrialSession
from tests.execution.driving import job, trial


class Session(TrialSession):
    """Session of a trial that trains at the steps 1, 3 and 9, and that keeps what the trial
    reports.
    """

    def __init__(
        self, checkpoint: Checkpoint | None = None, rows: int = 90, workers: int = 1
    ) -> None:
        assignment = Assignment(
            trial(0, {}, workers, "none"),
            1,
            Ranks(world_size=workers),
            folder=".",
            data_key="key",
            cached=("key",),
            labels=Labels(),
            data=None,
            checkpoint=checkpoint,
            row_steps=(1, 3, 9),
        )
        parts = {step: Data({}, None, rows=rows * step // 9) for step in (1, 3)}
        data = Data({}, None, parts=parts, rows=rows)
        super().__init__(None, job("a:b", "none"), assignment, DatasetCache(data))
        self.sent: list[tuple[int, dict[str, float], dict[str, Any] | None]] = []

    def admit(self, metrics: dict[str, float], step: int) -> dict[str, float]:
        return dict(metrics)

    def checkpoint(self) -> ray.train.Checkpoint | None:
        return (
            None
            if self.assignment.checkpoint is None
            else ray.train.Checkpoint(self.assignment.checkpoint.name)
        )

    def exchange(self, value: Any) -> list[Any]:
        """Return the value, and for the other ranks that they reported no checkpoint."""
        return [value, *[False] * (self.ranks.world_size - 1)]

    def report(
        self,
        metrics: dict[str, float],
        checkpoint: ray.train.Checkpoint | None,
        step: int | None = None,
    ) -> None:
        assert step is not None
        note = (
            None
            if checkpoint is None
            else json.loads(Path(checkpoint.path, CHECKPOINT_NOTE).read_text())
        )
        self.sent.append((step, metrics, note))


@pytest.fixture(autouse=True)
def in_sweep_folder(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The current folder is the sweep's folder."""
    monkeypatch.chdir(tmp_path_factory.mktemp("sweep"))


def current() -> Current:
    return Current("0000", 0, None, None, None, "loss", "minimize", 9, 1, None)


def saved(folder: Path, note: int | None = None) -> ray.train.Checkpoint:
    folder.mkdir(exist_ok=True)
    if note is not None:
        (folder / CHECKPOINT_NOTE).write_text(json.dumps({"best_step": note}))
    return ray.train.Checkpoint.from_directory(str(folder))


@given(st.lists(st.floats(-9, 9), min_size=1, max_size=6), st.booleans())
def test_the_best_step_is_the_first_with_the_best_value(values: Any, minimize: Any) -> None:
    reports = {10 * i: {"loss": value} for i, value in enumerate(values, 1)}
    step = best_step(reports, StepOrder("loss", minimize))
    assert values[step // 10 - 1] == (min if minimize else max)(values)
    assert values.index(values[step // 10 - 1]) == step // 10 - 1
    assert best_step(reports, StepOrder(None, minimize)) == 10 * len(values)


def test_the_loop_runs_once_for_each_part_and_each_run_starts_from_scratch() -> None:
    session, seen = Session(), []

    def train(run: RankLoop) -> None:
        now = loop_context.current()
        seen.append((now.train_share, now.max_t, run.checkpoint()))
        for value in (3.0, 1.0, 2.0):
            run.report({"loss": value * now.train_share}, None)

    run_on_rows(session, current(), train)
    assert seen == [(1 / 9, None, None), (3 / 9, None, None), (1.0, None, None)]
    assert session.sent == [
        (step, {"loss": 1.0 * step / 9, BEST_LOOP_STEP: 2.0, TRAIN_ROWS: 10.0 * step}, None)
        for step in (1, 3, 9)
    ]


def test_a_trial_continues_after_the_part_of_its_checkpoint(tmp_path: Path) -> None:
    session, seen = Session(Checkpoint(str(tmp_path), 3, 3)), []
    (tmp_path / CHECKPOINT_NOTE).write_text(json.dumps({"best_step": 3, "on_all_ranks": True}))

    def train(run: RankLoop) -> None:
        seen.append(loop_context.current().previous_run)
        run.report({"loss": 1.0}, None)

    run_on_rows(session, current(), train)
    assert [step for step, *_ in session.sent] == [9] and seen == [tmp_path]
    assert tmp_path.is_dir()


def test_a_loop_can_start_from_its_run_on_fewer_rows(tmp_path: Path) -> None:
    seen = []

    def train(run: RankLoop) -> None:
        previous, share = loop_context.current().previous_run, loop_context.current().train_share
        seen.append(None if previous is None else (previous / "model").read_text())
        (tmp_path / "model").write_text(f"of {share:.2f}")
        run.report({"loss": 1.0}, ray.train.Checkpoint.from_directory(str(tmp_path)))
        # The sweep deletes this folder when it ends. A killed worker leaves its copies there.
        (copy,) = Path(LOOP_RUNS).iterdir()
        assert (copy / f"{round(share * 9)}" / "model").read_text() == f"of {share:.2f}"

    run_on_rows(Session(), current(), train)
    assert seen == [None, "of 0.11", "of 0.33"] and not list(Path(LOOP_RUNS).iterdir())


@pytest.mark.parametrize("resumed", [False, True])
def test_all_ranks_start_from_the_same_rows(tmp_path: Path, resumed: bool) -> None:
    seen = []

    def train(run: RankLoop) -> None:
        seen.append(loop_context.current().previous_run)
        run.report({"loss": 1.0}, saved(tmp_path / "mine"))

    checkpoint = None
    if resumed:
        saved(tmp_path / "stored")
        (tmp_path / "stored" / CHECKPOINT_NOTE).write_text(
            json.dumps({"best_step": 1, "loop_step": 1, "on_all_ranks": False})
        )
        checkpoint = Checkpoint(str(tmp_path / "stored"), 1, 1)
    run_on_rows(Session(checkpoint, workers=2), current(), train)
    assert seen == [None] * (2 if resumed else 3)


def test_a_run_without_a_report_is_an_error() -> None:
    with pytest.raises(ValueError, match="reported nothing on 1 of 9 parts of the train rows"):
        run_on_rows(Session(), current(), lambda run: None)

"""The ledger: the Optuna study in the sweep's folder, the one record of what happened.

The study's intermediate values are what trials had at rungs, for the verdicts. All else that export and resume need lies in two user
attributes of a trial: `begun` (written once, before it runs) and `so_far` (its reports and checkpoints, written at rungs, at checkpoints
and at its end).
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
from optuna.storages.journal import JournalFileBackend
from optuna.storages.journal._file import BaseJournalFileLock
from optuna.trial import TrialState

from sweeps.resources import shape_of
from sweeps.search import cells, record, rules
from sweeps.search.record import JOURNAL
from sweeps.search.sampler import CellSampler, seed_of, suggest
from sweeps.space import Space
from sweeps.trial import Checkpoint, Report, Result, State, Trial


class _NoLock(BaseJournalFileLock):
    """The sweep's folder is locked as a whole; a lock file of Optuna's would only be left behind by a crash."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        pass


class _Journal(JournalFileBackend):
    """Optuna's journal file, forced to the disk once a decision rather than once a record: of the latter a trial has some ten.

    A record is in the operating system's hands as soon as it is written, so that no death of a process loses it.
    """

    _written = False

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        with open(self._file_path, "ab") as f:
            f.write("".join(json.dumps(record, separators=(",", ":")) + "\n" for record in logs).encode())
        self._written = True

    def sync(self) -> None:
        """Outlive a machine that stops."""
        if self._written:
            with open(self._file_path, "ab") as f:
                os.fsync(f.fileno())
            self._written = False


def cut_torn_tail(journal: Path) -> int:
    """Cut off a last record that was not written whole; returns the bytes cut.

    Optuna loads such a journal, but glues its next record to the fragment, and then cannot load it any more.
    """
    if not journal.exists():
        return 0
    data = journal.read_bytes()
    whole = data.rfind(b"\n") + 1
    while whole:  # a record can also be torn in its middle, by a hole that the file system filled with zeros
        start = data.rfind(b"\n", 0, whole - 1) + 1
        with contextlib.suppress(ValueError):
            json.loads(data[start:whole])
            break
        whole = start
    if whole < len(data):
        with open(journal, "r+b") as f:
            f.truncate(whole)
            f.flush()
            os.fsync(f.fileno())
    return len(data) - whole


class _Row:
    """What the ledger remembers of a trial beside Optuna's record, for it to be written in one go."""

    def __init__(self, trial: Trial):
        self.trial = trial
        self.curve: dict[int, float] = {}
        self.steps = 0
        self.checkpoint: Checkpoint | None = None
        self.best: Checkpoint | None = None
        self.attempts, self.seconds = 0, 0.0

    def record(self) -> dict[str, Any]:
        as_dict = lambda c: dataclasses.asdict(c) if c else None  # noqa: E731
        return {
            "curve": [[s, v] for s, v in self.curve.items()],
            "steps": self.steps,
            "checkpoint": as_dict(self.checkpoint),
            "best": as_dict(self.best),
            "attempts": self.attempts,
            "seconds": round(self.seconds, 4),
        }


class Ledger:
    """Begins trials, records what they report and how they end, and answers what is on record.

    Args:
        folder: the sweep's.
        space: what is searched.
        rungs: the steps at which verdicts are made.
    """

    def __init__(self, folder: Path, space: Space, rungs: tuple[int, ...]):
        self.space, self.rungs = space, frozenset(rungs)
        self.minimize = space.objective.goal == "minimize"
        journal = (folder / JOURNAL).resolve()
        cut_torn_tail(journal)
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.sampler = CellSampler(space.search.algorithm, space.search.seed)
            self._journal = _Journal(str(journal), lock_obj=_NoLock())
            self.study = optuna.create_study(
                storage=optuna.storages.JournalStorage(self._journal),
                study_name=space.name,
                sampler=self.sampler,
                direction=space.objective.goal,
                load_if_exists=True,
            )
            self.study.set_user_attr("metric", space.objective.metric)
        self._rows: dict[int, _Row] = {}
        self._open: dict[int, optuna.Trial] = {}
        self.ended: list[State] = []
        self._begun, self._counts = 0, [0] * len(space.cells)  # trials in all, and in each cell
        for t in self.study.get_trials(deepcopy=False):
            self._count(t.params)

    def _count(self, params: dict[str, Any]) -> None:
        """Take note that a trial was begun, in its cell."""
        self._begun += 1
        index = cells.cell_of(params, self.space.cells)
        if index is not None:
            self._counts[index] += 1

    def next(self) -> Trial | None:
        """Begin a trial in the cell whose turn it is; None when `limits.max_trials` are begun."""
        if self._begun >= self.space.limits.max_trials:
            return None
        cell = self.space.cells[cells.next_cell(self.space.cells, self._counts)]
        self.sampler.begin(cell, self._begun)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            asked = self.study.ask()
            labels: dict[str, Any] = {}

            def choose(dimension: Any) -> Any:
                labels[dimension.name] = suggest(asked, dimension)
                return labels[dimension.name]

            trial = self._trial(asked.number, choose, labels)
        self._count(asked.params)
        asked.set_user_attr("begun", record.begun(trial))
        self._rows[asked.number] = _Row(trial)
        self._open[asked.number] = asked
        self._journal.sync()
        return trial

    def _trial(self, number: int, choose: Callable[[Any], Any], labels: dict[str, Any]) -> Trial:
        values = {}

        def chosen(dimension: Any) -> Any:
            key = choose(dimension)
            values[dimension.name] = key if dimension.options else dimension.value(key)
            return key

        filled = self.space.fill(chosen)
        return Trial(
            number=number,
            id=f"{number:04d}",
            params=filled["params"],
            preprocessor=tuple(filled["preprocessor"]),
            shape=shape_of(filled["scaling"], self.space.trainer.backend),
            seed=seed_of(self.space.search.seed, number, "trial"),
            labels=values,
            data=filled["data"],
        )

    def trial(self, number: int) -> Trial:
        """A trial on record, rebuilt from its parameters."""
        if number in self._rows:
            return self._rows[number].trial
        params = self.study.get_trials(deepcopy=False)[number].params
        return self._trial(number, lambda dimension: params[dimension.name], {})

    def record(
        self,
        number: int,
        reports: tuple[Report, ...],
        checkpoint: Checkpoint | None,
        best: Checkpoint | None,
        attempts: int,
        seconds: float,
    ) -> None:
        """Take a trial's news. Reports that are on record already are left out, so that telling twice changes nothing."""
        row = self._rows[number]
        fresh = [r for r in reports if r.step > row.steps]
        write = False
        for report in fresh:
            value = report.metrics[self.space.objective.metric]
            row.steps, row.curve[report.step] = report.step, value
            if report.step in self.rungs:
                self._open[number].report(value, report.step)
                write = True
        if checkpoint is not None:
            row.checkpoint, write = checkpoint, True
        row.best, row.attempts, row.seconds = best or row.best, attempts, seconds
        if write:
            self._open[number].set_user_attr("so_far", row.record())
            self._journal.sync()

    def standing(self, number: int) -> _Row:
        """What is known of a trial that runs: `curve`, `checkpoint`, `best`, `attempts`, `seconds`."""
        return self._rows[number]

    def value_at(self, number: int, step: int) -> float:
        """The value a trial reported at a step; NaN if it reported none there."""
        if number in self._rows:
            return self._rows[number].curve.get(step, math.nan)
        return dict(record.curve_of(self.study.get_trials(deepcopy=False)[number])).get(step, math.nan)

    def at_rung(self, step: int, but: int) -> list[float]:
        """The values other trials had at a rung."""
        return [
            t.intermediate_values[step] for t in self.study.get_trials(deepcopy=False) if t.number != but and step in t.intermediate_values
        ]

    def finish(self, number: int, state: State, error: str | None = None, reason: str | None = None) -> Result:
        """Put a trial's end on record. RUNNING writes what is known and leaves it resumable."""
        row, asked = self._rows[number], self._open[number]
        step, value = rules.best_of(row.curve.items(), self.minimize)
        if state is State.COMPLETE and value is None:
            state, error = State.FAIL, error or self._no_value(row)
        so_far = row.record()
        if error:
            so_far["error"] = error
        if reason:
            so_far["reason"] = reason
        asked.set_user_attr("so_far", so_far)
        last = max(row.curve, default=None)
        if state is State.COMPLETE:
            self.study.tell(asked, value, state=TrialState.COMPLETE)
        elif state is State.PRUNED:
            if last is not None and last not in self.rungs:
                asked.report(row.curve[last], last)
            self.study.tell(asked, state=TrialState.PRUNED)
        elif state is State.FAIL:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.study.tell(asked, state=TrialState.FAIL)
        self._journal.sync()
        if state is not State.RUNNING:
            self.ended.append(state)
        return Result(state, value, step, row.steps, row.best, error, row.seconds)

    def _no_value(self, row: _Row) -> str:
        metric = self.space.objective.metric
        if not row.curve:
            return f"the loop ended without reporting the objective's metric `{metric}`"
        return f"the objective's metric `{metric}` was NaN in all {row.steps} reports"

    def results(self) -> dict[int, Result]:
        """How every trial on record stands, by number."""
        return {t.number: record.result_of(t, self.minimize) for t in self.study.get_trials(deepcopy=False)}

    def winner(self) -> int | None:
        """The number of the best trial; None if no trial has a value."""
        return rules.winner(self.results().items(), self.minimize)

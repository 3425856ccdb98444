"""The ledger: the Optuna study in the sweep's folder, the one record of what happened.

The study's intermediate values are what trials had at rungs, for the verdicts. All else that export and resume need lies in user
attributes of a trial: `begun` (written once, before it runs) and `told.0`, `told.1`, ... (each time the driver hears of it: the new
reports, and how it stands).
"""

from __future__ import annotations

import dataclasses
import datetime
import math
import sys
import time
import warnings
from collections import defaultdict, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import TrialState

from sweeps.core.checkpoint_files import newest_checkpoints
from sweeps.core.errors import shorten
from sweeps.core.resources import costs
from sweeps.core.sweep_folder import SweepFolder
from sweeps.core.trial import Checkpoint, Decision, Report, Result, State, Trial
from sweeps.search import trial_building
from sweeps.search.optuna_trials import OptunaTrials
from sweeps.search.samplers.cell_sampler import CellSampler, distribution_of
from sweeps.search.schedulers import exploit_explore
from sweeps.search.schedulers.rules import Median, Pbt, scheduler_of
from sweeps.search.trial_queue import TrialQueue
from sweeps.space import Space
from sweeps.study import ranking, record, storage
from sweeps.study.budgets import BudgetState
from sweeps.study.live_trial import LiveTrial
from sweeps.study.objectives import Objectives
from sweeps.study.record import Taken
from sweeps.study.repeats import Configurations, merged, settled


class StudyStore:
    """Begins trials, records what they report and how they end, and answers what is on record.

    Args:
        folder: the sweep's.
        space: what is searched.

    Attributes:
        scheduler: the space's, whose rungs are the steps at which verdicts are made.
        agenda: what is begun next.
        course: how the sweep has gone, for its budgets.
        interrupted: the numbers of trials that an earlier driver left behind, to be gone on with.
        clock: seconds that the sweep has been driven, over all its drivers; what is written bears it.
        spent: what it said last, on record.

    Raises:
        InputError: the search's algorithm needs a package that is not installed.
    """

    def __init__(self, folder: Path, space: Space):
        self.folder, self.space = folder, space
        self.scheduler = scheduler_of(space.scheduler)
        self._rungs = rungs if isinstance(rungs := self.scheduler.rungs, range) else frozenset(rungs)
        # the steps whose values a trial is compared by: the median rule knows the reports before its first decision, too
        self._compared = range(1, sys.maxsize) if isinstance(self.scheduler, Median) else self._rungs
        self.judge = Objectives.of(space)
        self.minimize = self.judge.minimize
        # Optuna takes values of steps for one objective alone
        self.comparable = len(space.objectives) == 1 and self.judge.metric == space.objective.metric
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sampler = CellSampler(space)
            kept, name, self.sync = storage.opened(folder)
            self.study = optuna.create_study(
                storage=kept,
                study_name=name or space.name,
                sampler=sampler,
                directions=[objective.goal for objective in space.objectives],
                load_if_exists=True,
            )
            self.study.set_user_attr("judged", self.judge.to_json())
            self.study.set_user_attr("repeats", dataclasses.asdict(space.repeats))
            self.study.set_user_attr("stops", bool(self.scheduler.rungs))
        self.sampler = sampler
        self.queue = TrialQueue(space, stops=bool(self.scheduler.rungs))
        self.course = BudgetState(self.judge.goals)
        self.interrupted: deque[int] = deque()
        self.clock: Callable[[], float] = lambda: self.spent
        self.spent = 0.0
        self._asker = OptunaTrials(self.study)
        self._rows: dict[int, LiveTrial] = {}
        self._open: dict[int, optuna.Trial] = {}
        self._shown: dict[tuple[int, int], dict[int, float]] = defaultdict(dict)  # at each rung of a bracket, by trial
        self._give()
        self._take_up()

    def _give(self) -> None:
        """Put initial points with known results on record, as COMPLETE trials that were not run; those that are not there yet."""
        there = sum(record.is_given(t) for t in self.study.get_trials(deepcopy=False))
        for point in [p for p in self.space.search.initial_points if p.values is not None][there:]:
            kept: dict[str, Any] = {}

            def choose(dimension: Any, keys: dict[str, Any] = point.keys, kept: dict[str, Any] = kept) -> Any:
                kept[dimension.name] = distribution_of(dimension)
                return keys[dimension.name]

            trial = trial_building.assembled(self.space, len(self.study.get_trials(deepcopy=False)), choose)
            told = optuna.trial.create_trial(
                params={name: point.keys[name] for name in kept},
                distributions=kept,
                values=point.values,
                user_attrs={"begun": {**record.begun(trial), "given": True}},
            )
            self.study.add_trial(told)
        self.sync()

    def _take_up(self) -> None:
        """Go on from what is on record."""
        ended = []
        for t in self.study.get_trials(deepcopy=False):
            if self._asker.found(t):
                self.queue.promise(record.origin_of(t))
                continue
            if record.is_given(t):
                continue
            self.queue.count(t.params, record.origin_of(t))
            values: list[float] = []
            known = dict(t.intermediate_values)  # of a repeat none
            if isinstance(self.scheduler, Median) and record.origin_of(t) is None:
                known = dict(record.curve_of(t)) | known
            for step, value in sorted(known.items()):
                values += [value] if step in self._compared else []
                if step in self._rungs:
                    self._shown[self.bracket(t.number), step][t.number] = self.scheduler.shown(values)
            self.spent = max([self.spent, *(chunk["at"] for chunk in record.told(t)[-1:])])
            if t.state.is_finished():
                ended.append((t.datetime_complete or datetime.datetime.max, t.number, t))
            else:
                self._rows[t.number] = LiveTrial.recalled(trial_building.rebuilt(self.space, t), t, self.folder, self.judge)
                self._open[t.number] = optuna.Trial(self.study, t._trial_id)
                self.interrupted.append(t.number)
        for _, number, t in sorted(ended, key=lambda e: e[:2]):
            self._ended(number, record.origin_of(t), record.result_of(t, self.judge))

    @property
    def to_run(self) -> int:
        """Trials that are still to run: those interrupted, and those not begun, repeats too; at most so many."""
        return len(self.interrupted) * self.space.repeats.count + self.queue.left

    def _ended(self, number: int, origin: int | None, result: Result) -> None:
        """Take note that a trial has ended, and with its last one a configuration."""
        results, repeats = self.queue.ended(number, origin, result), self.space.repeats
        self.course.run(result)
        if settled(results, repeats):
            self.course.judge(number if origin is None else origin, merged(results, repeats))

    def next(self) -> Trial | None:
        """Begin a trial: a repeat that is due, else an initial point, else what is sampled in the cell whose turn it is.

        None when `limits.max_trials` configurations are begun; see also `TrialQueue.more_may_come`.
        """
        turn = self.queue.next(lambda number: self.study.get_trials(deepcopy=False)[number].params)
        if turn is None:
            return None
        self.sampler.begin(turn.cell, turn.number, turn.index)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            asked = self._asker.ask(turn)
            trial = trial_building.assembled(self.space, asked.number, lambda dimension: self._asker.key(asked, dimension), turn.origin)
        self.queue.count(asked.params, turn.origin, turn.promised)
        bracket = {"bracket": self.bracket(trial.number)} if self.space.scheduler.brackets else {}
        asked.set_user_attr("begun", record.begun(trial) | bracket)
        self._rows[asked.number] = LiveTrial(trial, dict(asked.params))
        self._open[asked.number] = asked
        return trial

    def trial(self, number: int) -> Trial:
        """A trial on record, rebuilt from its parameters."""
        if number in self._rows:
            return self._rows[number].trial
        return trial_building.rebuilt(self.space, self.study.get_trials(deepcopy=False)[number])

    def record(
        self,
        number: int,
        reports: tuple[Report, ...],
        checkpoint: Checkpoint | None,
        best: Checkpoint | None,
        attempts: int,
        seconds: float,
    ) -> tuple[Report, ...]:
        """Take a trial's news; the reports that were not on record yet. So telling twice changes nothing."""
        row = self._rows[number]
        fresh = tuple(r for r in reports if r.step > row.steps)
        for report in fresh:
            value = row.take(report, self.judge)
            if report.step in self._rungs and row.trial.origin is None:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # it may be there, if the last driver died between this and what comes below
                    self._open[number].report(value, report.step)
                values = [v for s, v in row.curve.items() if s in self._compared]
                self._shown[self.bracket(number), report.step][number] = self.scheduler.shown(values)
        row.checkpoint = checkpoint or row.checkpoint
        row.best, row.attempts, row.seconds = best or row.best, attempts, seconds
        if fresh or checkpoint is not None:
            self._tell(number, fresh)
        return fresh

    def _tell(self, number: int, fresh: tuple[Report, ...], **more: Any) -> None:
        """Write how a trial stands, and what it reported since this was written last."""
        row, metric = self._rows[number], self.judge.metric
        told = {"reports": record.written(fresh, metric), **row.record(), "at": round(self.clock(), 2), **more}
        self._open[number].set_user_attr(f"{record.TOLD}{row.told}", told)
        row.told += 1

    def standing(self, number: int) -> LiveTrial:
        """What is known of a trial that this driver runs or ran."""
        return self._rows[number]

    def value_at(self, number: int, step: int) -> float:
        """The value a trial reported at a step; NaN if it reported none there."""
        if number in self._rows:
            return self._rows[number].curve.get(step, math.nan)
        return dict(record.curve_of(self.study.get_trials(deepcopy=False)[number])).get(step, math.nan)

    def bracket(self, number: int) -> int:
        """The bracket of a trial; see `Scheduler.bracket`."""
        return self.scheduler.bracket(self.space.search.seed, number)

    def verdict(self, number: int, step: int) -> Decision:
        """Whether a trial goes on from a rung; NaN is what it has there if it reported nothing."""
        bracket, curve = self.bracket(number), self._rows[number].curve
        values = [v for s, v in sorted(curve.items()) if s in self._compared and s <= step]
        own = self.scheduler.own(values, self.minimize) if step in curve else math.nan
        others = [v for n, v in self._shown[bracket, step].items() if n != number]
        return self.scheduler.verdict(others, own, self.minimize, step, bracket)

    def passed(self, number: int, step: int) -> None:
        """Put on record that a trial goes on from a rung: it does again if it is lost beyond it, whoever has come there since."""
        self._rows[number].passed = step
        self._open[number].set_user_attr(record.PASSED, step)

    def as_begun(self, number: int) -> Trial:
        """A trial with the parameters that it began with, which PBT may have changed."""
        row = self._rows[number]
        return (
            trial_building.as_begun(self.space, self.study._storage.get_trial(self._open[number]._trial_id)) if row.lineage else row.trial
        )

    def perturb(self, number: int, step: int, pbt: Pbt) -> Taken | None:
        """Decide a milestone of PBT: None if the trial goes on as it is, else what it takes over, which its row holds then."""
        row, known = self._rows[number], self._shown[self.bracket(number), step]
        still = {n: r for n, r in self._rows.items() if not r.over}
        peers = [exploit_explore.Peer(self.trial(n), value, still.get(n)) for n, value in known.items()]
        found = exploit_explore.decided(self.space, pbt, row, step, peers, self.minimize)
        if found is None:
            row.decided = step
            self._tell(number, (), **{record.TAKEN: {"step": step}})
            return None
        taken = exploit_explore.carry_out(found, row, step, SweepFolder(self.folder).trials)
        more = {"curve": list(row.curve.items()), "others": row.others}
        self._tell(number, (), **{record.TAKEN: dataclasses.asdict(taken) | more})
        return taken

    def finish(
        self, number: int, state: State, error: str | None = None, reason: str | None = None, final: dict[str, float] | None = None
    ) -> Result:
        """Put a trial's end on record. RUNNING writes what is known and leaves it resumable."""
        row, asked = self._rows[number], self._open[number]
        seconds, curve = round(row.seconds, 4), tuple(row.curve.items())
        cost = costs(seconds, row.trial.shape.workers, dict(row.trial.shape.per_worker))
        judged = self.judge.judge(state, row.steps, curve, row.others, cost)
        if state is State.COMPLETE and judged.missing is not None:
            state, error = State.FAIL, error or self._no_value(row, judged.missing)
            judged = self.judge.judge(state, row.steps, curve, row.others, cost)
        error = error and shorten(error)
        final = dict(final or {}) if state is State.COMPLETE else {}
        self._tell(number, (), **{name: said for name, said in (("error", error), ("reason", reason), ("final", final)) if said})
        for name, broken in self.judge.violations(judged).items() if state in (State.COMPLETE, State.PRUNED) else ():
            asked.set_constraint(name, broken)
        last = max(row.curve, default=None)
        if state is State.COMPLETE:
            self.study.tell(asked, [v for v in judged.values if v is not None], state=TrialState.COMPLETE)
        elif state is State.PRUNED:
            if last is not None and last not in self._rungs and self.comparable and row.trial.origin is None:
                asked.report(row.curve[last], last)
            self.study.tell(asked, state=TrialState.PRUNED)
        elif state is State.FAIL:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.study.tell(asked, state=TrialState.FAIL)
        told = (judged.step, row.steps, row.best, error, seconds, judged.values, judged.metrics, judged.feasible)
        result = Result(state, judged.values[0], *told, final=final)
        if state is not State.RUNNING:
            row.over = True
            self._ended(number, row.trial.origin, result)
        return result

    def checkpoints(self) -> dict[str, set[str]]:
        """Return the names of the checkpoints that each ended trial keeps: those on record, and the latest. By the trial's id."""
        ended = (t for t in self.study.get_trials(deepcopy=False) if t.state.is_finished() and "begun" in t.user_attrs)
        return {t.user_attrs["begun"]["id"]: record.checkpoints_of(t) | self._latest(t) for t in ended}

    def _latest(self, t: Any) -> set[str]:
        """Return the names of a trial's latest checkpoints, as far as `checkpoints.per_trial` asks for more than the record names."""
        count, told = self.space.checkpoints.per_trial - 1, record.so_far(t).get("checkpoint")
        if count < 2 or not told:
            return set()
        folder = SweepFolder(self.folder).trial(t.user_attrs["begun"]["id"])
        return set(newest_checkpoints((p.name for p in folder.glob("checkpoint_*")), Path(told["path"]).name, count))

    def latest(self, number: int) -> Checkpoint | None:
        """The latest checkpoint on record of a trial; that of its best step is its result's."""
        told = record.so_far(self.study.get_trials(deepcopy=False)[number]).get("checkpoint")
        return Checkpoint(**told) if told else None

    def saved(self) -> dict[int, tuple[str | None, str | None]]:
        """The names of the best and the latest checkpoint on record of each trial, by number; None for one that is not there."""
        known = {t.number: record.so_far(t) for t in self.study.get_trials(deepcopy=False)}
        name = lambda told, which: Path(told[which]["path"]).name if told.get(which) else None  # noqa: E731
        return {number: (name(told, "best"), name(told, "checkpoint")) for number, told in known.items()}

    @property
    def data(self) -> str | None:
        """The fingerprint of the data that the sweep was begun with; None if it is being begun."""
        return self.study.user_attrs.get("data")

    def begun_with(self, fingerprint: str) -> None:
        """Keep the fingerprint of the data."""
        if self.data is None:
            self.study.set_user_attr("data", fingerprint)

    def ended_at(self, number: int) -> float:
        """When a trial ended, by the record, in seconds since the epoch; now, if it has not."""
        ended = self.study._storage.get_trial(self._open[number]._trial_id).datetime_complete
        return ended.timestamp() if ended else time.time()

    def _no_value(self, row: LiveTrial, metric: str) -> str:
        what = "objective's" if metric in {o.metric for o in self.space.objectives} else "constraint's"
        there = any(value == value for _, value in row.others.get(metric, ()))
        if not row.curve or (metric != self.judge.metric and metric not in row.others):
            return f"the loop ended without reporting the {what} metric `{metric}`"
        where = "at its best step" if there else f"in all {row.steps} reports"
        return f"the {what} metric `{metric}` was NaN {where}"

    def results(self) -> dict[int, Result]:
        """How every trial on record stands, by number."""
        known = self.study.get_trials(deepcopy=False)
        return {t.number: record.result_of(t, self.judge) for t in known if "begun" in t.user_attrs}

    def configurations(self) -> Configurations:
        """The trials, repeats put together."""
        origins = {t.number: record.origin_of(t) for t in self.study.get_trials(deepcopy=False)}
        return Configurations.of(((number, origins[number], result) for number, result in self.results().items()), self.space.repeats)

    def winner(self) -> int | None:
        """The number of the best trial, of repeats the best; None if no trial has a value, or there are several objectives."""
        return self.configurations().winner(self.judge.goals)

    def ranked(self) -> list[int]:
        """The numbers of the best trials, the best first: the front, then by the first objective. All are of one rank, see `rules.tier`."""
        front, results = self.front(), self.results()
        found = ranking.ranked(results.items(), self.judge.goals[0])
        level = [n for n in found if ranking.tier(results[n]) == ranking.tier(results[found[0]])]
        return [*front, *(n for n in level if n not in front)]

    def front(self) -> list[int]:
        """With several objectives the numbers of the trials that no other dominates, see `rules.front`; else none."""
        return self.configurations().front(self.judge.goals)

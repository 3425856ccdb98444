"""The ledger: the Optuna study in the sweep's folder, the one record of what happened.

The study's intermediate values are what trials had at rungs, for the verdicts. All else that export and resume need lies in user
attributes of a trial: `begun` (written once, before it runs) and `told.0`, `told.1`, ... (each time the driver hears of it: the new
reports, and how it stands).
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import math
import os
import shutil
import time
import warnings
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Container, Iterator, Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.storages.journal import JournalFileBackend
from optuna.storages.journal._file import BaseJournalFileLock
from optuna.trial import TrialState

from sweeps.resources import costs, shape_of
from sweeps.search import cells, population, record, rules, storage
from sweeps.search.budgets import Course
from sweeps.search.judging import Judge
from sweeps.search.record import JOURNAL, Taken
from sweeps.search.repeats import Configurations, merged, settled, total
from sweeps.search.sampler import CellSampler, distribution_of, seed_of, suggest
from sweeps.search.verdicts import Pbt, scheduler_of
from sweeps.space import Space
from sweeps.trial import Checkpoint, Report, Result, State, Trial, Verdict


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


class _Anew:
    """A storage that keeps the parameters which a trial that is asked for anew has on record."""

    def __init__(self, storage: Any, kept: set[str]):
        self._storage, self._kept = storage, kept

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def set_trial_param(self, trial_id: int, name: str, value: float, distribution: Any) -> None:
        if name not in self._kept:
            self._storage.set_trial_param(trial_id, name, value, distribution)


class _Row:
    """What the ledger knows of a trial that is not over.

    Attributes:
        trial: itself.
        curve: the metric that leads of its reports, by step.
        others: (step, value) of the other metrics that are asked for.
        steps: of its last report.
        checkpoint, best, attempts, seconds: see `sweeps.gangs.messages.Progress`.
        told: how often it was written.
        keys: what each dimension is now.
        lineage, decided: the perturbations of PBT, and the last milestone that was decided.
    """

    def __init__(self, trial: Trial, keys: dict[str, Any]):
        self.trial, self.keys = trial, keys
        self.lineage: tuple[Taken, ...] = ()
        self.decided = 0
        self.curve: dict[int, float] = {}
        self.others: dict[str, list[tuple[int, float]]] = {}
        self.steps = 0
        self.checkpoint: Checkpoint | None = None
        self.best: Checkpoint | None = None
        self.attempts, self.seconds, self.told = 0, 0.0, 0

    def recall(self, t: optuna.trial.FrozenTrial, folder: Path, judge: Judge) -> None:
        """Take up what is on record. The sweep's folder may have been moved, which its checkpoints' paths do not know."""
        so_far = record.so_far(t)

        def found(name: str) -> Checkpoint | None:
            if (there := so_far.get(name)) is None:
                return None
            at = folder / "trials" / self.trial.id / Path(there["path"]).name
            return Checkpoint(str(at), there["step"], there["best_step"]) if at.is_dir() else None

        self.curve, self.others = dict(record.curve_of(t)), record.others_of(t, judge.asked[1:])
        self.steps, self.told = max(self.curve, default=0), len(record.told(t))
        self.checkpoint, self.best = found("checkpoint"), found("best")
        self.attempts, self.seconds = so_far.get("attempts", 0), so_far.get("seconds", 0.0)
        self.lineage, self.decided = record.lineage_of(t), record.decided_of(t)

    def record(self) -> dict[str, Any]:
        as_dict = lambda c: dataclasses.asdict(c) if c else None  # noqa: E731
        return {
            "steps": self.steps,
            "checkpoint": as_dict(self.checkpoint),
            "best": as_dict(self.best),
            "attempts": self.attempts,
            "seconds": round(self.seconds, 4),
        }


@dataclasses.dataclass(frozen=True)
class OnRecord:
    """Reads what there is to tell of the trials of a sweep; can be pickled, and called in another process.

    Attributes:
        folder, space: the sweep's.
        url: of the database that the study is in, with its password; None for a journal.
    """

    folder: Path
    space: Space
    url: str | None = dataclasses.field(default=None, repr=False)

    def __call__(self, whole: Container[int] = ()) -> Iterator[tuple[Trial, float, tuple[Report, ...], Result, float]]:
        """Of each trial that was begun, but for those of these numbers: itself, its begin, its reports, how it stands, its end.

        Under PBT a trial is told as it was begun, and how it was perturbed is among its reports.
        """
        if self.url is not None:
            storage.remember(self.url)
        judge = Judge.of(self.space)
        for t in record.trials_of(self.folder):
            if t.number not in whole:
                begin, end = (at.timestamp() if at else time.time() for at in (t.datetime_start, t.datetime_complete))
                trial = assembled(self.space, t.number, lambda dimension, t=t: t.params[dimension.name], record.origin_of(t))  # type: ignore[misc]
                lineage = record.lineage_of(t)
                trial = dataclasses.replace(trial, lineage=record.in_short(lineage))
                reports = *record.reports_of(t, judge.metric), *(Report(taken.origin, taken.metrics, taken.time) for taken in lineage)
                yield trial, begin, reports, record.result_of(t, judge), end


def assembled(space: Space, number: int, choose: Callable[[Any], Any], origin: int | None = None) -> Trial:
    """The trial of a number, from the key of each dimension that it meets, see `sweeps.space.Space.fill`."""
    values = {}

    def chosen(dimension: Any) -> Any:
        key = choose(dimension)
        values[dimension.name] = key if dimension.options else dimension.value(key)
        return key

    filled = space.fill(chosen)
    return Trial(
        number=number,
        id=f"{number:04d}",
        params=filled["params"],
        preprocessor=tuple(filled["preprocessor"]),
        shape=shape_of(filled["scaling"], space.trainer.backend),
        seed=seed_of(space.search.seed, number, "trial"),
        labels=values,
        data=filled["data"],
        origin=origin,
    )


class Ledger:
    """Begins trials, records what they report and how they end, and answers what is on record.

    Args:
        folder: the sweep's.
        space: what is searched.
        rungs: the steps at which verdicts are made.

    Attributes:
        course: how the sweep has gone, for its budgets.
        interrupted: the numbers of trials that an earlier driver left behind, to be gone on with.
        clock: seconds that the sweep has been driven, over all its drivers; what is written bears it.
        spent: what it said last, on record.

    Raises:
        InputError: the search's algorithm needs a package that is not installed.
    """

    def __init__(self, folder: Path, space: Space, rungs: Sequence[int]):
        self.folder = folder
        self.space, self.rungs = space, rungs if isinstance(rungs, range) else frozenset(rungs)
        self.scheduler = scheduler_of(space.scheduler)
        self.judge = Judge.of(space)
        self.minimize = self.judge.minimize
        # Optuna takes values of steps for one objective alone
        self.comparable = len(space.objectives) == 1 and self.judge.metric == space.objective.metric
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            search = space.search
            self.sampler = CellSampler(search.algorithm, search.seed, search.options, space.dimensions, space.scheduler.max_t)
            if (place := storage.place_of(folder)) is None:
                journal = (folder / JOURNAL).resolve()
                cut_torn_tail(journal)
                self._journal: _Journal | None = _Journal(str(journal), lock_obj=_NoLock())
                kept = optuna.storages.JournalStorage(self._journal)
                there = kept.get_all_studies()  # a file without `name` is named by its path, which the copy in the folder has not
                name = there[0].study_name if there else space.name
            else:
                self._journal, kept, name = None, storage.connect(place[0]), place[1]
            self.study = optuna.create_study(
                storage=kept,
                study_name=name,
                sampler=self.sampler,
                directions=[objective.goal for objective in space.objectives],
                load_if_exists=True,
            )
            self.study.set_user_attr("judged", self.judge.to_json())
            self.study.set_user_attr("repeats", dataclasses.asdict(space.repeats))
            self.study.set_user_attr("stops", bool(self.scheduler.rungs))
        self._rows: dict[int, _Row] = {}
        self._open: dict[int, optuna.Trial] = {}
        self.course = Course(self.judge.goals)
        self._points = [point for point in space.search.initial_points if point.values is None]
        self._configurations: dict[int, list[tuple[int, Result]]] = {}  # what has ended, by its configuration's first trial
        self._repeated: Counter[int] = Counter()  # repeats begun, likewise
        self._due: list[int] = []  # first trials whose repeats are to be begun, one for each
        self._going = 0  # first trials of configurations that are begun and have not ended
        self.interrupted: deque[int] = deque()
        self.clock: Callable[[], float] = lambda: self.spent
        self.spent = 0.0
        self._begun, self._counts = 0, [0] * len(space.cells)  # trials in all, and in each cell
        self._shown: dict[tuple[int, int], dict[int, float]] = defaultdict(dict)  # at each rung of a bracket, by trial
        self._half: int | None = None  # Optuna's id of a trial whose sampling was cut short
        self._waiting = 0  # trials that are enqueued: by a driver that then died, or just now
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

            trial = self._trial(len(self.study.get_trials(deepcopy=False)), choose)
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
            if t.state is TrialState.WAITING:
                self._waiting += 1
            if t.state is TrialState.WAITING or record.is_given(t):
                continue
            if t.state is TrialState.RUNNING and "begun" not in t.user_attrs:
                self._half = t._trial_id
                continue
            self._count(t.params, record.origin_of(t))
            values: list[float] = []
            for step, value in sorted(t.intermediate_values.items()):
                if step in self.rungs:
                    values.append(value)
                    self._shown[self.bracket(t.number), step][t.number] = self.scheduler.shown(values)
            self.spent = max([self.spent, *(chunk["at"] for chunk in record.told(t)[-1:])])
            if t.state.is_finished():
                ended.append((t.datetime_complete or datetime.datetime.max, t.number, t))
            else:
                row = self._rows[t.number] = _Row(self._rebuilt(t), record.keys_of(t))
                row.recall(t, self.folder, self.judge)
                self._open[t.number] = optuna.Trial(self.study, t._trial_id)
                self.interrupted.append(t.number)
        for _, number, t in sorted(ended, key=lambda e: e[:2]):
            self._ended(number, record.origin_of(t), record.result_of(t, self.judge))

    def sync(self) -> None:
        """Force what is on record to the disk. Until then it outlives every process, but not a machine that stops."""
        if self._journal is not None:  # a database sees to that itself
            self._journal.sync()

    @property
    def to_run(self) -> int:
        """Trials that are still to run: those interrupted, and those not begun, repeats too; at most so many."""
        first = len(self.interrupted) + max(0, self.space.limits.max_trials - self._begun)
        return first * self.space.repeats.count + len(self._due)

    @property
    def total(self) -> int:
        """Trials that there will be, see `repeats.total`."""
        firsts = (trials[0][1].state for trials in self._configurations.values())
        return total(self.space.limits.max_trials, firsts, self.space.repeats, bool(self.scheduler.rungs))

    @property
    def more_may_come(self) -> bool:
        """Whether there is nothing to begin now, but trials that run may leave repeats to begin."""
        return self.space.repeats.count > 1 and self._going > 0

    def _rebuilt(self, t: optuna.trial.FrozenTrial) -> Trial:
        keys = record.keys_of(t)
        trial = self._trial(t.number, lambda dimension: keys[dimension.name], record.origin_of(t))
        return dataclasses.replace(trial, lineage=record.in_short(record.lineage_of(t)))

    def _ended(self, number: int, origin: int | None, result: Result) -> None:
        """Take note that a trial has ended, and with its last one a configuration."""
        first, repeats = number if origin is None else origin, self.space.repeats
        own = self._configurations.setdefault(first, [])
        own.append((number, result))
        own.sort(key=lambda t: t[0])
        self._going -= origin is None
        self.course.run(result)
        if origin is None and result.state is State.COMPLETE:
            self._due += [first] * (repeats.count - 1 - self._repeated[first])
        results = [r for _, r in own]
        if settled(results, repeats):
            self.course.judge(first, merged(results, repeats))

    def _count(self, params: dict[str, Any], origin: int | None = None) -> None:
        """Take note that a trial was begun, in its cell; or a repeat of one."""
        if origin is not None:
            self._repeated[origin] += 1
            return
        self._begun += 1
        self._going += 1
        index = cells.cell_of(params, self.space.cells)
        if index is not None:
            self._counts[index] += 1

    def next(self) -> Trial | None:
        """Begin a trial: a repeat that is due, else an initial point, else what is sampled in the cell whose turn it is.

        None when `limits.max_trials` configurations are begun; see also `more_may_come`.
        """
        origin = self._due.pop(0) if self._due else None
        if origin is None and self._begun >= self.space.limits.max_trials:
            return None
        fixed: dict[str, Any] | None = None
        if origin is not None:
            fixed = dict(self.study.get_trials(deepcopy=False)[origin].params)
        elif self._begun < len(self._points):
            fixed = self._points[self._begun].keys
        index = cells.next_cell(self.space.cells, self._counts, fixed)
        self.sampler.begin(self.space.cells[index], self._begun + self._repeated.total(), self._counts[index])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if fixed is not None and self._half is None and not self._waiting:
                self.study.enqueue_trial(fixed)  # what it does not fix is sampled
                self._waiting += 1
            asked = self._ask()
            trial = self._trial(asked.number, lambda dimension: suggest(asked, dimension), origin)
        self._count(asked.params, origin)
        bracket = {"bracket": self.bracket(trial.number)} if self.space.scheduler.brackets else {}
        asked.set_user_attr("begun", record.begun(trial) | bracket)
        self._rows[asked.number] = _Row(trial, dict(asked.params))
        self._open[asked.number] = asked
        return trial

    def _ask(self) -> optuna.Trial:
        """Optuna's next trial; one whose sampling was cut short is sampled again, from the same study to the same values."""
        if self._half is None and self._waiting:
            self._waiting -= 1
            return self.study.ask()
        if self._half is None:  # `Study.ask` would first look through all trials for one that is enqueued
            self.study._thread_local.cached_all_trials = None
            return optuna.Trial(self.study, self.study._storage.create_new_trial(self.study._study_id))
        asked, self._half = optuna.Trial(self.study, self._half), None
        frozen = asked._cached_frozen_trial
        storage: Any = _Anew(asked.storage, set(frozen.params))
        asked.storage = storage
        frozen.params, frozen.distributions = {}, {}
        return asked

    def _trial(self, number: int, choose: Callable[[Any], Any], origin: int | None = None) -> Trial:
        return assembled(self.space, number, choose, origin)

    def trial(self, number: int) -> Trial:
        """A trial on record, rebuilt from its parameters."""
        if number in self._rows:
            return self._rows[number].trial
        return self._rebuilt(self.study.get_trials(deepcopy=False)[number])

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
            value = math.nan if self.judge.metric is None else report.metrics[self.judge.metric]
            row.steps, row.curve[report.step] = report.step, value
            for name in self.judge.asked[1:]:
                if name in report.metrics:
                    row.others.setdefault(name, []).append((report.step, report.metrics[name]))
            if report.step in self.rungs and row.trial.origin is None:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # it may be there, if the last driver died between this and what comes below
                    self._open[number].report(value, report.step)
                values = [v for s, v in row.curve.items() if s in self.rungs]
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

    def standing(self, number: int) -> _Row:
        """What is known of a trial that runs: `curve`, `checkpoint`, `best`, `attempts`, `seconds`."""
        return self._rows[number]

    def value_at(self, number: int, step: int) -> float:
        """The value a trial reported at a step; NaN if it reported none there."""
        if number in self._rows:
            return self._rows[number].curve.get(step, math.nan)
        return dict(record.curve_of(self.study.get_trials(deepcopy=False)[number])).get(step, math.nan)

    def bracket(self, number: int) -> int:
        """The bracket of a trial; see `Scheduler.bracket`."""
        return self.scheduler.bracket(self.space.search.seed, number)

    def verdict(self, number: int, step: int) -> Verdict:
        """Whether a trial goes on from a rung; NaN is what it has there if it reported nothing."""
        bracket, curve = self.bracket(number), self._rows[number].curve
        values = [v for s, v in sorted(curve.items()) if s in self.rungs and s <= step]
        own = self.scheduler.own(values, self.minimize) if step in curve else math.nan
        others = [v for n, v in self._shown[bracket, step].items() if n != number]
        return self.scheduler.verdict(others, own, self.minimize, step, bracket)

    def as_begun(self, number: int) -> Trial:
        """A trial with the parameters that it began with, which PBT may have changed."""
        row = self._rows[number]
        if not row.lineage:
            return row.trial
        began = self.study._storage.get_trial(self._open[number]._trial_id).params
        return dataclasses.replace(self._trial(number, lambda dimension: began[dimension.name]), lineage=row.trial.lineage)

    def perturb(self, number: int, step: int, pbt: Pbt) -> Taken | None:
        """Decide a milestone of PBT: None if the trial goes on as it is, else what it takes over, which its row holds then.

        What it is given is a copy of the donor's checkpoint, among its own. It has the donor's curve up to there, as its model has.
        """
        row, seed = self._rows[number], self.space.search.seed
        draw = population.chance(seed, number, step)
        known = self._shown[self.bracket(number), step]
        members = [population.Member(n, v, self._gives(n, step, pbt.max_t)) for n, v in known.items() if self._one_population(n, number)]
        donor = population.donor(number, members, self.minimize, pbt.fraction, draw)
        other = None if donor is None else self._rows[donor]
        keys: dict[str, Any] = {}

        def choose(dimension: Any) -> Any:
            assert other is not None
            if population.perturbed(dimension):
                key = population.explored(dimension, other.keys.get(dimension.name), pbt.resample, draw)
            else:
                key = row.keys[dimension.name]
            keys[dimension.name] = key
            return key

        if other is None or (trial := self._perturbed(row.trial, choose)) is None:
            row.decided = step
            self._tell(number, (), **{record.TAKEN: {"step": step}})
            return None
        given = other.checkpoint
        assert given is not None
        name = f"checkpoint_{given.step:06d}_of_{other.trial.id}"
        copy = self._copied(Path(given.path), self.folder / "trials" / row.trial.id / name)
        taken = Taken(step, other.trial.id, given.step, keys, trial.params, trial.labels, time.time())
        row.decided, row.keys, row.lineage = step, keys, (*row.lineage, taken)
        row.trial = dataclasses.replace(trial, lineage=record.in_short(row.lineage))
        row.checkpoint = row.best = Checkpoint(str(copy), given.step, given.best_step)
        row.curve = {s: v for s, v in sorted(other.curve.items()) if s <= given.step}
        row.others = {metric: [(s, v) for s, v in curve if s <= given.step] for metric, curve in other.others.items()}
        row.steps = given.step
        more = {"curve": list(row.curve.items()), "others": row.others}
        self._tell(number, (), **{record.TAKEN: dataclasses.asdict(taken) | more})
        return taken

    def _gives(self, number: int, step: int, max_t: int | None) -> bool:
        """Whether a trial that still trains has a checkpoint of a milestone or a later step, from which something is left to train."""
        row = self._rows.get(number)
        if row is None or number in self._configurations or row.checkpoint is None:
            return False
        return row.checkpoint.step >= step and (max_t is None or row.checkpoint.step < max_t) and Path(row.checkpoint.path).is_dir()

    def _one_population(self, a: int, b: int) -> bool:
        """Whether two trials differ in nothing that PBT leaves alone, but for the workers they run on."""
        first, second = self.trial(a), self.trial(b)
        grids = [{d.name: t.labels.get(d.name) for d in self.space.dimensions if d.is_grid} for t in (first, second)]
        scaling = [{name: v for name, v in g.items() if not name.startswith("scaling.")} for g in grids]
        return first.preprocessor == second.preprocessor and first.data == second.data and scaling[0] == scaling[1]

    def _perturbed(self, trial: Trial, choose: Callable[[Any], Any]) -> Trial | None:
        """The trial with other parameters; None if a condition would have them change more than `params`."""
        try:
            new = self._trial(trial.number, choose)
        except KeyError:
            return None
        return new if (new.preprocessor, new.data, new.shape) == (trial.preprocessor, trial.data, trial.shape) else None

    def _copied(self, source: Path, target: Path) -> Path:
        """Copy a checkpoint, so that what bears the name is whole."""
        part = target.with_name(f"{target.name}.part")
        for there in (part, target):  # an earlier driver's, which died before it put this on record
            shutil.rmtree(there, ignore_errors=True)
        shutil.copytree(source, part)
        part.rename(target)
        return target

    def finish(self, number: int, state: State, error: str | None = None, reason: str | None = None) -> Result:
        """Put a trial's end on record. RUNNING writes what is known and leaves it resumable."""
        row, asked = self._rows[number], self._open[number]
        seconds, curve = round(row.seconds, 4), tuple(row.curve.items())
        cost = costs(seconds, row.trial.shape.workers, dict(row.trial.shape.per_worker))
        judged = self.judge.judge(state, row.steps, curve, row.others, cost)
        if state is State.COMPLETE and judged.missing is not None:
            state, error = State.FAIL, error or self._no_value(row, judged.missing)
            judged = self.judge.judge(state, row.steps, curve, row.others, cost)
        self._tell(number, (), **{name: why for name, why in (("error", error), ("reason", reason)) if why})
        for name, broken in self.judge.violations(judged).items() if state in (State.COMPLETE, State.PRUNED) else ():
            asked.set_constraint(name, broken)
        last = max(row.curve, default=None)
        if state is State.COMPLETE:
            self.study.tell(asked, [v for v in judged.values if v is not None], state=TrialState.COMPLETE)
        elif state is State.PRUNED:
            if last is not None and last not in self.rungs and self.comparable and row.trial.origin is None:
                asked.report(row.curve[last], last)
            self.study.tell(asked, state=TrialState.PRUNED)
        elif state is State.FAIL:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.study.tell(asked, state=TrialState.FAIL)
        told = (judged.step, row.steps, row.best, error, seconds, judged.values, judged.metrics, judged.feasible)
        result = Result(state, judged.values[0], *told)
        if state is not State.RUNNING:
            self._ended(number, row.trial.origin, result)
        return result

    def checkpoints(self) -> dict[str, set[str]]:
        """The names of the checkpoints on record of each trial that has ended, by the trial's id."""
        return {
            t.user_attrs["begun"]["id"]: record.checkpoints_of(t)
            for t in self.study.get_trials(deepcopy=False)
            if t.state.is_finished() and "begun" in t.user_attrs
        }

    def saved(self) -> dict[int, tuple[str | None, str | None]]:
        """The names of the best and the latest checkpoint on record of each trial, by number; None for one that is not there."""
        known = {t.number: record.so_far(t) for t in self.study.get_trials(deepcopy=False)}
        name = lambda told, which: Path(told[which]["path"]).name if told.get(which) else None  # noqa: E731
        return {number: (name(told, "best"), name(told, "checkpoint")) for number, told in known.items()}

    def data_of(self, fingerprint: str) -> str:
        """The fingerprint of the data that the sweep was begun with: this one, if it is being begun."""
        known = self.study.user_attrs.get("data")
        if known is None:
            self.study.set_user_attr("data", fingerprint)
        return known or fingerprint

    def ended_at(self, number: int) -> float:
        """When a trial ended, by the record, in seconds since the epoch; now, if it has not."""
        ended = self.study._storage.get_trial(self._open[number]._trial_id).datetime_complete
        return ended.timestamp() if ended else time.time()

    def _no_value(self, row: _Row, metric: str) -> str:
        what = "objective's" if metric in {o.metric for o in self.space.objectives} else "constraint's"
        there = any(value == value for _, value in row.others.get(metric, ()))
        if not row.curve or (metric != self.judge.metric and metric not in row.others):
            return f"the loop ended without reporting the {what} metric `{metric}`"
        where = "at its best step" if there else f"in all {row.steps} reports"
        return f"the {what} metric `{metric}` was NaN {where}"

    def results(self) -> dict[int, Result]:
        """How every trial on record stands, by number."""
        known = self.study.get_trials(deepcopy=False)
        return {t.number: record.result_of(t, self.judge) for t in known if t.state is not TrialState.WAITING}

    def configurations(self) -> Configurations:
        """The trials, repeats put together."""
        origins = {t.number: record.origin_of(t) for t in self.study.get_trials(deepcopy=False)}
        return Configurations.of(((number, origins[number], result) for number, result in self.results().items()), self.space.repeats)

    def winner(self) -> int | None:
        """The number of the best trial, of repeats the best; None if no trial has a value, or there are several objectives."""
        return self.configurations().winner(self.judge.goals)

    def ranked(self) -> list[int]:
        """The numbers of the trials that could be exported, the best first: the front, then by the first objective."""
        front = self.front()
        return [*front, *(n for n in rules.ranked(self.results().items(), self.judge.goals[0]) if n not in front)]

    def front(self) -> list[int]:
        """With several objectives the numbers of the trials that no other dominates, see `rules.front`; else none."""
        return self.configurations().front(self.judge.goals)

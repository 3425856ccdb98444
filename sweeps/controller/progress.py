"""Follow the running trials and the best value of a sweep, and build its `SweepStatus`."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from sweeps.controller.eta import TimeLeft, time_left
from sweeps.controller.status import (
    BestTrial,
    Pairs,
    ResourceUse,
    SweepStatus,
    TrialRow,
    shape_text,
    short_configuration,
)
from sweeps.core.best_step import UNKNOWN
from sweeps.core.trial import Report, Result, State, Trial, format_trial_id
from sweeps.execution.messages import Stage, Usage
from sweeps.search.search_loop import SearchLoop
from sweeps.study import ranking

# Stage of a trial that does not fit on the cluster.
MISSING = "waiting for nodes"


@dataclass
class TrialProgress:
    """Progress of a running trial.

    Attributes:
        trial: The trial.
        began: When the trial started, in seconds since the start of the sweep.
        configuration: Short form of the trial's configuration, for display.
        last_report: The latest report that this driver received from the trial; None before the
            first report.
        reported_at: When this driver received the latest report, by the monotonic clock.
        metrics: The latest value of each metric.
        best: The value at the best step among the trial's reports; None before the first value.
        best_key: Key of the best step; see `StepOrder.key`.
        best_step: The step that reported the best value.
        attempt: Number of the current attempt; above 1 if the trial lost workers.
    """

    trial: Trial
    began: float
    configuration: Pairs
    last_report: Report | None = None
    reported_at: float = 0.0
    metrics: dict[str, float] = field(default_factory=dict)
    best: float | None = None
    best_key: tuple[int, float] = UNKNOWN
    best_step: int = 0
    attempt: int = 1


class SweepProgress:
    """Progress of a sweep.

    Args:
        search: The search of the sweep. Its study includes the trials of earlier drivers.
        began: Start of the sweep by the monotonic clock, moved forward by the length of all breaks
            between runs.

    Attributes:
        running: Running trials by id, in the order in which they started.
        failures: Trial id and error of each failed trial. The trial that failed last is the last
            entry.
        best: The best trial; None before the first value.
        ends: When each run of a trial ended under this driver, in seconds since the start of the
            sweep. A trial that is paused and continues has several runs.
        concurrency: The largest number of trials that have run in parallel.
        usage: The latest report of the pool; None before the first report.
        timeout: When a time limit ends the search, in seconds since the start of the sweep. None
            without a time limit.
    """

    def __init__(self, search: SearchLoop, began: float):
        self._search, self._store, self._space, self._began = (
            search,
            search.store,
            search.space,
            began,
        )
        self.running: dict[str, TrialProgress] = {}
        self.ends: list[float] = []
        self._started: set[str] = set()  # ids of the trials that this driver started or continued
        self.concurrency = 0
        self.timeout = search.space.limits.timeout
        self.usage: Usage | None = None
        self._nodes: dict[str, str] = {}
        self.best: BestTrial | None = None
        results = self._store.results()
        self.failures = [
            (format_trial_id(n), r.error) for n, r in results.items() if r.error is not None
        ]
        self._update_best_from_ended()

    def on_start(self, trial: Trial) -> None:
        """Add a trial that starts."""
        self._started.add(trial.id)
        self.running[trial.id] = TrialProgress(
            trial, time.monotonic() - self._began, short_configuration(trial)
        )
        self.concurrency = max(self.concurrency, len(self.running))

    def on_change(self, trial: Trial) -> None:
        """Update a trial that continues with other parameters."""
        self.running[trial.id].trial, self.running[trial.id].configuration = (
            trial,
            short_configuration(trial),
        )

    def on_reports(self, trial: str, attempt: int, reports: tuple[Report, ...]) -> None:
        """Add new reports of a trial.

        Args:
            trial: The trial's id.
            attempt: Number of the trial's current attempt.
            reports: The new reports, in order.
        """
        running, order = self.running[trial], self._store.objectives.order
        running.attempt = attempt
        running.reported_at = time.monotonic() if reports else running.reported_at
        for report in reports:
            running.last_report = report
            running.metrics |= report.metrics
            key = order.key(running.metrics)
            if key < running.best_key:
                value = report.metrics[str(order.metric)]
                running.best_key, running.best, running.best_step = key, value, report.step
                self._compare(running)

    def on_end(self, trial: str, result: Result) -> None:
        """Remove a trial that has ended, was paused or was interrupted."""
        self.running.pop(trial)
        if result.state is not State.RUNNING or result.paused:
            self.ends.append(time.monotonic() - self._began)
        if result.error is not None:
            self.failures.append((trial, result.error))
        if (
            result.state is State.FAIL and self.best is not None and self.best.trial == trial
        ):  # A failed trial cannot be the best.
            self.best = None
            for running in self.running.values():
                self._compare(running)
        self._update_best_from_ended()

    def leader(self, can_win: Callable[[int], bool]) -> tuple[str, float] | None:
        """Return the trial that would win if time ended the search now, and its training seconds.

        Args:
            can_win: whether a running trial, given by its number, would count like a complete one.

        Returns:
            The id of the trial, and how long it ran: a running trial until its best step. If its
            steps are folds, this is how long all of them take; so it is for the parts of the rows
            of a running trial. None if no trial has a value.
        """
        number, best = self._search.budget.best or (-1, None)
        found = None if best is None else (format_trial_id(number), self._seconds_of_all(best))
        value = best.value if best is not None and ranking.tier(best) == 0 else None
        for trial, running in self.running.items():
            better = ranking.beats(running.best, value, self._store.minimize)
            if better and (best is None or can_win(running.trial.number)):
                found, value = (trial, self._seconds(running)), running.best
        return found

    def _seconds_of_all(self, ended: Result) -> float:
        """Return the seconds of an ended trial. If it was stopped early, those of all folds."""
        folds = self._space.data.folds
        return ended.seconds * folds / ended.steps if folds and ended.steps else ended.seconds

    def _seconds(self, running: TrialProgress) -> float:
        """Return the seconds of a running trial with a value; see `leader`."""
        assert running.last_report is not None
        spent, step = running.reported_at - self._began - running.began, running.last_report.step
        if folds := self._space.data.folds:
            return spent * folds / step
        if self._space.scheduler.counts_rows:
            parts = self._search.row_steps(running.trial)
            return spent * sum(parts) / sum(part for part in parts if part <= step)
        return spent * running.best_step / step

    @property
    def _reports_decide(self) -> bool:
        """True if the best value is that of a report.

        The reason: no trial has ended with a value, and a single report can rank a trial.
        """
        enough = self._store.objectives.need_one_report and self._space.repeats.count == 1
        return enough and self._search.budget.best is None

    def _compare(self, running: TrialProgress) -> None:
        """Make a running trial the best one if its best report decides; see `_reports_decide`."""
        best = self.best.value if self.best else None
        if self._reports_decide and ranking.beats(running.best, best, self._store.minimize):
            self._set_best(running.trial, running.best, running.best_step)

    def _update_best_from_ended(self) -> None:
        """Set `best` to the best ended trial, if there is one.

        A running trial may still be stopped, and would then lose.
        """
        if (best := self._search.budget.best) is not None:
            self._set_best(self._store.trial(best[0]), best[1].value, best[1].best_step or 0)

    def _set_best(self, trial: Trial, value: float | None, step: int) -> None:
        if value is None or math.isinf(value):  # The trial loses to every other one.
            return
        self.best = BestTrial(
            trial.id,
            value,
            step,
            (("workers", shape_text(trial.shape)), *short_configuration(trial)),
        )

    def status(self, reason: str | None = None, stage: str | None = None) -> SweepStatus:
        """Return the current status of the sweep.

        Args:
            reason: Reason why the sweep is ending early; None if it is not ending early.
            stage: Current phase of the sweep if no trials run.
        """
        budget, objective = self._search.budget, self._space.objective
        states = Counter(s.value for s in budget.ended)
        states["RUNNING"] = len(self.running)
        states.update(["PAUSED"] * len(self._search.view.paused))
        now = time.monotonic() - self._began
        failed, error = self.failures[-1] if self.failures else ("", "")
        return SweepStatus(
            states=states,
            total=self._search.queue.known_total,
            best=self.best,
            seconds=now,
            left=None if reason else self._time_left(now),
            reason=reason,
            name=self._store.folder.name,
            metric=", ".join(o.metric for o in self._space.objectives),
            goal=objective.goal,
            front=len(budget.front),
            failure=(failed, error.strip().splitlines()[-1]) if error.strip() else None,
            rows=tuple(
                self._row(running, now, reason is not None) for running in self.running.values()
            ),
            use=self._resource_use(),
            fits=self.usage.fits if self.usage else 0,
            stage=stage,
            messages=self._node_changes(),
        )

    def _node_changes(self) -> tuple[str, ...]:
        """Return a line for each node that was lost or has joined since the last call."""
        if self.usage is None:
            return ()
        before, after = self._nodes, self.usage.nodes
        self._nodes = after
        changed = sorted(before.items() ^ after.items()) if before else ()
        words = {True: "was lost", False: "has joined"}
        return tuple(f"node {name} {words[node in before]}" for node, name in changed)

    def _time_left(self, now: float) -> TimeLeft | None:
        return time_left(
            now, self._runs_left(), self.ends, concurrency=self.concurrency, timeout=self.timeout
        )

    def _runs_left(self) -> int:
        """Return the number of runs of trials that have not ended. See `ends`.

        If the scheduler pauses trials, each trial that has not started counts as many runs as the
        trials so far had on average.
        """
        queue = self._search.queue
        if not self._search.scheduler.pauses:
            return queue.known_total - len(self._search.budget.ended)
        runs = len(self.ends) + len(self.running)
        return len(self.running) + round(queue.remaining * runs / max(1, len(self._started)))

    def _row(self, r: TrialProgress, now: float, stopping: bool) -> TrialRow:
        metric, stage, last = self._store.objectives.metric, self._stage(r, stopping), r.last_report
        return TrialRow(
            trial=r.trial.id,
            stage=stage,
            step=last.step if last else 0,
            max_t=self._search.scheduler.max_t,
            value=last.metrics[metric] if last and metric is not None else None,
            best=r.best,
            shape=r.trial.shape,
            seconds=now - r.began,
            attempt=r.attempt,
            configuration=r.configuration,
            notice=self._notice(r.trial.id, stage),
        )

    def _notice(self, trial: str, stage: str) -> str:
        """Return the text that explains why a trial does not train.

        Return "" if there is nothing to explain.
        """
        if self.usage is None or stage not in ("silent", MISSING):
            return ""
        return self.usage.silent[trial] if stage == "silent" else self.usage.missing[trial]

    def _stage(self, r: TrialProgress, stopping: bool) -> str:
        """Return a short text that says what a trial is doing."""
        stage, rung = (
            self.usage.stages.get(r.trial.id, (None, None)) if self.usage else (None, None)
        )
        if stopping:
            return "stopping"
        if rung is not None:
            return f"at rung {rung}"
        if self.usage is not None and self.usage.silent.get(r.trial.id):
            return "silent"
        if self.usage is not None and r.trial.id in self.usage.missing:
            return MISSING
        if (
            r.last_report is not None and r.attempt == 1
        ):  # The pool's latest report may be older than the trial's latest report.
            return Stage.TRAINING.value
        return stage.value if stage else "beginning"

    def _resource_use(self) -> tuple[ResourceUse, ...]:
        if self.usage is None:
            return ()
        u, requested = (
            self.usage,
            {name for shape in self._space.shapes for name, _ in shape.per_worker},
        )
        names = [name for name in u.total if name in requested or name in ("CPU", "GPU")]
        return tuple(
            ResourceUse(name, u.total[name], u.busy.get(name, 0.0), u.warm.get(name, 0.0))
            for name in names
        )

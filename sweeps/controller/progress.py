"""Follow the running trials and the best value of a sweep, and build its `SweepStatus`."""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from sweeps.core import clock
from sweeps.core.trial import State, Trial, format_trial_id
from sweeps.execution.pool_usage import Stage, Usage
from sweeps.search.search_loop import SearchLoop
from sweeps.study import ranking
from sweeps.study.states import TrialState

from .eta import time_left
from .status import (
    BestTrial,
    ResourceUse,
    SweepStatus,
    TrialRow,
    shape_text,
    short_configuration,
)

# Stage of a trial that does not fit on the cluster.
WAITING_FOR_NODES = "waiting for nodes"


@dataclass
class Run:
    """Run of a trial under this driver. A trial that is paused and continues has several runs.

    Attributes:
        began: When the run started, in seconds since the start of the sweep.
        reported: When this driver received the latest report; None before the first report.
    """

    began: float
    reported: float | None = None


class SweepProgress:
    """Progress of a sweep.

    Args:
        search: The search of the sweep. Its study includes the trials of earlier drivers.
        began: Start of the sweep by the monotonic clock, moved forward by the length of all breaks
            between runs.

    Attributes:
        running: Runs of the running trials, by trial number, in the order in which they started.
        failures: Trial id and error of each failed trial. The trial that failed last is the last
            entry.
        best: The best trial; None before the first value.
        ends: When each run of a trial ended under this driver, in seconds since the start of the
            sweep.
        concurrency: The largest number of trials that have run in parallel.
        usage: The latest report of the pool; None before the first report.
        timeout: When a time limit ends the search, in seconds since the start of the sweep. None
            without a time limit.
    """

    def __init__(self, search: SearchLoop, began: float):
        self._search = search
        self._store = search.store
        self._space = search.space
        self._began = began
        self.running: dict[int, Run] = {}
        self.ends: list[float] = []
        # Numbers of the trials that this driver started or continued
        self._started: set[int] = set()
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

    def on_start(self, number: int) -> None:
        """Add a trial that starts."""
        self._started.add(number)
        self.running[number] = Run(clock.monotonic() - self._began)
        self.concurrency = max(self.concurrency, len(self.running))

    def on_reports(self, state: TrialState) -> None:
        """Note that a trial has new reports.

        Args:
            state: The trial after the reports.
        """
        self.running[state.number].reported = clock.monotonic() - self._began
        self._compare(state)

    def on_end(self, state: TrialState) -> None:
        """Remove a trial that has ended, was paused or was interrupted."""
        self.running.pop(state.number)
        if state.has_ended or state.paused_at is not None:
            self.ends.append(clock.monotonic() - self._began)
        if state.error is not None:
            self.failures.append((state.id, state.error))
        if state.state is State.FAIL and self.best is not None and self.best.trial == state.id:
            self.best = None  # A failed trial cannot be the best.
            for number in self.running:
                self._compare(self._store.states[number])
        self._update_best_from_ended()

    def leader(self, can_win: Callable[[TrialState], bool]) -> tuple[str, float] | None:
        """Return the trial that would win if time ended the search now, and its training time.

        Args:
            can_win: Function that returns whether a running trial would count like a complete one.

        Returns:
            The id of the trial, and the seconds of a training with its configuration; see
            `_seconds_of_running` and `training_seconds`. None if no trial has a value.
        """
        leader = None
        value = None
        best = self._search.budget.best
        if best is not None:
            number, result = best
            leader = (format_trial_id(number), self.training_seconds(number))
            if ranking.tier(result) == 0:  # A trial of another tier loses to every running one.
                value = result.value
        for number, run in self.running.items():
            state = self._store.states[number]
            # A resumed trial has values of an earlier driver, and no measured time before its
            # first report.
            is_better = run.reported is not None and ranking.beats(
                state.best_value, value, self._store.minimize
            )
            if is_better and (best is None or can_win(state)):
                leader = (state.id, self._seconds_of_running(state, run))
                value = state.best_value
        return leader

    def best_seconds(self, count: int) -> list[float]:
        """Return the training seconds of the best complete trials, at most `count` of them."""
        results = self._store.results()
        ranked = ranking.ranked(results.items(), self._store.minimize)
        complete = [number for number in ranked if ranking.tier(results[number]) == 0]
        return [self.training_seconds(number) for number in complete[:count]]

    def training_seconds(self, number: int) -> float:
        """Return the seconds that an ended trial needed until its best step; see `_share`."""
        state = self._store.states[number]
        return state.result.seconds * self._share(state)

    def _seconds_of_running(self, state: TrialState, run: Run) -> float:
        """Return the seconds that a running trial needed until its best step; see `_share`."""
        assert run.reported is not None
        return (run.reported - run.began) * self._share(state)

    def _share(self, state: TrialState) -> float:
        """Return the time of a training until the best step, divided by that of the trial so far.

        In a cross-validation, it is the training of all folds. If the scheduler counts rows, it is
        the loop's last run, on all rows.
        """
        step = state.steps
        if not step or state.best_step is None:
            return 1.0
        if folds := self._space.data.folds:
            return folds / step
        if self._space.scheduler.counts_rows:
            # A step is a share of the rows, so it is proportional to the time of its run.
            rows = self._search.row_steps(state.trial)
            return max(rows) / sum(count for count in rows if count <= step)
        return state.best_step / step

    @property
    def _reports_decide(self) -> bool:
        """True if the best value is the value of a report of a running trial.

        That requires that no trial has ended with a value, and that one report can rank a trial.
        """
        one_is_enough = self._store.objectives.need_one_report and self._space.repeats.count == 1
        return one_is_enough and self._search.budget.best is None

    def _compare(self, state: TrialState) -> None:
        """Make a running trial the best one if its best report decides; see `_reports_decide`."""
        best = self.best.value if self.best else None
        value = state.best_value
        if self._reports_decide and ranking.beats(value, best, self._store.minimize):
            self._set_best(state.trial, value, state.best_step or 0)

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
        budget = self._search.budget
        objective = self._space.objective
        states = Counter(s.value for s in budget.ended)
        states["RUNNING"] = len(self.running)
        states.update(["PAUSED"] * len(self._search.view.paused))
        now = clock.monotonic() - self._began
        left = None
        if not reason:
            left = time_left(
                now,
                self._runs_left(),
                self.ends,
                concurrency=self.concurrency,
                timeout=self.timeout,
            )
        failed_trial, error = self.failures[-1] if self.failures else ("", "")
        return SweepStatus(
            states=states,
            total=self._search.queue.known_total,
            best=self.best,
            seconds=now,
            left=left,
            reason=reason,
            name=self._store.folder.name,
            metric=", ".join(o.metric for o in self._space.objectives),
            goal=objective.goal,
            front=len(budget.front),
            failure=(failed_trial, error.strip().splitlines()[-1]) if error.strip() else None,
            rows=tuple(
                self._row(self._store.states[number], now - run.began, reason is not None)
                for number, run in self.running.items()
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
        before = self._nodes
        after = self.usage.nodes
        self._nodes = after
        if not before:
            return ()
        lost = [f"node {name} was lost" for node, name in before.items() if node not in after]
        joined = [f"node {name} has joined" for node, name in after.items() if node not in before]
        return (*lost, *joined)

    def _runs_left(self) -> int:
        """Return the expected number of runs that have not ended; see `Run`.

        If the scheduler pauses trials, a trial may have several runs. Then this method assumes that
        each trial that has not started gets as many runs as the trials so far had on average.
        """
        queue = self._search.queue
        if not self._search.scheduler.pauses:
            return queue.known_total - len(self._search.budget.ended)
        runs = len(self.ends) + len(self.running)
        return len(self.running) + round(queue.remaining * runs / max(1, len(self._started)))

    def _row(self, state: TrialState, seconds: float, stopping: bool) -> TrialRow:
        """Return the row of a running trial. Its run has taken `seconds` so far."""
        metric = self._store.objectives.metric
        stage, notice = self._stage(state, stopping)
        last = state.reports[-1] if state.reports else None
        return TrialRow(
            trial=state.id,
            stage=stage,
            step=state.steps,
            max_t=self._search.scheduler.max_t,
            value=last.metrics[metric] if last and metric is not None else None,
            best=state.best_value,
            shape=state.trial.shape,
            seconds=seconds,
            attempt=max(1, state.attempt),
            configuration=short_configuration(state.trial),
            notice=notice,
        )

    def _stage(self, state: TrialState, stopping: bool) -> tuple[str, str]:
        """Return the stage of a trial and its notice; see `TrialRow`."""
        usage = self.usage.trials.get(state.id) if self.usage else None
        if stopping:
            return "stopping", ""
        if usage is not None:
            if usage.rung is not None:
                return f"at rung {usage.rung}", ""
            if usage.silent:
                return "silent", usage.silent
            if usage.missing:
                return WAITING_FOR_NODES, usage.missing
        # The pool's latest report of its usage may be older than the trial's latest report.
        if self.running[state.number].reported is not None and state.attempt == 1:
            return Stage.TRAINING.value, ""
        return usage.stage.value if usage else "beginning", ""

    def _resource_use(self) -> tuple[ResourceUse, ...]:
        if self.usage is None:
            return ()
        usage = self.usage
        requested = {name for shape in self._space.shapes for name, _ in shape.per_worker}
        return tuple(
            ResourceUse(name, total, usage.busy.get(name, 0.0), usage.warm.get(name, 0.0))
            for name, total in usage.total.items()
            if name in requested | {"CPU", "GPU"}
        )

"""The study of a sweep: the one record of what happened.

Optuna's intermediate values hold what trials reported at rungs. User attributes of a trial hold everything else that export and resume
need: `begun` (written once, before the trial starts) and `told.0`, `told.1`, ... (written at each report: new reports and progress).
"""

from __future__ import annotations

import dataclasses
import math
import time
import warnings
from collections.abc import Callable, Container
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from sweeps.core.checkpoint_files import newest_checkpoints
from sweeps.core.errors import shorten
from sweeps.core.resources import costs
from sweeps.core.sweep_folder import SweepFolder
from sweeps.core.trial import Checkpoint, Report, Result, State, Trial
from sweeps.space import Dimension, Space
from sweeps.study import ranking, record, storage, trial_building
from sweeps.study.distributions import distribution_of
from sweeps.study.live_trial import LiveTrial
from sweeps.study.objectives import Objectives
from sweeps.study.record import Perturbation
from sweeps.study.repeats import Configurations


class StudyStore:
    """Record trials, their reports and their ends; answer what is recorded.

    Args:
        folder: Folder of the sweep.
        space: The search space.
        rungs: Steps whose values the study keeps as Optuna's intermediate values. Only needed to record reports.

    Attributes:
        folder, space: The arguments.
        study: The Optuna study.
        objectives: How trials are scored.
        minimize: Whether smaller values of the leading metric are better.
        clock: Returns the seconds that the sweep has been driven, by all its drivers; every progress record has this time.
        spent: The latest recorded time of the clock.
        sync: Forces everything that was written to the disk.

    Raises:
        DamagedStudy: The study is damaged.
        InputError: The database cannot be reached.
    """

    def __init__(self, folder: Path, space: Space, rungs: Container[int] = ()):
        self.folder, self.space = folder, space
        self._rungs = rungs if isinstance(rungs, range) else frozenset(rungs)  # type: ignore[call-overload]
        self.objectives = Objectives.of(space)
        self.minimize = self.objectives.minimize
        # Optuna takes intermediate values for a single objective only.
        self._takes_last_value = len(space.objectives) == 1 and self.objectives.metric == space.objective.metric
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            opened, name, self.sync = storage.opened(folder)
            self.study = optuna.create_study(
                storage=opened,
                study_name=name or space.name,
                directions=[objective.goal for objective in space.objectives],
                load_if_exists=True,
            )
            self.study.set_user_attr("judged", self.objectives.to_json())
            self.study.set_user_attr("repeats", dataclasses.asdict(space.repeats))
        self.clock: Callable[[], float] = lambda: self.spent
        self.spent = 0.0
        self._live: dict[int, LiveTrial] = {}
        self._open: dict[int, optuna.Trial] = {}
        self._restore()

    def _restore(self) -> None:
        """Restore the trials that an earlier driver started and did not end."""
        for t in self.trials():
            self.spent = max([self.spent, *(chunk["at"] for chunk in record.told(t)[-1:])])
            if "begun" in t.user_attrs and not t.state.is_finished():
                trial = trial_building.rebuilt(self.space, t)
                self._live[t.number] = LiveTrial.restore(trial, t, self.folder, self.objectives)
                self._open[t.number] = optuna.Trial(self.study, t._trial_id)

    # Write

    def record_comparisons(self, compares: bool) -> None:
        """Record whether the scheduler compares trials before they end."""
        self.study.set_user_attr("stops", compares)

    def add_given_points(self) -> None:
        """Record the initial points with known results as complete trials, unless they are recorded already."""
        recorded = sum(record.is_given(t) for t in self.trials())
        for point in [p for p in self.space.search.initial_points if p.values is not None][recorded:]:
            distributions: dict[str, Any] = {}

            def choose(dimension: Dimension, keys: dict[str, Any] = point.keys, distributions: dict[str, Any] = distributions) -> Any:
                distributions[dimension.name] = distribution_of(dimension)
                return keys[dimension.name]

            trial = trial_building.assembled(self.space, len(self.trials()), choose)
            given = optuna.trial.create_trial(
                params={name: point.keys[name] for name in distributions},
                distributions=distributions,
                values=point.values,
                user_attrs={"begun": {**record.begun(trial), "given": True}},
            )
            self.study.add_trial(given)
        self.sync()

    def record_start(self, asked: optuna.Trial, trial: Trial, bracket: int | None = None) -> None:
        """Record that a trial starts, with its bracket if the scheduler has several."""
        asked.set_user_attr("begun", record.begun(trial) | ({} if bracket is None else {"bracket": bracket}))
        self._live[asked.number] = LiveTrial(trial, dict(asked.params))
        self._open[asked.number] = asked

    def record_reports(
        self,
        number: int,
        reports: tuple[Report, ...],
        checkpoint: Checkpoint | None,
        best: Checkpoint | None,
        attempts: int,
        seconds: float,
    ) -> tuple[Report, ...]:
        """Record the progress of a trial. Repeated reports change nothing.

        Args:
            number: Number of the trial.
            reports: Reports by step; some may be recorded already.
            checkpoint: Latest checkpoint, or None if it has not changed.
            best: Checkpoint of the best step, or None if it has not changed.
            attempts: Number of gangs that the trial was started on.
            seconds: Wall time in a gang, over all attempts.

        Returns:
            The reports that were not recorded yet.
        """
        live = self._live[number]
        new = tuple(r for r in reports if r.step > live.steps)
        for report in new:
            value = live.add_report(report, self.objectives)
            if report.step in self._rungs and live.trial.origin is None:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # Optuna has the value if the last driver died before the progress record below.
                    self._open[number].report(value, report.step)
        live.checkpoint = checkpoint or live.checkpoint
        live.best, live.attempts, live.seconds = best or live.best, attempts, seconds
        if new or checkpoint is not None:
            self._record_progress(number, new)
        return new

    def _record_progress(self, number: int, new: tuple[Report, ...], **more: Any) -> None:
        """Write the progress of a trial, with its new reports."""
        live = self._live[number]
        rows = record.written(new, self.objectives.metric)
        chunk = {"reports": rows, **live.to_json(), "at": round(self.clock(), 2), **more}
        self._open[number].set_user_attr(f"{record.TOLD}{live.chunks}", chunk)
        live.chunks += 1

    def record_passed(self, number: int, rung: int) -> None:
        """Record that a trial continues from a rung. It does so again if it is lost beyond the rung, whatever others report."""
        self._live[number].passed_rung = rung
        self._open[number].set_user_attr(record.PASSED, rung)

    def record_pause(self, number: int, rung: int | None) -> None:
        """Record that a trial is paused at a rung, or with None that it continues."""
        self._open[number].set_user_attr(record.PAUSED, rung)

    def record_unperturbed(self, number: int, rung: int) -> None:
        """Record that a trial continues from a perturbation step without a change."""
        self._live[number].decided_rung = rung
        self._record_progress(number, (), **{record.PERTURBED: {"step": rung}})

    def record_perturbation(self, number: int, perturbation: Perturbation) -> None:
        """Record a perturbation. The live trial has been changed already."""
        live = self._live[number]
        curves = {"curve": list(live.curve.items()), "others": live.other_curves}
        self._record_progress(number, (), **{record.PERTURBED: dataclasses.asdict(perturbation) | curves})

    def finish(
        self, number: int, state: State, error: str | None = None, reason: str | None = None, final: dict[str, float] | None = None
    ) -> Result:
        """Record the end of a trial. RUNNING records the latest progress and leaves the trial resumable.

        Args:
            number: Number of the trial.
            state: Final state. A COMPLETE trial without a value becomes FAIL.
            error: Traceback of a failed trial.
            reason: Why the trial was stopped.
            final: Metrics of the finished model.
        """
        live, asked = self._live[number], self._open[number]
        seconds, curve = round(live.seconds, 4), tuple(live.curve.items())
        cost = costs(seconds, live.trial.shape.workers, dict(live.trial.shape.per_worker))
        score = self.objectives.judge(state, live.steps, curve, live.other_curves, cost)
        if state is State.COMPLETE and score.missing is not None:
            state, error = State.FAIL, error or self._missing_metric(live, score.missing)
            score = self.objectives.judge(state, live.steps, curve, live.other_curves, cost)
        error = error and shorten(error)
        final = dict(final or {}) if state is State.COMPLETE else {}
        self._record_progress(number, (), **{k: v for k, v in (("error", error), ("reason", reason), ("final", final)) if v})
        for name, violation in self.objectives.violations(score).items() if state in (State.COMPLETE, State.PRUNED) else ():
            asked.set_constraint(name, violation)
        last = max(live.curve, default=None)
        if state is State.COMPLETE:
            self.study.tell(asked, [v for v in score.values if v is not None], state=TrialState.COMPLETE)
        elif state is State.PRUNED:
            if last is not None and last not in self._rungs and self._takes_last_value and live.trial.origin is None:
                asked.report(live.curve[last], last)
            self.study.tell(asked, state=TrialState.PRUNED)
        elif state is State.FAIL:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.study.tell(asked, state=TrialState.FAIL)
        live.ended = state is not State.RUNNING
        shown = (score.step, live.steps, live.best, error, seconds, score.values, score.metrics, score.feasible)
        return Result(state, score.values[0], *shown, final=final)

    def _missing_metric(self, live: LiveTrial, metric: str) -> str:
        """Return the error of a trial that ended without a metric."""
        kind = "objective's" if metric in {o.metric for o in self.space.objectives} else "constraint's"
        if not live.curve or (metric != self.objectives.metric and metric not in live.other_curves):
            return f"the loop ended without reporting the {kind} metric `{metric}`"
        is_number = any(value == value for _, value in live.other_curves.get(metric, ()))
        where = "at its best step" if is_number else f"in all {live.steps} reports"
        return f"the {kind} metric `{metric}` was NaN {where}"

    # Read

    def trials(self) -> list[FrozenTrial]:
        """Return Optuna's trials; do not change them."""
        return self.study.get_trials(deepcopy=False)

    def frozen(self, number: int) -> FrozenTrial:
        """Return Optuna's record of a trial that this driver runs or ran."""
        return self.study._storage.get_trial(self._open[number]._trial_id)

    def live_trial(self, number: int) -> LiveTrial:
        """Return a trial that this driver runs or ran."""
        return self._live[number]

    def trial(self, number: int) -> Trial:
        """Return a recorded trial, with its current parameters."""
        if number in self._live:
            return self._live[number].trial
        return trial_building.rebuilt(self.space, self.trials()[number])

    def value_at(self, number: int, step: int) -> float:
        """Return the value that a trial reported at a step; NaN if it reported none."""
        if number in self._live:
            return self._live[number].curve.get(step, math.nan)
        return dict(record.curve_of(self.trials()[number])).get(step, math.nan)

    def checkpoints(self) -> dict[str, set[str]]:
        """Return the names of the checkpoints to keep of each ended trial, by trial id: the recorded ones and the latest."""
        ended = (t for t in self.trials() if t.state.is_finished() and "begun" in t.user_attrs)
        return {t.user_attrs["begun"]["id"]: record.checkpoints_of(t) | self._latest_names(t) for t in ended}

    def _latest_names(self, t: FrozenTrial) -> set[str]:
        """Return the names of a trial's latest checkpoints, if `checkpoints.per_trial` asks for more than the recorded one."""
        count, latest = self.space.checkpoints.per_trial - 1, record.so_far(t).get("checkpoint")
        if count < 2 or not latest:
            return set()
        folder = SweepFolder(self.folder).trial(t.user_attrs["begun"]["id"])
        return set(newest_checkpoints((p.name for p in folder.glob("checkpoint_*")), Path(latest["path"]).name, count))

    def latest(self, number: int) -> Checkpoint | None:
        """Return the latest recorded checkpoint of a trial. (Its result has the checkpoint of its best step.)"""
        latest = record.so_far(self.trials()[number]).get("checkpoint")
        return Checkpoint(**latest) if latest else None

    def saved(self) -> dict[int, tuple[str | None, str | None]]:
        """Return the names of the best and the latest recorded checkpoint of each trial, by number; None if there is none."""

        def name(progress: dict[str, Any], which: str) -> str | None:
            return Path(progress[which]["path"]).name if progress.get(which) else None

        latest = {t.number: record.so_far(t) for t in self.trials()}
        return {number: (name(progress, "best"), name(progress, "checkpoint")) for number, progress in latest.items()}

    @property
    def data(self) -> str | None:
        """Fingerprint of the data that the sweep began with; None while it begins."""
        return self.study.user_attrs.get("data")

    def record_data(self, fingerprint: str) -> None:
        """Record the fingerprint of the data, unless one is recorded."""
        if self.data is None:
            self.study.set_user_attr("data", fingerprint)

    def ended_at(self, number: int) -> float:
        """Return when a trial ended, in seconds since the epoch; the current time if it has not ended."""
        ended = self.frozen(number).datetime_complete
        return ended.timestamp() if ended else time.time()

    def results(self) -> dict[int, Result]:
        """Return the result of every started trial, by number."""
        return {t.number: record.result_of(t, self.objectives) for t in self.trials() if "begun" in t.user_attrs}

    def configurations(self) -> Configurations:
        """Return the trials by configuration."""
        repeated = {t.number: record.origin_of(t) for t in self.trials()}
        return Configurations.of(((number, repeated[number], result) for number, result in self.results().items()), self.space.repeats)

    def winner(self) -> int | None:
        """Return the number of the best trial; None if no trial has a value, or if there are several objectives."""
        return self.configurations().winner(self.objectives.goals)

    def ranked(self) -> list[int]:
        """Return the numbers of the best trials, the best first: the front, then by the first objective.

        All of them have the tier of the best trial (see `ranking.tier`).
        """
        front, results = self.front(), self.results()
        ranked = ranking.ranked(results.items(), self.objectives.goals[0])
        same_tier = [n for n in ranked if ranking.tier(results[n]) == ranking.tier(results[ranked[0]])]
        return [*front, *(n for n in same_tier if n not in front)]

    def front(self) -> list[int]:
        """Return the numbers of the trials that no other trial dominates (see `ranking.front`); none with a single objective."""
        return self.configurations().front(self.objectives.goals)

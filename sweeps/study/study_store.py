"""Write and read the study of a sweep. The study is the only complete record of the sweep's trials.

Values that trials reported at rungs are stored as Optuna's intermediate values. Everything else
that an export or a resume needs is stored in the user attributes of the trials. The driver writes a
trial's attribute `begun` once, before the trial starts. For each batch of new reports of the trial,
the driver writes a progress record (`told.0`, `told.1`, ...).
"""

from __future__ import annotations

import dataclasses
import math
import time
import warnings
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from sweeps.core.checkpoint_files import checkpoint_names, checkpoint_root, newest_checkpoints
from sweeps.core.errors import shorten
from sweeps.core.resources import costs
from sweeps.core.secrets import masked
from sweeps.core.trial import Checkpoint, Report, Result, State, Trial
from sweeps.space import Dimension, Space
from sweeps.study import ranking, record, storage, trial_building
from sweeps.study.distributions import distribution_of
from sweeps.study.live_trial import LiveTrial, ProgressUpdate
from sweeps.study.objectives import Objectives
from sweeps.study.record import Perturbation
from sweeps.study.repeats import Configurations


class StudyStore:
    """Record the starts, reports and ends of trials, and read them back.

    Args:
        folder: Folder of the sweep.
        space: The search space.
        rungs: Steps at which reported values are also recorded as Optuna's intermediate values.
            Needed only to record reports.

    Attributes:
        folder, space: The arguments.
        study: The Optuna study.
        objectives: Objectives and constraints of the sweep.
        minimize: True if smaller values of the leading metric (see `Objectives.metric`) are better.
        clock: Function that returns the wall time of the sweep in seconds, summed over all its
            drivers. Every progress record stores this time.
        spent: Wall time of the sweep when the study was opened: the latest time in its progress
            records.
        sync: Function that flushes all records to the disk.

    Raises:
        DamagedStudy: The study is damaged, or lacks trials that the sweep's result includes.
        InputError: The database cannot be reached.
    """

    def __init__(self, folder: Path, space: Space, rungs: Container[int] = ()):
        self.folder, self.space = folder, space
        self._rungs = (
            rungs if isinstance(rungs, range) else frozenset(rungs)  # type: ignore[call-overload]
        )
        self.objectives = Objectives.from_space(space)
        self.minimize = self.objectives.minimize
        # Optuna accepts intermediate values only for a study with a single objective.
        self._takes_last_value = (
            len(space.objectives) == 1 and self.objectives.metric == space.objective.metric
        )
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            opened, name, self.sync = storage.open_for_writing(folder)
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
        """Restore the trials that an earlier driver started but did not finish."""
        for t in self.trials():
            self.spent = max(
                [self.spent, *(chunk["at"] for chunk in record.progress_records(t)[-1:])]
            )
            if "begun" in t.user_attrs and not t.state.is_finished():
                trial = trial_building.recorded_trial(self.space, t)
                self._live[t.number] = LiveTrial.restore(trial, t, self.folder, self.objectives)
                self._open[t.number] = optuna.Trial(self.study, t._trial_id)

    # Write

    def record_comparisons(self, compares: bool) -> None:
        """Record whether the scheduler compares trials before they end.

        If `compares` is True, trials may be stopped early.
        """
        self.study.set_user_attr("stops", compares)

    def record_sweep_pause(self, paused: bool) -> None:
        """Record whether the sweep is paused, in which case no trials start."""
        if paused != self.study.user_attrs.get(record.SWEEP_PAUSED, False):
            self.study.set_user_attr(record.SWEEP_PAUSED, paused)
            self.sync()

    def enqueue(self, keys: Mapping[str, Any], command: str) -> FrozenTrial:
        """Create a trial that starts later, with fixed keys for some of its dimensions.

        Args:
            keys: The fixed keys, by dimension.
            command: Id of the command that enqueues the trial.
        """
        self.study.enqueue_trial(dict(keys), {record.ENQUEUED: command})
        self.sync()
        return self.trials()[-1]

    def enqueued(self, command: str) -> int | None:
        """Return the number of the trial that a command has enqueued; None if there is none."""
        return next(
            (t.number for t in self.trials() if t.user_attrs.get(record.ENQUEUED) == command), None
        )

    def add_given_points(self) -> None:
        """Record the initial points with known results as COMPLETE trials.

        Points that are already recorded are skipped.
        """
        recorded = sum(record.is_given(t) for t in self.trials())
        for point in [p for p in self.space.search.initial_points if p.values is not None][
            recorded:
        ]:
            distributions: dict[str, Any] = {}

            def choose(
                dimension: Dimension,
                keys: dict[str, Any] = point.keys,
                distributions: dict[str, Any] = distributions,
            ) -> Any:
                distributions[dimension.name] = distribution_of(dimension)
                return keys[dimension.name]

            trial = trial_building.build_trial(self.space, len(self.trials()), choose)
            given = optuna.trial.create_trial(
                params={name: point.keys[name] for name in distributions},
                distributions=distributions,
                values=point.values,
                user_attrs={"begun": {**record.start_attributes(trial), "given": True}},
            )
            self.study.add_trial(given)
        self.sync()

    def record_start(
        self, trial_to_start: optuna.Trial, trial: Trial, bracket: int | None = None
    ) -> None:
        """Record the start of a trial.

        Args:
            trial_to_start: The trial in the Optuna study.
            trial: The same trial, as `trial_building.build_trial` built it.
            bracket: Number of the trial's bracket; None if the scheduler has a single bracket.
        """
        trial_to_start.set_user_attr(
            "begun",
            record.start_attributes(trial) | ({} if bracket is None else {"bracket": bracket}),
        )
        self._live[trial_to_start.number] = LiveTrial(trial, dict(trial_to_start.params))
        self._open[trial_to_start.number] = trial_to_start

    def record_reports(self, number: int, progress: ProgressUpdate) -> tuple[Report, ...]:
        """Record the progress of a trial. Reports that are already recorded are ignored.

        Args:
            number: Number of the trial.
            progress: The progress since the last call.

        Returns:
            The reports that this call recorded.
        """
        live = self._live[number]
        new = tuple(r for r in progress.reports if r.step > live.steps)
        for report in new:
            live.add_report(report, self.objectives)
        values = self.compared_values(number) if new else {}
        for report in new:
            if report.step in self._rungs and live.trial.repeat_of is None:
                with warnings.catch_warnings():
                    # If an earlier driver died before it wrote the progress record below, Optuna
                    # already has the value and warns.
                    warnings.simplefilter("ignore")
                    self._open[number].report(values[report.step], report.step)
        live.checkpoint, live.best = (
            progress.checkpoint or live.checkpoint,
            progress.best or live.best,
        )
        live.attempts, live.seconds, live.worker_seconds = (
            progress.attempts,
            progress.seconds,
            progress.worker_seconds,
        )
        live.sizes = progress.sizes or live.sizes
        if new or progress.checkpoint is not None:
            self._record_progress(number, new)
        return new

    def _record_progress(self, number: int, new: tuple[Report, ...], **more: Any) -> None:
        """Write a progress record of a trial: its new reports `new` and the keys `more`."""
        live = self._live[number]
        rows = record.report_rows(new, self.objectives.metric)
        chunk = {"reports": rows, **live.to_json(), "at": round(self.clock(), 2), **more}
        # `set_user_attr` of the trial would also keep the record in the trial.
        self.study._storage.set_trial_user_attr(
            self._open[number]._trial_id, f"{record.PROGRESS_PREFIX}{live.chunks}", chunk
        )
        live.chunks += 1

    def record_passed(self, number: int, rung: int) -> None:
        """Record that a trial continues from a rung.

        If a later failure makes the trial restart from an earlier checkpoint, the trial passes this
        rung again without a new decision.

        Args:
            number: Number of the trial.
            rung: Step of the rung.
        """
        self._live[number].passed_rung = rung
        self._open[number].set_user_attr(record.PASSED, rung)

    def record_pause(self, number: int, rung: int | None) -> None:
        """Record that a trial is paused at a rung, or that a paused trial continues.

        Args:
            number: Number of the trial.
            rung: Step of the rung at which the trial is paused; None to record that the trial
                continues.
        """
        self._open[number].set_user_attr(record.PAUSED, rung)

    def record_unperturbed(self, number: int, rung: int) -> None:
        """Record that a trial continues from a perturbation step with unchanged parameters.

        Args:
            number: Number of the trial.
            rung: Step at which the scheduler decided.
        """
        self._live[number].decided_rung = rung
        self._record_progress(number, (), **{record.PERTURBED: {"step": rung}})

    def record_perturbation(self, number: int, perturbation: Perturbation) -> None:
        """Record a perturbation, together with the curves that the trial copied from its donor.

        Args:
            number: Number of the trial. Its `LiveTrial` must already have the donor's curves; see
                `sweeps.search.exploit.exploit_donor`.
            perturbation: The perturbation.
        """
        live = self._live[number]
        curves = {"curve": list(live.curve.items()), "others": live.other_curves}
        self._record_progress(number, (), **{record.PERTURBED: perturbation.to_record() | curves})

    def finish(
        self,
        number: int,
        state: State,
        error: str | None = None,
        reason: str | None = None,
        final: dict[str, float] | None = None,
    ) -> Result:
        """Record the end of a trial.

        Args:
            number: Number of the trial.
            state: Final state. With RUNNING, only the latest progress is recorded, and the trial
                can be resumed. COMPLETE is changed to FAIL if the value of an objective's or a
                constraint's metric is missing or NaN.
            error: Traceback of a failed trial; None for other trials.
            reason: Reason why the trial was stopped; None if it was not stopped.
            final: Metrics of the finished model. They are recorded only for a COMPLETE trial.

        Returns:
            The result of the trial, with the state that was recorded.
        """
        live, optuna_trial = self._live[number], self._open[number]
        curve = tuple(live.curve.items())
        reported = (live.steps, curve, live.other_curves, _costs_of(live), final)
        score = self.objectives.score(state, *reported)
        if state is State.COMPLETE and score.missing is not None:
            state, error = State.FAIL, error or self._missing_metric(live, score.missing)
            score = self.objectives.score(state, *reported)
        error = error and shorten(masked(error))
        reason = reason and masked(reason)
        final = {masked(name): value for name, value in (final or {}).items()}
        final = final if state is State.COMPLETE else {}
        self._record_progress(
            number,
            (),
            **{k: v for k, v in (("error", error), ("reason", reason), ("final", final)) if v},
        )
        for name, violation in (
            self.objectives.violations(score.metrics).items()
            if state in (State.COMPLETE, State.PRUNED)
            else ()
        ):
            optuna_trial.set_constraint(name, violation)
        self._tell(number, state, [v for v in score.values if v is not None])
        live.ended = state is not State.RUNNING
        if live.ended:
            del self._open[number]
        return record.result_of(self.frozen(number), self.objectives)

    def _tell(self, number: int, state: State, values: list[float]) -> None:
        """Tell Optuna that a trial has ended. A RUNNING trial stays open.

        Args:
            number: Number of the trial.
            state: State of the trial.
            values: Values of the objectives.
        """
        live, optuna_trial = self._live[number], self._open[number]
        last = max(live.curve, default=None)
        if state is State.COMPLETE:
            self.study.tell(optuna_trial, values, state=TrialState.COMPLETE)
        elif state is State.PRUNED:
            if (
                last is not None
                and last not in self._rungs
                and self._takes_last_value
                and live.trial.repeat_of is None
            ):
                optuna_trial.report(self.compared_values(number)[last], last)
            self.study.tell(optuna_trial, state=TrialState.PRUNED)
        elif state is State.FAIL:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.study.tell(optuna_trial, state=TrialState.FAIL)

    def _missing_metric(self, live: LiveTrial, metric: str) -> str:
        """Return the error message for an ended trial without a valid value of a metric.

        The metric is a required one.
        """
        kind = (
            "objective's" if metric in {o.metric for o in self.space.objectives} else "constraint's"
        )
        if not live.curve or (metric != self.objectives.metric and metric not in live.other_curves):
            return f"the loop ended without reporting the {kind} metric `{metric}`"
        is_number = any(value == value for _, value in live.other_curves.get(metric, ()))
        where = "at the trial's best step" if is_number else f"in all {live.steps} reports"
        return f"the {kind} metric `{metric}` was NaN {where}"

    # Read

    def trials(self) -> list[FrozenTrial]:
        """Return all trials of the study as Optuna's frozen trials.

        The frozen trials are not copies, so do not change them.
        """
        return self.study.get_trials(deepcopy=False)

    def frozen(self, number: int) -> FrozenTrial:
        """Return the frozen Optuna trial of a trial that this driver runs or ran."""
        return self.trials()[number]

    def live_trial(self, number: int) -> LiveTrial:
        """Return the in-memory state of a trial that this driver runs or ran."""
        return self._live[number]

    def trial(self, number: int) -> Trial:
        """Return a recorded trial, with its current parameters."""
        if number in self._live:
            return self._live[number].trial
        return trial_building.recorded_trial(self.space, self.trials()[number])

    def compared_values(self, number: int) -> dict[int, float]:
        """Return the values of a trial that schedulers compare, by step.

        This driver must have started or resumed the trial.
        """
        live = self._live[number]
        return self.objectives.compared_values(live.curve.items(), live.other_curves)

    def value_at(self, number: int, step: int) -> float:
        """Return the value of the leading metric that a trial has at a step.

        NaN if the trial has no value at this step.
        """
        if number in self._live:
            return self._live[number].curve.get(step, math.nan)
        return dict(record.curve_of(self.trials()[number])).get(step, math.nan)

    def checkpoints(self) -> dict[str, set[str]]:
        """Return the folder names of the checkpoints to keep for each ended trial, by trial id.

        These are the best and the latest recorded checkpoint. If `checkpoints.per_trial` is N > 2,
        they are the best and the N - 1 newest.
        """
        ended = (t for t in self.trials() if t.state.is_finished() and "begun" in t.user_attrs)
        names = (
            (t.user_attrs["begun"]["id"], record.checkpoint_names(t), self._latest_names(t))
            for t in ended
        )
        return {
            trial_id: {name for name in recorded if name is not None} | newest
            for trial_id, recorded, newest in names
        }

    def _latest_names(self, t: FrozenTrial) -> set[str]:
        """Return the folder names of a trial's newest checkpoints.

        The set is empty unless `checkpoints.per_trial` is above 2.
        """
        count, latest = (
            self.space.checkpoints.per_trial - 1,
            record.latest_progress(t).get("checkpoint"),
        )
        if count < 2 or not latest:
            return set()
        names = checkpoint_names(checkpoint_root(self.folder, t.user_attrs["begun"]["id"]))
        return set(newest_checkpoints(names, Path(latest["path"]).name, count))

    def latest(self, number: int) -> Checkpoint | None:
        """Return the latest recorded checkpoint of a trial; None if no checkpoint is recorded.

        `Result.checkpoint`, in contrast, is the checkpoint of the best step.
        """
        latest = record.latest_progress(self.trials()[number]).get("checkpoint")
        return Checkpoint(**latest) if latest else None

    def saved(self) -> dict[int, tuple[str | None, str | None]]:
        """Return the recorded checkpoints of each trial.

        Returns:
            (folder name of the best checkpoint, folder name of the latest checkpoint), by trial
            number. A name is None if the trial lacks this checkpoint.
        """
        return {t.number: record.checkpoint_names(t) for t in self.trials()}

    @property
    def data(self) -> str | None:
        """Fingerprint of the data when it was first read for the sweep.

        Return None if the data has not been read yet.
        """
        return self.study.user_attrs.get("data")

    def record_data(self, fingerprint: str) -> None:
        """Record the fingerprint of the data, unless the study already has one."""
        if self.data is None:
            self.study.set_user_attr("data", fingerprint)

    def ended_at(self, number: int) -> float:
        """Return the end time of a trial in seconds since the epoch.

        If the trial has not ended, return the current time.
        """
        ended = self.frozen(number).datetime_complete
        return ended.timestamp() if ended else time.time()

    def results(self) -> dict[int, Result]:
        """Return the result of every started trial, by number."""
        return {
            t.number: record.result_of(t, self.objectives)
            for t in self.trials()
            if "begun" in t.user_attrs
        }

    def configurations(self) -> Configurations:
        """Return the trials, grouped by configuration."""
        repeated = {t.number: record.repeat_of(t) for t in self.trials()}
        return Configurations.of(
            ((number, repeated[number], result) for number, result in self.results().items()),
            self.space.repeats,
        )

    def winner(self) -> int | None:
        """Return the number of the sweep's best trial.

        Return None if no trial has a value, or if there are several objectives.
        """
        return self.configurations().winner(self.objectives.goals)

    def ranked(self) -> list[int]:
        """Return the numbers of the trials with the best trial's tier, the best trial first.

        For tiers, see `ranking.tier`. With several objectives, the trials of the Pareto front come
        first. The other trials of this tier follow, ordered by the first objective's value.
        """
        front, results = self.front(), self.results()
        ranked = ranking.ranked(results.items(), self.objectives.goals[0])
        same_tier = [
            n for n in ranked if ranking.tier(results[n]) == ranking.tier(results[ranked[0]])
        ]
        return [*front, *(n for n in same_tier if n not in front)]

    def front(self) -> list[int]:
        """Return the numbers of the first trials of the configurations on the Pareto front.

        [] for a single objective.
        """
        return self.configurations().front(self.objectives.goals)


def _costs_of(live: LiveTrial) -> dict[str, float]:
    """Return the costs of a trial so far, by name."""
    seconds, shape = round(live.seconds, 4), live.trial.shape
    worker_seconds = (
        seconds * shape.workers if shape.most is None else round(live.worker_seconds, 4)
    )
    return costs(seconds, worker_seconds, dict(shape.per_worker))

"""Insert the missing records of single trials in a damaged journal. Pure functions, no I/O."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from optuna.distributions import distribution_to_json
from optuna.storages.journal._storage import JournalOperation as Op
from optuna.trial import FrozenTrial, TrialState

from sweeps.core.json_files import is_number
from sweeps.core.resources import COSTS
from sweeps.core.result import to_json_value
from sweeps.core.trial import Checkpoint, format_trial_id
from sweeps.search.configuration_search import (
    equal_values,
    find_configuration,
    key_of_value,
    try_build,
)
from sweeps.search.journal_lines import (
    TrialLines,
    external_key,
    format_time,
    given_number,
    new_line,
    progress_line,
)
from sweeps.search.plugins import planned_scheduler
from sweeps.space import Space
from sweeps.space.domains import Dimension
from sweeps.study import record
from sweeps.study.distributions import distribution_of
from sweeps.study.journal_records import COMPLETE, PRUNED, RUNNING, WAITING
from sweeps.study.objectives import Objectives
from sweeps.study.record import PROGRESS_PREFIX

# Values for a progress record if all progress records of the trial are lost.
_NO_PROGRESS: dict[str, Any] = {
    "steps": 0,
    "checkpoint": None,
    "best": None,
    "attempts": 1,
    "seconds": 0.0,
    "at": 0.0,
}


@dataclass(frozen=True)
class SweepFacts:
    """Facts about the sweep that a repair takes from sources other than the journal and the sweep's result.

    Attributes:
        space: The search space.
        time: Time to write in inserted records, in seconds since the epoch.
        data: Fingerprint of the data; None if the fingerprint is unknown.
        saved: Checkpoint with the best model of each trial that the result describes, by trial id.
            A trial without such a checkpoint is left out.
        trials: Numbers of the trials that have a trial folder.
        starting_points: Keys that are fixed in the sweep's first configurations, by dimension; see
            `earlier_sweeps.starting_points`.
    """

    space: Space
    time: float
    data: str | None = None
    saved: Mapping[str, Checkpoint] = field(default_factory=dict)
    trials: frozenset[int] = frozenset()
    starting_points: Sequence[Mapping[str, Any]] = ()


class TrialRepair:
    """Insert the missing records of single trials.

    Args:
        result: The result of the sweep; None if the sweep has no result.
        facts: Facts about the sweep from other sources.

    Attributes:
        objectives: Objectives and constraints of the sweep.
        scheduler: The scheduler of the space. `NoScheduler` replaces a user-defined scheduler,
            because a repair must not run user code.
    """

    def __init__(self, result: Mapping[str, Any] | None, facts: SweepFacts):
        self.objectives = Objectives.from_space(facts.space)
        self.scheduler = planned_scheduler(facts.space.scheduler)
        self._result, self._facts, self._space = result, facts, facts.space

    def complete(self, number: int, trial: TrialLines) -> TrialLines:
        """Insert the missing records of a trial.

        Args:
            number: Number of the trial.
            trial: Lines of the trial. This object is changed.

        Returns:
            The lines of the trial, with the inserted records. If too many records are lost, only
            the line that enqueued the trial is left, or no line if the trial was not enqueued.
        """
        if trial.given:
            assert trial.create is not None
            if given_number(trial.create.record) == number:
                return TrialLines(create=trial.create)
            trial.create = None
        if (keys := self._keys(number, trial)) is None:
            return TrialLines(create=trial.create if _waits(trial) else None)
        self._complete_start(number, trial, keys)
        self._complete_progress(number, trial)
        return trial

    def _keys(self, number: int, trial: TrialLines) -> dict[str, Any] | None:
        """Return the key of each active dimension of a trial.

        Return None if a key is lost, or if the keys contradict `trial.start`.
        """
        recorded = {name: external_key(line.record) for name, line in trial.params.items()}
        start = trial.start.value if trial.start is not None else None
        labels = start["labels"] if start is not None else {}
        if start is not None and labels.keys() <= recorded.keys():
            return {name: recorded[name] for name in labels}
        keys: dict[str, Any] = {}

        def choose(dimension: Dimension) -> Any:
            name = dimension.name
            keys[name] = (
                recorded[name] if name in recorded else key_of_value(dimension, labels[name])
            )
            return keys[name]

        built = try_build(self._space, number, choose)
        if built is None or start is None:
            return keys if built is not None else None
        same = keys.keys() == labels.keys() and equal_values(
            to_json_value(built.params), start["params"]
        )
        return keys if same else None

    def _complete_start(self, number: int, trial: TrialLines, keys: Mapping[str, Any]) -> None:
        """Insert the missing records of a trial's start: its parameters, its change to RUNNING, and its `begun` attribute."""
        recorded, trial.params = trial.params, {}
        distributions = {
            d.name: distribution_of(d) for d in self._space.dimensions if d.name in keys
        }
        for name, key in keys.items():
            value, text = (
                distributions[name].to_internal_repr(key),
                distribution_to_json(distributions[name]),
            )
            line = new_line(
                Op.SET_TRIAL_PARAM,
                trial_id=number,
                param_name=name,
                param_value_internal=value,
                distribution=text,
            )
            trial.params[name] = recorded.get(name, line)
        if _waits(trial) and not any(line.op == Op.SET_TRIAL_STATE_VALUES for line in trial.others):
            time = format_time(self.start_time(trial))
            trial.others.append(
                new_line(
                    Op.SET_TRIAL_STATE_VALUES,
                    trial_id=number,
                    state=RUNNING,
                    values=None,
                    datetime_start=time,
                )
            )
        if trial.start is None:
            built = try_build(self._space, number, lambda dimension: keys[dimension.name])
            assert built is not None
            start = record.start_attributes(built)
            if self.scheduler.bracket_count > 1:
                start["bracket"] = self.scheduler.bracket(self._space.search.seed, number)
            trial.start = new_line(
                Op.SET_TRIAL_USER_ATTR,
                trial_id=number,
                user_attr={"begun": json.loads(json.dumps(start))},
            )

    def start_time(self, trial: TrialLines) -> float:
        """Return the start time to record for a trial: the time of its first remaining report.

        If no report is left, return the time that the repair writes into inserted records
        (`SweepFacts.time`).
        """
        times = (
            time
            for progress in trial.reports
            for _, time, *_ in progress["reports"]
            if 0 <= time < 10**11
        )
        return float(next(times, self._facts.time))

    def _complete_progress(self, number: int, trial: TrialLines) -> None:
        """Repair the progress records of a trial if some of these records are lost.

        In two cases, the trial becomes a running trial, which a resumed sweep continues: its end is
        lost, or it was COMPLETE but the remaining reports do not give the recorded objective
        values. It then keeps only the progress records before the first gap. In all other cases,
        the trial keeps its end, and the remaining progress records are renumbered. If the trial's
        last progress record is lost, a new last record is added.
        """
        lines = [trial.progress[n] for n in sorted(trial.progress)]
        before_gap = next((i for i, n in enumerate(sorted(trial.progress)) if i != n), len(lines))
        closed = bool(lines) and not lines[-1].value["reports"]
        if before_gap == len(lines) and (closed or trial.end is None):
            return
        complete = trial.end is not None and trial.end.record["state"] == COMPLETE
        if trial.end is None or (
            complete and self._values(number, trial, trial.reports) != trial.end.record["values"]
        ):
            trial.progress, trial.end = dict(enumerate(lines[:before_gap])), None
            last = max(
                (step for progress in trial.reports for step, *_ in progress["reports"]), default=0
            )
            trial.others = [line for line in trial.others if not _is_after(line.record, last)]
            return
        trial.lost_reports = True
        for i, line in enumerate(lines):
            if f"{PROGRESS_PREFIX}{i}" not in line.record["user_attr"]:
                line.record, line.raw = progress_line(number, i, line.value).record, None
        trial.progress = dict(enumerate(lines))
        if not closed:
            latest = lines[-1].value if lines else _NO_PROGRESS
            trial.progress[len(lines)] = progress_line(number, len(lines), latest | {"reports": []})

    def _values(
        self, number: int, trial: TrialLines, progress: Sequence[dict[str, Any]]
    ) -> list[float | None] | None:
        """Return the objective values of a COMPLETE trial that has these progress records; None if there are no progress records."""
        assert trial.start is not None
        attributes = {"begun": trial.start.value} | {
            f"{PROGRESS_PREFIX}{i}": value for i, value in enumerate(progress)
        }
        t = FrozenTrial(
            number, TrialState.COMPLETE, 0.0, None, None, {}, {}, attributes, {}, {}, number
        )
        return list(record.result_of(t, self.objectives).values) if progress else None

    # Restore ends from the result

    def restore_end(
        self, number: int, trial: TrialLines, described: Mapping[str, Any]
    ) -> TrialLines | None:
        """Restore the lost end of a trial from the result.

        The end is restored only if the trial's reports give exactly the objective values in the
        result. If the report of the best step is lost, it is replaced by a new report with the
        values in the result.

        Args:
            number: Number of the trial.
            trial: Lines of the trial. This object may be changed.
            described: Description of the trial in the sweep's result, such as the value of the
                result's key `best`.

        Returns:
            The lines with the restored end. None if the end is not lost, or if it cannot be
            restored.
        """
        if trial.end is not None or trial.given:
            return None
        if trial.start is None:
            if (keys := find_configuration(self._space, number, described)) is None:
                return None
            trial = TrialLines(create=trial.create)
            self._complete_start(number, trial, keys)
        assert self._result is not None
        values = self._described_values(number, described)
        progress = self._restored_progress(number, trial, described, values)
        if None in values or self._values(number, trial, progress) != values:
            return None
        for i, value in enumerate(progress[len(trial.progress) :], len(trial.progress)):
            trial.progress[i] = progress_line(number, i, value)
        for name, violation in self.objectives.violations(_numbers(described)).items():
            trial.others.append(
                new_line(
                    Op.SET_TRIAL_SYSTEM_ATTR,
                    trial_id=number,
                    system_attr={f"constraints:{name}": violation},
                )
            )
        state, time = (
            COMPLETE if self._result["trials"].get("completed") else PRUNED,
            format_time(self._facts.time),
        )
        trial.end = new_line(
            Op.SET_TRIAL_STATE_VALUES,
            trial_id=number,
            state=state,
            values=values,
            datetime_complete=time,
        )
        return trial

    def _described_values(self, number: int, described: Mapping[str, Any]) -> list[float | None]:
        """Return the objective values that the result gives for a trial.

        For a trial with repeats, return the trial's own values, not the aggregate over the repeats.
        A missing value is None.
        """
        if described.get("repeats"):
            return [described["repeats"]["values"].get(format_trial_id(number))]
        if described.get("values"):
            return [described["values"].get(o.metric) for o in self.objectives.objectives]
        return [described["value"]]

    def _restored_progress(
        self,
        number: int,
        trial: TrialLines,
        described: Mapping[str, Any],
        values: Sequence[float | None],
    ) -> list[dict[str, Any]]:
        """Return progress records from which the trial gets the objective values in the result.

        These are the remaining progress records, and a last record without reports. If the report
        of the best step was lost, a record with a new report of this step comes before the last
        record.
        """
        progress, metrics, leading = trial.reports, _numbers(described), self.objectives.metric
        latest: dict[str, Any] = dict(progress[-1] if progress else _NO_PROGRESS)
        latest |= {"reports": [], "seconds": metrics.get("seconds", latest["seconds"])}
        latest["at"] = max((self._result or {}).get("seconds", 0.0), latest["at"])
        saved = self._facts.saved.get(format_trial_id(number))
        if saved is not None:
            latest |= {"checkpoint": dataclasses.asdict(saved), "best": dataclasses.asdict(saved)}
        last = max((step for chunk in progress for step, *_ in chunk["reports"]), default=0)
        if last and self._values(number, trial, [*progress, latest]) == list(values):
            return [*progress, latest]
        step = saved.best_step if saved is not None and saved.best_step > last else last + 1
        own = (
            dict(zip((o.metric for o in self.objectives.objectives), values, strict=False))
            | metrics
        )
        value = None if leading is None else own.get(leading)
        others = {name: v for name, v in metrics.items() if name not in COSTS and name != leading}
        report = [step, self._facts.time, math.nan if value is None else float(value), others]
        latest["steps"] = max(step, latest["steps"])
        return [*progress, latest | {"reports": [report]}, latest]


def _waits(trial: TrialLines) -> bool:
    """Return True if a trial was enqueued: Optuna created it with the state WAITING and fixed parameters."""
    return trial.create is not None and trial.create.record.get("state", RUNNING) == WAITING


def _is_after(record: dict[str, Any], step: int) -> bool:
    """Return True if a record cannot belong to a running trial whose last remaining report is from `step`.

    Such a record holds an intermediate value of a later step, or the violations of constraints,
    which are recorded at the end of a trial.
    """
    if record["op_code"] == Op.SET_TRIAL_INTERMEDIATE_VALUE:
        return not isinstance(record.get("step"), int) or record["step"] > step
    return record["op_code"] == Op.SET_TRIAL_SYSTEM_ATTR and "constraints" in str(
        record.get("system_attr")
    )


def _numbers(described: Mapping[str, Any]) -> dict[str, float]:
    """Return the metrics in a trial's description.

    Metrics whose values are not numbers are left out.
    """
    return {
        name: float(value)
        for name, value in described.get("metrics", {}).items()
        if is_number(value)
    }

"""Read a study without writing to it. Another process may write to the study at the same time."""

from __future__ import annotations

import datetime
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeps.core.json_files import is_number
from sweeps.core.resources import costs
from sweeps.core.result import to_json_value
from sweeps.core.stores import recorded_store
from sweeps.core.sweep_folder import SweepFolder
from sweeps.core.trial import (
    Checkpoint,
    GangSizePeriod,
    Report,
    Result,
    State,
    Trial,
    format_trial_id,
)
from sweeps.space.section_models import Repeats
from sweeps.study import storage
from sweeps.study.objectives import Objectives
from sweeps.study.repeats import Configurations, known_total

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

# Prefix of the attributes that hold the progress records of a trial. The number of the progress
# record follows; the first has number 0.
PROGRESS_PREFIX = "told."
# Attribute of a repeat: the number of the repeated trial. The attribute is set when the repeat is
# enqueued.
REPEAT_OF = "origin"
# Attribute of a trial that `sweeps enqueue` added: the id of the command. The attribute is set when
# the trial is enqueued.
ENQUEUED = "enqueued"
# Reason in the record of a trial that `sweeps stop SWEEP TRIAL` stopped.
STOPPED = "stopped by the command `sweeps stop`"
# Attribute of the study: True while `sweeps pause` keeps the sweep from starting trials.
SWEEP_PAUSED = "paused"
# Attribute of a trial: the last rung from which the trial continued.
PASSED = "passed"
# Attribute of a trial: the rung at which the trial is paused. The value of the attribute becomes
# None when the trial continues.
PAUSED = "paused"
# Keys of a progress record of an elastic trial: the sum of the seconds of all workers, and all
# numbers of workers that the trial has had.
WORKER_SECONDS = "worker_seconds"
SIZES = "sizes"
# Key of a progress record that holds a PBT decision: either a perturbation, or no perturbation.
PERTURBED = "pbt"


@dataclass(frozen=True)
class Perturbation:
    """One perturbation of PBT.

    The trial received a copy of a donor's checkpoint, and a perturbation of the donor's parameters.

    Attributes:
        step: Step at which the trial was perturbed.
        donor: Id of the trial whose checkpoint was copied.
        donor_step: Step of the donor's checkpoint. The trial continues from this step.
        keys: New key of each active dimension, by the dimension's name; see
            `sweeps.space.Dimension.value`.
        params, labels: The trial's new parameters and labels; see `sweeps.core.trial.Trial`.
        time: Time of the perturbation, in seconds since the epoch.
    """

    step: int
    donor: str
    donor_step: int
    keys: dict[str, Any]
    params: dict[str, Any]
    labels: dict[str, Any]
    time: float

    @property
    def metrics(self) -> dict[str, float]:
        """The new values of the numeric parameters, as metrics for a tracker.

        The metric's name is `pbt.params.NAME`.
        """
        return {
            f"pbt.{name}": float(value)
            for name, value in self.labels.items()
            if name.startswith("params.") and is_number(value)
        }

    @property
    def options(self) -> dict[str, Any]:
        """The new values of the parameters that are not numbers, by name.

        An example is `booster` for the dimension `params.booster`.
        """
        return {
            k.removeprefix("params."): v
            for k, v in self.labels.items()
            if k.startswith("params.") and f"pbt.{k}" not in self.metrics
        }

    def __str__(self) -> str:
        options = ", ".join(f"{name} {value}" for name, value in self.options.items())
        return f"{self.donor} at {self.step}" + (f" ({options})" if options else "")

    def to_record(self) -> dict[str, Any]:
        """Return the perturbation as a progress record stores it.

        The key of `donor_step` is `origin`.
        """
        content = asdict(self)
        content["origin"] = content.pop("donor_step")
        return content

    @classmethod
    def from_record(cls, content: Mapping[str, Any]) -> Perturbation:
        """Return the perturbation that a progress record stores."""
        content = {**content, "donor_step": content["origin"]}
        return cls(**{name: content[name] for name in cls.__dataclass_fields__})


@dataclass(frozen=True)
class TrialRecord:
    """A trial as recorded in the study.

    Attributes:
        number, id, seed: See `sweeps.core.trial.Trial`.
        result: Result of the trial. The state is RUNNING if the trial is running, is paused or was
            interrupted.
        preprocessor: Short text that describes the preprocessor; see
            `sweeps.core.trial.Trial.chain`.
        scaling: The values `num_workers` and `resources_per_worker`.
        params: Current parameters of the training loop.
        labels: Short value of each active dimension, by the dimension's name.
        curve: (step, value) pairs of the leading metric (see `Objectives.metric`).
        attempts: Number of attempts so far. In each attempt, a gang of workers runs the training
            loop.
        reason: Reason why the trial was stopped; None if it was not stopped.
        began, ended: Start and end of the trial in local time; None if the study does not have this
            time.
        keys: Current key of each active dimension, by the dimension's name; see
            `sweeps.space.Dimension.value`.
        bracket: Number of the trial's bracket; None if the scheduler has a single bracket.
        repeat_of: Number of the trial that this trial repeats; None for the first trial of a
            configuration.
        lineage: Perturbations of the trial, in the order in which they happened. The attributes
            `params`, `labels` and `keys` have the values after the last one.
        data: Sampled values of `train`, `drop` and `rows` in the data section; {} if none of these
            keys is sampled.
        sizes: Numbers of workers that an elastic trial has had; () for other trials.
        enqueued: True if `sweeps enqueue` added the trial.
    """

    number: int
    id: str
    seed: int
    result: Result
    preprocessor: str
    scaling: dict[str, Any]
    params: dict[str, Any]
    labels: dict[str, Any]
    curve: tuple[tuple[int, float], ...]
    attempts: int
    reason: str | None
    began: datetime.datetime | None
    ended: datetime.datetime | None
    keys: dict[str, Any] = field(default_factory=dict)
    bracket: int | None = None
    repeat_of: int | None = None
    lineage: tuple[Perturbation, ...] = ()
    data: dict[str, Any] = field(default_factory=dict)
    sizes: tuple[GangSizePeriod, ...] = ()
    enqueued: bool = False

    @property
    def first_trial(self) -> int:
        """Number of the first trial of this configuration."""
        return self.number if self.repeat_of is None else self.repeat_of

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object that `sweeps show --json` prints for the trial."""
        r = self.result
        shown: dict[str, Any] = {
            "trial": self.id,
            "state": r.state.name,
            "value": r.value,
            "best_step": r.best_step,
            "steps": r.steps,
            "metrics": r.metrics,
            "values": r.values,
            "feasible": r.feasible,
            "given": r.given,
            "seconds": r.seconds,
            "preprocessor": self.preprocessor,
            "scaling": self.scaling,
            "params": self.params,
            "seed": self.seed,
            "attempts": self.attempts,
            "curve": self.curve,
            "reason": self.reason,
            "error": r.error,
            "began": self.began and self.began.isoformat(timespec="seconds"),
            "ended": self.ended and self.ended.isoformat(timespec="seconds"),
        }
        rare = {
            "final": r.final,
            "repeats": self.repeat_of is not None and format_trial_id(self.repeat_of),
            "enqueued": self.enqueued,
            "data": self.data,
            "sizes": [asdict(size) for size in self.sizes],
            "lineage": [
                {"step": t.step, "donor": t.donor, "from": t.donor_step, "params": t.params}
                for t in self.lineage
            ],
        }
        shown |= {name: value for name, value in rare.items() if value}
        if self.bracket is not None:
            shown["bracket"] = self.bracket
        shown = to_json_value(shown)
        return shown


@dataclass(frozen=True)
class Record:
    """A study as read from a sweep's folder.

    Attributes:
        objectives: Objectives and constraints of the sweep.
        trials: All trials that have started, and the initial points with known results, in the
            order of their numbers.
        data: Fingerprint of the data; None if the data has not been read yet.
        repeats: How many times each configuration is trained, and how the values of its trials are
            aggregated.
        stops: True if the scheduler may stop trials.
        paused: True if `sweeps pause` has paused the sweep. If no process runs the sweep, this says
            that the last process had been paused.
    """

    objectives: Objectives
    trials: tuple[TrialRecord, ...] = field(default=())
    data: str | None = None
    repeats: Repeats = Repeats()  # noqa: RUF009 - frozen
    stops: bool = True
    paused: bool = False

    @property
    def goal(self) -> str:
        """Goal of the first objective: "minimize" or "maximize"."""
        return self.objectives.objectives[0].goal

    @property
    def metric(self) -> str:
        """Name of the first objective's metric."""
        return self.objectives.objectives[0].metric

    @property
    def ran(self) -> tuple[TrialRecord, ...]:
        """The trials that were run: all trials except initial points with known results."""
        return tuple(t for t in self.trials if not t.result.given)

    @property
    def configurations(self) -> Configurations:
        """The trials, grouped by configuration."""
        return Configurations.of(
            ((t.number, t.repeat_of, t.result) for t in self.trials), self.repeats
        )

    def total(self, limit: int) -> int:
        """Return the expected number of trials of the sweep; see `repeats.known_total`.

        Args:
            limit: `limits.max_trials`.
        """
        firsts = Counter(t.result.state for t in self.ran if t.repeat_of is None)
        complete = firsts[State.COMPLETE]
        return known_total(
            limit,
            complete,
            firsts.total() - firsts[State.RUNNING] - complete,
            self.repeats,
            self.stops,
        )

    @property
    def front(self) -> list[TrialRecord]:
        """The trials of the Pareto front (see `ranking.front`); [] for a single objective."""
        by_number = {t.number: t for t in self.trials}
        return [by_number[number] for number in self.configurations.front(self.objectives.goals)]

    @property
    def best(self) -> TrialRecord | None:
        """The best trial of the best configuration.

        Return None if no trial has a value, or if there are several objectives.
        """
        number = self.configurations.winner(self.objectives.goals)
        return None if number is None else next(t for t in self.trials if t.number == number)


def start_attributes(trial: Trial) -> dict[str, Any]:
    """Return the value of the attribute `begun`, which is recorded when a trial starts.

    It contains the trial's whole configuration, so that the study can be read without the space
    file.
    """
    attributes = {
        "id": trial.id,
        "seed": trial.seed,
        "preprocessor": trial.chain,
        "scaling": trial.shape.scaling,
        "params": trial.params,
        "labels": trial.labels,
    }
    return attributes | ({"data": trial.data} if trial.data else {})


def report_rows(reports: Iterable[Report], metric: str | None) -> list[list[Any]]:
    """Return reports as rows for the key `reports` of a progress record.

    Args:
        reports: The reports.
        metric: Name of the leading metric; see `Objectives.metric`.

    Returns:
        One row [step, time, value, others] for each report. `value` is the value of the leading
        metric, or NaN if `metric` is None. `others` maps the names of the other metrics to their
        values.
    """
    return [
        [
            r.step,
            r.time,
            math.nan if metric is None else r.metrics[metric],
            {k: v for k, v in r.metrics.items() if k != metric},
        ]
        for r in reports
    ]


def progress_records(t: FrozenTrial) -> list[dict[str, Any]]:
    """Return the progress records of a trial, in the order of their numbers.

    They are the trial's attributes `told.0`, `told.1`, and so on.
    """
    records = [
        (int(key.removeprefix(PROGRESS_PREFIX)), value)
        for key, value in t.user_attrs.items()
        if key.startswith(PROGRESS_PREFIX)
    ]
    return [value for _, value in sorted(records, key=lambda f: f[0])]


def latest_progress(t: FrozenTrial) -> dict[str, Any]:
    """Return the latest progress record of a trial; {} if the trial has no progress record yet."""
    chunks = progress_records(t)
    return chunks[-1] if chunks else {}


def reports_of(t: FrozenTrial, metric: str | None) -> tuple[Report, ...]:
    """Return the reports that a trial itself made, in the order of recording.

    Reports of a donor (see `Perturbation`) are not included.

    Args:
        t: The trial as Optuna recorded it.
        metric: Name of the leading metric; see `Objectives.metric`.
    """
    rows = [row for chunk in progress_records(t) for row in chunk["reports"]]
    return tuple(
        Report(step, rest if metric is None else {metric: value, **rest}, at)
        for step, at, value, rest in rows
    )


def others_of(t: FrozenTrial, names: Iterable[str]) -> dict[str, list[tuple[int, float]]]:
    """Return the (step, value) pairs of the given metrics, keyed by the metric's name.

    The leading metric is not among these.

    Pairs from before a perturbation are replaced by the donor's pairs, as in `curve_of`.

    Args:
        t: The trial as Optuna recorded it.
        names: Names of the metrics. A metric without reports is not in the result.
    """
    wanted, curves = set(names), dict[str, list[tuple[int, float]]]()
    for chunk in progress_records(t):
        for step, _, _, rest in chunk["reports"]:
            for name in wanted & rest.keys():
                curves.setdefault(name, []).append((int(step), float(rest[name])))
        if "donor" in chunk.get(PERTURBED, {}):
            curves = {
                name: [(int(s), float(v)) for s, v in curve]
                for name, curve in chunk[PERTURBED]["others"].items()
            }
    return curves


def is_given(t: FrozenTrial) -> bool:
    """Return True if a trial is an initial point with a known result. Such a trial is never run."""
    return bool(t.user_attrs.get("begun", {}).get("given"))


def repeat_of(t: FrozenTrial) -> int | None:
    """Return the number of the trial that `t` repeats.

    Return None if `t` is the first trial of a configuration.
    """
    return t.user_attrs.get(REPEAT_OF)


def is_enqueued(t: FrozenTrial) -> bool:
    """Return True if `sweeps enqueue` added a trial."""
    return ENQUEUED in t.user_attrs


def fixed_keys(t: FrozenTrial) -> dict[str, Any]:
    """Return the keys that were fixed when a trial was enqueued, by dimension.

    {} if none were fixed.
    """
    keys: dict[str, Any] = t.system_attrs.get("fixed_params", {})
    return keys


def curve_of(t: FrozenTrial) -> tuple[tuple[int, float], ...]:
    """Return the (step, value) pairs of the leading metric (see `Objectives.metric`).

    A perturbation makes the trial's model a copy of the donor's model. The pairs from before a
    perturbation are therefore replaced by the donor's pairs.
    """
    curve: list[tuple[int, float]] = []
    for chunk in progress_records(t):
        curve += [(int(step), float(value)) for step, _, value, _ in chunk["reports"]]
        if "donor" in chunk.get(PERTURBED, {}):
            curve = [(int(step), float(value)) for step, value in chunk[PERTURBED]["curve"]]
    return tuple(curve)


def decided_of(t: FrozenTrial) -> int:
    """Return the last perturbation step for which a decision about the trial is recorded.

    0 if no decision is recorded.
    """
    return max(
        (chunk[PERTURBED]["step"] for chunk in progress_records(t) if PERTURBED in chunk), default=0
    )


def passed_of(t: FrozenTrial) -> int:
    """Return the last rung from which a trial continued; 0 if it has not continued from a rung."""
    return int(t.user_attrs.get(PASSED, 0))


def paused_at(t: FrozenTrial) -> int | None:
    """Return the rung at which a trial is paused; None if the trial is not paused."""
    return t.user_attrs.get(PAUSED)


def reported_values(t: FrozenTrial) -> dict[int, float]:
    """Return the values of the leading metric that the trial itself reported, by step.

    For the steps before a perturbation, `curve_of` returns the donor's values instead.
    """
    values = {
        int(step): float(value)
        for chunk in progress_records(t)
        for step, _, value, _ in chunk["reports"]
    }
    return dict(sorted((values | t.intermediate_values).items()))


def lineage_of(t: FrozenTrial) -> tuple[Perturbation, ...]:
    """Return the perturbations of a trial, in the order in which they happened."""
    records = [
        chunk[PERTURBED] for chunk in progress_records(t) if "donor" in chunk.get(PERTURBED, {})
    ]
    return tuple(map(Perturbation.from_record, records))


def keys_of(t: FrozenTrial) -> dict[str, Any]:
    """Return the current key of each active dimension of a trial, by the dimension's name."""
    lineage = lineage_of(t)
    return dict(lineage[-1].keys if lineage else t.params)


def lineage_text(lineage: Iterable[Perturbation]) -> str:
    """Return the perturbations of a trial as text.

    Examples are "0003 at 20, 0007 at 40" (donor and step).
    """
    return ", ".join(map(str, lineage))


def checkpoint_names(t: FrozenTrial) -> tuple[str | None, str | None]:
    """Return the folder names of the best and of the latest recorded checkpoint of a trial.

    The name of a missing checkpoint is None.
    """
    checkpoints = [latest_progress(t).get(name) for name in ("best", "checkpoint")]
    best, latest = (
        Path(checkpoint["path"]).name if checkpoint else None for checkpoint in checkpoints
    )
    return best, latest


def _scaling_of(t: FrozenTrial) -> dict[str, Any]:
    scaling: dict[str, Any] = t.user_attrs.get("begun", {}).get("scaling", {})
    return scaling


def worker_seconds_of(t: FrozenTrial) -> float:
    """Return the sum of the seconds that all workers of a trial have spent on it."""
    last, number = latest_progress(t), _scaling_of(t).get("num_workers", 1)
    if isinstance(number, dict):
        return float(last.get(WORKER_SECONDS, 0.0))
    return float(last.get("seconds", 0.0) * number)


def costs_of(t: FrozenTrial) -> dict[str, float]:
    """Return the costs of a trial so far, by the names in `sweeps.core.resources.COSTS`."""
    return costs(
        latest_progress(t).get("seconds", 0.0),
        worker_seconds_of(t),
        _scaling_of(t).get("resources_per_worker", {}),
    )


def steps_of(t: FrozenTrial) -> int:
    """Return the number of steps that a trial has made, according to its latest progress record."""
    return int(latest_progress(t).get("steps", 0))


def sizes_of(t: FrozenTrial) -> tuple[GangSizePeriod, ...]:
    """Return all numbers of workers that an elastic trial has had; () for other trials."""
    return tuple(GangSizePeriod(**size) for size in latest_progress(t).get(SIZES, ()))


def result_of(t: FrozenTrial, objectives: Objectives) -> Result:
    """Return the result of a recorded trial.

    Args:
        t: The trial as Optuna recorded it.
        objectives: Objectives and constraints of the sweep.

    Returns:
        The result. Its state is RUNNING for a trial that has not ended.
    """
    if is_given(t):
        values = tuple(t.values or ())
        return Result(State.COMPLETE, values[0] if values else None, values=values, given=True)
    last = latest_progress(t)
    best, seconds, steps = last.get("best"), last.get("seconds", 0.0), last.get("steps", 0)
    state = State(t.state.name) if t.state.name in State.__members__ else State.RUNNING
    others, final = others_of(t, objectives.reported_metrics[1:]), last.get("final", {})
    score = objectives.score(state, steps, curve_of(t), others, costs_of(t), final)
    return Result(
        state=state,
        value=score.values[0],
        best_step=score.step,
        steps=steps,
        checkpoint=Checkpoint(**best) if best else None,
        error=last.get("error"),
        seconds=seconds,
        values=score.values,
        metrics=score.metrics,
        feasible=score.feasible,
        final=final,
        reason=last.get("reason"),
        paused=state is State.RUNNING and paused_at(t) is not None,
    )


class RecordReader:
    """Reads the study of a sweep's folder, also while another process writes to it.

    Later calls of `read` read only what is new.

    A study in a database is read from the start each time.

    Args:
        folder: The sweep's folder.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self._study: Any = None
        self._journal: int | None = None  # number of the file in its file system
        self._ended: dict[int, TrialRecord] = {}

    def read(self) -> Record | None:
        """Return the content of the study. See `read`, the function."""
        journal = storage.journal_in(self.folder)
        number = journal.stat().st_ino if journal.is_file() else None
        if self._study is None or number is None or number != self._journal:
            self._study, self._ended = _study(self.folder), {}
            self._journal = number
        if self._study is None:
            return None
        attributes = self._study.user_attrs
        if "judged" not in attributes:  # the driver has not recorded the objectives yet
            return None
        objectives = Objectives.from_json(attributes["judged"])
        trials = []
        for t in self._study.get_trials(deepcopy=False):
            if "begun" in t.user_attrs:
                found = self._ended.get(t.number) or _recorded(t, objectives, self.folder)
                if t.state.is_finished():
                    self._ended[t.number] = found
                trials.append(found)
        return Record(
            objectives=objectives,
            trials=tuple(trials),
            data=attributes.get("data"),
            repeats=Repeats(**attributes.get("repeats", {})),
            stops=attributes.get("stops", True),
            paused=bool(attributes.get(SWEEP_PAUSED)),
        )


def read(folder: Path) -> Record | None:
    """Read the study of a sweep's folder. Another process may write to the study at the same time.

    Args:
        folder: The sweep's folder.

    Returns:
        The content of the study. None if there is no study yet, or if the objectives are not
        recorded in it yet.

    Raises:
        DamagedStudy: The study is damaged, or lacks trials that the sweep's result includes.
        InputError: The study is in a database that cannot be reached.
    """
    return RecordReader(folder).read()


def trials_of(folder: Path) -> list[FrozenTrial]:
    """Return the started trials of a sweep as Optuna's frozen trials.

    Initial points that have known results are left out.

    Args:
        folder: The sweep's folder.

    Returns:
        The trials; [] if there is no study yet.

    Raises:
        DamagedStudy: The study is damaged, or lacks trials that the sweep's result includes.
        InputError: The study is in a database that cannot be reached.
    """
    study = _study(folder)
    trials = study.get_trials(deepcopy=False) if study is not None else ()
    return [t for t in trials if "begun" in t.user_attrs and not is_given(t)]


def copy_study(folder: Path) -> Any:
    """Copy the Optuna study of a sweep into memory. Changes to the copy do not affect the sweep.

    Args:
        folder: The sweep's folder.

    Returns:
        The copy, an `optuna.Study`; None if there is no study yet.

    Raises:
        DamagedStudy: The study is damaged, or lacks trials that the sweep's result includes.
        InputError: The study is in a database that cannot be reached.
    """
    if (study := _study(folder)) is None:
        return None
    import optuna

    copy = optuna.create_study(study_name=study.study_name, directions=study.directions)
    for key, value in study.user_attrs.items():
        copy.set_user_attr(key, value)
    copy.add_trials(study.get_trials(deepcopy=False))
    return copy


def _study(folder: Path) -> Any:
    """Open the Optuna study of a sweep's folder for reading; None if there is no study yet."""
    journal, place = storage.journal_in(folder), storage.place_of(folder)
    if place is None and (not journal.is_file() or not journal.stat().st_size):
        storage.check_trial_count(folder)
        return None
    import optuna

    from sweeps.study.journal import JournalReader

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    opened = JournalReader(journal).storage() if place is None else storage.connect(place[0])
    names = [
        study.study_name
        for study in opened.get_all_studies()
        if place is None or study.study_name == place[1]
    ]
    study = optuna.load_study(study_name=names[0], storage=opened) if names else None
    storage.check_trial_count(
        folder, lambda: study.get_trials(deepcopy=False) if study is not None else []
    )
    return study


def _recorded(t: FrozenTrial, objectives: Objectives, folder: Path) -> TrialRecord:
    first = t.user_attrs["begun"]
    last = latest_progress(t)
    lineage = lineage_of(t)
    result = result_of(t, objectives)
    if result.checkpoint is not None and recorded_store(folder) is None:
        # The folder may have been moved, or the checkpoint deleted
        path = SweepFolder(folder).trial(t.number) / Path(result.checkpoint.path).name
        moved = replace(result.checkpoint, path=str(path)) if path.is_dir() else None
        result = replace(result, checkpoint=moved)
    return TrialRecord(
        number=t.number,
        id=format_trial_id(t.number),
        seed=first["seed"],
        preprocessor=first["preprocessor"],
        scaling=first["scaling"],
        params=lineage[-1].params if lineage else first["params"],
        labels=lineage[-1].labels if lineage else first["labels"],
        result=result,
        curve=curve_of(t),
        attempts=last.get("attempts", 0),
        reason=last.get("reason"),
        began=t.datetime_start,
        ended=t.datetime_complete,
        keys=keys_of(t),
        lineage=lineage,
        bracket=first.get("bracket"),
        repeat_of=repeat_of(t),
        data=first.get("data", {}),
        sizes=sizes_of(t),
        enqueued=is_enqueued(t),
    )

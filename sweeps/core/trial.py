"""The types that describe a trial: its configuration, reports, checkpoints, state and result."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from pydantic import PlainSerializer

from .files.safe_names import loop_name
from .json_values import (
    Configuration,
    Count,
    FolderName,
    Integer,
    Numbers,
    Text,
    Time,
    Workers,
)
from .loop_spec import params_key
from .resources import Shape

# The entry of `limits.retry_on` that stands for lost worker processes.
LOST = "lost"


def format_trial_id(number: int) -> str:
    """Return the id of a trial: its number with at least four digits. Users see and type this id.

    >>> format_trial_id(7)
    '0007'
    """
    return f"{number:04d}"


def refit_rows_text(refit: Mapping[str, Any]) -> str:
    """Return a text about the rows on which a model was trained again.

    An example is `4,177 rows: train, valid and test`.

    Args:
        refit: The key `refit` of `SweepResult.best`.
    """
    *others, last = refit["on"]
    return f"{refit['rows']:,} rows: {', '.join(others)} and {last}"


def shorten_chain(chain: str) -> str:
    """Return `Trial.chain` without the values that only repeat the name of a step.

    Such a value is the choice among several steps at one position of the chain. The study records
    these values, too.

    >>> shorten_chain("OneHotEncoder+PCA (0=OneHotEncoder, n_components=8)")
    'OneHotEncoder+PCA (n_components=8)'
    """
    label, _, inside = chain.partition(" (")
    steps = {"none", *label.split("+")}

    def repeats_steps(pair: str) -> bool:
        position, _, value = pair.partition("=")
        return position.isdecimal() and steps.issuperset(value.split("+"))

    pairs = inside.removesuffix(")").split(", ")
    informative = [pair for pair in pairs if not repeats_steps(pair)]
    if len(informative) == len(pairs):
        return chain
    return f"{label} ({', '.join(informative)})" if informative else label


def complete_trial_id(typed: str) -> str:
    """Add the missing leading zeros to a trial's id that a user typed.

    A text that is no number is returned unchanged.

    >>> complete_trial_id("7"), complete_trial_id("abc")
    ('0007', 'abc')
    """
    return typed.zfill(4) if typed.isdecimal() else typed


class Action(enum.Enum):
    """Decision of a scheduler about a trial that has reached a rung.

    A rung is a step at which the scheduler compares trials. PAUSE means that the trial gives up its
    workers, and may continue later from its checkpoint. EXPLOIT means that the trial continues from
    another trial's checkpoint, as in Population Based Training.
    """

    CONTINUE = "CONTINUE"
    STOP = "STOP"
    PAUSE = "PAUSE"
    EXPLOIT = "EXPLOIT"


class State(enum.Enum):
    """State of a trial.

    If no process is running the sweep, a RUNNING trial was interrupted and can be resumed.
    """

    RUNNING = "RUNNING"
    COMPLETE = "COMPLETE"
    PRUNED = "PRUNED"
    FAIL = "FAIL"


# Reasons of trials that ended because the time of the sweep was over
TIME_LIMITS = ("limits.timeout", "--minutes")


@dataclass(frozen=True)
class Report:
    """Report of rank 0 of a trial: what one call of `ray.train.report` reported.

    Attributes:
        step: Step of the report. It is one step after the latest report, unless the loop passed
            another step to `Current.report_due`. Retries and resumes continue the count.
        metrics: The reported numbers, by the name of the metric. Reported values that are not
            numbers are left out.
        time: Time of the report, in seconds since the epoch.
    """

    step: Count
    metrics: Numbers
    time: Time

    @property
    def logged(self) -> Report:
        """The report with the names that trackers get; see `loop_name`."""
        return replace(self, metrics={loop_name(k): v for k, v in self.metrics.items()})


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that a loop has reported and that is stored on disk.

    Attributes:
        name: Name of the checkpoint's folder in the folder of the trial's checkpoints; see
            `checkpoint_files.checkpoint_root`.
        step: Step of the report that has this checkpoint. A loop that continues from this
            checkpoint next makes step `step` + 1.
        best_step: The step whose model the checkpoint holds. This is `step`, unless the loop passed
            another step to `note_checkpoint`.
    """

    name: FolderName
    step: Integer
    best_step: Integer


@dataclass(frozen=True)
class GangSizePeriod:
    """Period in which the number of workers of an elastic trial stays the same.

    Each change of the number starts a new period.

    Attributes:
        step: Step of the checkpoint from which the trial continues with these workers; 0 if the
            trial starts from scratch.
        workers: Number of workers in this period.
        reported: Latest step that the trial had reported before this period. It is later than
            `step` if steps after the checkpoint were lost. These steps are then trained again.
        time: Time at which these workers started the loop, in seconds since the epoch.
    """

    step: Count
    workers: Workers
    reported: Count
    time: Time

    @property
    def metrics(self) -> dict[str, float]:
        """The number of workers as a metric for trackers: the value by the metric's name."""
        return {"scaling.num_workers": float(self.workers)}

    def __str__(self) -> str:
        text = f"{self.workers} from step {self.reported + 1}"
        first = self.step + 1
        last = self.reported
        if first > last:
            return text
        repeated = f"step {first}" if first == last else f"steps {first} to {last}"
        return f"{text} (trained {repeated} again)"


@dataclass(frozen=True)
class Trial:
    """One trial: a sampled configuration, and what a worker must know to train it.

    Attributes:
        number: Number of the trial in the sweep, starting with 0. The Optuna trial has the same
            number.
        params: The parameters, which the loop receives as its `config`.
        preprocessor: The preprocessing steps (see `sweeps.space`); `()` for none.
        shape: Number, resources and backend of the workers.
        seed: Seed of the random number generators, which is set in every worker before the loop
            starts.
        labels: Value of each active dimension, by the dimension's name, such as `params.eta`. These
            are no labels of rows. The values are short, for display and for MLflow.
        data: The trial's values of those keys of the section `data` that the sweep samples (see
            `sweeps.space.Space.variant`); {} for none.
        repeat_of: Number of the first trial of this configuration, if this trial repeats the
            configuration with another seed; else None.
        lineage: Under PBT, the trials whose checkpoints this trial has copied, each with the step
            of the copy, such as `0003 at 8, 0001 at 12`. "" if there are none.
        enqueued: True if the command `sweeps enqueue` added this trial.
        chain_text: The text that `chain` returns, if the trial was read without the space file and
            therefore has no preprocessing steps; else "".
    """

    number: Count
    params: Configuration
    preprocessor: tuple[Any, ...]
    shape: Shape
    seed: Integer
    labels: Configuration
    data: Configuration = field(default_factory=dict)
    repeat_of: Count | None = None
    lineage: Text = ""
    enqueued: bool = False
    chain_text: Text = ""

    @property
    def trainer(self) -> str:
        """Label of the trainer. "" if the sweep has only one trainer."""
        return str(self.labels.get("trainer", ""))

    @property
    def params_key(self) -> str:
        """Path of the trial's parameters below `space`, such as `params.xgboost`."""
        return params_key(self.trainer)

    @property
    def id(self) -> str:
        """The id that users see and type, such as `0007`."""
        return format_trial_id(self.number)

    @property
    def first_trial(self) -> int:
        """Number of the first trial of this configuration."""
        return self.number if self.repeat_of is None else self.repeat_of

    @property
    def chain(self) -> str:
        """Short text for the preprocessor, such as `scale+pca (n_components=8)`.

        It is the label that the space file gives, or else the steps, and then the sampled values.
        """
        if self.chain_text:
            return self.chain_text
        steps = [step.name for step in self.preprocessor]
        label = self.labels.get("preprocessor") or "+".join(steps) or "none"
        sampled = {
            name.rsplit(".", 1)[-1]: value
            for name, value in self.labels.items()
            if name.startswith("preprocessor.") and not {*str(value).split("+")} <= {*steps}
        }
        if not sampled:
            return str(label)
        return f"{label} ({', '.join(f'{name}={value}' for name, value in sampled.items())})"


@dataclass(frozen=True)
class Result:
    """The end of a trial.

    Attributes:
        state: COMPLETE, PRUNED or FAIL; RUNNING if the trial was interrupted and can be resumed.
        value: Best reported value of the first objective; None if no value was reported.
        best_step: The step at which `value` was reported; None if there is no such step.
        steps: Number of the trial's reports.
        checkpoint: The stored checkpoint with the best model; None if there is no checkpoint.
        error: The traceback of a failed trial; None for other trials.
        seconds: Wall time in seconds during which the trial had workers, summed over all attempts.
        values: Value of each objective, in the order of the space file; None for an unknown value.
        metrics: The trial's costs, and the metrics of objectives and constraints at `best_step`.
        feasible: True if the trial satisfies every constraint.
        given: True if the trial was not run, because the space file gives its values.
        final: Metrics of the finished model (see `Current.report_final`), which belong to no step.
            Only complete trials have such metrics.
        reason: Reason of a stop, such as `asha at step 9`; None if it was not stopped.
        paused: True if the scheduler has paused the trial. Its state is RUNNING, but it holds no
            workers.
    """

    state: Annotated[State, PlainSerializer(lambda state: state.name)]
    value: float | None = None
    best_step: int | None = None
    steps: int = 0
    checkpoint: Checkpoint | None = None
    error: Text | None = None
    seconds: float = 0.0
    values: tuple[float | None, ...] = ()
    metrics: dict[str, float] = field(default_factory=dict)
    feasible: bool = True
    given: bool = False
    final: Numbers = field(default_factory=dict)
    reason: Text | None = None
    paused: bool = False

    @property
    def ended_by_time(self) -> bool:
        """True if only a time limit of the sweep ended the trial.

        Its value then counts like that of a complete trial.
        """
        return self.state is State.PRUNED and self.reason in TIME_LIMITS

    def state_name(self, is_driven: bool) -> str:
        """Return the trial's state for display.

        It is COMPLETE, PRUNED, FAIL, RUNNING, PAUSED, INTERRUPTED or GIVEN.

        Args:
            is_driven: True if a process is running the sweep. Otherwise a RUNNING trial was
                interrupted.
        """
        if self.given:
            return "GIVEN"
        if self.paused:
            return "PAUSED"
        return "INTERRUPTED" if self.state is State.RUNNING and not is_driven else self.state.name


def flatten_params(params: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Return the values of nested parameters with their dotted names.

    If two values have the same dotted name, as in `{"c.d": 1, "c": {"d": 2}}`, the later one gets
    `#2` at the end of its name.
    """
    flattened: dict[str, Any] = {}
    for name, value in params.items():
        inner = flatten_params(value, ".") if isinstance(value, dict) and value else [("", value)]
        for suffix, inner_value in inner:
            full_name = f"{prefix}{name}{suffix}"
            while full_name in flattened:
                full_name += "#2"
            flattened[full_name] = inner_value
    return list(flattened.items())

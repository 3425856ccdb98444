"""The types of a benchmark, and pure functions that compute medians and ratios of its samples."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

# Each library with a thread pool gets one thread. A workload that needs more threads passes their
# number to the library itself.
PINNED = {
    **dict.fromkeys(
        ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"
    ),
    "PYTHONHASHSEED": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
}


@dataclass(frozen=True)
class Task:
    """Parameters for one run of a side.

    Attributes:
        trials: Number of trials to run.
        folder: An empty folder, which is deleted after the run.
        profile: True to also measure where the time goes. Profiling makes the run slower.
    """

    trials: int
    folder: Path
    profile: bool = False


@dataclass(frozen=True)
class Side:
    """One way to do the work of a workload.

    Attributes:
        name: Name on the command line.
        label: Name in the report.
        run: Function that does the work and returns the measured values, keyed by the workload's
            measures. Other keys are saved, too.
        trials: Number of trials in one run.
        environment: Environment variables for the process of the run.
    """

    name: str
    label: str
    run: Callable[[Task], dict[str, Any]]
    trials: int
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Measure:
    """A number that a run measures.

    Attributes:
        key: Key in the values of a run.
        title: Title of the column in the report.
        unit: Unit in the report: s, ms, MB, % or "". The value itself is in seconds or bytes, or is
            a fraction.
    """

    key: str
    title: str
    unit: str = "s"


@dataclass(frozen=True)
class Goal:
    """A goal of a workload: a value must be at most or at least `bound`.

    Attributes:
        text: Description of the value.
        value: The measured value; None if a side was not measured.
        bound: The limit for the value.
        at_most: True if the value must be at most `bound`; False if it must be at least `bound`.
        unit: Unit of the value; see `Measure`.
    """

    text: str
    value: float | None
    bound: float
    at_most: bool = True
    unit: str = ""


@dataclass(frozen=True)
class Sample:
    """Values that one run of one side measured."""

    side: str
    trials: int
    values: Mapping[str, Any]


Median = Callable[[str, str], float | None]  # Maps (side, measure) to the median.


@dataclass(frozen=True)
class Workload:
    """A benchmark. Each workload is defined in one script of this folder.

    Attributes:
        name: Name of the module.
        title: Title of the section in the report.
        text: Description of the comparison, from the module's docstring.
        sides: Sides in the order of the table.
        measures: Columns of the table.
        goals: Function that returns the goals, given the medians.
        reference: Name of the side that is the base of the ratios. The ratios compare the first
            measure.
        notes: Function that returns further lines for the report, given the medians.
        absent: Function that returns why the workload cannot run on this machine; None if it can
            run.
        timeout: Time limit for one run of a side, in seconds.
    """

    name: str
    title: str
    text: str
    sides: tuple[Side, ...]
    measures: tuple[Measure, ...]
    goals: Callable[[Median], Sequence[Goal]]
    reference: str = "ours"
    notes: Callable[[Median], Sequence[str]] = lambda median: ()
    absent: Callable[[], str | None] = lambda: None
    timeout: float = 900.0


@dataclass(frozen=True)
class WorkloadRecord:
    """Results of a workload.

    Together with the `Workload`, they contain everything for the section in the report.

    Attributes:
        workload: Name of the workload.
        command: Command that repeats the runs.
        date: Date and time at which the runs started.
        machine: Facts about the machine; see `running.machine`.
        seconds: Duration of all runs.
        load: Load average of the machine just before the runs.
        samples: One sample for each run.
        problems: Errors of sides that failed, or the reason why the workload was skipped.
    """

    workload: str
    command: str
    date: str
    machine: Mapping[str, str]
    seconds: float
    load: float = 0.0
    samples: tuple[Sample, ...] = ()
    problems: tuple[str, ...] = ()

    def joined(self, more: WorkloadRecord) -> WorkloadRecord:
        """Return this record together with the samples of a later run.

        Raises:
            ValueError: The later run was made on another machine or with other versions.
        """
        for fact in self.machine.keys() | more.machine.keys():
            if fact != "commit" and self.machine.get(fact) != more.machine.get(fact):
                raise ValueError(
                    f"{self.workload}: {fact} was {self.machine.get(fact)}, and is "
                    f"{more.machine.get(fact)} now"
                )
        commits = dict.fromkeys(r.machine["commit"] for r in (self, more) if "commit" in r.machine)
        return replace(
            self,
            command=self.command
            if more.command in self.command.split("; ")
            else f"{self.command}; {more.command}",
            date=f"{self.date} and {more.date}",
            machine={**self.machine, **({"commit": "; ".join(commits)} if commits else {})},
            seconds=self.seconds + more.seconds,
            load=max(self.load, more.load),
            samples=self.samples + more.samples,
            problems=tuple(dict.fromkeys(self.problems + more.problems)),
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_json(cls, stored: Mapping[str, Any]) -> WorkloadRecord:
        samples = tuple(Sample(**sample) for sample in stored["samples"])
        return cls(**{**stored, "samples": samples, "problems": tuple(stored["problems"])})


# ---- computations with times


def steady(ends: Iterable[float]) -> float:
    """Return the seconds for each trial in steady state.

    The time is measured between the ends of trials, without the first eighth of the trials and at
    least without the first. The start of Ray and of processes is therefore not included. If several
    trials run at once, the result is smaller than the duration of one trial.

    Args:
        ends: Time in seconds at which each trial ended, in any order; at least two times.
    """
    times = sorted(ends)
    warm = max(1, len(times) // 8)
    return (times[-1] - times[warm - 1]) / (len(times) - warm)


def efficiency(ends: Iterable[float], work: float, slots: int) -> float:
    """Return the share of time in which the slots work, in steady state; see `steady`.

    Args:
        ends: Time in seconds at which each trial ended.
        work: Seconds that a trial works.
        slots: Number of trials that run at once.
    """
    return work / slots / steady(ends)


def median_of(samples: Sequence[Sample]) -> Median:
    """Return a function that looks up the median of a measure of a side.

    It returns None if the measure was not measured.
    """

    def median(side: str, key: str) -> float | None:
        values = values_of(samples, side, key)
        return statistics.median(values) if values else None

    return median


def values_of(samples: Iterable[Sample], side: str, key: str) -> list[float]:
    """Return the values of a measure of a side, one for each run."""
    return [
        float(s.values[key]) for s in samples if s.side == side and s.values.get(key) is not None
    ]


def ratio(over: float | None, under: float | None) -> float | None:
    """Return `over` / `under`; None if a value is missing or `under` is 0."""
    return None if over is None or not under else over / under


def less(whole: float | None, part: float | None) -> float | None:
    """Return `whole` - `part`; None if a value is missing."""
    return None if whole is None or part is None else whole - part


# ---- the report

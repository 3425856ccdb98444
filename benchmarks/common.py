"""What a benchmark is, and what is made of its samples: medians, ratios, verdicts, the report. Pure: nothing here runs anything."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

# Every library that has a pool of threads is told to have one thread; where a workload wants more, it says so to the library itself.
PINNED = {
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"),
    "PYTHONHASHSEED": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
}


@dataclass(frozen=True)
class Task:
    """What a run of a side is asked for.

    Attributes:
        trials: how many.
        folder: an empty one, deleted afterwards.
        profile: whether to look where the time goes as well; costs time itself.
    """

    trials: int
    folder: Path
    profile: bool = False


@dataclass(frozen=True)
class Side:
    """One way to do a workload's work.

    Attributes:
        name: on the command line.
        label: in the report.
        run: does the work and returns what was measured, by the keys of the workload's measures; further keys are kept in the samples.
        trials: of one run.
        environment: variables of the run's process.
    """

    name: str
    label: str
    run: Callable[[Task], dict[str, Any]]
    trials: int
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Measure:
    """A number of a run; `unit` is s, ms, MB, % or nothing, and the value stands in seconds, bytes or as a share."""

    key: str
    title: str
    unit: str = "s"


@dataclass(frozen=True)
class Goal:
    """What a workload should come to: a value at most, or at least, `bound`; `value` is None where a side is missing."""

    text: str
    value: float | None
    bound: float
    at_most: bool = True
    unit: str = ""


@dataclass(frozen=True)
class Sample:
    """What one run of one side measured."""

    side: str
    trials: int
    values: Mapping[str, Any]


Median = Callable[[str, str], float | None]  # of (side, measure)


@dataclass(frozen=True)
class Workload:
    """A script of this folder.

    Attributes:
        name: of the module.
        title: of its section in the report.
        text: what is compared and how; the module's docstring.
        sides: in the order of the table.
        measures: the columns.
        goals: from the medians.
        reference: the side that the others are put in ratio to, by the first measure.
        notes: further lines, from the medians.
        absent: why it cannot run here; None if it can.
        timeout: of one run of a side, in seconds.
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
    """What a workload came to, with all that its section in the report needs but the workload itself.

    Attributes:
        workload: its name.
        command: that repeats it.
        date: of its beginning.
        machine: see `running.machine`.
        seconds: of all its runs.
        load: what else the machine did: its load average just before.
        samples: a run each.
        problems: sides that failed, or why it was skipped.
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
        """With the samples of a later run.

        Raises:
            ValueError: it is of another machine or of other versions.
        """
        for fact in self.machine.keys() | more.machine.keys():
            if fact != "commit" and self.machine.get(fact) != more.machine.get(fact):
                raise ValueError(f"{self.workload}: {fact} was {self.machine.get(fact)}, and is {more.machine.get(fact)} now")
        commits = dict.fromkeys(r.machine["commit"] for r in (self, more) if "commit" in r.machine)
        return replace(
            self,
            command=self.command if more.command in self.command.split("; ") else f"{self.command}; {more.command}",
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


# ---- what is made of times


def steady(ends: Iterable[float]) -> float:
    """Seconds a trial once a run is under way: between the ends of trials, without the first eighth of them, at least one.

    So the start of Ray, of processes and of the first trials is in no side's number. With several trials at once it is the time that
    each adds to the whole, not the time that each takes.

    Args:
        ends: when each trial ended, in seconds, in any order; two or more.
    """
    times = sorted(ends)
    warm = max(1, len(times) // 8)
    return (times[-1] - times[warm - 1]) / (len(times) - warm)


def efficiency(ends: Iterable[float], work: float, slots: int) -> float:
    """The share of the slots' time in which trials worked, by `steady`.

    Args:
        ends: when each trial ended.
        work: seconds that a trial works.
        slots: trials at once.
    """
    return work / slots / steady(ends)


def median_of(samples: Sequence[Sample]) -> Median:
    """Looks up medians over the repeats; None for a side or a measure that was not measured."""

    def median(side: str, key: str) -> float | None:
        values = values_of(samples, side, key)
        return statistics.median(values) if values else None

    return median


def values_of(samples: Iterable[Sample], side: str, key: str) -> list[float]:
    """One number a repeat."""
    return [float(s.values[key]) for s in samples if s.side == side and s.values.get(key) is not None]


def ratio(over: float | None, under: float | None) -> float | None:
    """None where either is missing."""
    return None if over is None or not under else over / under


def less(whole: float | None, part: float | None) -> float | None:
    """The difference; None where either is missing."""
    return None if whole is None or part is None else whole - part


# ---- what is written


def shown(value: float | None, unit: str = "") -> str:
    """A number with its unit, to three digits."""
    if value is None or math.isnan(value):
        return "–"
    scale = {"ms": 1e3, "MB": 1 / 2**20, "%": 1e2}.get(unit, 1.0)
    rounded = float(f"{value * scale:.3g}") if abs(value * scale) < 1000 else value * scale
    digits = 0 if abs(rounded) >= 100 else 1 if abs(rounded) >= 10 else 2 if abs(rounded) >= 1 else 3
    text = f"{rounded:,.{digits}f}"
    return text + ("%" if unit == "%" else f" {unit}" if unit else "")


def met(goal: Goal) -> bool | None:
    """Whether a goal is met; None if it was not measured."""
    if goal.value is None:
        return None
    return goal.value <= goal.bound if goal.at_most else goal.value >= goal.bound


def verdict(goal: Goal) -> str:
    """`met` with what is to spare, or by how much it is missed."""
    if goal.value is None:
        return "not measured"
    off, share = abs(goal.value - goal.bound), goal.value / goal.bound if goal.bound else math.nan
    times = "" if math.isnan(share) else f"; {shown(share)} × the bound"
    return f"met, {shown(off, goal.unit)} to spare{times}" if met(goal) else f"**missed by {shown(off, goal.unit)}**{times}"


def table(workload: Workload, samples: Sequence[Sample]) -> list[str]:
    """The lines of a workload's table: a row a side, a column a measure, median (least – most)."""
    median, first = median_of(samples), workload.measures[0].key
    base = median(workload.reference, first)
    with_ratio = sum(median(side.name, first) is not None for side in workload.sides) > 1 and base is not None
    titles = ["side", "trials a run", *(m.title for m in workload.measures), *(["ratio"] if with_ratio else [])]
    lines = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    for side in workload.sides:
        mine = [s for s in samples if s.side == side.name]
        if not mine:
            continue
        cells = [side.label, str(mine[0].trials)]
        for measure in workload.measures:
            values = values_of(mine, side.name, measure.key)
            spread = f" ({shown(min(values), measure.unit)} – {shown(max(values), measure.unit)})" if len(values) > 1 else ""
            cells.append((shown(statistics.median(values), measure.unit) if values else "–") + spread)
        if with_ratio:
            cells.append(f"{shown(ratio(median(side.name, first), base))} ×")
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def goal_lines(goals: Sequence[Goal]) -> list[str]:
    """The lines of the table of goals."""
    lines = ["| goal | measured | |", "|---|---|---|"]
    for goal in goals:
        bound = f"{'≤' if goal.at_most else '≥'} {shown(goal.bound, goal.unit)}"
        lines.append(f"| {goal.text} {bound} | {shown(goal.value, goal.unit)} | {verdict(goal)} |")
    return lines if goals else []


def section(workload: Workload, recorded: WorkloadRecord, machine: Mapping[str, str] = {}) -> list[str]:
    """A workload's section: what is compared, the table, the goals; its machine where it is another than the report's."""
    median = median_of(recorded.samples)
    repeats = max((len(values_of(recorded.samples, side.name, workload.measures[0].key)) for side in workload.sides), default=0)
    times = f"; {repeats} repeat{'s' * (repeats != 1)}, {shown(recorded.seconds / 60)} minutes" if recorded.samples else ""
    times += f"; load average before it {shown(recorded.load)}" if recorded.samples else ""
    lines = [f"## {workload.title}", "", workload.text.strip(), "", f"    {recorded.command}", "", f"{recorded.date}{times}."]
    if other := {k: v for k, v in recorded.machine.items() if machine.get(k) != v}:
        lines += ["On another machine, or other versions: " + "; ".join(f"{k} {v}" for k, v in other.items()) + "."]
    lines.append("")
    if recorded.samples:
        lines += [*table(workload, recorded.samples), "", *goal_lines(workload.goals(median)), ""]
        if notes := list(workload.notes(median)):
            lines += [*(f"- {note}" for note in notes), ""]
    if recorded.problems:
        lines += [*(f"- **{problem}**" for problem in recorded.problems), ""]
    return lines


def report(workloads: Sequence[Workload], found: Mapping[str, WorkloadRecord]) -> str:
    """The whole page, from what is on record.

    Args:
        workloads: in the order of the page.
        found: by the name of the workload; those that were never run are left out.
    """
    newest = max(found.values(), key=lambda r: r.date, default=None)
    machine = newest.machine if newest else {}
    lines = ["# Benchmarks", "", "<!-- Written by `make bench` from reports/benchmarks.json; do not edit. -->", ""]
    lines += [
        "The peers and us on the same work. Every run of a side is a process of its own; the sides alternate within a repeat; a cell is",
        "the median (least – most) over the repeats. **A trial** is steady state, the same for all sides: the time between the ends of",
        "trials, without the first eighth of them (at least one), so that no side's start is in it. Threads are pinned",
        "(`OMP_NUM_THREADS=1`; XGBoost's `nthread` and torch's threads as said below), seeds are fixed, Tune's loggers are off. *Ratio* is",
        "to our side, or to the one that says 1.00 ×, by the first column of numbers.",
        "",
    ]
    if machine:
        lines += ["| machine | |", "|---|---|", *(f"| {name} | {value} |" for name, value in machine.items()), ""]
    judged = [
        (w, met(g)) for w in workloads if w.name in found and found[w.name].samples for g in w.goals(median_of(found[w.name].samples))
    ]
    if judged:
        lines += ["| workload | goals met |", "|---|---|"]
        for w in dict.fromkeys(w.name for w, _ in judged):
            own = [m for workload, m in judged if workload.name == w]
            title = next(x.title for x in workloads if x.name == w)
            lines.append(f"| {title} | {sum(m is True for m in own)} of {len(own)} |")
        lines.append("")
    for workload in workloads:
        if workload.name in found:
            lines += section(workload, found[workload.name], machine)
    return "\n".join(lines).rstrip() + "\n"

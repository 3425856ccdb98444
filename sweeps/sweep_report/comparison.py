"""Compare sweeps: results, regret, spaces, importances and best configurations.

Pure functions, no I/O.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sweeps.core.result import to_json_value
from sweeps.core.trial import Result, State
from sweeps.space import Space
from sweeps.study import ranking
from sweeps.study.record import Record
from sweeps.sweep_report.importance import Importance
from sweeps.sweep_report.regret import (
    BUDGETS,
    Progress,
    best_result,
    pauses_of,
    progress_of,
    steps_of,
)
from sweeps.sweep_report.space_settings import SAME_VALID_ROWS, settings_of

if TYPE_CHECKING:
    import pandas as pd

# A row of a comparison: a name, and the value of each sweep. None stands for a value that a sweep
# does not have.
Row = tuple[str, tuple[Any, ...]]
# Attributes of a comparison that have rows.
FRAMES = ("results", "settings", "importance", "configurations")


@dataclass(frozen=True)
class ComparedSweep:
    """A sweep to compare, as it was read from its folder.

    Attributes:
        name: Name of the sweep's folder.
        place: The folder, or the address of the sweep in a store.
        state: State of the sweep; see `SweepSummary.state`.
        record: The content of the study; None if there is no study yet.
        space: The space; None if the saved space file cannot be read.
        importance: The importances of the dimensions.
        algorithm: Name of the sampler; None if it is unknown.
        test: Score of the best trial on the test split; None if it is unknown.
        drivers: When the sweep was started and each time resumed, in seconds since the epoch.
        problems: Messages about files of the sweep that cannot be read.
    """

    name: str
    place: str
    state: str
    record: Record | None
    space: Space | None
    importance: Importance
    algorithm: str | None = None
    test: float | None = None
    drivers: tuple[float, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def objective(self) -> str | None:
        """The objectives as text, such as `minimize valid-logloss`; None if they are unknown."""
        if self.record is not None:
            return ", ".join(f"{o.goal} {o.metric}" for o in self.record.objectives.objectives)
        return None

    @functools.cached_property
    def best(self) -> Result | None:
        """The result of the best configuration; None if there is none."""
        return None if self.record is None else best_result(self.record)


@dataclass(frozen=True)
class Comparison:
    """A comparison of sweeps. Every row has one value for each sweep, in the order of `sweeps`.

    Attributes:
        sweeps: The compared sweeps.
        groups: Positions of the sweeps, grouped so that the values of the sweeps in a group can be
            compared.
        notes: What cannot be compared and why, and other remarks.
        results: Rows such as `best` and `seconds`.
        regret: For each budget (see `regret.Spent`), rows with the amount spent and the regret of
            each sweep. The regret is the distance between the best value so far and the best value
            of the sweep's group.
        settings: Rows of the settings that differ between the spaces.
        equal_settings: Number of settings that are equal.
        importance: Rows of the dimensions, the most important one first.
        configurations: Rows of the best configurations' values that differ.
        equal_values: The values that all best configurations share, by name.
        progress: The best value over the trials of each sweep.
    """

    sweeps: tuple[ComparedSweep, ...]
    groups: tuple[tuple[int, ...], ...]
    notes: tuple[str, ...]
    results: tuple[Row, ...]
    regret: dict[str, tuple[tuple[int, tuple[float | None, ...]], ...]]
    settings: tuple[Row, ...]
    equal_settings: int
    importance: tuple[Row, ...]
    configurations: tuple[Row, ...]
    equal_values: dict[str, Any]
    progress: tuple[Progress, ...] = field(repr=False)

    @property
    def labels(self) -> tuple[str, ...]:
        """A short label for each sweep: A, B, ..."""
        return labels_of(len(self.sweeps))

    @property
    def winners(self) -> dict[tuple[int, ...], tuple[int, ...]]:
        """For each group of several sweeps, the positions of the sweeps whose best trial is the best of the group."""
        regret = dict(self.results).get("regret", [None] * len(self.sweeps))
        return {
            group: tuple(at for at in group if regret[at] == 0)
            for group in self.groups
            if len(group) > 1
        }

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object that `sweeps compare --json` prints. NaN and infinity become None."""
        labels = self.labels
        shown = {
            "sweeps": [
                {"label": label, "sweep": s.name, "dir": s.place}
                for label, s in zip(labels, self.sweeps, strict=True)
            ],
            "comparable": [[labels[at] for at in group] for group in self.groups],
            "notes": self.notes,
            "results": dict(self.results),
            "regret": {
                budget: [{budget: amount, "regret": values} for amount, values in rows]
                for budget, rows in self.regret.items()
            },
            "space": {"differs": dict(self.settings), "equal": self.equal_settings},
            "importance": dict(self.importance),
            "configuration": {"differs": dict(self.configurations), "equal": self.equal_values},
        }
        return dict(to_json_value(shown))

    def frames(self) -> dict[str, pd.DataFrame]:
        """Return the parts of the comparison as DataFrames, with one column for each sweep.

        Returns:
            The frames by name: `results`, `settings` (those that differ), `importance`,
            `configurations` (the values that differ), and `regret.trials`, `regret.seconds`,
            `regret.cpu_seconds` and `regret.gpu_seconds`, as far as these are known. A column has
            the sweep's name, or its label if two sweeps have the same name.
        """
        import pandas as pd

        names = [s.name for s in self.sweeps]
        columns = names if len(set(names)) == len(names) else list(self.labels)
        parts: dict[str, Sequence[tuple[Any, tuple[Any, ...]]]] = {
            name: getattr(self, name) for name in FRAMES
        }
        parts |= {f"regret.{budget}": rows for budget, rows in self.regret.items()}
        frames = {}
        for name, rows in parts.items():
            frames[name] = pd.DataFrame(
                [values for _, values in rows], index=[key for key, _ in rows], columns=columns
            )
        return frames

    def __str__(self) -> str:
        from sweeps.sweep_report.comparison_tables import to_markdown

        return to_markdown(self)

    def _repr_html_(self) -> str:
        from sweeps.sweep_report.comparison_tables import to_html_tables

        return to_html_tables(self)


def labels_of(number: int) -> tuple[str, ...]:
    """Return short labels: A to Z, then A2 to Z2 and so on."""
    return tuple(
        chr(ord("A") + i % 26) + (str(i // 26 + 1) if i >= 26 else "") for i in range(number)
    )


def compare(sweeps: Sequence[ComparedSweep]) -> Comparison:
    """Compare sweeps as far as their objectives and their data allow."""
    spaces = [settings_of(s.space) if s.space is not None else None for s in sweeps]
    groups = _groups(sweeps)
    progress = tuple(_progress(s) for s in sweeps)
    leaders = [
        next((leader_of([sweeps[i] for i in group]) for group in groups if at in group), None)
        for at in range(len(sweeps))
    ]
    differing, equal = _differences(spaces)
    differing = _readable(differing, spaces)
    configurations, same = _differences([_configuration(s) for s in sweeps])
    return Comparison(
        sweeps=tuple(sweeps),
        groups=groups,
        notes=tuple(_notes(sweeps, groups, spaces, leaders)),
        results=tuple(_results(sweeps, progress, leaders, any(len(group) > 1 for group in groups))),
        regret={
            budget: rows
            for budget in BUDGETS
            if (rows := _regret_rows(budget, sweeps, progress, leaders))
        },
        settings=tuple(differing),
        equal_settings=len(equal),
        importance=tuple(_importance_rows(sweeps)),
        configurations=tuple(configurations),
        equal_values=same,
        progress=progress,
    )


# ---- what can be compared


def _groups(sweeps: Sequence[ComparedSweep]) -> tuple[tuple[int, ...], ...]:
    """Group the positions of sweeps with equal objectives and equal valid rows."""
    groups: list[list[int]] = []
    for at, sweep in enumerate(sweeps):
        for group in groups:
            if _comparable(sweeps[group[0]], sweep):
                group.append(at)
                break
        else:
            groups.append([at])
    return tuple(map(tuple, groups))


def _comparable(a: ComparedSweep, b: ComparedSweep) -> bool:
    return a.objective == b.objective and not data_differ(a, b)


def data_differ(a: ComparedSweep, b: ComparedSweep) -> bool:
    """Return whether the values of two sweeps are measured on different rows, as far as the records show it."""
    if a.space is None or b.space is None or a.record is None or b.record is None:
        return a.record is not None and b.record is not None and a.record.data != b.record.data
    if a.space.data.given != b.space.data.given or a.space.data.folds != b.space.data.folds:
        return True
    if (
        not a.space.data.given or a.record.data == b.record.data
    ):  # without data, the record has a hash of the loop's code
        return False
    differing = {
        name
        for name, _ in _differences([settings_of(a.space), settings_of(b.space)])[0]
        if name.startswith("data.")
    }
    seeds = a.space.search.seed, b.space.search.seed
    return not differing or not differing <= {*SAME_VALID_ROWS} or seeds[0] != seeds[1]


def _notes(
    sweeps: Sequence[ComparedSweep],
    groups: Sequence[Sequence[int]],
    spaces: Sequence[Mapping[str, str] | None],
    leaders: Sequence[Result | None],
) -> Iterator[str]:
    labels = labels_of(len(sweeps))
    for at, sweep in enumerate(sweeps):
        yield from (f"{labels[at]}: {problem}" for problem in sweep.problems)
        if sweep.state == "running":
            yield f"{labels[at]} is still running, so its values can change"
        if sweep.importance.unknown and sweep.record is not None:
            yield f"{labels[at]}: {sweep.importance.unknown}"
    for group in groups[1:]:
        yield _why_not_comparable(sweeps, groups[0][0], group[0], spaces)
    if len(groups) > 1:
        yield (
            "the regret of a sweep is its distance to the best value of the sweeps with which it "
            "can be compared"
        )
    for label, sweep, leader in zip(labels, sweeps, leaders, strict=True):
        if (
            sweep.best is not None
            and leader is not None
            and ranking.tier(sweep.best) != ranking.tier(leader)
        ):
            why = "breaks a constraint" if not sweep.best.feasible else "was stopped early"
            yield f"{label} has no regret, because its best trial {why}"
    repeats = {
        label: s.record.repeats
        for label, s in zip(labels, sweeps, strict=True)
        if s.record is not None
    }
    if len(set(repeats.values())) > 1:
        texts = (
            f"{label}: {r.count}, by their {r.aggregate}" if r.count > 1 else f"{label}: 1"
            for label, r in repeats.items()
        )
        yield f"the number of repeats for each configuration differs ({'; '.join(texts)})"
    if any(s.record is not None and len(s.record.objectives.objectives) > 1 for s in sweeps):
        yield (
            "a sweep with several objectives has a Pareto front, and neither a single best trial "
            "nor a regret"
        )
    if any(s.space is not None and not s.space.data.given for s in sweeps):
        yield (
            "a training loop that reads its own data is not checked: the data of the sweeps may "
            "differ"
        )


def _why_not_comparable(
    sweeps: Sequence[ComparedSweep], a: int, b: int, spaces: Sequence[Mapping[str, str] | None]
) -> str:
    """Return why the values of the sweeps at positions `a` and `b` cannot be compared."""
    labels = labels_of(len(sweeps))
    both = f"{labels[a]} and {labels[b]}"
    if None in (sweeps[a].objective, sweeps[b].objective):
        return (
            f"{both} are not comparable: "
            f"{labels[a] if sweeps[a].objective is None else labels[b]} has no trial yet"
        )
    if sweeps[a].objective != sweeps[b].objective:
        return (
            f"the values of {both} are not comparable, because the objectives differ: "
            f"{sweeps[a].objective}; {sweeps[b].objective}"
        )
    keys = [
        name
        for name, _ in _differences([spaces[a], spaces[b]])[0]
        if name.startswith("data.") or name == "search.seed"
    ]
    unread = any(spaces[at] is None for at in (a, b))
    why = (
        f": {', '.join(keys)}"
        if keys
        else ""
        if unread
        else ", although the space files name the same data"
    )
    return (
        f"the values of {both} are not comparable, because they are measured on different rows{why}"
    )


def leader_of(sweeps: Sequence[ComparedSweep]) -> Result | None:
    """Return the best result of several comparable sweeps."""
    results = [(at, best) for at, s in enumerate(sweeps) if (best := s.best) is not None]
    if not results or sweeps[0].record is None:
        return None
    found = ranking.winner(results, sweeps[0].record.goal == "minimize")
    return None if found is None else dict(results)[found]


# ---- rows


def _progress(sweep: ComparedSweep) -> Progress:
    if sweep.record is None:
        return Progress()
    return progress_of(sweep.record, pauses_of(sweep.record, sweep.drivers))


def regret_of(sweep: ComparedSweep, value: float | None, leader: Result | None) -> float | None:
    """Return the distance of a value to the best value of comparable sweeps.

    None if the best trials have different ranks.
    """
    best = sweep.best
    if (
        value is None
        or leader is None
        or leader.value is None
        or best is None
        or ranking.tier(best) != ranking.tier(leader)
    ):
        return None
    distance = abs(value - leader.value)
    return distance if math.isfinite(distance) else None


def _regret_rows(
    budget: str,
    sweeps: Sequence[ComparedSweep],
    progress: Sequence[Progress],
    leaders: Sequence[Result | None],
) -> tuple[tuple[int, tuple[float | None, ...]], ...]:
    largest = max((getattr(p.spent[-1], budget) for p in progress if p.spent), default=0.0)
    rows = []
    for amount in steps_of(largest):
        values = tuple(
            regret_of(s, p.best_after(budget, amount), lead)
            for s, p, lead in zip(sweeps, progress, leaders, strict=True)
        )
        if any(value is not None for value in values):
            rows.append((amount, values))
    return tuple(rows)


def _results(
    sweeps: Sequence[ComparedSweep],
    progress: Sequence[Progress],
    leaders: Sequence[Result | None],
    shared: bool,
) -> Iterator[Row]:
    """Yield the rows of results.

    If no two sweeps share a best value (`shared`), there is no row for the regret, which would be
    0.
    """
    records = [s.record for s in sweeps]
    bests = [s.best for s in sweeps]
    yield "state", tuple(s.state for s in sweeps)
    yield "objective", tuple(s.objective for s in sweeps)
    yield "search", tuple(s.algorithm for s in sweeps)
    yield "scheduler", tuple(s.space and s.space.scheduler.name for s in sweeps)
    yield "trials", tuple(r and len(r.ran) for r in records)
    for state in (State.COMPLETE, State.PRUNED, State.FAIL):
        counts = tuple(r and sum(t.result.state is state for t in r.ran) for r in records)
        if any(counts):
            yield (
                {State.COMPLETE: "completed", State.PRUNED: "pruned", State.FAIL: "failed"}[state],
                counts,
            )
    yield "best", tuple(b and b.value for b in bests)
    yield (
        "best trial",
        tuple(r.best.id if r is not None and r.best is not None else None for r in records),
    )
    if shared:
        yield (
            "regret",
            tuple(
                regret_of(s, None if b is None else b.value, lead)
                for s, b, lead in zip(sweeps, bests, leaders, strict=True)
            ),
        )
    if any(s.test is not None for s in sweeps):
        yield "test", tuple(s.test for s in sweeps)
    if any(r is not None and len(r.objectives.objectives) > 1 for r in records):
        yield "front", tuple((r and len(r.front)) or None for r in records)
    yield "seconds", tuple(round(p.spent[-1].seconds, 1) if p.spent else None for p in progress)
    yield (
        "trial seconds",
        tuple(r and round(math.fsum(t.result.seconds for t in r.ran), 1) for r in records),
    )
    for budget in ("cpu_seconds", "gpu_seconds"):
        costs = tuple(
            r and round(math.fsum(t.result.metrics.get(budget, 0.0) for t in r.ran), 1)
            for r in records
        )
        if any(costs):
            yield budget.replace("_", " ").replace("cpu", "CPU").replace("gpu", "GPU"), costs


def _differences(columns: Sequence[Mapping[str, Any] | None]) -> tuple[list[Row], dict[str, Any]]:
    """Return the rows of the values that differ, and the values that are equal.

    A column that is None counts as unknown.
    """
    known = [column for column in columns if column is not None]
    names = list(dict.fromkeys(name for column in known for name in column))
    rows, equal = [], {}
    for name in names:
        values = tuple(column and column.get(name) for column in columns)
        if all(name in column and column[name] == known[0][name] for column in known):
            equal[name] = known[0][name]
        else:
            rows.append((name, values))
    return rows, equal


def _readable(rows: Sequence[Row], spaces: Sequence[Mapping[str, str] | None]) -> list[Row]:
    """Return the rows of settings, with the rows of each section side by side.

    A setting inside an option, such as `preprocessor[SimpleImputer].0.strategy`, is left out if a
    space does not have this option, because the row of the dimension shows the difference already.
    """
    sections = list(
        dict.fromkeys(_section(name) for space in spaces if space is not None for name in space)
    )
    shown = [
        (name, values)
        for name, values in rows
        if "[" not in name or all(v is not None for v, s in zip(values, spaces, strict=True) if s)
    ]
    return sorted(shown, key=lambda row: sections.index(_section(row[0])))


def _section(name: str) -> str:
    return re.split(r"[.\[]", name, maxsplit=1)[0]


def _importance_rows(sweeps: Sequence[ComparedSweep]) -> list[Row]:
    shares = [dict(s.importance.shares) for s in sweeps]
    names = list(dict.fromkeys(name for own in shares for name in own))
    rows = [(name, tuple(own.get(name) for own in shares)) for name in names]
    return sorted(rows, key=lambda row: -max(share or 0.0 for share in row[1]))


def _configuration(sweep: ComparedSweep) -> dict[str, Any] | None:
    """Return the best configuration with dotted names; None if there is no best trial."""
    best = sweep.record.best if sweep.record is not None else None
    if best is None:
        return None
    found = {
        "preprocessor": best.preprocessor,
        **_dotted("scaling", best.scaling),
        **_dotted("params", best.params),
    }
    return {
        **_dotted("data", best.data),
        **found,
        "steps": best.result.steps,
        "best step": best.result.best_step,
    }


def _dotted(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= (
            _dotted(f"{name}.{key}", value)
            if isinstance(value, Mapping) and value
            else {f"{name}.{key}": value}
        )
    return found

"""Compare sweeps: results, regret, spaces, importances and best configurations.

Pure functions, no I/O.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from pydantic import JsonValue

from sweeps.core.result import to_json_value
from sweeps.core.trial import Result, State
from sweeps.evaluation.model_scores import Interval
from sweeps.evaluation.paired import improvement
from sweeps.study import ranking

from .compared_sweep import (
    ComparedSweep,
    Row,
    data_differ,
    differences,
    leader_of,
    regret_of,
    rows_of,
    why_not_comparable,
)
from .regret import (
    BUDGETS,
    best_after,
    steps_of,
)

if TYPE_CHECKING:
    import pandas as pd

# Rows of results that appear only if a sweep has a value other than 0.
RARE_ROWS = {
    "completed",
    "pruned",
    "failed",
    "regret",
    "test",
    "front",
    "CPU seconds",
    "GPU seconds",
}
# Metric of a trial that is added up, by the name of the row.
COSTS = {"trial seconds": "seconds", "CPU seconds": "cpu_seconds", "GPU seconds": "gpu_seconds"}


@dataclass(frozen=True)
class Comparison:
    """A comparison of sweeps. Every row has one value for each sweep, in the order of `sweeps`.

    Attributes:
        sweeps: The compared sweeps.
        groups: Positions of the sweeps, grouped so that the values of the sweeps in a group can be
            compared.
        notes: Parts that cannot be compared, with the reason, and other remarks.
        differences: How much better the exported model of the second sweep is than that of the
            first, on new rows; see `paired.improvement`.
        results: Rows such as `best` and `seconds`.
        regret: For each budget (see `regret.Moment`), rows with the amount spent and the regret of
            each sweep. The regret is the distance between the best value so far and the best value
            of the sweep's group.
        settings: Rows of the settings that differ between the spaces.
        equal_settings: Number of settings that are equal.
        importance: Rows of the dimensions, the most important one first.
        configurations: Rows of the best configurations' values that differ.
        equal_values: The values that all best configurations share, by name.
    """

    sweeps: tuple[ComparedSweep, ...]
    groups: tuple[tuple[int, ...], ...]
    notes: tuple[str, ...]
    differences: Mapping[tuple[int, int], Interval]
    results: tuple[Row, ...]
    regret: dict[str, tuple[tuple[int, tuple[float | None, ...]], ...]]
    settings: tuple[Row, ...]
    equal_settings: int
    importance: tuple[Row, ...]
    configurations: tuple[Row, ...]
    equal_values: dict[str, JsonValue]

    @property
    def labels(self) -> tuple[str, ...]:
        """A short label for each sweep: A, B, ..."""
        return labels_of(len(self.sweeps))

    @property
    def winners(self) -> dict[tuple[int, ...], tuple[int, ...]]:
        """For each group of several sweeps, the positions of the winners.

        Winners are the sweeps whose best trial is the best of the group.
        """
        regret = dict(self.results).get("regret", [None] * len(self.sweeps))
        return {
            group: tuple(position for position in group if regret[position] == 0)
            for group in self.groups
            if len(group) > 1
        }

    def to_json(self) -> dict[str, JsonValue]:
        """Return the JSON object that `sweeps compare --json` prints.

        NaN and infinity become None.
        """
        labels = self.labels
        content = {
            "sweeps": [
                {"label": label, "sweep": s.name, "dir": s.place}
                for label, s in zip(labels, self.sweeps, strict=True)
            ],
            "comparable": [[labels[i] for i in group] for group in self.groups],
            "notes": self.notes,
            "differences": [
                {"from": labels[first], "to": labels[second], **asdict(difference)}
                for (first, second), difference in self.differences.items()
            ],
            "results": dict(self.results),
            "regret": {
                budget: [{budget: amount, "regret": values} for amount, values in rows]
                for budget, rows in self.regret.items()
            },
            "space": {"differs": dict(self.settings), "equal": self.equal_settings},
            "importance": dict(self.importance),
            "configuration": {"differs": dict(self.configurations), "equal": self.equal_values},
        }
        return dict(to_json_value(content))

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
        parts: dict[str, Sequence[tuple[str | int, Sequence[JsonValue]]]] = {
            "results": self.results,
            "settings": self.settings,
            "importance": self.importance,
            "configurations": self.configurations,
            **{f"regret.{budget}": rows for budget, rows in self.regret.items()},
        }
        return {
            name: pd.DataFrame.from_dict(dict(rows), orient="index", columns=columns)
            for name, rows in parts.items()
        }

    def __str__(self) -> str:
        return "\n".join([*self.notes, self._table().to_string(na_rep="-")])

    def _repr_html_(self) -> str:
        return str(self._table().to_html(na_rep="-"))

    def _table(self) -> pd.DataFrame:
        """Return all frames below each other."""
        import pandas as pd

        return pd.concat({name: frame for name, frame in self.frames().items() if len(frame)})


def labels_of(count: int) -> tuple[str, ...]:
    """Return short labels: A to Z, then A2 to Z2 and so on."""
    labels = []
    for i in range(count):
        rounds, letter = divmod(i, 26)
        suffix = f"{rounds + 1}" if rounds else ""
        labels.append(f"{chr(ord('A') + letter)}{suffix}")
    return tuple(labels)


def compare(sweeps: Sequence[ComparedSweep]) -> Comparison:
    """Compare sweeps as far as their objectives and their data allow."""
    groups = _groups(sweeps)
    # The best result in the group of each sweep
    leaders: list[Result | None] = [None] * len(sweeps)
    for group in groups:
        leader = leader_of([sweeps[position] for position in group])
        for position in group:
            leaders[position] = leader
    settings, equal_settings = differences([s.settings for s in sweeps])
    configurations, equal_values = differences([s.configuration for s in sweeps])
    regret = {budget: _regret_rows(budget, sweeps, leaders) for budget in BUDGETS}
    gains = _differences(sweeps, groups)
    notes = [*_notes(sweeps, groups, leaders), *_missing_differences(sweeps, groups, gains)]
    return Comparison(
        sweeps=tuple(sweeps),
        groups=groups,
        notes=tuple(notes),
        differences=gains,
        results=_results(sweeps, leaders, comparable=any(len(group) > 1 for group in groups)),
        regret={budget: rows for budget, rows in regret.items() if rows},
        settings=settings,
        equal_settings=len(equal_settings),
        importance=_importance_rows(sweeps),
        configurations=configurations,
        equal_values=equal_values,
    )


# ---- what can be compared


def _groups(sweeps: Sequence[ComparedSweep]) -> tuple[tuple[int, ...], ...]:
    """Group the positions of sweeps with equal objectives and equal valid rows."""
    groups: list[list[int]] = []
    for position, sweep in enumerate(sweeps):
        for group in groups:
            first = sweeps[group[0]]
            if first.objective == sweep.objective and not data_differ(first, sweep):
                group.append(position)
                break
        else:
            groups.append([position])
    return tuple(map(tuple, groups))


def _differences(
    sweeps: Sequence[ComparedSweep], groups: Sequence[Sequence[int]]
) -> dict[tuple[int, int], Interval]:
    """Compare the exported model of the first sweep of each group with those of the others."""
    differences = {}
    for first, *others in groups:
        old, record = sweeps[first].model, sweeps[first].record
        for other in others:
            new = sweeps[other].model
            if old is None or new is None or record is None:
                continue
            difference = improvement(old, new, record.goal == "minimize")
            if difference is not None:
                differences[first, other] = difference
    return differences


def _missing_differences(
    sweeps: Sequence[ComparedSweep],
    groups: Sequence[Sequence[int]],
    known: Mapping[tuple[int, int], Interval],
) -> Iterator[str]:
    """Yield a note for each sweep that `_differences` left out although its sweep has a model."""
    labels = labels_of(len(sweeps))
    for first, *others in groups:
        for other in others:
            if (first, other) in known or sweeps[first].best is None or sweeps[other].best is None:
                continue
            missing = [labels[i] for i in (first, other) if sweeps[i].model is None]
            why = "the rows, the folds or the classes of valid differ"
            if missing:
                has = "has" if len(missing) == 1 else "have"
                why = f"{' and '.join(missing)} {has} no exported model with an interval"
            names = f"{labels[first]} and {labels[other]}"
            yield f"the models of {names} are not compared on new rows, because {why}"


def _notes(
    sweeps: Sequence[ComparedSweep],
    groups: Sequence[Sequence[int]],
    leaders: Sequence[Result | None],
) -> Iterator[str]:
    """Yield the notes of a comparison; see `Comparison.notes`.

    Args:
        sweeps: The sweeps.
        groups: See `Comparison.groups`.
        leaders: The best result in the group of each sweep.
    """
    labels = labels_of(len(sweeps))
    for label, sweep in zip(labels, sweeps, strict=True):
        yield from (f"{label}: {problem}" for problem in sweep.problems)
        if sweep.state == "running":
            yield f"{label} is still running, so its values can change"
        if sweep.importance.unknown and sweep.record is not None:
            yield f"{label}: {sweep.importance.unknown}"
    first = groups[0][0]
    for other, *_ in groups[1:]:
        names = f"{labels[first]} and {labels[other]}"
        why = why_not_comparable(sweeps[first], sweeps[other])
        yield f"the values of {names} are not comparable, because {why}"
    if len(groups) > 1:
        yield (
            "the regret of a sweep is its distance to the best value of the sweeps with which it "
            "can be compared"
        )
    for label, sweep, leader in zip(labels, sweeps, leaders, strict=True):
        if sweep.best is None or leader is None:
            continue
        if ranking.tier(sweep.best) != ranking.tier(leader):
            why = "breaks a constraint" if not sweep.best.feasible else "was stopped early"
            yield f"{label} has no regret, because its best trial {why}"
    if len({s.record.repeats for s in sweeps if s.record is not None}) > 1:
        yield "the number of repeats for each configuration differs"
    if any(s.record is not None and len(s.record.objectives.objectives) > 1 for s in sweeps):
        yield (
            "a sweep with several objectives has a Pareto front, and neither a single best trial "
            "nor a regret"
        )
    if any(s.space is not None and not s.space.data.is_named for s in sweeps):
        yield (
            "a training loop that reads its own data is not checked: the data of the sweeps may "
            "differ"
        )


# ---- rows


def _regret_rows(
    budget: str, sweeps: Sequence[ComparedSweep], leaders: Sequence[Result | None]
) -> tuple[tuple[int, tuple[float | None, ...]], ...]:
    """Return (amount, regret of each sweep) for some amounts of a budget; see `steps_of`."""
    spent = [getattr(s.progress[-1], budget) for s in sweeps if s.progress]
    rows = []
    for amount in steps_of(max(spent, default=0.0)):
        values = tuple(
            regret_of(s, best_after(s.progress, budget, amount), leader)
            for s, leader in zip(sweeps, leaders, strict=True)
        )
        if any(value is not None for value in values):
            rows.append((amount, values))
    return tuple(rows)


def _results(
    sweeps: Sequence[ComparedSweep], leaders: Sequence[Result | None], comparable: bool
) -> tuple[Row, ...]:
    """Return the rows of results. Rows of `RARE_ROWS` without any value but 0 are left out.

    Args:
        sweeps: The sweeps.
        leaders: The best result in the group of each sweep.
        comparable: True if some sweeps can be compared. The row of the regret then stays, also if
            all values are 0.
    """
    results = [_result(sweep, leader) for sweep, leader in zip(sweeps, leaders, strict=True)]
    return tuple(
        (name, values)
        for name, values in rows_of(results)
        if name not in RARE_ROWS or any(values) or (name == "regret" and comparable)
    )


def _result(sweep: ComparedSweep, leader: Result | None) -> dict[str, JsonValue]:
    """Return the values of one sweep by the names of the rows."""
    values: dict[str, JsonValue] = {
        "state": sweep.state,
        "objective": sweep.objective,
        "search": sweep.algorithm,
        "scheduler": None if sweep.space is None else sweep.space.scheduler.name,
    }
    record = sweep.record
    if record is None:
        return values
    states = Counter(t.result.state for t in record.ran)
    values |= {"trials": len(record.ran), "completed": states[State.COMPLETE]}
    values |= {"pruned": states[State.PRUNED], "failed": states[State.FAIL]}
    if sweep.best is not None and record.best is not None:
        values |= {"best": sweep.best.value, "best trial": record.best.id}
        values["regret"] = regret_of(sweep, sweep.best.value, leader)
        values["test"] = sweep.test
    if len(record.objectives.objectives) > 1:
        values["front"] = len(record.front)
    if sweep.progress:
        values["seconds"] = round(sweep.progress[-1].seconds, 1)
    for name, metric in COSTS.items():
        costs = (t.result.metrics.get(metric, 0.0) for t in record.ran)
        values[name] = round(math.fsum(costs), 1)
    return values


def _importance_rows(sweeps: Sequence[ComparedSweep]) -> tuple[Row, ...]:
    rows = rows_of([dict(s.importance.shares) for s in sweeps])
    return tuple(sorted(rows, key=lambda row: -max(share or 0.0 for share in row[1])))

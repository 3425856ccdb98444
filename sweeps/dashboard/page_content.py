"""Pure functions that compute the data of a sweep or a trial, for the templates of the page."""

import datetime
import math
import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, JsonValue

from sweeps.core.json_values import is_number
from sweeps.core.text.texts import count_states, value_text
from sweeps.space.model.domains import short_names
from sweeps.study.states import TrialState
from sweeps.sweep_report.trial_rows import trial_facts, trial_rows

from .sweep_reader import Snapshot

Cell = float | str | None
# Rows of a page of the table.
ROWS = 25
# The states in which no command can stop a trial any more.
ENDED = ("COMPLETE", "PRUNED", "FAIL", "INTERRUPTED", "GIVEN")
COMPARISON = re.compile(r"(.+?)(!=|<=|>=|=|<|>)(.+)")
OPERATORS = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class TableQuery(BaseModel):
    """Filter, order and page of the table of trials, as the reader has selected them.

    Attributes:
        filter: Words and comparisons, such as `state=COMPLETE eta<0.1`.
        sort: Key of the column by which the rows are sorted.
        down: True if the largest value comes first.
        page: Number of the page, from 0.
    """

    filter: str = ""
    sort: str = "trial"
    down: bool = True
    page: int = 0


@dataclass(frozen=True)
class Column:
    """A column of the table of trials.

    Attributes:
        key: Name of the column in addresses.
        label: Name of the column for readers.
        is_number: True if its cells are numbers, which are aligned at the right.
    """

    key: str
    label: str
    is_number: bool = False


@dataclass(frozen=True)
class TrialTable:
    """A page of the table of trials.

    Attributes:
        columns: The columns.
        rows: The rows of this page. A cell is a number, a text or None.
        page: Number of this page, from 0.
        count: Number of the trials that fit the filter.
        total: Number of all trials.
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    page: int = 0
    count: int = 0
    total: int = 0

    @property
    def rows_before(self) -> int:
        """Number of trials on earlier pages."""
        return self.page * ROWS

    @property
    def is_last(self) -> bool:
        """True if no page follows."""
        return self.rows_before + ROWS >= self.count


def trial_table(snapshot: Snapshot, query: TableQuery) -> TrialTable:
    """Return the page of the table that the reader has chosen."""
    columns, rows = all_rows(snapshot)
    indices = {}  # index of each column, by both of its names
    for i, column in enumerate(columns):
        indices[column.label.lower()] = i
        indices[column.key.lower()] = i
    words = query.filter.lower().split()
    chosen = [row for row in rows if all(matches(row, word, indices) for word in words)]
    index = indices.get(query.sort.lower(), 0)
    present = [row for row in chosen if row[index] is not None]
    present.sort(key=lambda row: (isinstance(row[index], str), row[index]), reverse=query.down)
    ordered = present + [row for row in chosen if row[index] is None]
    page = min(max(0, query.page), max(0, len(ordered) - 1) // ROWS)
    shown = ordered[page * ROWS :][:ROWS]
    return TrialTable(columns, shown, page=page, count=len(ordered), total=len(rows))


def all_rows(snapshot: Snapshot) -> tuple[list[Column], list[list[Cell]]]:
    """Return the columns and the rows of all trials."""
    study = snapshot.study
    named_rows = [] if study is None else list(trial_rows(study, snapshot.summary.state_of))
    if study is None or not named_rows:
        return [Column("trial", "trial")], []
    # In addresses, an objective has its index in place of the name of its metric.
    keys = {o.metric: f"value.{i}" for i, o in enumerate(study.objectives.objectives)}
    rows = [[_cell(value) for value in row.values()] for row in named_rows]
    columns = []
    for i, (name, label) in enumerate(short_names(list(named_rows[0])).items()):
        has_numbers = all(row[i] is None or is_number(row[i]) for row in rows)
        columns.append(Column(keys.get(name, name), label, has_numbers))
    return columns, rows


def matches(row: Sequence[Cell], word: str, indices: Mapping[str, int]) -> bool:
    """Return whether a row matches a word of the filter.

    A word such as `eta<0.1` compares a column. Any other word must be in some cell.

    Args:
        row: The row.
        word: The word, in lower case.
        indices: Index of each column in the row, by the column's names in lower case.
    """
    match = COMPARISON.fullmatch(word)
    if match is None or match[1] not in indices:
        return any(word in str(cell).lower() for cell in row if cell is not None)
    name, sign, wanted = match.groups()
    cell = row[indices[name]]
    compare = OPERATORS[sign]
    if cell is None:
        return sign == "!="
    if is_number(cell):
        try:
            return bool(compare(cell, float(wanted)))
        except ValueError:
            pass
    return bool(compare(str(cell).lower(), wanted))


def _cell(value: JsonValue) -> Cell:
    """Return a finite number, a text, or None."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value if math.isfinite(value) else None
    return None if value is None else value_text(value)


def sweep_facts(snapshot: Snapshot) -> list[tuple[str, str]]:
    """Return the facts above the table of trials, as (name, value)."""
    summary = snapshot.summary
    name = f"of {summary.total:,} trials" if summary.total else "trials"
    facts = [(name, count_states(summary.trials) or "none")]
    if summary.best is not None:
        trial, value = summary.best
        facts.append((f"best {summary.metric or 'value'}, trial {trial}", value_text(value)))
    facts.append(("algorithm", summary.algorithm or ""))
    facts.append(("began", time_text(summary.began)))
    if summary.result is not None:
        facts.append(("duration", f"{summary.result.seconds:.0f} s"))
    return [(name, value) for name, value in facts if value]


def sweep_notes(snapshot: Snapshot) -> list[str]:
    """Return what a reader of the sweep should know."""
    result = snapshot.summary.result
    notes = [snapshot.problem] if snapshot.problem else []
    notes += map(str, snapshot.summary.problems)
    if result is None:
        return notes
    early = [f"ended early: {result.reason}"] if result.reason else []
    return [*early, *notes, *result.notes]


def time_text(seconds: float) -> str:
    """Return a time, in seconds since the epoch, as local time."""
    return datetime.datetime.fromtimestamp(seconds).isoformat(sep=" ", timespec="minutes")


def facts_of(t: TrialState, snapshot: Snapshot) -> list[tuple[str, JsonValue]]:
    """Return the facts about one trial, as (name, value)."""
    r = t.result
    objectives = snapshot.study.objectives.objectives if snapshot.study is not None else ()
    facts: dict[str, JsonValue] = {"state": snapshot.summary.state_of(t)}
    facts |= {o.metric: value for o, value in zip(objectives, r.values, strict=False)}
    facts["best step"] = None if r.best_step is None else f"{r.best_step} of {r.steps}"
    facts["stopped"] = t.reason
    facts |= dict(trial_facts(t)) | {f"final {name}": value for name, value in r.final.items()}
    facts |= {
        "ended": None if t.end_time is None else str(t.end_time),
        "attempts": t.attempt,
        "stage": snapshot.summary.stages.get(t.id),
    }
    # NaN is not equal to itself
    return [(name, value) for name, value in facts.items() if value is not None and value == value]

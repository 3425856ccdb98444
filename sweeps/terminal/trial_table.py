"""The trials of a sweep as a table or as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sweeps.controller.trial_columns import (
    Column,
    cell_of,
    chosen_columns,
    is_missing,
    sorted_trials,
)
from sweeps.terminal.text import format_table

if TYPE_CHECKING:
    from sweeps.controller.sweep_summary import SweepSummary
    from sweeps.study.record import Record, TrialRecord


def format_trials(
    study: Record,
    sweep: SweepSummary,
    width: int,
    most: int | None,
    sort: str | None = None,
    columns: Sequence[str] = (),
) -> str:
    """Format the trials as a table.

    Args:
        study: Record of the sweep's trials.
        sweep: The sweep.
        width: Width of the terminal.
        most: Largest number of trials to show; None shows all.
        sort: Column to sort by; see `sorted_trials`.
        columns: Names of the columns to show; see `chosen_columns`.
    """
    chosen = chosen_columns(columns, study, sweep)
    trials = sorted_trials(study, sweep, sort)[:most]
    rows = [
        ["-" if (value := cell_of(column, t)) is None else value for column in chosen]
        for t in trials
    ]
    text = format_table(
        [c.head for c in chosen], rows, width, right=[c.head for c in chosen if c.is_number]
    )
    left = len(study.trials) - len(rows)
    return text + (f"\n… and {left} more (--all)" if left else "")


def trials_csv(
    study: Record | None, sweep: SweepSummary, sort: str | None, columns: Sequence[str]
) -> str:
    """Return all trials as CSV with a header.

    Numbers are not rounded, and a missing value is an empty cell.
    """
    if study is None:
        return ""
    chosen = chosen_columns(columns, study, sweep)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([c.name for c in chosen])
    writer.writerows(_csv_rows(chosen, sorted_trials(study, sweep, sort)))
    return out.getvalue()


def _csv_rows(columns: Sequence[Column], trials: Sequence[TrialRecord]) -> Iterator[list[Any]]:
    for t in trials:
        yield ["" if is_missing(value := column.value(t)) else value for column in columns]

"""The trials of a sweep as a table or as CSV."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sweeps.sweep_report.trial_rows import trial_rows

from .terminal_text import format_table

if TYPE_CHECKING:
    from pydantic import JsonValue

    from sweeps.stored.sweep_summary import SweepSummary
    from sweeps.study.record_reader import Record


def format_trials(study: Record, sweep: SweepSummary, width: int, most: int | None) -> str:
    """Format the trials as a table.

    Args:
        study: Record of the sweep's trials.
        sweep: The sweep.
        width: Width of the terminal.
        most: Largest number of trials to show; None shows all.
    """
    rows = list(trial_rows(study, sweep.state_of))
    dimensions = {name for t in study.trials for name in t.labels}
    heads = {name: name.upper() for name in rows[0]}
    for name in dimensions & heads.keys():
        heads[name] = name.removeprefix("params.").removeprefix("scaling.")
    # The columns that hold texts. The others hold numbers, which are aligned to the right.
    texts = {"trial", "state", "feasible", "repeats", "front", "enqueued", *dimensions}
    right = [head for name, head in heads.items() if name not in texts]
    cells = [[_cell(name, value) for name, value in row.items()] for row in rows[:most]]
    text = format_table(list(heads.values()), cells, width, right=right)
    hidden = len(rows) - len(cells)
    return text + (f"\n… and {hidden} more (--all)" if hidden else "")


def _cell(name: str, value: JsonValue) -> JsonValue:
    if name.endswith("seconds") and isinstance(value, float):
        return f"{value:.1f}"
    return "-" if value is None else value


def trials_csv(study: Record | None, sweep: SweepSummary) -> str:
    """Return all trials as CSV with a header.

    Numbers are not rounded, and a missing value is an empty cell.
    """
    if study is None or not study.trials:
        return ""
    import pandas as pd

    rows = list(trial_rows(study, sweep.state_of))
    text: str = pd.DataFrame(rows, dtype=object).to_csv(index=False)
    return text

"""HTML for notebooks: the live view of a sweep, and a sweep as a table. Pure functions, no I/O.

Notebooks show untrusted files without style sheets and scripts, so the HTML has neither.
"""

from __future__ import annotations

import html
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sweeps.controller.status import STATES, Pairs, SweepStatus, TrialRow, shape_text
from sweeps.controller.trial_columns import cell_of, default_columns, is_missing, sorted_trials
from sweeps.core.durations import format_clock
from sweeps.core.html_tables import escaped, facts, table

if TYPE_CHECKING:
    from sweeps.controller.sweep_summary import SweepSummary
    from sweeps.study.record import Record

# Number of running trials in the live view, and of trials in the table of a sweep.
RUNNING_TRIALS, BEST_TRIALS = 16, 20


def status_html(s: SweepStatus, messages: Sequence[str] = ()) -> str:
    """Return the live view of a sweep.

    Args:
        s: The status of the sweep.
        messages: Lines above the view, such as warnings about the data.
    """
    lines = [f"<div>{html.escape(message)}</div>" for message in messages]
    lines.append(
        f"<div><b>{html.escape(s.name)}</b> &nbsp; {format_clock(s.seconds)}{_phase(s)}</div>"
    )
    counts = ", ".join(f"{number} {STATES[state]}" for state, number in s.counts.items())
    bar = (
        f'<progress max="{max(1, s.total)}" value="{s.ended}" style="width: 16em; vertical-align: '
        'middle"></progress>'
    )
    lines.append(f"<div>{bar} <b>{s.ended}/{s.total}</b> trials: {counts}</div>")
    lines += [f"<div>{text}</div>" for text in _facts(s)]
    if s.rows:
        lines.append(_running(s))
    lines += [
        f"<div>trial {row.trial}: {html.escape(row.notice)}</div>" for row in s.rows if row.notice
    ]
    return f'<div style="font-variant-numeric: tabular-nums">{"".join(lines)}</div>'


def _phase(s: SweepStatus) -> str:
    """Return what the sweep does while no trials run, or how much time is left."""
    if s.stage is not None:
        return f" &nbsp; {html.escape(s.stage)}"
    if s.reason is not None:
        return f" &nbsp; stopping: {html.escape(s.reason)}"
    if s.paused:
        return " &nbsp; paused: running trials continue, and no new trial starts"
    if s.left is not None:
        return (
            f" &nbsp; {'at most' if s.left.at_most else 'about'} {format_clock(s.left.seconds)} "
            "left"
        )
    return ""


def _facts(s: SweepStatus) -> Iterator[str]:
    if s.best is not None:
        where = f"trial {s.best.trial}" + (f", step {s.best.step}" if s.best.step else "")
        yield (
            f"best <b>{s.best.value:.6g}</b> {html.escape(s.metric)} &nbsp; {where} &nbsp; "
            f"{_pairs(s.best.configuration)}"
        )
    if s.front:
        yield f"{s.front} trial{'s' * (s.front != 1)} on the Pareto front"
    if s.failure is not None:
        yield f"failed {html.escape(s.failure[0])}: {escaped(s.failure[1])}"
    if s.use:
        yield "in use " + ", ".join(
            f"{html.escape(use.name)} {use.busy:g}/{use.total:g}" for use in s.use
        )


def _running(s: SweepStatus) -> str:
    shown, more = s.rows[:RUNNING_TRIALS], len(s.rows) - RUNNING_TRIALS
    head = ("trial", "step", s.metric, "best", "workers", "time", "configuration")
    rows = [
        (
            row.trial,
            _step(row),
            _number(row.value),
            _number(row.best),
            shape_text(row.shape),
            format_clock(row.seconds),
            _text(row),
        )
        for row in shown
    ]
    return table(head, rows, right=(s.metric, "best", "time")) + (
        f"<div>… and {more} more</div>" if more > 0 else ""
    )


def _step(row: TrialRow) -> str:
    if row.stage != "training":
        return row.stage
    attempt = f" (attempt {row.attempt})" if row.attempt > 1 else ""
    return f"{row.step}/{row.max_t}{attempt}" if row.max_t else f"{row.step}{attempt}"


def _text(row: TrialRow) -> str:
    return ", ".join(f"{name}={value}" for name, value in row.configuration)


def _pairs(configuration: Pairs) -> str:
    return html.escape(", ".join(f"{name}={value}" for name, value in configuration))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.5g}"


def sweep_html(summary: SweepSummary, study: Record | None) -> str:
    """Return a sweep as HTML: its state, and the table of trials that `sweeps show` prints.

    Args:
        summary: The summary of the sweep.
        study: Record of the sweep's trials; None if no trial has started.
    """
    counts = (
        ", ".join(f"{number} {word}" for word, number in summary.trials.items() if number)
        or "no trial yet"
    )
    of = f" of {summary.total}" if summary.total else ""
    pairs: list[tuple[str, object]] = [
        ("sweep", summary.name),
        ("state", summary.state),
        ("trials", counts + of),
    ]
    if study is not None:
        pairs.append(
            ("objective", ", ".join(f"{o.goal} {o.metric}" for o in study.objectives.objectives))
        )
    pairs += [("best", f"{summary.best[1]:.6g} (trial {summary.best[0]})")] if summary.best else []
    pairs += [("search", summary.algorithm)] if summary.algorithm else []
    pairs.append(("started", time.strftime("%Y-%m-%d %H:%M", time.localtime(summary.began))))
    pairs += [("problem", problem) for problem in summary.problems]
    return facts(pairs) + (
        trials_html(summary, study) if study is not None and study.trials else ""
    )


def trials_html(summary: SweepSummary, study: Record) -> str:
    """Return the table of the best trials."""
    columns, trials = default_columns(study, summary), sorted_trials(study, summary)
    rows = [[_cell(cell_of(column, t)) for column in columns] for t in trials[:BEST_TRIALS]]
    left = len(trials) - len(rows)
    more = f"<div>… and {left} more; <code>.trials</code> has all trials</div>" if left else ""
    return (
        table(
            [c.head.lower() for c in columns],
            rows,
            {c.head.lower() for c in columns if c.is_number},
        )
        + more
    )


def _cell(value: Any) -> str:
    if is_missing(value):
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)

"""The figures of a comparison: the best value so far and the regret of each sweep, over trials and over seconds. Pure functions, no I/O."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from sweeps.sweep_report.comparison import Comparison, labels_of, leader_of, regret_of
from sweeps.sweep_report.figures import Figure, Raw, thin, whole_axis
from sweeps.sweep_report.plots import MAX_POINTS, axes, rounded

# Titles of the x axes, by the attribute of `regret.Spent`.
BUDGETS = {"trials": "trials", "seconds": "seconds"}
# A point of a line: what the sweep has spent, and the value.
Points = list[tuple[float, float]]


def comparison_figures(comparison: Comparison) -> list[Figure]:
    """Return the figures of a comparison.

    Sweeps whose values cannot be compared are in different figures.
    """
    return [
        figure
        for group in comparison.groups
        for budget in BUDGETS
        for figure in _figures_of(comparison, group, budget)
    ]


def _figures_of(comparison: Comparison, group: Sequence[int], budget: str) -> Iterator[Figure]:
    """Yield the figures of a group of comparable sweeps: the best values, and the regret if there are several sweeps."""
    labels = labels_of(len(comparison.sweeps))
    best = {at: best_points(comparison, at, budget) for at in group}
    best = {at: points for at, points in best.items() if points}
    if not best:
        return
    names = {at: f"{labels[at]}: {comparison.sweeps[at].name}" for at in best}
    of = "" if len(comparison.groups) == 1 else f" of {', '.join(labels[at] for at in group)}"
    of += f" over {BUDGETS[budget]}"
    record = comparison.sweeps[group[0]].record
    assert record is not None  # a sweep without a study has no points
    metric = record.objectives.objectives[0].metric
    note = "The best value of each sweep so far, in the order in which its trials ended."
    yield _lines(
        "best",
        f"Best so far{of}",
        {names[at]: points for at, points in best.items()},
        axes(BUDGETS[budget], metric),
        note,
    )
    leader = leader_of([comparison.sweeps[at] for at in group])
    regret = {
        names[at]: positive(
            [
                (spent, r)
                for spent, value in points
                if (r := regret_of(comparison.sweeps[at], value, leader)) is not None
            ]
        )
        for at, points in best.items()
    }
    if len(group) < 2 or not any(regret.values()):
        return
    layout = axes(BUDGETS[budget], f"regret: {metric}")
    layout["yaxis"] |= {"type": "log", "exponentformat": "power"}
    note = (
        "The distance to the best value of all these sweeps. The line of a sweep ends where the "
        "sweep reaches this value."
    )
    yield _lines("regret", f"Regret{of}", regret, layout, note)


def best_points(comparison: Comparison, at: int, budget: str) -> Points:
    """Return the best value so far of the sweep at a position, after each trial that ended."""
    progress = comparison.progress[at]
    pairs = (
        (getattr(spent, budget), value)
        for spent, value in zip(progress.spent, progress.best, strict=True)
    )
    return [(spent, value) for spent, value in pairs if value is not None and math.isfinite(value)]


def positive(points: Points) -> Points:
    """Return the points for a logarithmic axis, which has no 0.

    A line that falls to 0 ends at this place, at its last positive value.

    >>> positive([(1, 0.2), (2, 0.1), (5, 0), (9, 0)])
    [(1, 0.2), (2, 0.1), (5, 0.1)]
    """
    kept = [(spent, value) for spent, value in points if value > 0]
    return [*kept, (points[len(kept)][0], kept[-1][1])] if 0 < len(kept) < len(points) else kept


def _lines(
    key: str, title: str, lines: dict[str, Points], layout: dict[str, Any], note: str
) -> Figure:
    """Return a figure with one stepped line for each sweep."""
    traces: list[dict[str, Any]] = []
    for name, points in lines.items():
        kept = thin(points, MAX_POINTS)
        line = {
            "type": "scatter",
            "mode": "lines",
            "name": name,
            "line": {"shape": "hv", "width": 2},
        }
        shown = {"x": rounded(x for x, _ in kept), "y": rounded(y for _, y in kept)}
        hover = Raw("%{y} after %{x}<extra>%{fullData.name}</extra>")
        traces.append({**line, **shown, "hovertemplate": hover})
    layout["xaxis"] |= {
        "rangemode": "tozero",
        **whole_axis(x for points in lines.values() for x, _ in points),
    }
    layout |= {"showlegend": True, "legend": {"orientation": "h", "y": -0.22, "x": 0}}
    return Figure(key, title, {"data": traces, "layout": layout}, note)

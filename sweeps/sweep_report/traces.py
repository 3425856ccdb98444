"""Traces, axes and captions that several figures have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from sweeps.core.resources import workers_text
from sweeps.space.model.conditions import Key

from .figures import Figure, PlotlyObject, Raw
from .plot_data import PlotData, thin

if TYPE_CHECKING:
    from sweeps.study.states import TrialState

# Color of the trials of each state. People who do not distinguish red and green can tell these
# colors apart.
STATES = {
    "COMPLETE": "#2f7ed8",
    "PRUNED": "#e69f00",
    "FAIL": "#cc3d4e",
    "RUNNING": "#11a683",
    "PAUSED": "#17a2b8",
    "INTERRUPTED": "#8a8f98",
    "GIVEN": "#9467bd",
}
# The largest number of points in a scatter plot.
MAX_POINTS = 2000
# An axis of whole numbers has a label at each number if its ends are at most this far apart.
MAX_WHOLE_TICKS = 12
# Title of each figure, in the order of the page.
TITLES = {
    "history": "Best so far",
    "curves": "Curves",
    "winner": "The winner on new rows",
    "pareto": "Pareto front",
    "importance": "Importance",
    "parallel": "Parallel coordinates",
    "slice": "Slice",
    "cost": "Cost by scale",
    "timeline": "Timeline",
}
NOTHING_VARIES = "There is nothing to draw, because no dimension varies."
NO_VALUES = "There is nothing to draw, because no trial has a value."
EVERY_TRIAL = "Each trial at its best step, including trials that were stopped early."


def empty_figure(key: str, note: str) -> Figure:
    """Return a figure without a plot, whose caption says why there is nothing to draw."""
    return Figure(key, TITLES[key], note=note)


def make_figure(key: str, traces: list[PlotlyObject], layout: PlotlyObject, note: str) -> Figure:
    """Return a figure with the title that belongs to its key."""
    return Figure(key, TITLES[key], {"data": traces, "layout": layout}, note)


def points(
    data: PlotData, name: str, trials: Sequence[TrialState], x: Sequence[Key]
) -> PlotlyObject:
    """Return one point for each trial: its value by `x`.

    Args:
        data: The sweep.
        name: Name of the points in the legend. The name of a state also decides the color.
        trials: The trials.
        x: The position of each trial on the horizontal axis.
    """
    trace: PlotlyObject = {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": x,
        "y": [t.result.value for t in trials],
        "customdata": [t.id for t in trials],
        "marker": {"size": 6, "opacity": 0.8},
        "meta": [data.metric],
        "hovertemplate": Raw(
            "trial %{customdata}: %{meta[0]} %{y} at %{x}<extra>%{fullData.name}</extra>"
        ),
    }
    if name in STATES:
        trace["marker"]["color"] = STATES[name]
    if name == "COMPLETE":
        trace["zorder"] = 1  # on top of the others
    return trace


def points_by_state(
    data: PlotData, trials: Sequence[TrialState], place: Callable[[TrialState], float | str]
) -> list[PlotlyObject]:
    """Return one point for each trial: its value by its place, in the color of its state.

    `place` returns the position of a trial on the horizontal axis.
    """
    return [
        points(data, state, chosen, [place(t) for t in chosen])
        for state, chosen in group_by_state(data, trials).items()
    ]


def axes(x: str, y: str) -> PlotlyObject:
    """Return the layout of a figure with two axes."""
    return {
        "xaxis": {"title": {"text": x}},
        "yaxis": {"title": {"text": y}},
        "hovermode": "closest",
        "showlegend": True,
    }


def group_by_state(data: PlotData, trials: Sequence[TrialState]) -> dict[str, list[TrialState]]:
    """Return the trials in each state, by the name of the state.

    States without trials are left out.
    """
    states: dict[str, list[TrialState]] = {}
    for t in trials:
        states.setdefault(t.result.state_name(data.is_driven), []).append(t)
    return {state: states[state] for state in STATES if state in states}


def workers_of(t: TrialState) -> str:
    """Return the number of a trial's workers as text, such as `2 workers`."""
    return workers_text(t.trial.shape.scaling.get("num_workers", 1))


def sample(trials: Sequence[TrialState]) -> tuple[list[TrialState], str]:
    """Return at most `MAX_POINTS` trials, and a sentence about them; "" if these are all trials."""
    shown = thin(trials, MAX_POINTS)
    if len(shown) == len(trials):
        return shown, ""
    counts = f"{len(shown):,} of {len(trials):,} trials"
    return shown, f" The figure shows {counts}, spread evenly over the ranking."


def whole_axis(values: Iterable[Key]) -> dict[str, int]:
    """Return settings of an axis for a few whole numbers. Other axes need no settings.

    Without these settings, Plotly would also label fractions between the numbers.
    """
    different = set(values)
    whole = [v for v in different if isinstance(v, int) and not isinstance(v, bool)]
    if not whole or len(whole) < len(different) or max(whole) - min(whole) > MAX_WHOLE_TICKS:
        return {}
    return {"dtick": 1}

"""The figure of the exported model beside other trials, with intervals on new rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .figures import Figure, Raw
from .traces import axes, empty_figure, make_figure

if TYPE_CHECKING:
    from .plot_data import PlotData

NOTE = (
    "How much better the exported model is than the best other trials and the defaults, on new "
    "rows. A line is an interval of 90%. If it crosses zero, no difference can be shown."
)
# Pixels of a row, and of the axis.
ROW_HEIGHT, AXIS_HEIGHT = 26, 120


def winner(data: PlotData) -> Figure:
    """Return the gain of the exported model over other trials on new rows, with intervals."""
    facts = data.new_rows
    trials = [trial for trial in facts.get("trials", ()) if "value" in trial]
    if not trials:
        reason = facts.get("unknown", "the sweep has not exported a model, or has no other trial")
        return empty_figure("winner", f"There is nothing to draw: {reason}.")
    names = [
        f"{trial['trial']} (default)" if "default" in trial else trial["trial"] for trial in trials
    ]
    points = {
        "type": "scatter",
        "mode": "markers",
        "x": [trial["value"] for trial in trials],
        "y": names,
        "error_x": {"type": "data", "array": [t["high"] - t["value"] for t in trials]},
        "customdata": [trial["trial"] for trial in trials],
        "marker": {"size": 7},
        "hovertemplate": Raw("trial %{customdata}: %{x}<extra></extra>"),
    }
    layout = axes(f"gain in {data.metric} on new rows", "trial")
    layout["yaxis"] |= {"type": "category", "autorange": "reversed"}
    layout |= {"height": AXIS_HEIGHT + ROW_HEIGHT * len(names), "showlegend": False}
    return make_figure("winner", [points], layout, NOTE)

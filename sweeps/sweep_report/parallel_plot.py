"""The figure of parallel coordinates: one axis for each dimension, one line for each trial."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sweeps.space import Dimension

from .figures import Figure, PlotlyObject, Raw, option_texts
from .plot_data import PlotData
from .traces import EVERY, NO_VALUES, NOTHING_VARIES, drawn, empty, sample

if TYPE_CHECKING:
    from sweeps.study.states import TrialState

# Colors of the values in parallel coordinates: Viridis without the dark end, which could not be
# seen on a dark page.
COLORS = [(0, "#a678de"), (0.25, "#6f94e0"), (0.5, "#2fa8a0"), (0.75, "#5dc963"), (1, "#fde725")]
# The largest number of axes.
MAX_AXES = 10
# Share of the trials at each end of the values that have the color of the end.
OUTLIERS = 0.1


def parallel(data: PlotData) -> Figure:
    """Return parallel coordinates: one axis for each dimension, one line for each trial."""
    dimensions = data.sampled[:MAX_AXES]
    if not data.ranked or not dimensions:
        return empty("parallel", NO_VALUES if dimensions else NOTHING_VARIES)
    chosen, remark = sample(data.ranked)
    shown = chosen[::-1]  # the best lines are drawn last
    values = [float(t.result.value or 0.0) for t in shown]
    ordered = sorted(values)
    lines = {
        "type": "parcoords",
        "line": {
            "color": values,
            # Outliers would otherwise hide all other differences of colors.
            "cmin": ordered[int(len(ordered) * OUTLIERS)],
            "cmax": ordered[math.ceil(len(ordered) * (1 - OUTLIERS)) - 1],
            "colorscale": COLORS,
            "reversescale": data.minimize,
            "showscale": True,
            "colorbar": {"title": {"text": data.metric}, "thickness": 12},
        },
        "dimensions": [
            {"label": data.metric, "values": values},
            *(parallel_axis(data, d, shown) for d in dimensions),
        ],
        "labelangle": -15,
        "labelside": "top",
    }
    most = f" The {MAX_AXES} most important dimensions." if len(data.sampled) > MAX_AXES else ""
    note = f"{EVERY}{most} Drag along an axis to select trials.{remark}"
    layout = {"margin": {"t": 70, "b": 30, "l": 60, "r": 40}, "height": 420}
    return drawn("parallel", [lines], layout, note)


def parallel_axis(
    data: PlotData, dimension: Dimension, trials: Sequence[TrialState]
) -> PlotlyObject:
    """Return one axis of the parallel coordinates.

    Trials in which the dimension was not active are at the lowest position, `not set`.
    """
    had = [t.labels.get(dimension.name) for t in trials]
    unset = any(dimension.name not in t.labels for t in trials)
    axis: PlotlyObject = {"label": data.names[dimension.name]}
    if dimension.options:
        texts = option_texts(dimension)
        places = {key: place for place, key in enumerate(texts, unset)}
        # Plotly does not read these texts as HTML
        names = [Raw(text) for text in [*["not set"] * unset, *texts.values()]]
        return axis | {
            "values": [
                places[t.labels[dimension.name]] if dimension.name in t.labels else 0
                for t in trials
            ],
            "tickvals": list(range(len(names))),
            "ticktext": names,
        }
    scale: Callable[[float], float] = math.log10 if dimension.is_log else float
    numbers = [scale(v) for v in had if v is not None]
    low = min(numbers)
    high = max(numbers)
    bottom = low - 0.15 * ((high - low) or 1.0)
    ticks = scale_ticks(low, high, dimension.is_log)
    if dimension.is_integer and not dimension.is_log:
        ticks = list(dict.fromkeys(float(round(at)) for at in ticks))
    ticktext = [f"{10**at:.3g}" if dimension.is_log else f"{at:.4g}" for at in ticks]
    if unset:
        ticks = [bottom, *ticks]
        ticktext = ["not set", *ticktext]
    if high > low or unset:
        axis["range"] = [bottom if unset else low, high]
    return axis | {
        "values": [bottom if v is None else scale(v) for v in had],
        "tickvals": ticks,
        "ticktext": ticktext,
    }


def scale_ticks(low: float, high: float, is_log: bool) -> list[float]:
    """Return the positions of an axis's labels.

    On a log axis, these are the logarithms of both ends and of the powers of ten between.
    """
    if high <= low:
        return [low]
    if is_log:
        between = [float(at) for at in range(math.ceil(low), math.floor(high) + 1)]
        margin = 0.08 * (high - low)
        return [low, *(at for at in between if low + margin < at < high - margin), high]
    return [low + (high - low) * at / 4 for at in range(5)]

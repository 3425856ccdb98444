"""The figure of parallel coordinates: one axis for each dimension, one line for each trial."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sweeps.space import Dimension

from .figures import Figure, PlotlyObject, Raw, option_texts
from .plot_data import PlotData
from .traces import EVERY_TRIAL, NO_VALUES, NOTHING_VARIES, empty_figure, make_figure, sample

if TYPE_CHECKING:
    from sweeps.study.states import TrialState

# Colors of the values in parallel coordinates: Viridis without the dark end, which could not be
# seen on a dark page.
COLORS = [(0, "#a678de"), (0.25, "#6f94e0"), (0.5, "#2fa8a0"), (0.75, "#5dc963"), (1, "#fde725")]
# The largest number of axes.
MAX_AXES = 10
# Share of the trials at each end of the values that have the color of the end.
OUTLIERS = 0.1
# Distance between `not set` and the lowest number of an axis, as a share of the axis.
UNSET_GAP = 0.15
# The smallest distance of a tick to the ends of a log axis, as a share of the axis.
TICK_GAP = 0.08


def parallel(data: PlotData) -> Figure:
    """Return parallel coordinates: one axis for each dimension, one line for each trial."""
    dimensions = data.sampled[:MAX_AXES]
    if not data.ranked or not dimensions:
        return empty_figure("parallel", NO_VALUES if dimensions else NOTHING_VARIES)
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
    is_cut = len(data.sampled) > MAX_AXES
    cut_note = f" The {MAX_AXES} most important dimensions." if is_cut else ""
    note = f"{EVERY_TRIAL}{cut_note} Drag along an axis to select trials.{remark}"
    layout = {"margin": {"t": 70, "b": 30, "l": 60, "r": 40}, "height": 420}
    return make_figure("parallel", [lines], layout, note)


def parallel_axis(
    data: PlotData, dimension: Dimension, trials: Sequence[TrialState]
) -> PlotlyObject:
    """Return one axis of the parallel coordinates.

    Trials in which the dimension was not active are at the lowest position, `not set`.
    """
    axis: PlotlyObject = {"label": data.names[dimension.name]}
    has_unset = any(dimension.name not in t.labels for t in trials)
    if dimension.options:
        texts = option_texts(dimension)
        names = ["not set", *texts.values()] if has_unset else list(texts.values())
        positions = {key: i for i, key in enumerate(texts, start=len(names) - len(texts))}
        return axis | {
            "values": [
                positions[t.labels[dimension.name]] if dimension.name in t.labels else 0
                for t in trials
            ],
            "tickvals": list(range(len(names))),
            "ticktext": [Raw(name) for name in names],  # which Plotly does not read as HTML
        }
    labels = [t.labels.get(dimension.name) for t in trials]
    scale: Callable[[float], float] = math.log10 if dimension.is_log else float
    numbers = [scale(label) for label in labels if label is not None]
    low = min(numbers)
    high = max(numbers)
    bottom = low - UNSET_GAP * ((high - low) or 1.0)
    ticks = scale_ticks(low, high, dimension.is_log)
    if dimension.is_integer and not dimension.is_log:
        ticks = list(dict.fromkeys(float(round(tick)) for tick in ticks))
    ticktext = [f"{10**tick:.3g}" if dimension.is_log else f"{tick:.4g}" for tick in ticks]
    if has_unset:
        ticks = [bottom, *ticks]
        ticktext = ["not set", *ticktext]
    if high > low or has_unset:
        axis["range"] = [bottom if has_unset else low, high]
    return axis | {
        "values": [bottom if label is None else scale(label) for label in labels],
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
        powers = [float(power) for power in range(math.ceil(low), math.floor(high) + 1)]
        gap = TICK_GAP * (high - low)
        return [low, *(power for power in powers if low + gap < power < high - gap), high]
    return [low + (high - low) * i / 4 for i in range(5)]

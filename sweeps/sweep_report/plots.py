"""The figures of a sweep as Plotly's JSON: for the report, the page of `sweeps ui`, and notebooks.

The figures have no colors of the background and the text. The pages set these colors, because they
have a light and a dark mode. Each point has the trial's id in `customdata`, so that a click can
open the trial.
"""

from __future__ import annotations

import datetime
import logging
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sweeps.core.text.texts import shortened

from .figures import (
    MOST_CHARACTERS,
    Figure,
    PlotlyObject,
    Raw,
    option_texts,
    short_texts,
)
from .parallel_plot import parallel
from .plot_data import PlotData, best_so_far, finite_points, thin
from .traces import (
    EVERY_TRIAL,
    MAX_POINTS,
    NO_VALUES,
    NOTHING_VARIES,
    STATES,
    axes,
    empty_figure,
    group_by_state,
    make_figure,
    points,
    points_by_state,
    sample,
    whole_axis,
    workers_of,
)
from .winner_plot import winner

if TYPE_CHECKING:
    from sweeps.study.states import TrialState

log = logging.getLogger(__name__)

# The largest number of curves, and of the points of a curve. The points have markers if a curve has
# at most `MAX_MARKERS`.
MAX_CURVES = 30
MAX_CURVE_POINTS = 200
MAX_MARKERS = 30
# The largest number of dimensions in the figure of importances, and of bars of the timeline.
MAX_IMPORTANCES = 20
MAX_BARS = 1000


def history(data: PlotData) -> Figure:
    """Return the value of each trial in the order of the trials, and the best value so far."""
    if not data.ranked:
        return empty_figure("history", NO_VALUES)
    chosen, remark = sample(data.ranked)
    shown = sorted(chosen, key=lambda t: t.number)
    traces = points_by_state(data, shown, lambda t: t.number)
    if best := best_so_far(data.trials, data.minimize):
        line = {
            "type": "scatter",
            "mode": "lines",
            "name": "best so far",
            "line": {"color": "#d6336c", "width": 2, "shape": "hv"},
            "hoverinfo": "skip",
            "zorder": 2,
            "x": [number for number, _ in best],
            "y": [value for _, value in best],
        }
        traces.append(line)
    note = (
        "The line is the best value so far. A trial that was stopped early counts only if no "
        "trial is complete."
    )
    layout = axes("trial", data.metric)
    layout["xaxis"] |= whole_axis(t.number for t in shown)
    return make_figure("history", traces, layout, note + remark)


def curves(data: PlotData, chosen: Sequence[str] = ()) -> Figure:
    """Return the objective by step, one curve for each trial.

    Args:
        data: The sweep.
        chosen: Ids of the trials to show. By default, the running trials and the best trials.
    """
    having = [t for t in data.trials if finite_points(t.curve)]
    if not having:
        return empty_figure(
            "curves", "There are no curves, because no trial has reported the objective."
        )
    if chosen:
        shown = [t for t in having if t.id in chosen]
    else:
        running = [t for t in having if t.result.state.name == "RUNNING" and data.is_driven]
        ranked = [t for t in data.ranked if finite_points(t.curve)]
        # Each trial once: the running trials, then the best, then those without a final value
        by_number = {t.number: t for t in [*running, *ranked, *having]}
        shown = list(by_number.values())[:MAX_CURVES]
    traces = [curve_of(data, t) for t in shown]
    note = (
        f"The objective by {'share of the train rows' if data.parts else 'step'}. A click on the "
        "legend hides a trial."
    )
    if not chosen and len(shown) < len(having):
        note += (
            f" The figure shows {len(shown)} of {len(having):,} trials: the running and the best "
            "ones."
        )
    layout = axes("% of the train rows" if data.parts else "step", data.metric)
    layout["showlegend"] = len(traces) > 1 or not chosen
    layout["xaxis"] |= whole_axis(x for trace in traces for x in trace["x"])
    return make_figure("curves", traces, layout, note)


def curve_of(data: PlotData, t: TrialState) -> PlotlyObject:
    """Return the curve of a trial."""
    curve = thin(finite_points(t.curve), MAX_CURVE_POINTS)
    steps = [step for step, _ in curve]
    place = "%{x:.3g}% of the train rows" if data.parts else "step %{x}"
    return {
        "type": "scatter",
        "mode": "lines" if len(curve) > MAX_MARKERS else "lines+markers",
        "name": t.id,
        "marker": {"size": 4},
        "line": {"width": 1.5},
        "x": [100 * step / data.parts for step in steps] if data.parts else steps,
        "y": [value for _, value in curve],
        "customdata": [t.id] * len(curve),
        "hovertemplate": Raw(f"trial %{{customdata}}, {place}: %{{y}}<extra></extra>"),
    }


def importances(data: PlotData) -> Figure:
    """Return the importance of each dimension."""
    importance = data.importance
    if importance.unknown:
        return empty_figure("importance", f"There is nothing to draw: {importance.unknown}.")
    shown = importance.shares[:MAX_IMPORTANCES][::-1]  # bars start at the bottom
    bars = {
        "type": "bar",
        "orientation": "h",
        "x": [share for _, share in shown],
        "y": short_texts([data.names[name] for name, _ in shown], MOST_CHARACTERS - 5),
        "name": "importance",
        "text": [f"{share:.2f}" for _, share in shown],
        "textposition": "auto",
        "hovertemplate": Raw("%{y}: %{x}<extra></extra>"),
    }
    layout = axes("importance", "") | {"showlegend": False, "height": 120 + 26 * len(shown)}
    return make_figure(
        "importance", [bars], layout, f"By Optuna's PED-ANOVA on {importance.basis}."
    )


def slice_of(data: PlotData, name: str | None = None) -> Figure:
    """Return the objective by the value of one dimension.

    Args:
        data: The sweep.
        name: Name of the dimension. By default, the most important one.
    """
    named = [d for d in data.sampled if d.name == name]
    dimension = next(iter(named or data.sampled), None)
    if dimension is None or not data.ranked:
        return empty_figure("slice", NO_VALUES if data.sampled else NOTHING_VARIES)
    shown, remark = sample([t for t in data.ranked if dimension.name in t.labels])
    texts = option_texts(dimension)

    def place(t: TrialState) -> float | str:
        label: float | str = t.labels[dimension.name]
        return texts[label] if dimension.options else label

    traces = points_by_state(data, shown, place)
    layout = axes(data.names[dimension.name], data.metric)
    if dimension.options:
        order = {"categoryorder": "array", "categoryarray": list(texts.values())}
        layout["xaxis"] |= {"type": "category", **order}
    elif dimension.is_log:
        layout["xaxis"] |= {"type": "log", "exponentformat": "power", "dtick": 1}
    else:
        layout["xaxis"] |= whole_axis(t.labels[dimension.name] for t in shown)
    title = f"Slice: {data.names[dimension.name]}"
    return Figure("slice", title, {"data": traces, "layout": layout}, EVERY_TRIAL + remark)


def timeline(data: PlotData) -> Figure:
    """Return when each trial ran."""
    if not data.trials:
        return empty_figure("timeline", "There is no timeline, because no trial has started.")
    shown = data.trials[-MAX_BARS:]
    traces = []
    for state, chosen in group_by_state(data, shown).items():
        spans = [span(data, t) for t in chosen]
        seconds = [end - start for start, end in spans]
        bar = {
            "type": "bar",
            "orientation": "h",
            "name": state,
            "marker": {"color": STATES[state]},
            "customdata": [t.id for t in chosen],
            "base": [iso(start) for start, _ in spans],
            "x": [round(s * 1000) for s in seconds],
            "y": [t.number for t in chosen],
            "text": [f"{s:.1f} s, {workers_of(t)}" for t, s in zip(chosen, seconds, strict=True)],
            "textposition": "none",
            "hovertemplate": Raw(f"trial %{{customdata}}, {state}: %{{text}}<extra></extra>"),
        }
        traces.append(bar)
    layout = axes("", "trial") | {"barmode": "overlay", "bargap": 0.1}
    layout["xaxis"] |= {"type": "date"}
    layout["yaxis"] |= {"autorange": "reversed", **whole_axis(t.number for t in shown)}
    count = len(data.trials)
    latest = f" The latest {MAX_BARS:,} of {count:,} trials." if count > MAX_BARS else ""
    note = (
        "Each bar goes from the start of a trial to its end; a paused trial holds no workers "
        "during part of its bar."
    )
    return make_figure("timeline", traces, layout, note + latest)


def cost(data: PlotData) -> Figure:
    """Return the objective by the cost of each trial, with a color for each number of workers."""
    names = ("gpu_seconds", "cpu_seconds", "seconds")
    costs = [n for n in names if any(t.result.metrics.get(n) for t in data.ranked)]
    if not costs:
        return empty_figure("cost", NO_VALUES)
    name = costs[0]
    shown, remark = sample([t for t in data.ranked if t.result.metrics.get(name, 0.0) > 0])
    traces = []
    for text in sorted({workers_of(t) for t in shown}, key=lambda text: (len(text), text)):
        chosen = [t for t in shown if workers_of(t) == text]
        traces.append(points(data, text, chosen, [t.result.metrics[name] for t in chosen]))
    layout = axes(name, data.metric)
    layout["xaxis"] |= {"type": "log", "exponentformat": "power"}
    note = (
        f"{name} of each trial and its value at its best step, with a color for each number of "
        "workers."
    )
    return make_figure("cost", traces, layout, note + remark)


def pareto(data: PlotData) -> Figure:
    """Return the values of two or three objectives, with the Pareto front."""
    count = len(data.objectives)
    if count not in (2, 3):
        return empty_figure("pareto", "A Pareto front is drawn for two or three objectives.")
    valued = [
        t
        for t in data.trials
        if len(t.result.values) == count
        and all(v is not None and math.isfinite(v) for v in t.result.values)
    ]
    if not valued:
        return empty_figure("pareto", NO_VALUES)
    front = [t for t in valued if t.number in data.front]
    others = thin([t for t in valued if t.number not in data.front], MAX_POINTS)
    names = [o.metric for o in data.objectives]
    axis_names = "xyz"[:count]
    # In Plotly's template of a point, `%{meta[0]} %{x}` is the first objective's name and value.
    hover = ", ".join(f"%{{meta[{i}]}} %{{{axis}}}" for i, axis in enumerate(axis_names))
    parts = (("other trials", others, "#8a8f98"), ("Pareto front", front, "#d6336c"))
    traces = []
    for label, chosen, color in parts:
        trace: PlotlyObject = {
            "type": "scatter" if count == 2 else "scatter3d",
            "mode": "markers",
            "name": label,
            "customdata": [t.id for t in chosen],
            "marker": {"color": color},
            "meta": names,
            "hovertemplate": Raw(f"trial %{{customdata}}: {hover}<extra></extra>"),
        }
        for i, axis in enumerate(axis_names):
            trace[axis] = [t.result.values[i] for t in chosen]
        traces.append(trace)
    layout = axes(names[0], names[1])
    if count == 3:
        # Plotly reads tags in these titles, but no entities. A space of no width breaks the tags.
        titles = [Raw(shortened(name, MOST_CHARACTERS).replace("<", "<\u200b")) for name in names]
        scene = {
            f"{axis}axis": {"title": {"text": title}}
            for axis, title in zip(axis_names, titles, strict=True)
        }
        layout = {"scene": scene, "height": 520}
    note = (
        "For each trial on the front, no other trial is better in one objective and at least as "
        "good in the others."
    )
    return make_figure("pareto", traces, layout, note)


FIGURES: dict[str, Callable[..., Figure]] = {
    "history": history,
    "curves": curves,
    "importance": importances,
    "parallel": parallel,
    "slice": slice_of,
    "cost": cost,
    "pareto": pareto,
    "timeline": timeline,
    "winner": winner,
}


def figure(data: PlotData, key: str, **options: str | Sequence[str]) -> Figure:
    """Return a figure.

    If it cannot be made, return a figure without a plot, whose caption gives the reason.

    Args:
        data: The sweep.
        key: A key of `FIGURES`.
        options: Options of the function that makes the figure.
    """
    try:
        return FIGURES[key](data, **options)
    except Exception as e:
        log.warning("the figure `%s` could not be made", key, exc_info=True)
        return empty_figure(key, f"This figure could not be made: {type(e).__name__}: {e}")


def all_figures(data: PlotData, slices: int) -> list[Figure]:
    """Return the figures of the report, in the order of the report.

    Figures with nothing to draw are left out, unless they failed.

    Args:
        data: The sweep.
        slices: The largest number of slices.
    """
    if not data.ranked:
        return []
    figures = [figure(data, "pareto")] if len(data.objectives) > 1 else []
    keys = ("history", "winner", "curves", "importance", "parallel")
    figures += [figure(data, key) for key in keys]
    figures += [figure(data, "slice", name=d.name) for d in data.sampled[:slices]]
    figures += [figure(data, key) for key in ("cost", "timeline")]
    return [f for f in figures if f.plot or "could not be made" in f.note]


# ---- parts of figures


def span(data: PlotData, t: TrialState) -> tuple[float, float]:
    """Return the start and the end of a trial, in seconds since the epoch.

    The end of an interrupted trial is an estimate.
    """
    start = t.started.time
    end = start + t.result.seconds
    if t.ended_at is not None:
        end = t.ended_at
    elif data.is_driven:
        end = data.now
    return start, max(start, end)  # the machine's clock may have been set back


def iso(seconds: float) -> str:
    """Return a time, in seconds since the epoch, as local time for a Plotly axis."""
    return datetime.datetime.fromtimestamp(seconds).isoformat(sep=" ", timespec="milliseconds")

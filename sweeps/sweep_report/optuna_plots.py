"""Importances and figures that Optuna computes, from a study in memory that holds a sweep's trials.

Optuna's other plots are not used. Its parallel coordinates draw one line object for each trial,
which browsers cannot handle for 1,000 trials, and the points in its plots do not have the trials'
ids.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sweeps.core.json_files import is_number
from sweeps.space import Dimension
from sweeps.sweep_report.figures import (
    MIN_IMPORTANCE_TRIALS,
    Figure,
    PlotData,
    Raw,
    basis_of,
    option_texts,
    thin,
    whole_axis,
)

if TYPE_CHECKING:
    import optuna

    from sweeps.study.record import TrialRecord

# The largest number of trials in a contour plot, whose grid has a cell for each pair of trials.
MAX_CONTOUR = 100
# Share of the trials at each end of the values that have the color of the end, so that outliers do
# not hide all other differences.
OUTLIERS = 0.1


def distribution_of(
    dimension: Dimension, values: Sequence[Any]
) -> optuna.distributions.BaseDistribution:
    """Return an Optuna distribution that contains all values of a dimension.

    Args:
        dimension: The dimension.
        values: The values of the dimension in the trials, as in `TrialRecord.labels`. For a normal
            distribution, these are values from the distribution itself, not the quantiles (0 to 1)
            that Optuna samples.
    """
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if dimension.options:
        return CategoricalDistribution(list(shown_options(dimension).values()))
    if dimension.lower is None or dimension.highest is None:
        return FloatDistribution(min(values), max(values))
    lower, upper = min([dimension.lower, *values]), max([dimension.highest, *values])
    if dimension.is_integer:
        return IntDistribution(int(lower), int(upper), log=dimension.is_log)
    return FloatDistribution(lower, upper, log=dimension.is_log)


def shown_options(dimension: Dimension) -> dict[Any, Any]:
    """Return what a plot shows for each option: a number, which Optuna orders, or a text."""
    texts = option_texts(dimension)
    return {key: key if is_number(key) else text for key, text in texts.items()}


def study_of(
    data: PlotData, trials: Sequence[TrialRecord], values: dict[int, float]
) -> optuna.Study:
    """Return a study in memory.

    All its trials are COMPLETE, because Optuna's analyses omit trials in other states.

    Args:
        data: The sweep.
        trials: The trials. Trials without a value in `values` are left out.
        values: The value of each trial, by trial number.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(direction="minimize" if data.minimize else "maximize")
    seen = {
        d.name: [t.labels[d.name] for t in data.trials if d.name in t.labels]
        for d in data.dimensions
    }
    distributions = {
        d.name: distribution_of(d, seen[d.name]) for d in data.dimensions if seen[d.name]
    }
    options = {d.name: shown_options(d) for d in data.dimensions}
    made = []
    for t in trials:
        if t.number in values:
            had = [name for name in distributions if name in t.labels]
            params = {
                data.names[name]: options[name].get(t.labels[name], t.labels[name]) for name in had
            }
            of_params = {data.names[name]: distributions[name] for name in had}
            made.append(
                optuna.trial.create_trial(
                    params=params, distributions=of_params, value=values[t.number]
                )
            )
    study.add_trials(made)
    return study


def importances_of(data: PlotData) -> tuple[str, tuple[tuple[str, float], ...]]:
    """Return the importance of each dimension by Optuna's PED-ANOVA.

    Returns:
        (basis, importances). `basis` describes the values from which the importances were computed.
        `importances` has (name, importance) pairs, the largest first, which add up to 1. It is
        empty if there are too few trials or if the values do not vary.
    """
    basis, values = basis_of(data.trials, data.rungs)
    if len(values) < MIN_IMPORTANCE_TRIALS or min(values.values()) == max(values.values()):
        return basis, ()
    import optuna

    try:
        found = optuna.importance.get_param_importances(study_of(data, data.trials, values))
    except (ValueError, RuntimeError):  # no dimension varies, or there are too few trials
        return basis, ()
    return basis, tuple((name, float(value)) for name, value in found.items()) if sum(
        found.values()
    ) > 0 else ()


def contour(data: PlotData, x: str | None = None, y: str | None = None) -> Figure:
    """Return a contour plot of two dimensions.

    Args:
        data: The sweep.
        x: Name of one dimension. By default, the most important one.
        y: Name of the other dimension. By default, the next most important one.
    """
    known = {d.name: d for d in data.sampled}
    chosen = list(dict.fromkeys(name for name in (x, y) if name in known))
    chosen += [name for name in known if name not in chosen][: 2 - len(chosen)]
    if len(chosen) < 2 or len(data.ranked) < 2:
        return Figure(
            "contour",
            "Contour",
            note="A contour plot needs two dimensions, and two trials with a value.",
        )
    having = [t for t in data.ranked if all(name in t.labels for name in chosen)]
    shown = thin(having, MAX_CONTOUR)
    values = clipped({t.number: float(t.result.value or 0.0) for t in shown})
    if (
        len({t.labels[chosen[0]] for t in shown}) < 2
        or len({t.labels[chosen[1]] for t in shown}) < 2
    ):
        return Figure(
            "contour", "Contour", note="A contour plot needs two dimensions of which both vary."
        )
    from optuna.visualization import plot_contour

    names = [data.names[name] for name in chosen]
    plot = as_json(
        plot_contour(study_of(data, shown, values), params=names, target_name=data.metric)
    )
    if names != sorted(names):
        plot = transposed(plot)  # Optuna sorts the names
    for axis, name in zip(("xaxis", "yaxis"), chosen, strict=True):
        if not known[name].is_log:
            plot["layout"][axis] |= whole_axis(t.labels[name] for t in shown)
    note = "The color shows the objective; the colors of the best and of the worst tenth are equal."
    return Figure("contour", "Contour", plot, note + thinned(len(shown), len(having)))


def transposed(plot: dict[str, Any]) -> dict[str, Any]:
    """Return a plot with its two axes exchanged."""
    traces = [{**trace, "x": trace.get("y"), "y": trace.get("x")} for trace in plot["data"]]
    traces = [
        {**trace, "transpose": True} if trace["type"] == "contour" else trace for trace in traces
    ]
    return {
        "data": traces,
        "layout": {
            **plot["layout"],
            "xaxis": plot["layout"]["yaxis"],
            "yaxis": plot["layout"]["xaxis"],
        },
    }


def edf(data: PlotData) -> Figure:
    """Return the empirical distribution of the objective."""
    title = "Empirical distribution"
    if len(data.ranked) < 2:
        return Figure(
            "edf",
            title,
            note="There is no distribution, because fewer than two trials have a value.",
        )
    from optuna.visualization import plot_edf

    values = {t.number: float(t.result.value or 0.0) for t in data.ranked}
    plot = as_json(plot_edf(study_of(data, data.ranked, values), target_name=data.metric))
    plot["layout"]["yaxis"]["title"] = {"text": "share of the trials"}
    for trace in plot["data"]:
        trace["line"] = {**trace.get("line", {}), "shape": "hv"}
    return Figure(
        "edf",
        title,
        plot,
        "For each value, the share of the trials whose value is at most as large.",
    )


def clipped(values: dict[int, float]) -> dict[int, float]:
    """Return values in which the lowest and the highest tenth are replaced by the limits of the tenths."""
    ordered = sorted(values.values())
    low, high = (
        ordered[int(len(ordered) * OUTLIERS)],
        ordered[math.ceil(len(ordered) * (1 - OUTLIERS)) - 1],
    )
    return {number: min(max(value, low), high) for number, value in values.items()}


def thinned(shown: int, of: int) -> str:
    """Return a sentence for a caption that says how many trials a figure shows; "" if it shows all of them."""
    return (
        f" The figure shows {shown:,} of {of:,} trials, spread evenly over the ranking."
        if shown < of
        else ""
    )


def as_json(figure: Any) -> dict[str, Any]:
    """Return Optuna's figure as Plotly's JSON, without its title and its colors of the page, which our pages set."""
    plot: dict[str, Any] = json.loads(figure.to_json(), object_hook=_with_raw_arrays)
    for key in ("template", "title", "width", "height"):
        plot["layout"].pop(key, None)
    return plot


def _with_raw_arrays(value: dict[str, Any]) -> dict[str, Any]:
    """Mark the Base64 text of an array, which is not shown."""
    return value | {"bdata": Raw(value["bdata"])} if "bdata" in value else value

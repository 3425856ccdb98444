"""Draw Optuna's plots of a sweep for its report. `python -m sweeps.sweep_report.plots FOLDER` prints the plots as one JSON object."""

from __future__ import annotations

import base64
import functools
import io
import math
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeps.core.trial import State
from sweeps.space import Dimension
from sweeps.space.domains import short_names
from sweeps.space.section_models import Objective
from sweeps.sweep_report.figures import Drawn, Figure, basis_of, best_first, encoded, thin

if TYPE_CHECKING:
    import optuna

    from sweeps.study.record import TrialRecord

# Smallest number of trials for which importances are computed. With fewer trials, importances are mostly noise.
MIN_TRIALS = 10
# The largest numbers of curves, points of a curve, axes for parallel coordinates, panels of slices, and panels in a row.
MAX_CURVES, MAX_POINTS, MAX_AXES, MAX_PANELS, PANELS_IN_ROW = 100, 100, 10, 6, 3
# A figure becomes a bitmap if it shows more trials than the first number, or if its SVG has more characters than the second number.
MAX_VECTOR_TRIALS, MAX_SVG = 150, 120_000


def distribution_of(dimension: Dimension, values: Sequence[Any]) -> optuna.distributions.BaseDistribution:
    """Return an Optuna distribution that contains all values of a dimension, for the axis of a plot.

    Args:
        dimension: Dimension that the plot shows.
        values: The values of the dimension in the trials, as in `TrialRecord.labels`. For a normal distribution, these are values from the
            distribution itself, not the quantiles (0 to 1) that Optuna samples.
    """
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if dimension.options:
        return CategoricalDistribution([option.key for option in dimension.options])
    if dimension.lower is None or dimension.highest is None:
        return FloatDistribution(min(values), max(values))
    lower, upper = min([dimension.lower, *values]), max([dimension.highest, *values])
    if dimension.is_integer:
        return IntDistribution(int(lower), int(upper), log=dimension.is_log)
    return FloatDistribution(lower, upper, log=dimension.is_log)


def study_of(
    dimensions: Sequence[Dimension], goal: str, trials: Sequence[TrialRecord], values: dict[int, float], curves: bool = False
) -> optuna.Study:
    """Return a study in memory for Optuna's plots. All its trials are COMPLETE, because the plots omit trials in other states.

    Args:
        dimensions: The dimensions of the space.
        goal: "minimize" or "maximize".
        trials: The trials of the sweep. Trials without a value in `values` are left out.
        values: The value of each trial, by trial number.
        curves: True to include the trials' values at each step.
    """
    import optuna

    study = optuna.create_study(direction="minimize" if goal == "minimize" else "maximize")
    names = short_names([d.name for d in dimensions])
    seen = {d.name: [t.labels[d.name] for t in trials if d.name in t.labels] for d in dimensions}
    distributions = {d.name: distribution_of(d, seen[d.name]) for d in dimensions if seen[d.name]}
    for t in trials:
        if t.number not in values:
            continue
        had = [name for name in distributions if name in t.labels]
        study.add_trial(
            optuna.trial.create_trial(
                params={names[name]: t.labels[name] for name in had},
                distributions={names[name]: distributions[name] for name in had},
                value=values[t.number],
                intermediate_values=dict(thin(t.curve, MAX_POINTS)) if curves else {},
            )
        )
    return study


def draw(
    dimensions: Sequence[Dimension],
    goal: str,
    metric: str,
    rungs: Sequence[int],
    trials: Sequence[TrialRecord],
    objectives: Sequence[Objective] = (),
) -> Drawn:
    """Draw all figures for which the trials have enough values.

    Args:
        dimensions: The dimensions of the space.
        goal: "minimize" or "maximize".
        metric: Name of the objective, for the axes.
        rungs: The steps at which the scheduler compares trials; see `basis_of`.
        trials: The trials of the sweep.
        objectives: All objectives of the sweep. If there are two or three, the Pareto front is drawn.
    """
    ranked = best_first(trials, goal == "minimize")
    if len(ranked) < 2:
        return Drawn((Figure("Figures", "", "There are no figures, because fewer than two trials have a value."),))
    import optuna
    from optuna.visualization import matplotlib as plots

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    values = {t.number: t.result.value for t in ranked if t.result.value is not None}
    whole = study_of(dimensions, goal, trials, values)
    best = study_of(dimensions, goal, ranked[:MAX_CURVES], values, curves=True)
    basis, comparable = basis_of(trials, rungs)
    compared = study_of(dimensions, goal, trials, comparable)
    importances = _importances(compared)
    sampled = [name for name, _ in importances] or list(dict.fromkeys(name for t in whole.get_trials(deepcopy=False) for name in t.params))
    every = "Each trial at its best step, including trials that were stopped early."
    many = f" The best {MAX_CURVES} trials." if len(ranked) > MAX_CURVES else ""
    most = {n: " The most important dimensions." if len(sampled) > n else "" for n in (MAX_AXES, MAX_PANELS)}
    figure = functools.partial(_figure, metric, len(ranked) > MAX_VECTOR_TRIALS)
    figures = [_pareto(objectives, trials)] if 2 <= len(objectives) <= 3 else []
    figures += [
        figure("History", every, plots.plot_optimization_history, whole, target_name=metric),
        figure("Curves", f"The objective by step.{many}", plots.plot_intermediate_values, best),
    ]
    if importances:
        figures.append(figure("Importances", f"By Optuna's PED-ANOVA on {basis}.", plots.plot_param_importances, compared))
    if sampled:
        figures.append(figure("Parallel coordinates", every + most[MAX_AXES], _parallel, whole, sampled[:MAX_AXES], metric))
    panels = sampled[:MAX_PANELS]
    for at in range(0, len(panels), PANELS_IN_ROW):
        title, note = "" if at else "Slices", every + most[MAX_PANELS] if at + PANELS_IN_ROW >= len(panels) else ""
        figures.append(figure(title, note, _slices, whole, panels[at : at + PANELS_IN_ROW], metric))
    return Drawn(tuple(figures), importances, basis)


def _importances(study: optuna.Study) -> tuple[tuple[str, float], ...]:
    """Return (name, importance) of each dimension, the largest first. Return () if there are too few trials or the values do not vary."""
    import optuna

    values = [t.value for t in study.get_trials(deepcopy=False) if t.value is not None]
    if len(values) < MIN_TRIALS or min(values) == max(values):
        return ()
    try:
        found = optuna.importance.get_param_importances(study)
    except (ValueError, RuntimeError):  # no dimension varies, or there are too few trials
        return ()
    return tuple((name, float(value)) for name, value in found.items()) if sum(found.values()) > 0 else ()


def _figure(metric: str, pixels: bool, title: str, note: str, plot: Callable[..., Any], *args: Any, **how: Any) -> Figure:
    """Draw one figure with `plot(*args, **how)`. If this fails, return a figure without an image; its caption gives the reason.

    If `pixels` is True, the image is a bitmap.
    """
    from matplotlib import pyplot as plt
    from matplotlib import rc_context

    try:
        with rc_context():  # most of Optuna's plots change the style
            axes = plot(*args, **how)
        figure = (axes if hasattr(axes, "figure") else axes.ravel()[0]).figure
        _remove_titles(figure, metric)
        return Figure(title, _image(figure, pixels), note)
    except Exception as e:
        return Figure(title, "", f"This figure could not be drawn: {type(e).__name__}: {e}")
    finally:
        plt.close("all")


def _remove_titles(figure: Any, metric: str) -> None:
    """Remove Optuna's titles and most legends from a figure, and name the axis of the objective after the metric.

    The report has titles of its own. Only legends with two or three entries stay.
    """
    figure.suptitle("")
    for axes in figure.axes:
        axes.set_title("")
        axes.set_title("", loc="left")
        if axes.get_ylabel() == "Intermediate Value":
            axes.set_ylabel(metric)
        # Keep only short legends. Other legends list all trials, or have a single entry.
        if axes.get_legend() and len(axes.get_legend().get_texts()) not in (2, 3):
            axes.get_legend().remove()


def _pareto(objectives: Sequence[Objective], trials: Sequence[TrialRecord]) -> Figure:
    """Draw the Pareto front of the complete trials that satisfy the constraints."""
    import optuna
    from optuna.visualization import matplotlib as plots

    study, many = optuna.create_study(directions=[o.goal for o in objectives]), len(trials) > MAX_VECTOR_TRIALS
    for t in trials:
        values = [v for v in t.result.values if v is not None and math.isfinite(v)]
        if t.result.state is State.COMPLETE and t.result.feasible and len(values) == len(objectives):
            study.add_trial(optuna.trial.create_trial(values=values))
    names = [o.metric for o in objectives]
    note = "All complete trials that satisfy the constraints."
    return _figure(names[0], many, "Pareto front", note, plots.plot_pareto_front, study, target_names=names)


def _slices(study: optuna.Study, params: list[str], target_name: str) -> Any:
    """Draw a slice plot of some dimensions. Long labels of options are rotated, so that the labels do not overlap."""
    from optuna.visualization import matplotlib as plots

    axes = plots.plot_slice(study, params=params, target_name=target_name)
    figure = (axes if hasattr(axes, "figure") else axes.ravel()[0]).figure
    figure.canvas.draw()  # tick labels exist only after drawing
    for one in figure.axes:
        labels = one.get_xticklabels()
        if any(label.get_text().startswith("'") and len(label.get_text()) > 12 for label in labels):  # a dimension with options
            for label in labels:
                label.set(rotation=15, ha="right")
    return axes


def _parallel(study: optuna.Study, params: list[str], target_name: str) -> Any:
    """Draw a parallel coordinate plot of some dimensions."""
    from optuna.visualization import matplotlib as plots

    axes: Any = plots.plot_parallel_coordinate(study, params=params, target_name=target_name)
    axes.figure.set_size_inches(max(8.0, 1.5 * (len(params) + 1)), 4.6)  # wide enough for the names of options
    return axes


def _image(figure: Any, pixels: bool) -> str:
    """Return a figure as an HTML element without links to files: `<svg>`, or `<img>` if `pixels` is True or the SVG would be too long."""
    if not pixels:
        text = io.StringIO()
        figure.savefig(text, format="svg", bbox_inches="tight", metadata={"Date": None})
        svg = text.getvalue()
        if len(svg) <= MAX_SVG:
            return svg[svg.index("<svg") :]
    from PIL import Image  # no extra dependency, because matplotlib needs it too

    raw, small = io.BytesIO(), io.BytesIO()
    figure.savefig(raw, format="png", bbox_inches="tight", dpi=100)
    Image.open(raw).convert("RGB").quantize(64).save(small, format="png", optimize=True)
    return f'<img alt="" src="data:image/png;base64,{base64.b64encode(small.getvalue()).decode()}">'


def main(folder: Path) -> None:
    """Draw the figures of the sweep in a folder, and print them as JSON."""
    from sweeps.search.plugins import planned_scheduler
    from sweeps.search.schedulers.base import all_rungs
    from sweeps.space.saved_space import saved_space
    from sweeps.study import record

    out, sys.stdout, path = sys.stdout, sys.stderr, list(sys.path)
    space, _ = saved_space(folder)
    sys.path[:] = path  # no user code is imported here, so the user's folders must not hide other modules
    recorded = record.read(folder)
    if recorded is None:
        out.write(encoded(Drawn()))
        return
    # Importing scikit-learn would take half of this process's time. Only Optuna's fANOVA needs scikit-learn, and fANOVA is not used here.
    sys.modules["sklearn"] = None  # type: ignore[assignment]
    import matplotlib

    matplotlib.use("agg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "sweeps", "figure.figsize": (8, 4.2), "font.size": 9})
    rungs = all_rungs(planned_scheduler(space.scheduler))
    objectives = recorded.objectives.objectives
    out.write(encoded(draw(space.dimensions, recorded.goal, space.objective.metric, rungs, recorded.ran, objectives)))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(Path(sys.argv[1]))

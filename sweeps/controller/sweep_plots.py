"""Plot a sweep for Python: read the sweep, check the arguments, and return the figure as an object of the package Plotly."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeps.core.errors import InputError
from sweeps.core.suggestions import did_you_mean
from sweeps.space.domains import short_names
from sweeps.space.saved_space import recorded_space

if TYPE_CHECKING:
    import plotly.graph_objects

    from sweeps.space import Space

# Options that are names of dimensions.
DIMENSIONS = ("name", "x", "y")


def plot(folder: Path, key: str, **options: Any) -> plotly.graph_objects.Figure:
    """Return a figure of a sweep.

    If there is nothing to draw, the figure is empty, and its caption gives the reason.

    Args:
        folder: The sweep's folder.
        key: A key of `sweep_report.plots.FIGURES`.
        options: Options of the figure. Dimensions are given by their names, such as `params.eta`,
            or by their short names, such as `eta`.

    Raises:
        InputError: The space has no such dimension, or its number of objectives does not fit the
            figure.
    """
    from sweeps.sweep_report import plots
    from sweeps.sweep_report.figures import Figure, read_plot_data

    checked = check_options(recorded_space(folder), key, options)
    data = read_plot_data(folder)
    if data is None or not data.ranked:
        return Figure(key, key.capitalize(), note=plots.NO_VALUES).to_plotly()
    chosen = [checked[name] for name in DIMENSIONS if checked.get(name) is not None]
    if absent := set(chosen) - {d.name for d in data.sampled}:
        note = (
            "There is nothing to draw, because no trial with a value has the dimension "
            f"{', '.join(sorted(absent))}."
        )
        return Figure(key, key.capitalize(), note=note).to_plotly()
    return plots.figure(data, key, **checked).to_plotly()


def check_options(space: Space, key: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a figure with full names of dimensions.

    Raise InputError if the figure cannot be made for this space.
    """
    count = len(space.objectives)
    if key == "pareto" and count not in (2, 3):
        text = (
            f"needs a sweep with two or three objectives, but this sweep has {count}; "
            "`plot_history()` shows the first objective"
        )
        raise InputError("plot_pareto", text)
    checked = {
        name: dimension_of(space, name, value) if name in DIMENSIONS else value
        for name, value in options.items()
    }
    if key == "contour" and checked.get("x") is not None and checked.get("x") == checked.get("y"):
        raise InputError(
            "y", f"is `{options['y']}`, like `x`; a contour needs two different dimensions"
        )
    return checked


def dimension_of(space: Space, place: str, name: str | None) -> str | None:
    """Return the full name of a dimension.

    Return None if `name` is None, which stands for a default.

    Args:
        space: The search space.
        place: Name of the argument, for the error.
        name: Full name or short name of a dimension.
    """
    short = short_names([d.name for d in space.dimensions])
    full = {shortened: complete for complete, shortened in short.items()}
    if name is None or name in short:
        return name
    if name not in full:
        place = "dimension" if place == "name" else place
        raise InputError(place, f"the space has no dimension `{name}`; {did_you_mean(name, full)}")
    return full[name]

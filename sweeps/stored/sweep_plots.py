"""Plot a sweep for Python: read the sweep, check the arguments, and return the figure.

The figure is an object of the package Plotly.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sweeps.core.errors import InputError
from sweeps.core.text.suggestions import did_you_mean
from sweeps.space.model.domains import short_names
from sweeps.space.python.saved_space import recorded_space

if TYPE_CHECKING:
    import plotly.graph_objects

    from sweeps.space import Space


def plot(
    folder: Path, key: str, name: str | None = None, **options: list[str]
) -> plotly.graph_objects.Figure:
    """Return a figure of a sweep.

    If there is nothing to draw, the figure is empty, and its caption gives the reason.

    Args:
        folder: The sweep's folder.
        key: A key of `sweep_report.plots.FIGURES`.
        name: Name of a dimension, such as `params.eta`, or its short name, such as `eta`. None if
            the figure shows no single dimension, or chooses it.
        options: Further options of the figure.

    Raises:
        InputError: The space has no such dimension, or its number of objectives does not fit the
            figure.
    """
    from sweeps.core.files.folder_lock import is_driven
    from sweeps.core.files.result_file import read_result
    from sweeps.study import record_reader
    from sweeps.sweep_report import plots, traces
    from sweeps.sweep_report.figures import Figure
    from sweeps.sweep_report.plot_data import plot_data

    space = recorded_space(folder)
    count = len(space.objectives)
    if key == "pareto" and count not in (2, 3):
        raise InputError(
            "plot_pareto",
            f"needs a sweep with two or three objectives, but this sweep has {count}; "
            "`plot_history()` shows the first objective",
        )
    if name:
        name = dimension_of(space, name)
    study = record_reader.read(folder)
    data = (
        None if study is None else plot_data(study, space, is_driven(folder), read_result(folder))
    )
    if data is None or not data.ranked:
        return Figure(key, key.capitalize(), note=traces.NO_VALUES).to_plotly()
    if not name:
        return plots.figure(data, key, **options).to_plotly()
    if name not in [d.name for d in data.sampled]:
        note = f"There is nothing to draw, because no trial with a value has the dimension {name}."
        return Figure(key, key.capitalize(), note=note).to_plotly()
    return plots.figure(data, key, **options, name=name).to_plotly()


def dimension_of(space: Space, name: str) -> str:
    """Return the full name of a dimension, given its full or its short name."""
    short_by_full = short_names([d.name for d in space.dimensions])
    if name in short_by_full:
        return name
    full_by_short = {short: full for full, short in short_by_full.items()}
    if name not in full_by_short:
        text = f"the space has no dimension `{name}`; {did_you_mean(name, full_by_short)}"
        raise InputError("dimension", text)
    return full_by_short[name]

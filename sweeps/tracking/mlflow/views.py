"""Build saved views of MLflow's UI.

A view sets which runs are shown, their order, and the columns and charts. No I/O.

The button "Save view" of MLflow 3.17 stores a view as a tag of the experiment. A link can contain
the tag's name, and the page lists all saved views. The tracker saves one view for each sweep and
one for all sweeps. `tests/browser` opens both views in a browser.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from urllib.parse import quote

from sweeps.core.safe_names import loop_name, safe_name
from sweeps.space import Dimension, Space
from sweeps.tracking.mlflow.run_contents import log_name

VIEW_TAG = "mlflow.sharedViewState."
ALL_SWEEPS = "all-sweeps"
OBJECTIVE = "objective"
# URL parameter without which the UI shows its pages for language models.
MODE = "workflowType=machine_learning"
# The most axes of a plot. A plot with more axes is unreadable.
MAX_AXES = 12
# Widths in pixels: a character, the space around a text, the narrowest column and the widest
# column.
CHARACTER, PADDING, NARROWEST, WIDEST = 7.4, 26, 90, 300
NAME_LENGTH = 250  # MLflow's limit for the name of a metric or a parameter
# Parts of a metric's or parameter's name that MLflow refuses: illegal characters, and parts such as
# `..` or `//` of a path.
ILLEGAL = re.compile(r"[^\w\-./: ]|\A/|(?<=/)/|/\Z|\A\.\.|(?:\A|(?<=/))\.\.?(?=/|\Z)")


def legal_name(name: str) -> str:
    """Return a name that MLflow accepts; see `safe_name`."""
    return safe_name(name, ILLEGAL, NAME_LENGTH)


def column(kind: str, name: str) -> str:
    """Return the name that MLflow uses for a column, such as params.`eta`."""
    return f"{kind}.`{name}`"


def trials_of(sweep: str) -> str:
    """Return the filter that selects a sweep's trials."""
    return f"tags.`sweeps.sweep` = '{sweep}' and tags.`sweeps.kind` = 'trial'"


def trials_view(sweep: str, space: Space) -> dict[str, object]:
    """Return the view of a sweep's trials, the best first.

    It has a column for each dimension, an axis for each dimension in a chart of parallel
    coordinates, and the objective's curves. The axis of a dimension that is sampled on a
    logarithmic scale shows the decimal logarithm.
    """
    columns = {
        column("metrics", OBJECTIVE): 110,  # room for the arrow that shows the order
        **{
            column("metrics", legal_name(f"objective.{o.metric}")): 110
            for o in space.objectives
            if len(space.objectives) > 1
        },
        column("tags", "sweeps.state"): _width("sweeps.state"),
        **(
            {column("tags", "sweeps.feasible"): _width("sweeps.feasible")}
            if space.constraints
            else {}
        ),
        **(
            {column("tags", "sweeps.front"): _width("sweeps.front")}
            if len(space.objectives) > 1
            else {}
        ),
        **{
            column("params", legal_name(d.name)): _width(legal_name(d.name), d)
            for d in space.dimensions
        },
        column("metrics", "steps"): NARROWEST,
        column("metrics", "seconds"): NARROWEST,
    }
    # MLflow's plot leaves out runs that have no value for an axis. The value on the last axis sets
    # the color of a line.
    axes = [legal_name(log_name(d.name) if d.is_log else d.name) for d in space.always][:MAX_AXES]
    metric = legal_name(loop_name(space.objective.metric))
    charts = [
        _chart(
            sweep,
            "parallel",
            "PARALLEL",
            selectedParams=axes,
            selectedMetrics=[OBJECTIVE],
            showAllRuns=True,
        ),
        _chart(
            sweep,
            "curves",
            "LINE",
            metricKey=metric,
            selectedMetricKeys=[metric],
            xAxisKey="step",
            useGlobalXaxisKey=True,
        ),
    ]
    return _state(
        trials_of(sweep),
        column("metrics", OBJECTIVE),
        space.objective.goal == "minimize",
        columns,
        charts,
    )


def sweeps_view(space: Space) -> dict[str, object]:
    """Return the view of all sweeps of an experiment.

    It shows each sweep's results, the best sweep first.
    """
    columns = {
        **{column("metrics", name): 100 for name in ("best", "best.test")},
        **{
            column("params", name): width
            for name, width in (
                ("trainer", 200),
                ("search.algorithm", 140),
                ("scheduler.name", 140),
            )
        },
        **{
            column("tags", legal_name(f"best.{d.name}")): _width(legal_name(f"best.{d.name}"), d)
            for d in space.dimensions
        },
        **{
            column("metrics", name): _width(name)
            for name in ("trials.completed", "trials.pruned", "seconds")
        },
    }
    return _state(
        "tags.`sweeps.kind` = 'sweep'",
        column("metrics", "best"),
        space.objective.goal == "minimize",
        columns,
        [],
    )


def _width(name: str, dimension: Dimension | None = None) -> int:
    """Return the width of a column in pixels, wide enough for the column's name and the options of its dimension."""
    longest = max(
        map(len, [name, *(str(option.key) for option in (dimension.options if dimension else ()))])
    )
    return int(min(max(CHARACTER * longest + PADDING, NARROWEST), WIDEST))


def _chart(sweep: str, name: str, kind: str, **options: object) -> dict[str, object]:
    fixed = {
        "runsCountToCompare": 100,
        "metricSectionId": "sweep",
        "deleted": False,
        "isGenerated": False,
    }
    return {"uuid": f"{sweep}-{name}", "type": kind, **fixed, **options}


def _state(
    run_filter: str,
    order_by: str,
    ascending: bool,
    columns: dict[str, int],
    charts: list[dict[str, object]],
) -> dict[str, object]:
    names = {"attributes.`Run Name`": 110 if charts else 280, "runDateAndNestInfo": 135}
    state: dict[str, object] = {
        "searchFilter": run_filter,
        "orderByKey": order_by,
        "orderByAsc": ascending,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "modelVersionFilter": "All Runs",
        "datasetsFilter": [],
        "selectedColumns": list(columns),
        "columnOrder": [*names, *columns],
        "columnWidths": names | columns,
        "runsHiddenMode": "SHOW_ALL",
    }
    if charts:
        section = {
            "uuid": "sweep",
            "name": "Sweep",
            "display": True,
            "isReordered": False,
            "deleted": False,
            "isGenerated": False,
        }
        section |= {
            "columns": 1,
            "cardHeight": 400,
        }  # A plot with many axes needs the full width of the page.
        state |= {
            "compareRunCharts": charts,
            "compareRunSections": [section],
            "isAccordionReordered": True,
        }
    return state


def saved_view(name: str, time: float, state: dict[str, object]) -> str:
    """Return the value of the tag that stores a saved view.

    Args:
        name: Name of the view in the list of saved views.
        time: When the view was saved, in seconds since the epoch. The list shows the latest view
            first.
        state: The view, as `trials_view` or `sweeps_view` returns it.
    """
    packed = "deflate;" + base64.b64encode(zlib.compress(json.dumps(state).encode(), 9)).decode()
    return json.dumps({"name": name, "createdAt": int(time * 1000), "state": packed})


def runs_link(server: str, experiment: str, view: str, chart: bool = False) -> str:
    """Return the link to a saved view of an experiment's runs, as a table or as charts.

    With the server "", the link is relative, for pages within MLflow.
    """
    mode = "&compareRunsMode=CHART" if chart else ""
    return f"{_pages(server)}/experiments/{experiment}/runs?viewStateShareKey={quote(view, safe='')}&{MODE}{mode}"


def run_link(server: str, experiment: str, run: str, artifact: str | None = None) -> str:
    """Return the link to a run's page, or to an artifact of the run."""
    return f"{_pages(server)}/experiments/{experiment}/runs/{run}{f'/artifacts/{artifact}' if artifact else ''}?{MODE}"


def _pages(server: str) -> str:
    return f"{server.rstrip('/')}/#" if server else "#"

"""What MLflow's UI shows of a sweep when it is opened by our link: which runs, in which order, with which columns and charts. Pure.

MLflow 3.17 keeps a view of an experiment's runs, the one its "Save view" button makes, as a tag of the experiment; a link names the tag,
and the page's list of saved views offers it. So the tracker saves one view a sweep, and one of all sweeps. `tests/browser` watches it.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from typing import Any
from urllib.parse import quote, urlencode

from sweeps.space import Dimension, Space

VIEW_TAG = "mlflow.sharedViewState."
ALL_SWEEPS = "all-sweeps"
OBJECTIVE = "objective"
# Without it the UI shows what it has for language models.
MODE = "workflowType=machine_learning"
# A plot with more axes than this cannot be read.
MAX_AXES = 12
# In pixels: of a character, of what is around the text, of a column.
CHARACTER, PADDING, NARROWEST, WIDEST = 7.4, 26, 90, 300
NAME_LENGTH = 250  # of a metric or a parameter, by MLflow's own limit
# What MLflow takes no metric's or parameter's name with: other characters, and what makes a name another path than it says.
ILLEGAL = re.compile(r"[^\w\-./: ]|\A/|(?<=/)/|/\Z|\A\.\.|(?:\A|(?<=/))\.\.?(?=/|\Z)")


def legal_name(name: str) -> str:
    """Return a name that MLflow takes: `acc@5` becomes `acc_5`, `a/../b` becomes `a/__/b`, and a long name loses its end."""
    return ILLEGAL.sub(lambda found: "_" * len(found[0]), name[:NAME_LENGTH]) or "_"


def column(kind: str, name: str) -> str:
    """MLflow's name of a column: params.`eta`."""
    return f"{kind}.`{name}`"


def trials_of(sweep: str) -> str:
    """The filter for a sweep's trials."""
    return f"tags.`sweeps.sweep` = '{sweep}' and tags.`sweeps.kind` = 'trial'"


def trials_view(sweep: str, space: Space) -> dict[str, Any]:
    """The trials of a sweep, the best first: its dimensions as columns and as axes; the curves of the objective."""
    columns = {
        column("metrics", OBJECTIVE): 110,  # with the arrow of its order
        **{column("metrics", legal_name(f"objective.{o.metric}")): 110 for o in space.objectives if len(space.objectives) > 1},
        column("tags", "sweeps.state"): _width("sweeps.state"),
        **({column("tags", "sweeps.feasible"): _width("sweeps.feasible")} if space.constraints else {}),
        **({column("tags", "sweeps.front"): _width("sweeps.front")} if len(space.objectives) > 1 else {}),
        **{column("params", legal_name(d.name)): _width(legal_name(d.name), d) for d in space.dimensions},
        column("metrics", "steps"): NARROWEST,
        column("metrics", "seconds"): NARROWEST,
    }
    # MLflow's plot leaves out a run that lacks an axis; the last axis gives the lines their colour
    axes = [legal_name(dimension.name) for dimension in space.always][:MAX_AXES]
    metric = legal_name(space.objective.metric)
    charts = [
        _chart(sweep, "parallel", "PARALLEL", selectedParams=axes, selectedMetrics=[OBJECTIVE], showAllRuns=True),
        _chart(sweep, "curves", "LINE", metricKey=metric, selectedMetricKeys=[metric], xAxisKey="step", useGlobalXaxisKey=True),
    ]
    return _state(trials_of(sweep), column("metrics", OBJECTIVE), space.objective.goal == "minimize", columns, charts)


def sweeps_view(space: Space) -> dict[str, Any]:
    """All sweeps of an experiment with what each came to, the best first."""
    columns = {
        **{column("metrics", name): 100 for name in ("best", "best.test")},
        **{column("tags", legal_name(f"best.{d.name}")): _width(legal_name(f"best.{d.name}"), d) for d in space.dimensions},
        **{column("metrics", name): _width(name) for name in ("trials.completed", "trials.pruned", "seconds")},
    }
    return _state("tags.`sweeps.kind` = 'sweep'", column("metrics", "best"), space.objective.goal == "minimize", columns, [])


def _width(name: str, dimension: Dimension | None = None) -> int:
    """For a column's name and for the options that stand in it."""
    longest = max(map(len, [name, *(str(option.key) for option in (dimension.options if dimension else ()))]))
    return int(min(max(CHARACTER * longest + PADDING, NARROWEST), WIDEST))


def _chart(sweep: str, name: str, kind: str, **own: Any) -> dict[str, Any]:
    fixed = {"runsCountToCompare": 100, "metricSectionId": "sweep", "deleted": False, "isGenerated": False}
    return {"uuid": f"{sweep}-{name}", "type": kind, **fixed, **own}


def _state(where: str, by: str, ascending: bool, columns: dict[str, int], charts: list[dict[str, Any]]) -> dict[str, Any]:
    names = {"attributes.`Run Name`": 110 if charts else 280, "runDateAndNestInfo": 135}
    state: dict[str, Any] = {
        "searchFilter": where,
        "orderByKey": by,
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
        section = {"uuid": "sweep", "name": "Sweep", "display": True, "isReordered": False, "deleted": False, "isGenerated": False}
        section |= {"columns": 1, "cardHeight": 400}  # a plot with many axes wants the whole width
        state |= {"compareRunCharts": charts, "compareRunSections": [section], "isAccordionReordered": True}
    return state


def saved_view(name: str, at: float, state: dict[str, Any]) -> str:
    """The value of a saved view's tag.

    Args:
        name: what the list of saved views shows.
        at: seconds since the epoch; the list is in this order, latest first.
        state: see `trials_view`.
    """
    packed = "deflate;" + base64.b64encode(zlib.compress(json.dumps(state).encode(), 9)).decode()
    return json.dumps({"name": name, "createdAt": int(at * 1000), "state": packed})


def runs_link(server: str, experiment: str, view: str, chart: bool = False) -> str:
    """The link to a saved view of an experiment's runs, as a table or as charts. A server of "" makes a link within MLflow."""
    mode = "&compareRunsMode=CHART" if chart else ""
    return f"{_pages(server)}/experiments/{experiment}/runs?viewStateShareKey={quote(view, safe='')}&{MODE}{mode}"


def plain_link(server: str, experiment: str, sweep: str, minimize: bool) -> str:
    """The link to a sweep's trials in order, where no view was saved."""
    asked = {"searchFilter": trials_of(sweep), "orderByKey": column("metrics", OBJECTIVE), "orderByAsc": str(minimize).lower()}
    return f"{_pages(server)}/experiments/{experiment}/runs?{urlencode(asked)}&{MODE}"


def run_link(server: str, experiment: str, run: str, artifact: str | None = None) -> str:
    """The link to a run's page, or to a file of the run."""
    return f"{_pages(server)}/experiments/{experiment}/runs/{run}{f'/artifacts/{artifact}' if artifact else ''}?{MODE}"


def _pages(server: str) -> str:
    return f"{server.rstrip('/')}/#" if server else "#"

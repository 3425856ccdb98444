"""Convert a sweep and a trial to the JSON objects that the page reads. Pure functions."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence
from typing import Any

from sweeps.core.json_files import is_number
from sweeps.core.result import to_json_value
from sweeps.dashboard.reader import Snapshot
from sweeps.space import Dimension
from sweeps.space.domains import short_names
from sweeps.study.record import TrialRecord, lineage_text
from sweeps.sweep_report.configuration import configuration_rows, value_text
from sweeps.sweep_report.figures import PlotData, option_text

# Titles of the figures, in the order of the page.
TITLES = {
    "history": "Best so far",
    "curves": "Curves",
    "pareto": "Pareto front",
    "importance": "Importance",
    "parallel": "Parallel coordinates",
    "slice": "Slice",
    "contour": "Contour",
    "cost": "Cost by scale",
    "edf": "Empirical distribution",
    "timeline": "Timeline",
    "resources": "Resources in use",
}


def sweep_json(
    snapshot: Snapshot, may_command: bool, mlflow: Mapping[str, str], since: int = 0
) -> dict[str, Any]:
    """Return what the page shows of a sweep: its state, a table of its trials, its dimensions, and its figures.

    Args:
        snapshot: The sweep.
        may_command: True if the server accepts commands.
        mlflow: Address of the sweep's pages in MLflow, by title.
        since: The time `latest` of the answer that the page has. Rows that have not changed since
            then are left out.
    """
    summary, study, data = snapshot.summary, snapshot.study, snapshot.data
    columns, rows = trial_table(snapshot, since)
    dimensions: Sequence[Dimension] = ()
    if data is not None:  # The order by importance takes long to compute.
        dimensions = data.dimensions if summary.is_running else data.sampled
    names = short_names([d.name for d in dimensions])
    objectives = study.objectives.objectives if study is not None else ()
    notes = [*map(str, summary.problems), *((summary.result or {}).get("notes", ()))]
    reason = (summary.result or {}).get("reason")
    return summary.to_json() | {
        "version": snapshot.version,
        "objectives": [{"metric": o.metric, "goal": o.goal} for o in objectives],
        "columns": columns,
        "rows": rows,
        "latest": max((row.changed for row in snapshot.rows.values()), default=0),
        "dimensions": [{"name": d.name, "label": names[d.name]} for d in dimensions],
        "figures": [
            {"key": key, "title": title}
            for key, title in TITLES.items()
            if key != "pareto" or len(objectives) in (2, 3)
        ],
        "running": summary.is_running,
        "may_command": may_command,
        "mlflow": dict(mlflow),
        "seconds": (summary.result or {}).get("seconds"),
        "notes": [
            *([f"ended early: {reason}"] if reason else []),
            *([snapshot.problem] if snapshot.problem else []),
            *notes,
        ],
    }


def trial_table(snapshot: Snapshot, since: int = 0) -> tuple[list[dict[str, Any]], list[list[Any]]]:
    """Return the columns, and the rows that have changed since a time.

    A cell is a number, a text, or None.
    """
    study = snapshot.study
    if study is None:
        return [], []
    metrics = [o.metric for o in study.objectives.objectives]
    dimensions = snapshot.data.dimensions if snapshot.data is not None else ()
    names = short_names([d.name for d in dimensions])
    columns = [column("trial", "trial"), column("state", "state")]
    columns += [column(f"value.{at}", metric, True) for at, metric in enumerate(metrics)]
    columns += [column("steps", "steps", True), column("seconds", "seconds", True)]
    for d in dimensions:
        is_numeric = all(is_number(option.key) for option in d.options)
        columns.append(column(d.name, names[d.name], is_numeric))
    rows = []
    for t, state, changed in snapshot.rows.values():
        if changed > since:
            values = [*t.result.values, *[None] * len(metrics)][: len(metrics)]
            fixed = [t.id, state, *values, t.result.steps, round(t.result.seconds, 2)]
            labels = [cell(t.labels[d.name]) if d.name in t.labels else None for d in dimensions]
            rows.append([to_json_value(v) for v in (*fixed, *labels)])
    return columns, rows


def column(key: str, label: str, number: bool = False) -> dict[str, Any]:
    """Return a column of the table of trials."""
    return {"key": key, "label": label, "number": number}


def cell(value: Any) -> Any:
    """Return the value of a dimension for the table: a number, or a text."""
    return value if is_number(value) else option_text(value)


def trial_json(t: TrialRecord, snapshot: Snapshot) -> dict[str, Any]:
    """Return what the page shows of one trial, as tables of (name, text) rows."""
    r, objectives = (
        t.result,
        snapshot.study.objectives.objectives if snapshot.study is not None else (),
    )
    values = [(o.metric, value) for o, value in zip(objectives, r.values, strict=False)]
    facts: list[tuple[str, Any]] = [("state", snapshot.summary.state_of(t)), *values]
    facts += [("best step", f"{r.best_step} of {r.steps}")] if r.best_step is not None else []
    facts += [("stopped", t.reason)] if t.reason else []
    facts += [
        (name, value)
        for name, value in {**r.metrics, **r.final}.items()
        if name not in dict(values)
    ]
    facts += [
        ("attempts", t.attempts),
        ("seed", t.seed),
        ("began", _time(t.began)),
        ("ended", _time(t.ended)),
    ]
    facts += [("repeats", f"trial {t.repeat_of:04d}")] if t.repeat_of is not None else []
    facts += [("copied from", lineage_text(t.lineage))] if t.lineage else []
    facts += [("stage", snapshot.summary.stages[t.id])] if t.id in snapshot.summary.stages else []
    configuration = [*configuration_rows(t.data, "data."), ("preprocessor", t.preprocessor)]
    configuration += [*configuration_rows(t.scaling, "scaling."), *configuration_rows(t.params)]
    return {
        "trial": t.id,
        "facts": [
            (name, value_text(value))
            for name, value in facts
            if value is not None and not _is_nan(value)
        ],
        "configuration": configuration,
        "error": r.error,
        "running": snapshot.summary.state_of(t)
        not in ("COMPLETE", "PRUNED", "FAIL", "INTERRUPTED", "GIVEN"),
    }


def figure_options(data: PlotData | None, query: Mapping[str, str], key: str) -> dict[str, Any]:
    """Return the options of a figure from the query of a request.

    Unknown keys and names of dimensions are ignored.
    """
    known = {d.name for d in data.dimensions} if data is not None else set()
    if key == "slice":
        return {"name": query["name"]} if query.get("name") in known else {}
    if key == "contour":
        return {axis: query[axis] for axis in ("x", "y") if query.get(axis) in known}
    if key == "curves" and query.get("trials"):
        return {"chosen": tuple(query["trials"].split(",")[:100])}
    return {}


def _time(at: datetime.datetime | None) -> str | None:
    return at.isoformat(sep=" ", timespec="seconds") if at is not None else None


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)

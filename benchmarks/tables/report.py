"""The report of the benchmark of tables. All functions but `write` are pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.search_quality.report import section
from benchmarks.tables import cells, extreme
from benchmarks.tables.catalog import Table
from benchmarks.tables.cells import Cell
from benchmarks.tables.peers import DEFAULT, TOOLS
from benchmarks.tables.scores import Estimate, compare, differences, estimates
from benchmarks.tables.split import DEVELOPMENT, is_held

BEGIN, END = "<!-- table -->", "<!-- end of the table -->"
LOOKED_AT_ONCE = "tables that were looked at once"
DEVELOPED_ON = "tables for development"
OTHERS = "other tables"
EXTREME = "tables at the limits"
SERVING = (
    "Seconds of the command that loads the model and predicts the rows that are held out, a "
    "quarter of the table: the mean over seeds. The tool with the best score is in bold."
)
GROUPS = (LOOKED_AT_ONCE, DEVELOPED_ON, OTHERS, EXTREME)


def group_of(table: str) -> str:
    """Return the group in which the report has a table."""
    if table in extreme.RECIPES:
        return EXTREME
    if table in DEVELOPMENT:
        return DEVELOPED_ON
    return LOOKED_AT_ONCE if is_held(table) else OTHERS


def write(results: Path, page: Path) -> None:
    """Write the tables of the page from the cells that are kept."""
    section(page, BEGIN, END, render(cells.read(results)) + "\n")


def line(cell: Cell) -> str:
    """Return the result of one cell in a line."""
    if cell.error:
        return f"failed: {cell.error}"
    auc = "" if cell.auc is None else f", AUC {cell.auc:.4f}"
    return (
        f"{cell.score:.5g}{auc}, {cell.seconds:.1f} s, {cell.cpu_seconds:.1f} CPU seconds, "
        f"{cell.peak_mib:,} MiB"
    )


def catalog(known: Iterable[Table]) -> str:
    """Return the Markdown table of all tables."""
    rows = [
        [f"`{table.name}`", table.task, "yes" if table.is_held else "", table.file or ""]
        for table in known
    ]
    return _markdown(["table", "task", "held back", "file"], rows)


# ---- cells that can be compared


@dataclass(frozen=True)
class Round:
    """The cells of all tools on one table with one seed.

    Attributes:
        table: Name of the table.
        default: Cell of XGBoost's defaults.
        cells: Cell of each tool.
    """

    table: str
    default: Cell
    cells: dict[str, Cell]


def rounds(cells: Sequence[Cell], budget: int, tools: Sequence[str]) -> list[Round]:
    """Return the rounds in which every tool has a cell and XGBoost's defaults have a score."""
    by_key = {cell.key: cell for cell in cells}
    rounds_of_budget = []
    for table, seed in sorted({(cell.table, cell.seed) for cell in cells}):
        own = {tool: by_key.get((table, seed, tool, budget)) for tool in tools}
        complete = {tool: cell for tool, cell in own.items() if cell is not None}
        default = by_key.get((table, seed, DEFAULT, 0))
        if len(complete) == len(tools) and default is not None and default.score is not None:
            rounds_of_budget.append(Round(table, default, complete))
    return rounds_of_budget


def tools_of(cells: Iterable[Cell], budget: int) -> list[str]:
    """Return the tools that have cells of a budget: sweeps and its variants first, then the peers
    as in `TOOLS`.
    """
    names = list(dict.fromkeys(cell.tool for cell in cells if cell.budget == budget))
    peers = [name for name in TOOLS if name in names and name != "sweeps"]
    return [name for name in names if name not in peers] + peers


# ---- rendering


def render(cells: Sequence[Cell]) -> str:
    """Return all tables: for each budget and group of tables the summary, and each table."""
    parts = []
    for budget in sorted({cell.budget for cell in cells} - {0}):
        for title in GROUPS:
            own = [cell for cell in cells if group_of(cell.table) == title]
            tools = tools_of(own, budget)
            complete = rounds(own, budget, tools) if tools else []
            if complete:
                parts.append(f"### {budget} s, {title}")
                parts.append(_about(complete))
                parts.append(summary(complete, tools))
                parts.append(each_table(complete, tools))
                parts.append(SERVING)
                parts.append(serving_cost(complete, tools))
    return "\n\n".join(parts)


def _about(complete: Sequence[Round]) -> str:
    """Return what was measured where, with which versions."""
    every = [cell for one in complete for cell in (one.default, *one.cells.values())]
    versions: dict[str, dict[str, str]] = {}
    for cell in every:
        for name, version in cell.versions.items():
            versions.setdefault(cell.tool, {})[name] = version
    listed = [
        f"{tool}: {', '.join(f'{name} {version}' for name, version in own.items())}"
        for tool, own in versions.items()
    ]
    days = sorted({cell.date for cell in every})
    machines = sorted({cell.machine for cell in every})
    tables = {one.table for one in complete}
    return (
        f"Tables on which all tools ran: {len(tables)}. Seeds of a table: "
        f"{len(complete) / len(tables):.3g}. Measured from {days[0]} to {days[-1]} on "
        f"{' and '.join(machines)}; largest load average "
        f"before a command {max(cell.load for cell in every):.1f}. "
        f"Versions: {'; '.join(listed)}."
    )


def summary(complete: Sequence[Round], tools: Sequence[str]) -> str:
    """Return the Markdown table with a line for each tool: rank, normalized score, and times.

    The last tool-by-tool column compares the first tool with the others, on the same draws of
    tables and seeds. Tools that run only if they are named have no rank.
    """
    ranked = [tool for tool in tools if not is_extra(tool)]
    ranks = []
    scaled = []
    for table in _by_table(complete):
        scores = [{tool: one.cells[tool].score for tool in ranked} for one in table]
        defaults = [one.default.score for one in table if one.default.score is not None]
        places, normal = compare(scores, defaults, ranked)
        ranks.append(places)
        scaled.append(normal)
    no_rank = ["–"] * (len(tools) - len(ranked))
    ahead = [_interval(estimate) for estimate in differences(scaled, reference=0)]
    columns = [
        [*ranked, *(tool for tool in tools if is_extra(tool))],
        [_interval(estimate) for estimate in estimates(ranks)] + no_rank,
        [_interval(estimate) for estimate in estimates(scaled)] + no_rank,
        ["", *ahead[1:], *no_rank],
    ]
    figures = ("seconds", 1), ("cpu_seconds", 1), ("predict_seconds", 1), ("peak_mib", 0)
    for name, digits in figures:
        columns.append([_median(complete, tool, name, digits) for tool in columns[0]])
    failed = [sum(bool(one.cells[tool].error) for one in complete) for tool in columns[0]]
    columns.append([str(count or "") for count in failed])
    header = [
        "tool",
        "mean rank",
        "normalized score",
        f"{tools[0]} is ahead by",
        "seconds",
        "CPU seconds",
        "seconds to predict",
        "peak, MiB",
        "failed",
    ]
    return _markdown(header, list(zip(*columns, strict=True)))


def is_extra(tool: str) -> bool:
    """Return whether a tool stands beside the others without a rank."""
    return tool in TOOLS and TOOLS[tool].is_extra


def each_table(complete: Sequence[Round], tools: Sequence[str]) -> str:
    """Return the Markdown table with a line for each table: the mean scores over seeds, the best in
    bold, with the AUC beside them.
    """
    lines = []
    for table in _by_table(complete):
        about = table[0].default
        of_tool = {tool: [one.cells[tool] for one in table] for tool in tools}
        of_tool[DEFAULT] = [one.default for one in table]
        means = {tool: _mean([cell.score for cell in own]) for tool, own in of_tool.items()}
        best = min(mean for mean in means.values() if mean is not None)
        shown = []
        for tool, own in of_tool.items():
            text = _shown(means[tool], _mean([cell.auc for cell in own]))
            shown.append(f"**{text}**" if means[tool] == best else text)
        size = f"{about.rows:,} × {about.columns}"
        lines.append([f"`{about.table}`", size, about.task, str(len(table)), *shown])
    header = ["table", "rows × columns", "task", "seeds", *tools, DEFAULT]
    return _markdown(header, lines)


def serving_cost(complete: Sequence[Round], tools: Sequence[str]) -> str:
    """Return the Markdown table of the seconds that each tool needs to predict the rows of each
    table that are held out: the mean over seeds, with the tool of the best mean score in bold.
    """
    lines = []
    for table in _by_table(complete):
        means = {tool: _mean([one.cells[tool].score for one in table]) for tool in tools}
        best = min((mean for mean in means.values() if mean is not None), default=None)
        shown = []
        for tool in tools:
            seconds = statistics.fmean(one.cells[tool].predict_seconds for one in table)
            text = "–" if means[tool] is None else f"{seconds:.1f}"
            shown.append(f"**{text}**" if means[tool] == best else text)
        lines.append([f"`{table[0].table}`", *shown])
    return _markdown(["table", *tools], lines)


def _by_table(complete: Sequence[Round]) -> list[list[Round]]:
    names = dict.fromkeys(one.table for one in complete)
    return [[one for one in complete if one.table == name] for name in names]


def _mean(values: Sequence[float | None]) -> float | None:
    """Return the mean; None if a value is missing."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known and len(known) == len(values) else None


def _median(complete: Sequence[Round], tool: str, name: str, digits: int) -> str:
    """Return the median of an attribute over the cells of a tool that did not fail."""
    own = [one.cells[tool] for one in complete]
    # Cells from before a figure was measured have 0.
    values = [value for cell in own if not cell.error and (value := getattr(cell, name))]
    return f"{statistics.median(values):.{digits}f}" if values else "–"


def _shown(score: float | None, auc: float | None) -> str:
    if score is None:
        return "failed"
    return f"{score:.4g}" if auc is None else f"{score:.4f} ({auc:.3f})"


def _interval(estimate: Estimate) -> str:
    return f"{estimate.mean:.2f} ({estimate.low:.2f} to {estimate.high:.2f})"


def _markdown(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [header, ["---"] * len(header), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)

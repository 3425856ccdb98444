"""The report of the honesty of intervals. Pure functions, apart from reading and writing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from benchmarks.honesty.pools import DEVELOPMENT
from benchmarks.search_quality.report import section

BEGIN, END = "<!-- table -->", "<!-- end of the table -->"
GROUPS = ("metric", "rows", "trials", "asha", "kinds", "table")
Row = dict[str, float | str | bool]


def write(results: Path, page: Path) -> None:
    """Write the tables of the page."""
    rows = [json.loads(line) for line in results.read_text().splitlines()]
    section(page, BEGIN, END, render(rows) + "\n")


def render(rows: Sequence[Row]) -> str:
    """Return the tables: the sweeps that judge, and those on which the method was chosen."""
    parts = []
    for title, is_wanted in (("that judge", False), ("for development", True)):
        own = [row for row in rows if (row["table"] in DEVELOPMENT) == is_wanted]
        if own:
            parts += [f"### Tables {title}: {len(own)} sweeps", coverage(own), choices(own)]
    return "\n\n".join(parts)


def groups(rows: Sequence[Row]) -> Iterable[tuple[str, list[Row]]]:
    """Yield all sweeps, and those of each setting and table."""
    yield "all", list(rows)
    for key in GROUPS:
        for value in sorted({row[key] for row in rows}, key=str):
            yield f"{key} {value}", [row for row in rows if row[key] == value]


def coverage(rows: Sequence[Row]) -> str:
    """Return the table of how often an interval of 90% has the score on new rows."""
    head = [
        "sweeps",
        "number",
        "best trial",
        "worse than the interval",
        "bias, standard errors",
        "bias of the printed value",
        "average",
        "gain over the default",
    ]
    lines = []
    for name, own in groups(rows):
        printed = [
            (sign_of(row) * (float(row["new"]) - float(row["printed"])))
            / (float(row["trial_width"]) / 3.29)
            for row in own
        ]
        lines.append(
            [
                name,
                str(len(own)),
                _share(own, "trial_covers"),
                _share(own, "trial_above"),
                f"{np.median([float(row['trial_bias']) for row in own]):+.2f}",
                f"{np.median(printed):+.2f}",
                _share(own, "average_covers"),
                _share(own, "gain_covers"),
            ]
        )
    return _markdown(head, lines)


def choices(rows: Sequence[Row]) -> str:
    """Return the table of the regret of each choice on new rows, and of what is said of tuning.

    The regret is 0 for the best trial on new rows, and 1 for the median trial.
    """
    head = [
        "sweeps",
        "regret of the best value",
        "regret of the average",
        "the average is better",
        "said to beat the default",
        "and does not",
    ]
    lines = []
    for name, own in groups(rows):
        said = [row for row in own if row.get("claimed")]
        wrong = [row for row in said if not row["is_better"]]
        with_default = [row for row in own if "claimed" in row]
        lines.append(
            [
                name,
                f"{np.median([_regret(row, 'new') for row in own]):.2f}",
                f"{np.median([_regret(row, 'average_new') for row in own]):.2f}",
                f"{np.mean([_regret(r, 'average_new') < _regret(r, 'new') for r in own]):.0%}",
                f"{len(said)} of {len(with_default)}",
                str(len(wrong)),
            ]
        )
    return _markdown(head, lines)


def sign_of(row: Row) -> int:
    """Return 1 if smaller scores of the sweep's metric are better, and −1 otherwise."""
    return -1 if row["metric"] == "auc" else 1


def _regret(row: Row, key: str) -> float:
    sign = sign_of(row)
    scale = sign * (float(row["median_new"]) - float(row["best_new"]))
    return sign * (float(row[key]) - float(row["best_new"])) / max(scale, 1e-12)


def _share(rows: Sequence[Row], key: str) -> str:
    known = [bool(row[key]) for row in rows if key in row]
    return f"{np.mean(known):.0%}" if known else "–"


def _markdown(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [header, ["---"] * len(header), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)

"""The report of the honesty of intervals. Pure functions, apart from reading and writing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from benchmarks.honesty.pools import DEVELOPMENT
from benchmarks.search_quality.report import section

BEGIN, END = "<!-- table -->", "<!-- end of the table -->"
BEGIN_REAL, END_REAL = "<!-- real sweeps -->", "<!-- end of the real sweeps -->"
# The rules of `objective.choose`, and the average of eight, by their keys in the results
CHOICES = {
    "best": "new",
    "mean": "mean_new",
    "confirmed": "confirmed_new",
    "average": "average_new",
}
GROUPS = ("metric", "rows", "trials", "asha", "kinds", "table")
Row = dict[str, float | str | bool]


def write(results: Path, page: Path) -> None:
    """Write the tables of the page."""
    rows = [json.loads(line) for line in results.read_text().splitlines()]
    section(page, BEGIN, END, render(rows) + "\n")


def write_real(results: Path, page: Path) -> None:
    """Write the table of the real sweeps."""
    rows = [json.loads(line) for line in results.read_text().splitlines()]
    known = [row for row in rows if row["value"] is not None]
    inside = sum(row["low"] <= row["new"] <= row["high"] for row in known)
    worse = sum(row["new"] > row["high"] for row in known)
    optimistic = sum(row["new"] > row["printed"] for row in known)
    beaten = [row for row in known if (row["default_low"] or 0) > 0]
    text = (
        f"Of {len(rows)} sweeps, {len(known)} have an interval. It has the score on new rows in "
        f"{inside}, and in {worse} the model is worse. In {optimistic} the model is worse than the "
        f"value on valid. {len(beaten)} sweeps say that tuning beats the default."
    )
    head = ["table", "trials", "on valid", "on new rows about", "90%", "score on 10,000 new rows"]
    lines = [
        [
            row["table"],
            str(row["trials"]),
            f"{row['printed']:.4g}",
            f"{row['value']:.4g}",
            f"{row['low']:.4g} to {row['high']:.4g}",
            f"{row['new']:.4g}" + ("" if row["low"] <= row["new"] <= row["high"] else " (outside)"),
        ]
        for row in known
    ]
    section(page, BEGIN_REAL, END_REAL, f"{text}\n\n{_markdown(head, lines)}\n")


def render(rows: Sequence[Row]) -> str:
    """Return the tables: the sweeps that judge, and those on which the method was chosen."""
    parts = []
    for title, is_wanted in (("that judge", False), ("for development", True)):
        own = [row for row in rows if (row["table"] in DEVELOPMENT) == is_wanted]
        folds = [row for row in own if row.get("folds")]
        holdout = [row for row in own if not row.get("folds")]
        if own:
            parts += [f"### Tables {title}: {len(holdout)} sweeps with a holdout"]
            parts += [coverage(holdout), choices(holdout), claims(holdout)]
            parts += [f"### Tables {title}: {len(folds)} sweeps in five folds", of_folds(folds)]
    return "\n\n".join(parts)


def groups(rows: Sequence[Row]) -> Iterable[tuple[str, list[Row]]]:
    """Yield all sweeps, and those of each setting and table."""
    yield "all", list(rows)
    for key in GROUPS:
        for value in sorted({row[key] for row in rows if key in row}, key=str):
            yield f"{key} {value}", [row for row in rows if row.get(key) == value]


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
    """Return the table of the regret of each choice on new rows, and of the chosen intervals.

    The regret is 0 for the best trial on new rows, and 1 for the median trial.
    """
    head = ["sweeps"]
    head += [f"{name}: regret" for name in CHOICES]
    head += [f"{name} is better than best, worse" for name in list(CHOICES)[1:]]
    head += ["interval: mean", "interval: confirmed"]
    lines = []
    for name, own in groups(rows):
        line = [name]
        for key in CHOICES.values():
            regrets = [_regret(row, key) for row in own]
            line.append(f"{np.median(regrets):.2f} ({np.mean(np.clip(regrets, -2, 2)):.2f})")
        for key in list(CHOICES.values())[1:]:
            better = np.mean([_regret(row, key) < _regret(row, "new") for row in own])
            worse = np.mean([_regret(row, key) > _regret(row, "new") for row in own])
            line.append(f"{better:.0%}, {worse:.0%}")
        line += [_share(own, "mean_covers"), _share(own, "confirmed_covers")]
        lines.append(line)
    return _markdown(head, lines)


def claims(rows: Sequence[Row]) -> str:
    """Return the table of what is said about the default."""
    head = ["sweeps", "said to beat the default", "and does not"]
    lines = []
    for name, own in groups(rows):
        said = [row for row in own if row.get("claimed")]
        wrong = [row for row in said if not row["is_better"]]
        with_default = [row for row in own if "claimed" in row]
        lines.append([name, f"{len(said)} of {len(with_default)}", str(len(wrong))])
    return _markdown(head, lines)


def of_folds(rows: Sequence[Row]) -> str:
    """Return the table of the intervals after a cross-validation."""
    head = ["sweeps", "number"]
    for name in ("average of the folds", "model of all rows", "average, from values of folds"):
        head += [name, "worse than the interval", "bias, standard errors"]
    lines = []
    for name, own in groups(rows):
        line = [name, str(len(own))]
        for key in ("folds", "refit", "values"):
            bias = np.median([float(row[f"{key}_bias"]) for row in own])
            line += [_share(own, f"{key}_covers"), _share(own, f"{key}_above"), f"{bias:+.2f}"]
        lines.append(line)
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

"""Choose the configurations of a portfolio by their scores on the tables for development.

    python -m benchmarks.tables.portfolio FOLDER --configurations 200

FOLDER has the files of `catalog`. The command trains random configurations with plain XGBoost, and
adds each score to a file, by default `reports/portfolio.jsonl`. After an interruption, the same
command continues with the scores that this file lacks. At last the command writes the chosen
configurations to `trainers/portfolios/xgboost.yaml`.

The rows that `Table.split` holds out are not used. A quarter of the other rows decides when
training stops, and gives the score.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xgboost as xgb

from benchmarks.running import ROOT, say
from benchmarks.tables.catalog import Table, tables
from benchmarks.tables.split import DEVELOPMENT, held_out
from benchmarks.tables.tools import native_columns

SCORES = ROOT / "reports" / "portfolio.jsonl"
PORTFOLIO = ROOT / "trainers" / "portfolios" / "xgboost.yaml"
HEADER = """\
# Configurations of XGBoost that suit many tables, in the order in which a sweep tries them: \
chosen by
# `python -m benchmarks.tables.portfolio` from random ones, by their scores on six tables. The order
# is that of the learning rate, because a large one ends sooner."""
LEAST = 5
MOST = 12
GAIN = 0.005  # After `LEAST` configurations, each further one must lower the mean by as much.
ROUNDS = 2_000
PATIENCE = 50
# The bounds of each parameter, and whether its logarithm is uniform
SPACE = {
    "eta": (0.015, 0.3, True),
    "max_depth": (2, 10, False),
    "min_child_weight": (0.5, 50.0, True),
    "subsample": (0.5, 1.0, False),
    "colsample_bytree": (0.4, 1.0, False),
    "lambda": (0.01, 30.0, True),
}
Configuration = dict[str, float]


# ---- choose


def normalized(scores: np.ndarray) -> np.ndarray:
    """Scale the scores of each table: 0 for the best one, 1 for the median, at most 1.

    Args:
        scores: Scores of shape (configurations, tables). Lower is better, and NaN is a failure.
    """
    best = np.nanmin(scores, axis=0)
    width = np.nanmedian(scores, axis=0) - best
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled = (scores - best) / width
    return np.where(scores <= best, 0.0, np.fmin(scaled, 1.0))


def choose(scores: np.ndarray, least: int = LEAST, most: int = MOST) -> list[int]:
    """Choose configurations one after the other. Pure.

    Each next configuration minimizes the mean over the tables of the best normalized score so far.
    After `least` configurations, the choice ends when the mean falls by less than `GAIN`.

    Args:
        scores: Scores of shape (configurations, tables). Lower is better, and NaN is a failure.
        least: Smallest number of configurations.
        most: Largest number of configurations.

    Returns:
        The rows of the chosen configurations, in the order of the choice.
    """
    scaled = normalized(scores)
    reached = np.ones(scaled.shape[1])
    chosen: list[int] = []
    while len(chosen) < min(most, len(scaled)):
        means = np.minimum(scaled, reached).mean(axis=1)
        means[chosen] = math.inf
        row = int(means.argmin())
        if len(chosen) >= least and reached.mean() - means[row] < GAIN:
            break
        reached = np.minimum(reached, scaled[row])
        chosen.append(row)
    return chosen


# ---- measure


def configuration(number: int) -> Configuration:
    """Return a random configuration. It depends only on its number."""
    rng = np.random.default_rng(number)
    parameters: Configuration = {}
    for name, (low, high, is_log) in SPACE.items():
        if isinstance(low, int):
            parameters[name] = int(rng.integers(low, high, endpoint=True))
        elif is_log:
            parameters[name] = float(f"{math.exp(rng.uniform(math.log(low), math.log(high))):.3g}")
        else:
            parameters[name] = float(f"{rng.uniform(low, high):.2g}")
    return parameters


@dataclass(frozen=True)
class Task:
    """A table that is ready for XGBoost.

    Attributes:
        train: Rows to train on.
        valid: Rows that decide when training stops, and that give the score.
        objective: XGBoost's objective and metric.
    """

    train: xgb.DMatrix
    valid: xgb.DMatrix
    objective: dict[str, Any]

    @classmethod
    def of(cls, table: Table, folder: Path, seed: int = 0) -> Task:
        """Return the task of a table whose files are in a folder."""
        rows = pd.read_csv(io.StringIO(table.split(folder, seed)[0].to_csv(index=False)))
        label, classes = native_columns.codes_of(rows.pop(table.label), table.task)
        is_valid = held_out(label if classes else [0] * len(rows), seed)
        columns = native_columns.columns_of(rows[~is_valid])
        features = native_columns.prepared(rows, columns)
        train, valid = (
            xgb.DMatrix(features[mask], label[mask], enable_categorical=True)
            for mask in (~is_valid, is_valid)
        )
        return cls(train, valid, native_columns.objective_of(table.task, len(classes)))

    def score(self, given: Configuration) -> float:
        """Return the score of the best round of a configuration. Lower is better."""
        params = {**self.objective, **given, "seed": 0}
        booster = xgb.train(
            params,
            self.train,
            ROUNDS,
            [(self.valid, "valid")],
            early_stopping_rounds=PATIENCE,
            verbose_eval=False,
        )
        return float(booster.best_score)


def add_scores(file: Path, folder: Path, count: int) -> None:
    """Measure the scores that the file lacks, and add a line to the file for each."""
    known = {(line["table"], line["configuration"]) for line in read_scores(file)}
    for table in (tables()[name] for name in DEVELOPMENT):
        missing = [number for number in range(count) if (table.name, number) not in known]
        if missing:
            task = Task.of(table, folder)
        for number in missing:
            score = task.score(configuration(number))
            line = {"table": table.name, "configuration": number, "score": score}
            with file.open("a", encoding="utf-8") as out:
                out.write(json.dumps(line) + "\n")
        say(f"{table.name}: {count} scores, {len(missing)} of them new")


def read_scores(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the complete lines of the file. An interruption may have cut the last line."""
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    whole, _, rest = text.rpartition("\n")
    if rest:
        file.write_text(whole and whole + "\n", encoding="utf-8")
    yield from map(json.loads, whole.splitlines())


def table_of_scores(lines: Iterable[Mapping[str, Any]], count: int) -> np.ndarray:
    """Return the scores of the first configurations, of shape (configurations, tables)."""
    scores = np.full((count, len(DEVELOPMENT)), np.nan)
    for line in lines:
        if line["configuration"] < count:
            scores[line["configuration"], DEVELOPMENT.index(line["table"])] = line["score"]
    return scores


def yaml_text(chosen: Sequence[Configuration]) -> str:
    """Return the text of a portfolio."""
    rows = [", ".join(f"params.{name}: {value:g}" for name, value in c.items()) for c in chosen]
    return "\n".join([HEADER, *(f"- {{{row}}}" for row in rows)]) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tables.portfolio")
    parser.add_argument("folder", type=Path, help="with the files of the tables")
    parser.add_argument("--configurations", type=int, default=200, metavar="N")
    parser.add_argument("--scores", type=Path, default=SCORES, metavar="FILE")
    given = parser.parse_args(argv)
    add_scores(given.scores, given.folder, given.configurations)
    rows = choose(table_of_scores(read_scores(given.scores), given.configurations))
    # A large learning rate ends sooner. If time is short, several of these have ended.
    chosen = sorted(map(configuration, rows), key=lambda row: -row["eta"])
    PORTFOLIO.write_text(yaml_text(chosen), encoding="utf-8")
    say(f"{PORTFOLIO}: {len(chosen)} configurations")
    return 0


if __name__ == "__main__":
    sys.exit(main())

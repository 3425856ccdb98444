"""Compare rows as fidelity with full rows at equal CPU time, on real tables: `python -m
benchmarks.search_quality.rows --help`.

Both searches use `gp` and fit real models, one at a time. With rows as fidelity, ASHA compares the
models on 1/9 and 3/9 of the train rows, as `scheduler: {name: asha, resource: data.rows, max_t: 9}`
does, and each run fits a new model. The clock is the CPU time of the process: it counts the
suggestions, the fits and the predictions. Only models that were fitted on all train rows count as
found.

FOLDER has `california_housing/housing.csv` (the housing table of handson-ml2) and
`telco_churn/Telco-Customer-Churn.csv` (IBM's sample). `... run FOLDER` appends searches to
reports/search_quality_rows.jsonl. `... report` writes the table.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.search_quality.axes import Axis, Config
from benchmarks.search_quality.ours import Ours
from benchmarks.search_quality.report import section
from benchmarks.search_quality.tasks import Task
from sweeps.data.splits.row_parts import nested_order, rows_at

RESULTS = Path(__file__).parents[2] / "reports" / "search_quality_rows.jsonl"
PARTS = 9
# The best model is noted after these shares of the CPU time.
MARKS = (0.25, 0.5, 1.0)
SCHEDULERS = {
    "rows": f"{{name: asha, max_t: {PARTS}}}",
    "full rows": f"{{name: none, max_t: {PARTS}}}",
}

Fit = Callable[[Config, int], tuple[float, float]]


@dataclass(frozen=True)
class Split:
    """A table, split at random into 60% train, 20% valid and 20% test rows.

    The train rows are in the order of the parts.
    """

    x: Mapping[str, np.ndarray]
    y: Mapping[str, np.ndarray]

    @classmethod
    def of(cls, x: np.ndarray, y: np.ndarray, classes: bool) -> Split:
        """Split a table.

        The columns are scaled to mean 0 and standard deviation 1 on the train rows.
        """
        order = np.random.RandomState(0).permutation(len(x))
        ends = (3 * len(x) // 5, 4 * len(x) // 5)
        train, valid, test = order[: ends[0]], order[ends[0] : ends[1]], order[ends[1] :]
        train = train[nested_order(len(train), y[train] if classes else None, 0)]
        scaled = (x - x[train].mean(axis=0)) / (x[train].std(axis=0) + 1e-12)
        named = {"train": train, "valid": valid, "test": test}
        return cls(
            {name: scaled[rows] for name, rows in named.items()},
            {name: y[rows] for name, rows in named.items()},
        )


@cache
def housing(folder: Path) -> Split:
    """Return the housing table: predict the logarithm of the median value of a house."""
    import pandas as pd

    table = pd.get_dummies(
        pd.read_csv(folder / "california_housing" / "housing.csv").dropna(),
        columns=["ocean_proximity"],
    )
    y = np.log(table.pop("median_house_value").to_numpy(dtype=float))
    return Split.of(table.to_numpy(dtype=float), y, classes=False)


@cache
def churn(folder: Path) -> Split:
    """Return the table of a telephone company: predict which customers leave."""
    import pandas as pd

    table = pd.read_csv(folder / "telco_churn" / "Telco-Customer-Churn.csv").drop(
        columns="customerID"
    )
    table["TotalCharges"] = pd.to_numeric(table["TotalCharges"], errors="coerce").fillna(0.0)
    y = (table.pop("Churn") == "Yes").to_numpy(dtype=int)
    return Split.of(pd.get_dummies(table).to_numpy(dtype=float), y, classes=True)


def scores(
    split: Split, step: int, model: Any, score: Callable[[Any, str], float]
) -> tuple[float, float]:
    """Fit a model on the train rows of a step. Return its scores on valid and test."""
    rows = rows_at(step, PARTS, len(split.y["train"]))
    model.fit(split.x["train"][:rows], split.y["train"][:rows])
    return score(model, "valid"), score(model, "test")


def error(split: Split) -> Callable[[Any, str], float]:
    """Return a function that computes the root mean squared error of a model."""
    return lambda model, part: float(
        np.mean((model.predict(split.x[part]) - split.y[part]) ** 2) ** 0.5
    )


def forest(folder: Path) -> Fit:
    """Return a function that fits a random forest on the housing table."""
    from sklearn.ensemble import RandomForestRegressor

    split = housing(folder)

    def fit(config: Config, step: int) -> tuple[float, float]:
        model = RandomForestRegressor(
            30,
            max_features=config["features"],
            min_samples_leaf=config["leaf"],
            max_samples=config["sample"],
            random_state=0,
        )
        return scores(split, step, model, error(split))

    return fit


def neighbors(folder: Path) -> Fit:
    """Return a function that fits nearest neighbours on the housing table.

    Each group of columns has a factor of its own.
    """
    from sklearn.neighbors import KNeighborsRegressor

    split = housing(folder)

    def fit(config: Config, step: int) -> tuple[float, float]:
        factors = np.ones(split.x["train"].shape[1])
        factors[:2], factors[7] = config["place"], config["income"]
        scaled = Split({part: x * factors for part, x in split.x.items()}, split.y)
        weights = ("uniform", "distance")[config["weights"]]
        return scores(
            scaled,
            step,
            KNeighborsRegressor(config["neighbors"], weights=weights, p=config["p"]),
            error(scaled),
        )

    return fit


def vectors(folder: Path) -> Fit:
    """Return a function that fits a support vector machine on the table of a telephone company.

    Its value is 1 − AUC.
    """
    from sklearn.metrics import roc_auc_score
    from sklearn.svm import SVC

    split = churn(folder)

    def fit(config: Config, step: int) -> tuple[float, float]:
        model = SVC(
            C=config["C"],
            gamma=config["gamma"],
            class_weight=(None, "balanced")[config["balanced"]],
            max_iter=200_000,
        )
        return scores(
            split,
            step,
            model,
            lambda m, part: (
                1.0 - float(roc_auc_score(split.y[part], m.decision_function(split.x[part])))
            ),
        )

    return fit


@dataclass(frozen=True)
class Model:
    """A model to tune.

    Attributes:
        axes: Its dimensions.
        fit: Function that takes the folder of the tables, and returns a function of a configuration
            and a step, the number of parts of the train rows. This function returns the values on
            valid and test; smaller is better.
        seconds: CPU time of a search in seconds.
    """

    axes: Mapping[str, Axis]
    fit: Callable[[Path], Fit]
    seconds: float


MODELS: Mapping[str, Model] = {
    "forest": Model(
        {
            "features": Axis("float", 0.1, 1.0),
            "leaf": Axis("int", 1, 50, log=True),
            "sample": Axis("float", 0.2, 1.0),
        },
        forest,
        12.0,
    ),
    "neighbors": Model(
        {
            "neighbors": Axis("int", 1, 100, log=True),
            "weights": Axis("choice", 0, 1),
            "p": Axis("int", 1, 2),
            "place": Axis("float", 0.1, 30.0, log=True),
            "income": Axis("float", 0.1, 30.0, log=True),
        },
        neighbors,
        6.0,
    ),
    "vectors": Model(
        {
            "C": Axis("float", 0.01, 100.0, log=True),
            "gamma": Axis("float", 1e-4, 1.0, log=True),
            "balanced": Axis("choice", 0, 1),
        },
        vectors,
        12.0,
    ),
}


class OnRows(Ours):
    """Searcher for trials whose value is the value of the last run."""

    def end(self, trial: int) -> None:
        self.view.end(trial)
        self.study.tell(self.trials.pop(trial), self.view.trials[trial].values[PARTS])


def search(
    model: Model,
    fit: Fit,
    seed: int,
    scheduler: str,
    seconds: float,
    clock: Callable[[], float] = time.process_time,
) -> dict[str, Any]:
    """Search until the CPU time is over. A run that ends after the time does not count.

    Args:
        model: The model, for its dimensions.
        fit: Function that fits it.
        seed: Seed of the search.
        scheduler: Key of `SCHEDULERS`.
        seconds: CPU time of the search.
        clock: Function that returns the CPU time so far.

    Returns:
        The valid and test values of the best model after each share of the time in `MARKS`, and the
        numbers of trials and of full runs.
    """
    searcher = OnRows(
        Task("rows", model.axes, lambda config: np.zeros(PARTS), 0.0, 1.0, PARTS),
        seed,
        "gp",
        SCHEDULERS[scheduler],
    )
    steps = sorted({*searcher.rungs, PARTS})
    results: list[tuple[float, float, float]] = []  # seconds, value on valid, value on test
    began, trials = clock(), 0
    while clock() - began < seconds:
        number, config = searcher.begin()
        trials += 1
        for step in steps:
            valid, test = fit(config, step)
            if step == PARTS:
                results.append((clock() - began, valid, test))
                searcher.report(number, step, valid)
                searcher.end(number)
            elif not searcher.report(number, step, valid):
                break
    marks = []
    for mark in MARKS:
        known = [(valid, test) for at, valid, test in results if at <= mark * seconds]
        marks.append([round(value, 5) for value in min(known)] if known else None)
    return {"best": marks, "trials": trials, "full": len(results)}


def run(
    folder: Path, names: Sequence[str], seeds: Sequence[int], minutes: float, out: Path
) -> None:
    """Run the searches that are not recorded yet, until the time is over.

    The two searches of a seed run one after the other.
    """
    until = time.time() + 60 * minutes
    done = {(row["model"], row["scheduler"], row["seed"]) for row in read(out)}
    for seed in seeds:
        for name in names:
            for scheduler in SCHEDULERS:
                if (name, scheduler, seed) in done or time.time() > until:
                    continue
                model = MODELS[name]
                trials = search(model, model.fit(folder), seed, scheduler, model.seconds)
                with open(out, "a") as file:
                    row = {
                        "model": name,
                        "scheduler": scheduler,
                        "seed": seed,
                        "seconds": model.seconds,
                    }
                    file.write(json.dumps({**row, **trials}) + "\n")


def read(file: Path) -> list[dict[str, Any]]:
    """Return the recorded searches."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the table of the report: the mean value on valid at each mark, and the value on test
    at the end.
    """
    by = {(row["model"], row["scheduler"], row["seed"]): row for row in rows}
    header = [
        "model",
        "search",
        *(f"valid after {mark:.0%}" for mark in MARKS),
        "test at the end",
        "trials",
        "on all rows",
        "seeds",
    ]
    lines = [header, ["---"] * len(header)]
    for name in dict.fromkeys(row["model"] for row in rows):
        seeds = [
            s
            for m, scheduler, s in by
            if m == name
            and all((name, other, s) in by for other in SCHEDULERS)
            and scheduler == "rows"
        ]
        for scheduler in SCHEDULERS if seeds else ():
            own = [by[name, scheduler, seed] for seed in seeds]
            values = [_mean([row["best"][i] for row in own], 0) for i in range(len(MARKS))]
            counts = [f"{np.mean([row[key] for row in own]):.0f}" for key in ("trials", "full")]
            label = f"{name}, {own[0]['seconds']:g} s"
            lines.append(
                [
                    label,
                    scheduler,
                    *values,
                    _mean([row["best"][-1] for row in own], 1),
                    *counts,
                    str(len(seeds)),
                ]
            )
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _mean(pairs: Sequence[Sequence[float] | None], index: int) -> str:
    """Return the mean ± its standard error as text.

    If a search had no model yet, return how many had one.
    """
    values = [pair[index] for pair in pairs if pair is not None]
    if len(values) < len(pairs):
        return f"a model in {len(values)} of {len(pairs)}"
    return f"{np.mean(values):.4f}" + (
        f" ± {np.std(values, ddof=1) / len(values) ** 0.5:.4f}" if len(values) > 1 else ""
    )


def main() -> None:
    """Run the searches or write the table."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.search_quality.rows", description=__doc__
    )
    parser.add_argument("verb", choices=["run", "report", "show"])
    parser.add_argument("folder", nargs="?", type=Path, help="folder with the two tables")
    parser.add_argument("--models", default=",".join(MODELS), help="separated by ,")
    parser.add_argument("--seeds", default="0-4")
    parser.add_argument("--minutes", type=float, default=9)
    parser.add_argument("--out", type=Path, default=RESULTS)
    asked = parser.parse_args()
    if asked.verb == "report":
        section(
            RESULTS.with_name("search_quality.md"),
            "<!-- rows -->",
            "<!-- end of the rows -->",
            table(read(asked.out)) + "\n",
        )
    elif asked.verb == "show":
        print(table(read(asked.out)))
    else:
        first, _, last = asked.seeds.partition("-")
        run(
            asked.folder,
            asked.models.split(","),
            range(int(first), int(last or first) + 1),
            asked.minutes,
            asked.out,
        )


if __name__ == "__main__":
    main()

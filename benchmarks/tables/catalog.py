"""The tables: files in a folder of yours, those that scikit-learn ships, and generated ones.

The folder has these files, as `FILES` names them: German credit, Pima, Ionosphere and Abalone of
UCI, with header lines; HR analytics, stroke prediction and used cars of Kaggle; IBM's telephone
customers; the housing table of handson-ml2; rows of New York's yellow taxis, 2018 to 2020. Their
text reaches the tools as it is: nothing is parsed, filled or dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pandas as pd

from benchmarks.tables import extreme, generated
from benchmarks.tables.split import held_out, is_held, latest


@dataclass(frozen=True)
class Table:
    """A table with a label.

    Attributes:
        name: Name on the command line and in the report.
        label: Column to predict.
        task: `binary`, `multiclass` or `regression`.
        load: Function that returns the table, given the folder with the files.
        file: File that is read, relative to the folder; None if there is none.
        time: Column of numbers. The rows with the largest values are held out. None: random rows
            are.
        is_extreme: True for a table at the limits, which no score of a report includes.
    """

    name: str
    label: str
    task: str
    load: Callable[[Path], pd.DataFrame]
    file: str | None = None
    time: str | None = None
    is_extreme: bool = False

    @property
    def is_held(self) -> bool:
        """True if the table is held back: it is measured once, before a report."""
        return is_held(self.name) and not self.is_extreme

    def split(self, folder: Path, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return the rows for training and the rows that are held out."""
        table = self.load(folder)
        if self.time is not None:
            held = latest(table[self.time])
        elif self.task == "regression":
            held = held_out([0] * len(table), seed)
        else:
            held = held_out(table[self.label], seed)
        return table[~held], table[held]


# file, label, task
FILES = {
    "german_credit": ("tables/german_credit.csv", "bad", "binary"),
    "pima": ("tables/pima.csv", "diabetes", "binary"),
    "ionosphere": ("tables/ionosphere.csv", "signal", "binary"),
    "abalone": ("tables/abalone.csv", "rings", "regression"),
    "hr_job_change": ("tables/hr_job_change.csv", "target", "binary"),
    "stroke": ("tables/stroke.csv", "stroke", "binary"),
    "cars": ("tables/cars.csv", "selling_price", "regression"),
    "telco_churn": ("telco_churn/Telco-Customer-Churn.csv", "Churn", "binary"),
    "california_housing": ("california_housing/housing.csv", "median_house_value", "regression"),
}
TAXI = "nyc_yellow_parquet/yellow_tripdata_2018-2020_sample360k.parquet"
SKLEARN = {"breast_cancer": "binary", "digits": "multiclass", "diabetes": "regression"}


def tables() -> dict[str, Table]:
    """Return all tables by name."""
    listed = [
        Table(name, label, task, partial(_text, file), file=file)
        for name, (file, label, task) in FILES.items()
    ]
    listed.append(Table("yellow_taxi", "big_tip", "binary", _taxi, file=TAXI, time="day"))
    for name, task in SKLEARN.items():
        listed.append(Table(name, "target", task, partial(_sklearn, name)))
    for name, recipe in generated.RECIPES.items():
        time = generated.DAY if recipe.drift else None
        load = partial(_generated, name)
        listed.append(Table(name, generated.LABEL, recipe.task, load, time=time))
    for name, recipe in extreme.RECIPES.items():
        load = partial(_extreme, name)
        listed.append(Table(name, generated.LABEL, recipe.task, load, is_extreme=True))
    return {table.name: table for table in listed}


def _text(file: str, folder: Path) -> pd.DataFrame:
    """Read a CSV file with each cell as the text that it is."""
    return pd.read_csv(folder / file, dtype=str, keep_default_na=False)


def _sklearn(name: str, folder: Path) -> pd.DataFrame:
    import sklearn.datasets

    return getattr(sklearn.datasets, f"load_{name}")(as_frame=True).frame


def _generated(name: str, folder: Path) -> pd.DataFrame:
    return generated.generate(name)


def _extreme(name: str, folder: Path) -> pd.DataFrame:
    return extreme.generate(name)


def _taxi(folder: Path) -> pd.DataFrame:
    """Return taxi rides and whether the tip is more than a fifth of the fare.

    Amounts that include the tip are left out.
    """
    rides = pd.read_parquet(folder / TAXI)
    start, end = rides["tpep_pickup_datetime"], rides["tpep_dropoff_datetime"]
    known_later = ["tip_amount", "total_amount", start.name, end.name]
    return rides.drop(columns=known_later).assign(
        day=(start - pd.Timestamp("2018-01-01")).dt.days,
        weekday=start.dt.day_name(),
        hour=start.dt.hour,
        minutes=(end - start).dt.total_seconds() / 60,
        big_tip=(rides["tip_amount"] > 0.2 * rides["fare_amount"]).map({True: "yes", False: "no"}),
    )

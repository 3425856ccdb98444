"""Prepare columns for XGBoost as a careful person does: numbers stay numbers, and texts become
native categories.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import xgboost as xgb

NUMBERS = 0.95  # A column of texts is a column of numbers if this share of its texts are numbers.
DISTINCT = (
    0.5  # A column of texts identifies rows if more than this share of its texts are distinct.
)

# None for a column of numbers, else the categories. A column that is not used is missing.
Columns = dict[str, list[str] | None]


def columns_of(rows: pd.DataFrame) -> Columns:
    """Return how the columns of the train rows are read."""
    columns: Columns = {}
    for name, column in rows.items():
        known = column.dropna()
        if known.empty:
            continue
        if pd.to_numeric(known, errors="coerce").notna().mean() >= NUMBERS:
            columns[str(name)] = None
        elif known.nunique() <= DISTINCT * len(known):
            columns[str(name)] = sorted(known.astype(str).unique())
    return columns


def prepared(rows: pd.DataFrame, columns: Columns) -> pd.DataFrame:
    """Return the columns that are used.

    A category that the train rows do not have is a missing value.
    """
    prepared_columns = {}
    for name, categories in columns.items():
        if categories is None:
            prepared_columns[name] = pd.to_numeric(rows[name], errors="coerce").astype(float)
        else:
            texts = rows[name].astype(str)
            known = texts.where(rows[name].notna() & texts.isin(categories))
            prepared_columns[name] = pd.Categorical(known, categories=categories)
    return pd.DataFrame(prepared_columns, index=rows.index)


def codes_of(label: pd.Series, task: str) -> tuple[pd.Series, list[Any]]:
    """Return the labels of a regression, or the codes of the classes, and the classes."""
    if task == "regression":
        return label, []
    classes = sorted(label.unique().tolist())
    return label.map({name: code for code, name in enumerate(classes)}), classes


def objective_of(task: str, classes: int) -> dict[str, Any]:
    """Return XGBoost's objective and metric of a task."""
    if task == "regression":
        return {"objective": "reg:squarederror", "eval_metric": "rmse"}
    if task == "binary":
        return {"objective": "binary:logistic", "eval_metric": "logloss"}
    return {"objective": "multi:softprob", "eval_metric": "mlogloss", "num_class": classes}


def save(folder: str, booster: xgb.Booster, columns: Columns, classes: list[Any]) -> None:
    """Write a model with what its predictions need."""
    booster.save_model(Path(folder, "model.ubj"))
    Path(folder, "model.json").write_text(json.dumps({"columns": columns, "classes": classes}))


def predictions(folder: str, rows: pd.DataFrame) -> pd.DataFrame:
    """Return the predictions of a model that `save` wrote."""
    booster = xgb.Booster(model_file=Path(folder, "model.ubj"))
    saved = json.loads(Path(folder, "model.json").read_text())
    features = prepared(rows, saved["columns"])
    values = booster.predict(xgb.DMatrix(features, enable_categorical=True))
    classes = saved["classes"]
    if not classes:
        return pd.DataFrame({"prediction": values})
    if len(classes) == 2:
        return pd.DataFrame({classes[0]: 1.0 - values, classes[1]: values})
    return pd.DataFrame(values, columns=classes)

"""XGBoost with its defaults on all rows: 100 trees of depth 6 with a learning rate of 0.3."""

from __future__ import annotations

import pandas as pd
import xgboost as xgb

from benchmarks.tables.tools import native_columns
from benchmarks.tables.tools.job import Job, main


def train(job: Job) -> None:
    """Train the model."""
    rows = pd.read_csv(job.train)
    y, classes = native_columns.codes_of(rows.pop(job.label), job.task)
    columns = native_columns.columns_of(rows)
    data = xgb.DMatrix(native_columns.prepared(rows, columns), y, enable_categorical=True)
    params = {**native_columns.objective_of(job.task, len(classes)), "seed": job.seed}
    booster = xgb.train(params, data, num_boost_round=100)
    native_columns.save(job.folder, booster, columns, classes)


def predict(job: Job) -> None:
    """Predict with the saved model."""
    rows = pd.read_csv(job.test)
    native_columns.predictions(job.folder, rows).to_csv(job.predictions, index=False)


if __name__ == "__main__":
    main(train, predict)

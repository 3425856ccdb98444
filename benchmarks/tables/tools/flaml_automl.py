"""FLAML's AutoML as its documentation recommends: the task, the metric and a time budget."""

from __future__ import annotations

import pickle
from pathlib import Path

import pandas as pd
from flaml import AutoML

from benchmarks.tables.tools.job import Job, main


def train(job: Job) -> None:
    """Search, and train the best configuration on all rows, which is FLAML's default."""
    rows = pd.read_csv(job.train)
    automl = AutoML()
    automl.fit(
        rows.drop(columns=job.label),
        rows[job.label],
        task="regression" if job.task == "regression" else "classification",
        metric="rmse" if job.task == "regression" else "log_loss",
        time_budget=job.seconds_left,
        seed=job.seed,
        verbose=1,
    )
    Path(job.folder, "model.pkl").write_bytes(pickle.dumps(automl))


def predict(job: Job) -> None:
    """Predict with the pickled model."""
    automl = pickle.loads(Path(job.folder, "model.pkl").read_bytes())
    rows = pd.read_csv(job.test)
    if job.task == "regression":
        table = pd.DataFrame({"prediction": automl.predict(rows)})
    else:
        table = pd.DataFrame(automl.predict_proba(rows), columns=automl.classes_)
    table.to_csv(job.predictions, index=False)


if __name__ == "__main__":
    main(train, predict)

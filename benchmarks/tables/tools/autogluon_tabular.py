"""AutoGluon's TabularPredictor as its documentation recommends: the metric, a preset and a time
limit.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from autogluon.tabular import TabularPredictor

from benchmarks.tables.tools.job import Job, main

MODEL = "model"


def train(job: Job) -> None:
    """Train the models of the preset and their weighted ensemble."""
    predictor = TabularPredictor(
        label=job.label,
        problem_type=job.task,
        eval_metric="root_mean_squared_error" if job.task == "regression" else "log_loss",
        path=str(Path(job.folder, MODEL)),
        verbosity=1,
    )
    predictor.fit(pd.read_csv(job.train), time_limit=job.seconds_left, presets=job.preset)


def predict(job: Job) -> None:
    """Predict with the best model, which is the ensemble as a rule."""
    predictor = TabularPredictor.load(str(Path(job.folder, MODEL)), verbosity=1)
    rows = pd.read_csv(job.test)
    if job.task == "regression":
        table = predictor.predict(rows).to_frame("prediction")
    else:
        table = predictor.predict_proba(rows)
    table.to_csv(job.predictions, index=False)


if __name__ == "__main__":
    main(train, predict)

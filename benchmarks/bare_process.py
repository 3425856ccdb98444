"""A training process without sweeps, to which `benchmarks.trial_memory` compares a trial with a
built-in trainer.

python -m benchmarks.bare_process FOLDER LATCH ROUNDS NAME
"""

from __future__ import annotations

import sys
from pathlib import Path


def prepare(folder: str, few: bool) -> None:
    """Write `train.parquet` and `valid.parquet`: the taxi trips, prepared in the same way as for
    the trials of the sweep.
    """
    from benchmarks import taxi

    train, valid, y_train, y_valid = taxi.split(taxi.load_few() if few else taxi.load())
    for name, rows, label in (("train", train, y_train), ("valid", valid, y_valid)):
        taxi.features(rows).assign(**{taxi.LABEL: label}).to_parquet(
            Path(folder, f"{name}.parquet")
        )


def main(folder: str, latch: str, rounds: str, name: str) -> None:
    """Build the matrices, train, and wait in the third round."""
    import pandas as pd
    import xgboost as xgb

    from benchmarks.probe_loops import _hold

    def matrix(part: str) -> xgb.DMatrix:
        frame = pd.read_parquet(Path(folder, f"{part}.parquet"))
        return xgb.DMatrix(frame.drop(columns="is_big_tip"), frame["is_big_tip"], nthread=1)

    class Held(xgb.callback.TrainingCallback):
        def after_iteration(self, model: xgb.Booster, epoch: int, evals_log: dict) -> bool:
            if epoch == 2:
                _hold(Path(latch), name, {})
            return False

    params = {"objective": "binary:logistic", "eval_metric": "logloss", "nthread": 1}
    train, valid = matrix("train"), matrix("valid")
    xgb.train(
        params, train, int(rounds), evals=[(valid, "valid")], callbacks=[Held()], verbose_eval=False
    )


if __name__ == "__main__":
    main(*sys.argv[1:])

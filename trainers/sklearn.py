"""Train an estimator of scikit-learn, or any other object with `fit` and `predict`, on one worker.

`trainer: "sklearn.ensemble:RandomForestClassifier"` names an estimator of scikit-learn. `trainer:
{estimator: "my_mod:make"}` names any class of estimators, an estimator such as a pipeline, or a
function that returns an estimator. `params` are the arguments of the class or the function, and
names that `set_params` accepts, such as `clf__C`. `random_state` and `n_jobs` follow from the
trial, unless they are set.

An estimator with `partial_fit` or `warm_start` is trained in steps, and reports after each step;
see `EstimatorTraining`. Other estimators report once. With `steps: 1`, every estimator is fitted
once with its method `fit`.

Every step reports the metrics that objectives and constraints name, measured on valid. If the trial
is not stopped, the other usual metrics of valid are measured after the last step, for the model of
the best step (`Current.report_final`). An estimator without `predict_proba` predicts classes, and
metrics that need probabilities are refused.
"""

from __future__ import annotations

import functools
import json
import pickle
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeps import trial
from sweeps.core.files import trust
from sweeps.core.metrics import USUAL

from . import LabeledRows, Params, read_rows, require_numbers, require_task
from ._best import Steps
from ._estimator import EstimatorTraining, build
from ._estimator_model import Model, adjacent_columns, can_measure, limit_threads
from ._metrics import checked_names

if TYPE_CHECKING:
    import numpy as np


def train_func(config: Params) -> None:
    """Train one estimator. Report every step, and keep the model of the best step.

    Args:
        config: The trial's `params`: parameters of the estimator.

    Raises:
        ValueError: The data has no label; or the estimator does not fit the task, has no such
            parameter, cannot be trained in steps, or does not give the probabilities that a metric
            needs.
    """
    training = EstimatorSteps(trial.current(), config)
    training.restore()
    training.run()


def _rows(split: str, cur: trial.Current) -> LabeledRows:
    """Return the rows of `train` or `valid`."""
    rows = read_rows(split, cur)
    return rows._replace(features=adjacent_columns(rows.features))


def load(folder: str) -> Model:
    """Load the best model of a checkpoint that `train_func` wrote.

    This reads a pickle, which can run code.
    """
    estimator = pickle.loads(Path(folder, "model.pkl").read_bytes())
    return Model(estimator, **json.loads(Path(folder, "model.json").read_text()))


class EstimatorSteps(Steps):
    """The training of an estimator, with its reports and checkpoints.

    Args:
        cur: The trial.
        params: The trial's `params`.

    Attributes:
        snapshot: The estimator of the best step. None if every value so far is NaN.
        measured: The metrics that the latest step measured.
    """

    def __init__(self, cur: trial.Current, params: Params):
        self.params = params
        self.task = require_task(cur.task)
        options = cur.options
        reference = options["estimator"]
        estimator = build(reference, params, cur)
        self.training = EstimatorTraining(
            estimator,
            params,
            options["steps"],
            max_t=cur.sweep_max_t,
            batch_size=options["batch_size"],
            seed=cur.seed,
        )
        if self.training.kind == "fit" and (options["steps"] or 1) > 1:
            raise ValueError(
                f"trainer.steps is {options['steps']}, but `{reference}` has neither partial_fit "
                "nor warm_start"
            )
        self.usual = [
            f"valid-{name}" for name in USUAL[self.task] if can_measure(name, self.task, estimator)
        ]
        self.names = checked_names(cur, self.usual)
        super().__init__(cur, self.names[0])
        for name in self.names:
            if not can_measure(name, self.task, estimator):
                raise ValueError(
                    f"`{name}` needs probabilities, but `{reference}` has no `predict_proba`; "
                    "choose a metric of classes, such as `valid-accuracy`, or put the estimator "
                    "into a CalibratedClassifierCV"
                )
        if cur.weight is not None:
            self.training.require_weights(reference)
        self.train = cur.cached("sklearn.train", functools.partial(_rows, "train", cur))
        self.valid = cur.cached("sklearn.valid", functools.partial(_rows, "valid", cur))
        self.last = min(self.training.steps, cur.max_t or self.training.steps)
        self.snapshot: Any = None
        self.measured: dict[str, float] = {}

    def run(self) -> None:
        """Train and report the steps that are left."""
        with limit_threads(self.cur.threads):
            for step in range(self.step + 1, self.last + 1):
                is_last = step == self.last
                self._train(step)
                names = [*self.names, *self.usual] if is_last else self.names
                self.measured = self._measure(self.training.estimator, names)
                self.compare(step, self.measured)
                self.report(
                    {name: self.measured[name] for name in self.names},
                    last=is_last,
                    due=self.cur.checkpoint_due(step, last=is_last),
                )

    def _train(self, step: int) -> None:
        """Train one step; see `EstimatorTraining.run`.

        If the estimator fails because of text, the error names the columns.
        """
        rows = self.train
        classes = len(self.cur.classes or ())
        try:
            self.training.run(step, rows.features, rows.label, classes=classes, weight=rows.weight)
        except ValueError as e:
            if "could not convert string" in str(e):
                require_numbers(rows.features)
            raise

    def _model(self, estimator: Any) -> Model:
        return Model(estimator, self.task, len(self.cur.classes or ()))

    def _measure(self, estimator: Any, names: Collection[str]) -> dict[str, float]:
        """Measure metrics of an estimator on valid."""
        model = self._model(estimator)
        return model.measure(self.valid.features, self.valid.label, list(dict.fromkeys(names)))

    @property
    def estimator(self) -> Any:
        """The estimator of the best step.

        If every value so far is NaN, the estimator of the last step.
        """
        return self.training.estimator if self.snapshot is None else self.snapshot

    def keep(self) -> None:
        """Keep a copy of the estimator. No later step changes the last estimator."""
        is_last = self.step == self.last
        self.snapshot = self.training.estimator if is_last else self.training.snapshot()

    def final(self, reported: Mapping[str, float]) -> dict[str, float]:
        """Measure the estimator of the best step on valid."""
        return self.measured if self.is_best else self._measure(self.estimator, self.usual)

    def save(self, folder: Path) -> np.ndarray | None:
        """Write the estimator of the best step, and that of the last step if it is another one.

        Raises:
            ValueError: The estimator cannot be pickled.
        """
        model = self._model(self.estimator)
        _dump(model.estimator, folder / "model.pkl")
        if not self.is_best:
            _dump(self.training.estimator, folder / "latest.pkl")
        (folder / "model.json").write_text(
            json.dumps({"task": model.task, "classes": model.classes})
        )
        (folder / "params.json").write_text(json.dumps(self.params))
        return None if self.cur.check is None else model.predict(self.cur.check)

    def load(self, folder: Path) -> None:
        """Restore the estimators that `save` wrote."""
        best = folder / "model.pkl"
        latest = folder / "latest.pkl"
        self.training.resume(
            pickle.loads((latest if latest.exists() else best).read_bytes()),
            self.params,
            json.loads((folder / "params.json").read_text()),
        )
        self.snapshot = None if self.best is None else pickle.loads(best.read_bytes())


def _dump(estimator: Any, file: Path) -> None:
    """Pickle an estimator, and sign the file with this user's key.

    Raises:
        ValueError: The estimator cannot be pickled.
    """
    try:
        file.write_bytes(pickle.dumps(estimator))
    except (pickle.PicklingError, AttributeError, TypeError) as e:
        raise ValueError(
            f"the estimator cannot be pickled: {e}; define its functions and classes at the top "
            "level of a module"
        ) from e
    trust.sign(file)

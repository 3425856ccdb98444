"""Train an estimator of scikit-learn, or any other object with `fit` and `predict`, on one worker.

`trainer: "sklearn.ensemble:RandomForestClassifier"` names an estimator of scikit-learn. `trainer:
{estimator: "my_mod:make"}` names any class of estimators, an estimator such as a pipeline, or a
function that returns an estimator. `params` are the arguments of the class or the function, and
names that `set_params` accepts, such as `clf__C`. `random_state` and `n_jobs` follow from the
trial, unless they are set.

An estimator with `partial_fit` or `warm_start` is trained in steps, and reports after each step;
see `Training`. Other estimators report once. With `steps: 1`, every estimator is fitted once with
its method `fit`.

Every step reports the metrics that objectives and constraints name, measured on valid. If the trial
is not stopped, the other usual metrics of valid are measured after the last step, for the model of
the best step (`Current.report_final`). An estimator without `predict_proba` predicts classes, and
metrics that need probabilities are refused.
"""

from __future__ import annotations

import functools
import json
import pickle
from collections.abc import Collection
from pathlib import Path
from typing import Any

from sweeps import trial
from sweeps.core import trust
from sweeps.trainers import LabeledRows, read_rows, report, require_numbers, require_task
from sweeps.trainers._best import BestStep
from sweeps.trainers._estimator import Training, build
from sweeps.trainers._estimator_model import Model, can_measure, columns, threads
from sweeps.trainers._metrics import REPORTED, requested


def train_func(config: dict[str, Any]) -> None:
    """Train one estimator. Report every step, and keep the model of the best step.

    Args:
        config: The trial's `params`: parameters of the estimator.

    Raises:
        ValueError: The data has no label; or the estimator does not fit the task, has no such
            parameter, cannot be trained in steps, or does not give the probabilities that a metric
            needs.
    """
    cur = trial.current()
    task, options = require_task(cur.task), cur.options
    estimator = build(options["estimator"], config, cur)
    training = Training(
        estimator, config, options["steps"], cur.sweep_max_t, options["batch_size"], cur.seed
    )
    _require_steps(training, options["steps"], options["estimator"])
    usual = [f"valid-{name}" for name in REPORTED[task] if can_measure(name, task, estimator)]
    names = requested(cur, usual)
    _require_outputs(names, task, estimator, options["estimator"])
    all_names = tuple(dict.fromkeys([*names, *usual]))
    if cur.weight is not None:
        training.require_weights(options["estimator"])
    train = cur.cached("sklearn.train", functools.partial(_rows, "train", cur))
    x_valid, y_valid, *_ = cur.cached("sklearn.valid", functools.partial(_rows, "valid", cur))

    best = _Best(cur, training, config)
    done = best.restore()
    last = min(training.steps, cur.max_t or training.steps)
    with threads(cur.threads):
        for step in range(done + 1, last + 1):
            ends = step == last
            _run(training, step, train, len(cur.classes or ()))
            wanted = all_names if ends else names
            measured = best.model(training.estimator).measure(x_valid, y_valid, wanted)
            if best.compare(step, measured, names[0]):  # no later step changes the last estimator
                best.snapshot = training.estimator if ends else training.snapshot()
            if ends:  # before `report`, which ends the trial at the scheduler's `max_t`
                final = (
                    measured
                    if best.step in (step, None)
                    else best.model(best.estimator).measure(x_valid, y_valid, usual)
                )
                cur.report_final({name: final[name] for name in usual if name not in names})
            due = cur.checkpoint_due(step, last=ends)
            report(
                {name: measured[name] for name in names},
                functools.partial(best.save, step) if due else None,
            )


def _require_steps(training: Training, steps: int | None, reference: str) -> None:
    """Raise a ValueError if an estimator cannot be trained in the given number of steps."""
    if training.kind == "fit" and (steps or 1) > 1:
        raise ValueError(
            f"trainer.steps is {steps}, but `{reference}` has neither partial_fit nor warm_start"
        )


def _require_outputs(names: Collection[str], task: str, estimator: Any, reference: str) -> None:
    """Raise a ValueError if a metric needs probabilities that the estimator does not predict."""
    for name in names:
        if not can_measure(name, task, estimator):
            raise ValueError(
                f"`{name}` needs probabilities, but `{reference}` has no `predict_proba`; choose "
                "a metric of classes, such as "
                "`valid-accuracy`, or put the estimator into a CalibratedClassifierCV"
            )


def _run(training: Training, step: int, train: LabeledRows, classes: int) -> None:
    """Train one step; see `Training.run`.

    If the estimator fails because of text, the error names the columns.
    """
    try:
        training.run(step, train.features, train.label, classes, train.weight)
    except ValueError as e:
        if "could not convert string" in str(e):
            require_numbers(train.features)
        raise


def _rows(split: str, cur: trial.Current) -> LabeledRows:
    """Return the rows of `train` or `valid`."""
    rows = read_rows(split, cur)
    return rows._replace(features=columns(rows.features))


def load(folder: str) -> Model:
    """Load the best model of a checkpoint that `train_func` wrote.

    This reads a pickle, which can run code.
    """
    about = json.loads(Path(folder, "model.json").read_text())
    return Model(
        pickle.loads(Path(folder, "model.pkl").read_bytes()), about["task"], about["classes"]
    )


class _Best(BestStep):
    """Best step of a training so far, and the estimator of this step.

    Args:
        cur: The trial.
        training: The training.
        params: The trial's `params`.
    """

    def __init__(self, cur: trial.Current, training: Training, params: dict[str, Any]):
        super().__init__(cur)
        self.training, self.params = training, params
        self.snapshot: Any = None

    @property
    def estimator(self) -> Any:
        """The estimator of the best step.

        If every value so far is NaN, the estimator of the last step.
        """
        return self.training.estimator if self.snapshot is None else self.snapshot

    def model(self, estimator: Any) -> Model:
        """Return a model that predicts with an estimator."""
        return Model(estimator, str(self.cur.task), len(self.cur.classes or ()))

    def save(self, step: int, folder: Path) -> None:
        """Write a checkpoint, from which a resumed trial continues after `step`.

        The checkpoint has the model of the best step, and the state of the training.

        Raises:
            ValueError: The estimator cannot be pickled.
        """
        model, best_step = self.model(self.estimator), self.step or step
        _dump(model.estimator, folder / "model.pkl")
        if best_step != step:
            _dump(self.training.estimator, folder / "latest.pkl")
        (folder / "model.json").write_text(
            json.dumps({"task": model.task, "classes": model.classes})
        )
        (folder / "params.json").write_text(json.dumps(self.params))
        self.write(folder, step)
        self.cur.note_checkpoint(
            folder, best_step, None if self.cur.check is None else model.predict(self.cur.check)
        )

    def restore(self) -> int:
        """Restore the state that `save` wrote.

        Return the number of the last step before the checkpoint; 0 if there is no checkpoint.
        """
        import ray.train

        checkpoint = ray.train.get_checkpoint()
        if checkpoint is None:
            return 0
        with checkpoint.as_directory() as folder:
            best, latest = Path(folder, "model.pkl"), Path(folder, "latest.pkl")
            earlier = json.loads(Path(folder, "params.json").read_text())
            self.training.resume(
                pickle.loads((latest if latest.exists() else best).read_bytes()),
                self.params,
                earlier,
            )
            done = self.read(Path(folder))
            self.snapshot = None if self.step is None else pickle.loads(best.read_bytes())
        return done


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

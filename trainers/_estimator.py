"""Build estimators with scikit-learn's interface, and train them in steps."""

import contextlib
import copy
import inspect
import warnings
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import Pipeline

from sweeps.core.label_columns import MULTIOUTPUT
from sweeps.core.loop_context import Current
from sweeps.core.plugins import references
from sweeps.core.text.suggestions import did_you_mean

from . import Params, without
from ._arguments import accepts_any

STEPS = 10  # default number of steps of a trial without a scheduler
GROWING = ("n_estimators", "max_iter")  # kinds of training, see `EstimatorTraining`
HIST_BOOSTING = (HistGradientBoostingClassifier, HistGradientBoostingRegressor)


def build(reference: str, params: Params, cur: Current) -> Any:
    """Return a new estimator.

    If the estimator has the parameters `random_state` and `n_jobs`, at any depth, and neither
    `params` nor the user's code sets them, they get the seed and the number of threads of the
    trial.

    Args:
        reference: The estimator as `module:attr`: a class, a function that returns an estimator, or
            an estimator, which is cloned.
        params: Arguments of the class or the function, and parameters that `set_params` accepts,
            such as `clf__C`.
        cur: The trial.

    Raises:
        ValueError: The estimator has no such parameter, lacks `fit` or `predict`, or does not fit
            the task.
    """
    source = references.resolve(reference)
    defaults = {"random_state": cur.seed, "n_jobs": cur.threads}
    accepted: Mapping[str, inspect.Parameter] = {}  # arguments of the class or the function
    passed: Params = {}  # the part of `params` that the class or the function takes
    if callable(source):
        accepted = inspect.signature(source).parameters
        takes_any = accepts_any(source)
        for name, value in params.items():
            if name in accepted or (takes_any and "__" not in name):
                passed[name] = value
        arguments = {name: value for name, value in defaults.items() if name in accepted} | passed
        estimator = source(
            **{name: _integer(accepted.get(name), value) for name, value in arguments.items()}
        )
    else:
        estimator = clone(source)
    _require_task(estimator, reference, str(cur.task))
    current = parameters_of(estimator)  # after the construction
    for name in params.keys() - passed.keys() - current.keys():
        raise ValueError(
            f"params.{name} is not a parameter of `{reference}`; "
            f"{_suggestion(name, {**accepted, **current})}"
        )
    to_set = without(params, passed)
    for name, value in current.items():
        last = _last_name(name)
        if last in defaults and value is None and name not in params:
            to_set[name] = defaults[last]
    if to_set:
        estimator.set_params(**to_set)
    return estimator


def _suggestion(name: str, valid: Collection[str]) -> str:
    """Return the end of a message about an unknown parameter.

    In a pipeline, `C` may be meant as `logisticregression__C`.
    """
    nested = [parameter for parameter in valid if parameter.endswith(f"__{name}")]
    return f"did you mean `{nested[0]}`?" if nested else did_you_mean(name, valid)


def parameters_of(estimator: Any) -> Params:
    """Return the parameters of an estimator and of the estimators inside it, such as `clf__C`.

    Return {} if the estimator has no method `get_params`.
    """
    return dict(estimator.get_params()) if hasattr(estimator, "get_params") else {}


def _last_name(name: str) -> str:
    """Return the name of a parameter without the estimators that contain it: `C` of `clf__C`."""
    return name.rpartition("__")[2]


def _integer(parameter: inspect.Parameter | None, value: Any) -> Any:
    """Convert a float such as 6.0 to an integer if the parameter's default is an integer.

    A domain such as `quniform` samples floats.
    """
    default = parameter.default if parameter is not None else None
    needs_integer = isinstance(default, int) and not isinstance(default, bool)
    if needs_integer and isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _require_task(estimator: Any, reference: str, task: str) -> None:
    """Raise a ValueError if an object is not an estimator that can be trained for a task."""
    for method in ("fit", "predict"):
        if not callable(getattr(estimator, method, None)):
            described = f"`{reference}`"
            if not callable(estimator):
                described += f" is a {type(estimator).__name__}"
            raise ValueError(
                f"trainer.estimator: {described}, which has no method `{method}`; name a "
                "classifier or a regressor"
            )
    # An estimator that does not inherit from `BaseEstimator` may be of no known kind.
    with contextlib.suppress(AttributeError):
        is_regression = task in ("regression", MULTIOUTPUT)
        if is_regression and is_classifier(estimator):
            raise ValueError(
                f"trainer.estimator: `{reference}` is a classifier, but the label is for a "
                "regression"
            )
        if not is_regression and is_regressor(estimator):
            raise ValueError(
                f"trainer.estimator: `{reference}` is a regressor, but the label is for a "
                "classification"
            )


class EstimatorTraining:
    """Training of an estimator in steps.

    The kind of the estimator decides what a step is. In a pipeline, the transformers are fitted
    once, and the steps train the last estimator.

    | kind | step |
    |---|---|
    | "fit" | the whole training with `fit`, which is the only step |
    | "passes" | one pass over the rows with `partial_fit`, for estimators that have `max_iter` |
    | "parts" | an equal part of the rows with `partial_fit`, for estimators without `max_iter` |
    | "n_estimators", "max_iter" | an equal part of this parameter, with `warm_start` |

    Args:
        estimator: A new estimator.
        params: The trial's `params`.
        steps: Number of steps. None for the default: the number of passes that `max_iter` in
            `params` sets; else `max_t`, or 10.
        max_t: The step at which the scheduler ends trials; None if there is no such step.
        batch_size: Largest number of rows in each call of `partial_fit`. None for all rows.
        seed: Seed of the trial.

    Attributes:
        estimator: The estimator.
        kind: A kind in the table.
        steps: Number of steps.
    """

    def __init__(
        self,
        estimator: Any,
        params: Params,
        steps: int | None,
        max_t: int | None,
        batch_size: int | None,
        seed: int,
    ):
        self.estimator = estimator
        self.batch_size = batch_size
        self.seed = seed
        self.kind = _kind(self.last)
        known = parameters_of(self.last)
        passes = None  # `max_iter` in `params`
        if self.kind == "passes":
            passes = params.get(f"{self._prefix}max_iter", params.get("max_iter"))
        self.steps = int(steps or passes or max_t or STEPS)
        if self.kind in GROWING:
            self.steps = min(self.steps, known[self.kind])
        if self.steps == 1 or self.kind == "fit":
            self.kind = "fit"
            self.steps = 1
        # Value of the growing parameter after the last step
        self._total = known[self.kind] if self.kind in GROWING else self.steps
        self._resumed = False
        self._features = None  # the features after the pipeline's transformers; see `_transform`
        if self.kind in ("passes", "parts"):
            # With an integer, each call of `partial_fit` would shuffle the rows in the same order.
            generators = {
                name: np.random.RandomState(seed)
                for name, seed in known.items()
                if _last_name(name) == "random_state" and isinstance(seed, int)
            }
            if generators:
                self.last.set_params(**generators)

    @property
    def last(self) -> Any:
        """The estimator, or the last estimator of a pipeline."""
        return self.estimator[-1] if isinstance(self.estimator, Pipeline) else self.estimator

    @property
    def _prefix(self) -> str:
        """The prefix of parameters of a pipeline's last estimator; "" for another estimator."""
        return f"{self.estimator.steps[-1][0]}__" if isinstance(self.estimator, Pipeline) else ""

    def resume(self, estimator: Any, params: Params, earlier: Params) -> None:
        """Continue with an estimator from a checkpoint.

        Parameters that have changed, as under PBT, take effect.

        Args:
            estimator: The estimator as it was after its last step.
            params: The trial's `params`.
            earlier: The `params` with which the estimator was trained.

        Raises:
            ValueError: A parameter has changed that cannot be set with `set_params`.
        """
        changed = {
            name: value
            for name, value in params.items()
            if name not in earlier or earlier[name] != value
        }
        for name in changed.keys() - parameters_of(estimator).keys():
            raise ValueError(
                f"params.{name} cannot change during a trial, because `set_params` does not have "
                "it; make it a constant"
            )
        # The checkpoint may come from a worker with another number of threads.
        threads = {
            name: value
            for name, value in parameters_of(self.estimator).items()
            if _last_name(name) == "n_jobs"
        }
        self.estimator = estimator
        self._resumed = True
        if threads or changed:
            estimator.set_params(**threads | changed)
        # The optimizer of scikit-learn's neural networks has copies of the parameters. The next
        # step makes a new optimizer.
        if changed:
            vars(self.last).pop("_optimizer", None)

    def require_weights(self, reference: str) -> None:
        """Raise a ValueError if the estimator cannot use weights of rows.

        Args:
            reference: The estimator as `module:attr`, for the message.
        """
        method = "partial_fit" if self.kind in ("passes", "parts") else "fit"
        function = getattr(self.last, method)
        accepted = inspect.signature(function).parameters
        if "sample_weight" not in accepted and not accepts_any(function):
            name = type(self.last).__name__
            advice = "leave out data.weight and data.class_weight, or choose another estimator"
            raise ValueError(
                f"trainer.estimator: `{method}` of {name} in `{reference}` has no argument "
                f"`sample_weight`; {advice}"
            )

    def run(
        self,
        step: int,
        x: pd.DataFrame,
        y: np.ndarray,
        classes: int,
        weight: np.ndarray | None = None,
    ) -> None:
        """Train one step.

        Args:
            step: Number of the step, starting with 1.
            x: Features.
            y: Class codes or values, shape (n,), or (n, k) for k label columns.
            classes: Number of classes; 0 for a regression and for several label columns.
            weight: Weight of each row, shape (n,). None if the rows have no weights. In a pipeline,
                only the last estimator gets weights.
        """
        with warnings.catch_warnings():
            # LogisticRegression still has the parameter `n_jobs`.
            warnings.filterwarnings("ignore", "'n_jobs' has no effect", FutureWarning)
            if self.kind == "fit":
                self.estimator.fit(x, y, **_weight_argument(weight, self._prefix))
                return
            warnings.simplefilter("ignore", ConvergenceWarning)
            features = self._transform(x, y)
            if self.kind in GROWING:
                self.last.set_params(warm_start=True, **{self.kind: self._size(step)})
                self.last.fit(features, y, **_weight_argument(weight))
                return
            known = self._known_classes(y, classes)
            for rows in self._batches(step, len(y)):
                part = features.iloc[rows] if hasattr(features, "iloc") else features[rows]
                if weight is None:
                    self.last.partial_fit(part, y[rows], **known)
                elif weight[rows].any():  # scikit-learn refuses rows whose weights are all 0
                    self.last.partial_fit(part, y[rows], **known, sample_weight=weight[rows])

    def _known_classes(self, y: np.ndarray, classes: int) -> Params:
        """Return the argument `classes` of `partial_fit`; {} for a regression."""
        if y.ndim == 2 and is_classifier(self.last):
            columns = y.shape[1]
            if isinstance(self.last, MultiOutputClassifier):  # has one classifier for each column
                return {"classes": [np.arange(2)] * columns}
            return {"classes": np.arange(columns)}
        return {"classes": np.arange(classes)} if classes else {}

    def snapshot(self) -> Any:
        """Return a copy of the estimator that later steps do not change.

        The members of an ensemble, which never change, are not copied.
        """
        members = [getattr(self.last, name, []) for name in ("estimators_", "_predictors")]
        # `deepcopy` takes the objects in this mapping for copies that it has made already.
        shared = {
            id(member): member
            for group in members
            for member in np.ravel(np.asarray(group, dtype=object))
        }
        return copy.deepcopy(self.estimator, shared)

    def _transform(self, x: pd.DataFrame, y: np.ndarray) -> Any:
        """Return the features that the last estimator of a pipeline gets.

        The transformers are fitted at the start of the trial.
        """
        if not isinstance(self.estimator, Pipeline) or len(self.estimator) == 1:
            return x
        if self._features is None:
            transformers = self.estimator[:-1]
            if not self._resumed:
                transformers.fit(x, y)
                self.estimator.steps[:-1] = transformers.steps
            self._features = transformers.transform(x)
        return self._features

    def _batches(self, step: int, rows: int) -> list[Any]:
        """Return the rows of each batch of a step.

        Their order follows from the seed and the step, so a resumed trial repeats it.
        """
        size = self.batch_size or rows
        if self.kind == "parts":
            order = np.arange(step - 1, rows, self.steps)  # every `steps`-th row
        elif size < rows:
            order = np.random.default_rng([self.seed, step]).permutation(rows)
        else:
            return [slice(None)]
        return [order[start : start + size] for start in range(0, len(order), size)]

    def _size(self, step: int) -> int:
        """Return the value of the growing parameter for a step."""
        until = self._total * step // self.steps
        if self.kind == "max_iter" and not isinstance(self.last, HIST_BOOSTING):
            # For these estimators, `max_iter` is the number of further iterations of each `fit`.
            return until - self._total * (step - 1) // self.steps
        return int(until)


def _weight_argument(weight: np.ndarray | None, prefix: str = "") -> Params:
    """Return the argument for the weights of rows; {} if there are no weights."""
    return {} if weight is None else {f"{prefix}sample_weight": weight}


def _kind(estimator: Any) -> str:
    """Return how an estimator is trained in several steps; see `EstimatorTraining`."""
    known = parameters_of(estimator)
    # scikit-learn refuses `partial_fit` with these two parameters.
    if (
        hasattr(estimator, "partial_fit")
        and known.get("class_weight") != "balanced"
        and known.get("early_stopping") is not True
    ):
        return "passes" if "max_iter" in map(_last_name, known) else "parts"
    # The solver liblinear ignores `warm_start`.
    if "warm_start" in known and known.get("solver") != "liblinear":
        return next((name for name in GROWING if isinstance(known.get(name), int)), "fit")
    return "fit"

"""Run an Optuna objective once, and write the files with which sweeps runs the same objective."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal
from unittest.mock import patch

from sweeps.core.errors import InputError
from sweeps.core.plugins import references
from sweeps.core.plugins.references import describe_error, short

from .from_optuna import Parameter, metric_names, space_text

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

# A function of the user, which takes a trial of Optuna.
Objective = Callable[[Any], Any]
Direction = Literal["minimize", "maximize"]


def objective_texts(
    reference: str, directions: Sequence[Direction], name: str, loop: str
) -> tuple[str, str, list[str]]:
    """Run an objective once, and return the texts of two files, and notes.

    Args:
        reference: The objective, as `module:function`.
        directions: "minimize" or "maximize" for each value that the objective returns.
        name: Text from which the name of the sweep is made.
        loop: Name of the module with the loop.

    Returns:
        (space file, module with the loop, notes about the objective).

    Raises:
        InputError: The objective cannot be imported or run, or a parameter has no counterpart in a
            space file.
    """
    notes: list[str] = []
    objective = _import_objective(reference, notes)
    trial = _run_once(objective, reference, directions)
    reports = trial.intermediate_values
    scheduler = ""
    if len(reports) > 1:
        notes.append(
            f"The objective reported {len(reports)} values, up to step {max(reports)}; the "
            "scheduler can stop trials early."
        )
        grace_period = max(1, len(reports) // 10)
        scheduler = f"{{name: asha, max_t: {len(reports) + 1}, grace_period: {grace_period}}}"
    first_note = (
        "One run of the objective was recorded. Parameters that it suggests in another branch are "
        "missing here, and bounds that it computes from other parameters are those of this run."
    )
    space = space_text(
        name,
        f"--from-objective {reference}",
        f"{loop}:train",
        parameters=[Parameter(key, value) for key, value in trial.distributions.items()],
        goals=list(zip(metric_names(len(directions)), directions, strict=True)),
        notes=[first_note, *notes],
        scheduler=scheduler,
    )
    return space, _loop_text(reference, len(directions)), notes


def _import_objective(reference: str, notes: list[str]) -> Objective:
    """Import an objective. The import runs the module's code.

    Args:
        reference: The objective, as `module:function`.
        notes: Receives a note if the import runs a study.

    Raises:
        InputError: The module or the function does not exist, or the module cannot be imported. The
            error names the user's line.
    """
    if (problem := references.problem(reference)) is not None:  # before any code runs
        raise InputError("--from-objective", problem)
    from optuna import Study

    try:
        # The patched method works as before, and records its calls.
        with patch.object(Study, "ask", autospec=True, side_effect=Study.ask) as ask:
            objective = references.resolve(reference)
    except references.RefError as e:
        raise InputError("--from-objective", str(e)) from e
    if ask.called:
        module = reference.partition(":")[0]
        notes.append(
            f"The import of `{module}` runs a study, and each worker imports `{module}` again: "
            'put the code that runs the study below `if __name__ == "__main__":`.'
        )
    if not callable(objective):
        text = f"`{reference}` has the type {type(objective).__name__}, but must be a function"
        raise InputError("--from-objective", text)
    function: Objective = objective
    return function


def _run_once(objective: Objective, reference: str, directions: Sequence[Direction]) -> FrozenTrial:
    """Run an objective with a trial that is not pruned, and return the trial.

    The values are random, but the same in each call.

    Raises:
        InputError: The objective raised an error, suggested nothing, or returned something else
            than its values.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        directions=directions,
        sampler=optuna.samplers.RandomSampler(seed=0),
        pruner=optuna.pruners.NopPruner(),
    )
    trial = study.ask()
    try:
        returned = objective(trial)
    except optuna.TrialPruned:
        pass
    except (Exception, SystemExit) as e:
        values = short(repr, trial.params)
        text = (
            f"`{reference}` raised {describe_error(e)}; it must run once, with the values {values}"
        )
        raise InputError("--from-objective", text) from e
    else:
        _check_values(returned, reference, len(directions))
    if not trial.distributions:
        text = (
            f"`{reference}` suggested no parameter with `trial.suggest_...`, so nothing can be "
            "tuned"
        )
        raise InputError("--from-objective", text)
    return study.trials[0]


def _check_values(returned: object, reference: str, count: int) -> None:
    """Raise an InputError if an objective did not return `count` numbers."""
    values = returned if isinstance(returned, (tuple, list)) else (returned,)
    try:
        numbers = [float(value) for value in values]
    except (TypeError, ValueError):
        numbers = []
    if not numbers:
        text = (
            f"`{reference}` returned {short(repr, returned)}, but must return a number, or several "
            "numbers"
        )
        raise InputError("--from-objective", text)
    if len(numbers) != count:
        text = (
            f"`{reference}` returned {len(numbers)} values; give `--direction minimize` or "
            "`--direction maximize` once for each of them"
        )
        raise InputError("--direction", text)


LOOP = '''"""Run the Optuna objective `{reference}` as a trial of sweeps. \
Written by `sweeps init`; change it as you like."""

import optuna
import ray.train
from {module} import {imported}


class Trial(optuna.trial.FixedTrial):
    """A trial whose suggestions are the values of `config`."""

    def _suggest(self, name, distribution):
        if name not in self._params:
            raise KeyError(f"the objective suggests `{{name}}`: add it under \
space.params of the space file")
        return super()._suggest(name, distribution)

{report}

def train(config):
    """Run one trial. `config` has the values that sweeps chose under `space.params`."""
    {returned} = {called}(Trial(config))
    return {metrics}
'''
REPORT = '''    def report(self, value, step):
        """Pass an intermediate value on. If the scheduler stops the trial, this call \
raises an exception."""
        ray.train.report({"value": value})

    def should_prune(self):
        """Return False, because `report` has already stopped a trial that is to be pruned."""
        return False
'''


def _loop_text(reference: str, count: int) -> str:
    """Return the text of the module with `train(config)`, which runs an objective.

    The objective gets the values of a trial. The function is pure.

    Args:
        reference: The objective, as `module:function`.
        count: Number of values that the objective returns.
    """
    module, _, attr = reference.partition(":")
    values = [f"values[{i}]" for i in range(count)] if count > 1 else ["value"]
    metrics = zip(metric_names(count), values, strict=True)
    first, dot, rest = attr.partition(".")  # a method is named as `Class.method`
    return LOOP.format(
        reference=reference,
        module=module,
        imported=first if first == "objective" else f"{first} as objective",
        called=f"objective{dot}{rest}",
        report=REPORT,
        returned="values" if count > 1 else "value",
        metrics="{" + ", ".join(f'"{name}": {value}' for name, value in metrics) + "}",
    )

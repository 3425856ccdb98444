"""Run an Optuna objective once, and write the files with which sweeps runs the same objective.

The objective runs with a trial that records its calls.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from sweeps.core import references
from sweeps.core.errors import InputError
from sweeps.core.references import describe_error, short
from sweeps.scaffold.from_optuna import Parameter, space_text

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

# Number of parameters after which the run of an objective ends. A space file cannot hold as many.
MOST_PARAMETERS = 2000
# Names of the methods of a trial that suggest a value. The others are deprecated forms of these.
SUGGESTS = (
    "suggest_float",
    "suggest_int",
    "suggest_categorical",
    "suggest_uniform",
    "suggest_loguniform",
    "suggest_discrete_uniform",
)


class TooManyParameters(BaseException):
    """An objective suggests too many parameters. Its `except Exception` cannot catch this."""


@dataclass
class Recording:
    """The calls that an objective made in one run.

    Attributes:
        distributions: distribution of each parameter that the objective suggested, in order.
        steps: steps at which the objective reported a value.
        values: what the objective returned; () if it was pruned.
        not_run: parameter and line of each suggestion that this run did not reach, or whose name is
            computed.
        notes: what else one run cannot show.
    """

    distributions: dict[str, BaseDistribution] = field(default_factory=dict)
    steps: list[int] = field(default_factory=list)
    values: tuple[float, ...] = ()
    not_run: tuple[tuple[str, int], ...] = ()
    notes: list[str] = field(default_factory=list)


def import_objective(reference: str, notes: list[str] | None = None) -> Callable[[Any], Any]:
    """Import an objective. The import runs the module's code.

    Args:
        reference: the objective, as `module:function`.
        notes: receives a note if the import runs a study.

    Raises:
        InputError: the module or the function does not exist, or the module cannot be imported. The
            error names the user's line.
    """
    if (problem := references.problem(reference)) is not None:  # before any code runs
        raise InputError("--from-objective", problem)
    from optuna import Study

    try:
        with patch.object(Study, "ask", autospec=True, side_effect=Study.ask) as ask:
            objective = references.resolve(reference)
        if ask.called and notes is not None:
            module = reference.partition(":")[0]
            notes.append(
                f"The import of `{module}` runs a study, and each worker imports `{module}` "
                "again: "
                'put the code that runs the study below `if __name__ == "__main__":`.'
            )
    except references.RefError as e:
        raise InputError("--from-objective", str(e)) from e
    if not callable(objective):
        text = f"`{reference}` has the type {type(objective).__name__}, but must be a function"
        raise InputError("--from-objective", text)
    found: Callable[[Any], Any] = objective
    return found


def record(objective: Callable[[Any], Any], name: str, directions: Sequence[str]) -> Recording:
    """Run an objective once, and record what it does.

    The values are random, but the same in each call.

    Args:
        objective: the function that takes a trial.
        name: the reference to it, for messages.
        directions: "minimize" or "maximize" for each value that the objective returns.

    Raises:
        InputError: the objective raised an error, suggested nothing, or returned something else
            than its values.
    """
    import optuna

    found = Recording()
    trial = _recording_trial(found, directions)
    pruned = False
    try:
        returned = objective(trial)
    except optuna.TrialPruned:
        pruned = True
    except KeyboardInterrupt:
        raise
    except BaseException as e:  # the user's code may raise anything, such as SystemExit
        values = short(repr, trial.params)
        text = f"`{name}` raised {describe_error(e)}; it must run once, with the values {values}"
        raise InputError("--from-objective", text) from e
    if not found.distributions:
        raise InputError(
            "--from-objective",
            f"`{name}` suggested no parameter with `trial.suggest_...`, so nothing can be tuned",
        )
    if not pruned:
        found.values = _values(returned, name, directions)
    source = _source(objective)
    found.not_run = tuple(
        (name, at) for name, at in suggestions_in(source) if name not in found.distributions
    )
    return found


def _recording_trial(found: Recording, directions: Sequence[str]) -> Any:
    """Return a trial that records suggestions and reports in `found`, and is never pruned."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    goals = [optuna.study.StudyDirection[direction.upper()] for direction in directions]
    study = optuna.create_study(directions=goals, sampler=optuna.samplers.RandomSampler(seed=0))

    class RecordingTrial(optuna.trial.Trial):
        """A trial that records suggestions and reports, and is never pruned."""

        def _suggest(self, name: str, distribution: BaseDistribution) -> Any:
            found.distributions.setdefault(name, distribution)
            if len(found.distributions) > MOST_PARAMETERS:
                raise TooManyParameters(f"more than {MOST_PARAMETERS:,} parameters were suggested")
            return super()._suggest(name, distribution)

        def report(self, value: float, step: int) -> None:
            found.steps.append(int(step))
            super().report(value, step)

        def should_prune(self) -> bool:
            return False

    return RecordingTrial(study, study.ask()._trial_id)


def _values(returned: Any, name: str, directions: Sequence[str]) -> tuple[float, ...]:
    """Return the values of an objective as floats."""
    several = isinstance(returned, (tuple, list))
    try:
        values = tuple(float(value) for value in (returned if several else (returned,)))
    except (TypeError, ValueError):
        values = ()
    if len(values) == len(directions):
        return values
    if not values:
        text = f"`{name}` returned {short(repr, returned)}, "
        text += "but must return a number, or several numbers"
        raise InputError("--from-objective", text)
    text = (
        f"`{name}` returned {len(values)} values; give `--direction minimize` or `--direction "
        "maximize` once for each of them"
    )
    raise InputError("--direction", text)


def _source(objective: Callable[..., Any]) -> str:
    """Return the source of the function or of the object's class; "" if it cannot be found."""
    try:
        return textwrap.dedent(
            inspect.getsource(objective if inspect.isfunction(objective) else type(objective))
        )
    except (OSError, TypeError):
        return ""


def suggestions_in(source: str) -> list[tuple[str, int]]:
    """Return the parameter and the line of each `suggest_...("name", ...)` in a source. Pure.

    If a name is computed, its expression is returned, such as `f'layer_{i}'`.
    """
    try:
        tree = references.syntax_tree(source)
    except SyntaxError:
        return []
    found = [(_name(call), call.lineno) for call in _suggestions(tree)]
    return sorted(dict.fromkeys(found), key=lambda item: item[1])


def _suggestions(tree: ast.AST) -> Iterator[ast.Call]:
    """Yield each call of `suggest_...` that has a name."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in SUGGESTS
            and (node.args or any(keyword.arg == "name" for keyword in node.keywords))
        ):
            yield node


def _name(call: ast.Call) -> str:
    """Return the name that a suggestion has, or the expression that computes it."""
    named = [keyword.value for keyword in call.keywords if keyword.arg == "name"]
    name = [*call.args[:1], *named][0]
    return str(name.value) if isinstance(name, ast.Constant) else ast.unparse(name)


# ---- the files


def metric_names(directions: Sequence[str]) -> tuple[str, ...]:
    """Return the name of the metric for each value of an objective."""
    return (
        ("value",) if len(directions) == 1 else tuple(f"value_{i}" for i in range(len(directions)))
    )


def notes_of(found: Recording) -> list[str]:
    """Return notes about what one run cannot show."""
    notes = [
        "One run of the objective was recorded. Parameters that it suggests in another branch are "
        "missing here, and bounds that it computes from other parameters are those of this run."
    ]
    if found.not_run:
        names = ", ".join(f"{name} (line {at} of the function)" for name, at in found.not_run)
        notes.append(
            f"This run did not reach these suggestions, or their names are computed: {names}. Add "
            "the domains that are missing under "
            "`params`, with a condition such as `when: {params.NAME: value}`."
        )
    notes += found.notes
    if len(found.steps) > 1:
        notes.append(
            f"The objective reported {len(found.steps)} values, up to step {max(found.steps)}; "
            "the scheduler can stop trials early."
        )
    return notes


def objective_space(
    name: str, found: Recording, directions: Sequence[str], loop: str, origin: str
) -> str:
    """Return the text of the space file for a recorded objective. Pure.

    Raises:
        InputError: a parameter has no counterpart in a space file.
    """
    goals = list(zip(metric_names(directions), directions, strict=True))
    parameters = [Parameter(key, distribution) for key, distribution in found.distributions.items()]
    reports = len(found.steps)
    scheduler = (
        f"{{name: asha, max_t: {reports + 1}, grace_period: {max(1, reports // 10)}}}"
        if reports > 1 and len(directions) == 1
        else ""
    )
    return space_text(name, origin, loop, parameters, goals, notes_of(found), scheduler=scheduler)


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


def loop_text(reference: str, directions: Sequence[str]) -> str:
    """Return the text of the module with `train(config)`, which runs an objective.

    The objective gets the values of a trial. The function is pure.

    Args:
        reference: the objective, as `module:function`.
        directions: the direction of each value that the objective returns.
    """
    module, _, attr = reference.partition(":")
    names = metric_names(directions)
    several = len(names) > 1
    metrics = ", ".join(
        f'"{name}": {f"values[{i}]" if several else "value"}' for i, name in enumerate(names)
    )
    first, dot, rest = attr.partition(".")
    return LOOP.format(
        reference=reference,
        module=module,
        imported=first if first == "objective" else f"{first} as objective",
        called=f"objective{dot}{rest}",
        report=REPORT,
        returned="values" if several else "value",
        metrics="{" + metrics + "}",
    )

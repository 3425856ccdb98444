"""Translate an Optuna study into a space file. The study is opened for reading only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sweeps.core.errors import InputError, Problem
from sweeps.core.text.secrets import masked
from sweeps.space.model.conditions import Key
from sweeps.space.model.domains import RULES, argument_problems, build
from sweeps.space.yaml.yaml_writer import flow

from .optuna_study import best_points, open_study
from .yaml_text import comment_lines, line, space_file, yaml_value

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution

# Number of trials of a sweep, unless the study has more.
TRIALS = 30


@dataclass(frozen=True)
class Parameter:
    """A parameter of an Optuna study or objective.

    Attributes:
        name: Name of the parameter.
        distribution: Optuna's distribution.
        when: Values of another parameter for which this parameter exists, as (name, values). None
            if every trial has the parameter.
    """

    name: str
    distribution: BaseDistribution
    when: tuple[str, tuple[Key, ...]] | None = None


def parameters_of(
    trials: Sequence[tuple[Mapping[str, Key], Mapping[str, BaseDistribution]]],
) -> tuple[list[Parameter], list[str]]:
    """Return the parameters of a study, and notes about what could not be found out.

    A parameter that only some trials have gets a condition, if the value of one choice decides in
    all trials whether the parameter exists.

    Args:
        trials: For each trial, its values and its distributions, by the name of the parameter.
    """
    from optuna.distributions import CategoricalDistribution

    latest: dict[str, BaseDistribution] = {}
    notes: list[str] = []
    changed: set[str] = set()
    for _, distributions in trials:
        changed |= {
            name
            for name, distribution in distributions.items()
            if latest.get(name, distribution) != distribution
        }
        latest |= distributions
    if changed:
        notes.append(
            f"Trials differ in the ranges of {', '.join(sorted(changed))}; the ranges of the last "
            "trials are used."
        )
    values = [trial_values for trial_values, _ in trials]
    unconditional = {name for name in latest if all(name in trial for trial in values)}
    choices = [
        name
        for name, distribution in latest.items()
        if name in unconditional and isinstance(distribution, CategoricalDistribution)
    ]
    parameters = []
    for name, distribution in latest.items():
        when = None if name in unconditional else _condition(name, choices, values)
        if name not in unconditional and when is None:
            notes.append(
                f"{name}: only some trials have it, and no single choice decides which; it is "
                "sampled in every trial."
            )
        parameters.append(Parameter(name, distribution, when))
    return parameters, notes


def _condition(
    name: str, choices: Sequence[str], trials: Sequence[Mapping[str, Key]]
) -> tuple[str, tuple[Key, ...]] | None:
    """Return the choice, and its values, that decide which trials have the parameter `name`.

    Return None if no single choice decides this.

    Args:
        name: Name of the parameter.
        choices: Names of the choices that every trial has.
        trials: Values of each trial.
    """
    for choice in choices:
        present = {values[choice] for values in trials if name in values}
        absent = {values[choice] for values in trials if name not in values}
        if not present & absent:
            return choice, tuple(sorted(present, key=str))
    return None


def domain(distribution: BaseDistribution) -> Any:
    """Return the domain for one of Optuna's distributions, or the constant.

    A domain is a mapping, such as {"uniform": [0, 1]}.

    Raises:
        ValueError: The distribution has no counterpart in a space file. The message says why.
    """
    from optuna.distributions import CategoricalDistribution, IntDistribution

    if isinstance(distribution, CategoricalDistribution):
        options = list(distribution.choices)
        for option in options:
            if not isinstance(option, (str, int, float, bool, type(None))):
                raise ValueError(
                    f"the option {option!r} is no text, number or boolean; "
                    "suggest names, and map them to the values in the objective"
                )
        return options[0] if len(options) == 1 else {"choice": options}
    numbers: Any = distribution  # of floats or integers
    if numbers.low == numbers.high:
        return numbers.low
    is_integer = isinstance(numbers, IntDistribution)
    step = None if is_integer and numbers.step == 1 else numbers.step
    kind = "randint" if is_integer else "uniform"
    if numbers.log:
        kind = f"log{kind}"
    elif step:
        kind = f"q{kind}"
    upper = numbers.high
    if is_integer and not step:
        upper += 1  # our domain excludes its upper bound
    arguments = [numbers.low, upper, step] if step else [numbers.low, upper]
    for _, problem in argument_problems(kind, arguments):
        raise ValueError(f"{problem}, got {flow(arguments)}")
    return {kind: arguments}


def point_of(parameters: Sequence[Parameter], values: Mapping[str, Any]) -> dict[str, Key]:
    """Return an initial point with the values of a trial, except constants.

    A constant with a condition is a choice in the space file, and is included. The point has 0.3
    where Optuna has 0.30000000000000004.
    """
    point = {}
    for parameter in parameters:
        template = domain(parameter.distribution)
        kind = next(iter(template)) if isinstance(template, dict) else ""
        if parameter.name not in values or not (kind or parameter.when):
            continue
        value = values[parameter.name]
        if kind in RULES:
            value = build(parameter.name, kind, template[kind]).nearest(value)
        point[f"params.{parameter.name}"] = value
    return point


def params_lines(parameters: Sequence[Parameter]) -> list[str]:
    """Return the lines of `space.params`.

    Raises:
        InputError: A parameter has no counterpart.
    """
    lines = []
    problems = []
    for parameter in parameters:
        try:
            value = domain(parameter.distribution)
        except ValueError as e:
            problems.append(Problem(parameter.name, str(e)))
            continue
        if parameter.when is not None:
            name, values = parameter.when
            condition = values[0] if len(values) == 1 else list(values)
            value = value if isinstance(value, dict) else {"choice": [value]}
            value = {**value, "when": {f"params.{name}": condition}}
        lines.append(line(f"{flow(parameter.name)}: {yaml_value(value)}", indent=4))
    if problems:
        raise InputError(problems)
    return lines


def metric_names(count: int) -> list[str]:
    """Return a name for each value of an objective."""
    return ["value"] if count == 1 else [f"value_{i}" for i in range(count)]


def space_text(
    name: str,
    origin: str,
    loop: str,
    parameters: Sequence[Parameter],
    goals: Sequence[tuple[str, str]],
    notes: Sequence[str] = (),
    trials: int = TRIALS,
    initial: Sequence[Mapping[str, Key]] = (),
    scheduler: str = "",
) -> str:
    """Return the text of a space file.

    Args:
        name: Name of the study or the objective.
        origin: The options of `sweeps init`, such as `--from-optuna study.db`.
        loop: The training loop, as `module:function`.
        parameters: The parameters.
        goals: Metric and goal of each objective.
        notes: Notes for the comment at the beginning of the file.
        trials: Number of trials.
        initial: Configurations to try first.
        scheduler: Value of the key `scheduler`; "" to leave the key out.
    """
    objectives = [{"metric": metric, "goal": goal} for metric, goal in goals]
    sections = [f"objective: {yaml_value(objectives[0] if len(objectives) == 1 else objectives)}"]
    if scheduler:
        sections.append(f"scheduler: {scheduler}")
    sections.append(f"limits: {{max_trials: {trials}}}")
    points = [point_of(parameters, values) for values in initial]
    if any(points):
        comment = "the best trials of the study are run first"
        sections += ["search:", line("initial_points:", comment, 2)]
        sections += [f"    - {yaml_value(point)}" for point in points]
    return space_file(
        origin,
        notes,
        name=name,
        trainer=f"{{loop: {yaml_value(loop)}}}",
        sections=sections,
        params=params_lines(parameters),
    )


# Names from the study are in comments and literals only, so that they cannot become code.
LOOP = '''{head}

import ray.train


def train(config):
    """Train with the values of one trial, and report the result."""
    raise NotImplementedError({message!a})
'''


def study_texts(
    storage: str, study_name: str | None, name: str, origin: str, loop: str
) -> tuple[str, str]:
    """Return the text of the space file of a study, and the text of a module for the loop.

    The best trials of the study are run first.

    Args:
        storage: Path or URL of the storage.
        study_name: Name of the study. None if the storage has only one study.
        name: Text from which the name of the sweep is made.
        origin: The options of `sweeps init`.
        loop: Name of the module with the loop.

    Raises:
        InputError: The study cannot be read, has no trial with parameters, or a parameter has no
            counterpart in a space file.
    """
    try:
        return _study_texts(open_study(storage, study_name), name, origin, loop)
    except InputError:
        raise
    except Exception as e:  # a stranger's study may contain anything
        # Optuna's own message hides the cause, and SQLAlchemy's the error of the driver, `orig`.
        cause: Any = e.__cause__ or e
        lines = str(getattr(cause, "orig", None) or cause).splitlines() or [type(cause).__name__]
        text = f"{masked(storage)} cannot be read: {masked(lines[0])}"
        raise InputError("--from-optuna", text) from e


def _study_texts(study: Study, name: str, origin: str, loop: str) -> tuple[str, str]:
    """Return the texts for an open study; see `study_texts`."""
    trials = [trial for trial in study.get_trials(deepcopy=False) if trial.distributions]
    if not trials:
        raise InputError(
            "--from-optuna", f"the study `{study.study_name}` has no trial with parameters"
        )
    parameters, notes = parameters_of([(trial.params, trial.distributions) for trial in trials])
    directions = [direction.name.lower() for direction in study.directions]
    metrics = study.metric_names or metric_names(len(directions))
    goals = list(zip(metrics, directions, strict=True))
    initial = best_points(
        study, {parameter.name: parameter.distribution for parameter in parameters}
    )
    note = f"The study `{study.study_name}` has {len(trials)} trials."
    if len(initial) == 1:
        note += " Its best trial is run first."
    elif initial:
        note += f" Its {len(initial)} best trials are run first."
    space = space_text(
        name,
        origin,
        f"{loop}:train",
        parameters,
        goals=goals,
        notes=[*notes, note],
        trials=max(TRIALS, len(trials)),
        initial=initial,
    )
    values = ", ".join(f"{metric!r}: ..." for metric in metrics)
    head = comment_lines(
        f"The training loop of the study `{study.study_name}`. Written by `sweeps init`: "
        "the study has no code, so move your objective here. "
        f"`config` has the values of one trial, such as config[{parameters[0].name!r}]."
    )
    message = (
        f"move the body of your objective here, and end it with: ray.train.report({{{values}}})"
    )
    return space, LOOP.format(head="\n".join(head), message=message)

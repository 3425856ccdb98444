"""Translate an Optuna study into a space file. Only `open_study` reads a file; the other functions are pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from sweeps.core.errors import InputError, Problem
from sweeps.core.secrets import masked
from sweeps.core.suggestions import did_you_mean
from sweeps.scaffold.yaml_text import comment_lines, line, quoted, sweep_name
from sweeps.space.yaml_writer import number

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution

TRIALS = 30
# Number of trials of a study that are run first.
BEST = 3


@dataclass(frozen=True)
class Parameter:
    """A parameter of an Optuna study or objective.

    Attributes:
        name: name of the parameter.
        distribution: Optuna's distribution.
        when: values of another parameter for which this parameter exists, as (name, values). None if every trial has the parameter.
    """

    name: str
    distribution: BaseDistribution
    when: tuple[str, tuple[Any, ...]] | None = None


def open_study(storage: str, name: str | None) -> Study:
    """Open a study in an SQLite file, in a file of Optuna's journal, or at the URL of a database. Nothing is written.

    Args:
        storage: the path or URL.
        name: name of the study. None if the storage has only one study.

    Raises:
        InputError: the storage cannot be read, or has no such study.
    """
    import optuna

    place = masked(storage)
    try:
        stored = _storage(storage)
        names = [
            study.study_name
            for study in optuna.get_all_study_summaries(stored, include_best_trial=False)
        ]
    except InputError:
        raise
    except Exception as e:  # SQLAlchemy's and Optuna's errors have no common class
        lines = str(e).splitlines() or [type(e).__name__]
        raise InputError(
            Problem("--from-optuna", f"{place} cannot be read: {masked(lines[0])}")
        ) from e
    if not names:
        raise InputError(Problem("--from-optuna", f"{place} has no study"))
    if name is None and len(names) > 1:
        raise InputError(
            Problem(
                "--study",
                f"{place} has {len(names)} studies; name one of them: {', '.join(names[:10])}",
            )
        )
    if name is not None and name not in names:
        raise InputError(
            Problem("--study", f"{place} has no study `{name}`; {did_you_mean(name, names)}")
        )
    return optuna.load_study(study_name=name or names[0], storage=stored)


def _storage(storage: str) -> Any:
    """Return Optuna's storage for a path or a URL."""
    import optuna
    from optuna.storages.journal import JournalFileBackend

    if "://" in storage:
        return optuna.storages.RDBStorage(storage)
    path = Path(storage)
    if not path.is_file():
        raise InputError(Problem("--from-optuna", f"{storage}: there is no such file"))
    with path.open("rb") as opened:
        is_sqlite = opened.read(16).startswith(b"SQLite format 3")
    if is_sqlite:  # read-only, because Optuna would create its tables in a database that has none
        return optuna.storages.RDBStorage(
            f"sqlite:///file:{quote(str(path.absolute()))}?mode=ro&uri=true"
        )
    return optuna.storages.JournalStorage(JournalFileBackend(str(path)))


def parameters_of(
    trials: Sequence[tuple[Mapping[str, Any], Mapping[str, BaseDistribution]]],
) -> tuple[list[Parameter], list[str]]:
    """Return the parameters of a study, and notes about what could not be found out.

    A parameter that only some trials have gets a condition, if the value of one choice decides in all trials whether the parameter exists.

    Args:
        trials: for each trial, its values and its distributions, by the name of the parameter.
    """
    from optuna.distributions import CategoricalDistribution

    latest: dict[str, BaseDistribution] = {}
    notes: list[str] = []
    changed: set[str] = set()
    for _, distributions in trials:
        changed |= {
            name for name, own in distributions.items() if name in latest and latest[name] != own
        }
        latest |= distributions
    if changed:
        notes.append(
            f"Trials differ in the ranges of {', '.join(sorted(changed))}; the ranges of the last trials are used."
        )
    always = {name for name in latest if all(name in values for values, _ in trials)}
    choices = [
        name
        for name, own in latest.items()
        if isinstance(own, CategoricalDistribution) and name in always
    ]
    found = []
    for name, distribution in latest.items():
        when = (
            None if name in always else _condition(name, choices, [values for values, _ in trials])
        )
        if name not in always and when is None:
            notes.append(
                f"{name}: only some trials have it, and no single choice decides which; it is sampled in every trial."
            )
        found.append(Parameter(name, distribution, when))
    return found, notes


def _condition(
    name: str, choices: Sequence[str], trials: Sequence[Mapping[str, Any]]
) -> tuple[str, tuple[Any, ...]] | None:
    """Return the choice, and its values, with which exactly those trials were run that have the parameter `name`."""
    for choice in choices:
        present = {values[choice] for values in trials if name in values}
        absent = {values[choice] for values in trials if name not in values}
        if not present & absent:
            return choice, tuple(sorted(present, key=str))
    return None


def domain(distribution: BaseDistribution) -> str:
    """Return the domain, or the constant, for one of Optuna's distributions.

    Raises:
        ValueError: the distribution has options that a space file cannot hold.
    """
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(distribution, CategoricalDistribution):
        wrong = [
            choice
            for choice in distribution.choices
            if not isinstance(choice, (str, int, float, bool, type(None)))
        ]
        if wrong:
            raise ValueError(f"the option {wrong[0]!r} is no text, number or boolean")
        options = list(distribution.choices)
        return quoted(options[0]) if len(options) == 1 else f"{{choice: {quoted(options)}}}"
    if isinstance(distribution, IntDistribution):
        low, high, step = distribution.low, distribution.high, distribution.step
        if low == high:
            return str(low)
        kind = "lograndint" if distribution.log else "randint"
        if step == 1:
            return f"{{{kind}: [{low}, {high + 1}]}}"
        return (
            f"{{qrandint: [{low}, {high}, {step}]}}"
            if low % step == 0
            else f"{{choice: {quoted(list(range(low, high + 1, step)))}}}"
        )
    assert isinstance(distribution, FloatDistribution)
    ends = f"{number(distribution.low)}, {number(distribution.high)}"
    if distribution.low == distribution.high:
        return number(distribution.low)
    if distribution.step is not None:
        return _stepped(distribution.low, distribution.high, distribution.step)
    return f"{{{'loguniform' if distribution.log else 'uniform'}: [{ends}]}}"


def _stepped(low: float, high: float, step: float) -> str:
    """Return the domain of floats with a step. Values of `quniform` are multiples of the step; other values become a choice."""
    count = round((high - low) / step)
    if abs(low / step - round(low / step)) < 1e-9:
        return f"{{quniform: [{number(low)}, {number(high)}, {number(step)}]}}"
    return f"{{choice: {quoted([float(f'{low + i * step:.12g}') for i in range(count + 1)])}}}"


def params_lines(
    parameters: Sequence[Parameter], comments: Mapping[str, str] | None = None
) -> list[str]:
    """Return the lines of `space.params`.

    Raises:
        InputError: a parameter has no counterpart.
    """
    lines, problems = [], []
    for parameter in parameters:
        try:
            text = domain(parameter.distribution)
        except ValueError as e:
            problems.append(
                Problem(
                    parameter.name,
                    f"{e}; suggest names, and map them to the values in the objective",
                )
            )
            continue
        if parameter.when is not None:
            name, values = parameter.when
            condition = quoted(values[0] if len(values) == 1 else list(values))
            when = f"when: {{{quoted('params.' + name)}: {condition}}}"
            text = (
                f"{{{text[1:-1]}, {when}}}"
                if text.startswith("{")
                else f"{{choice: [{text}], {when}}}"
            )
        lines.append(
            line(f"{quoted(parameter.name)}: {text}", (comments or {}).get(parameter.name, ""), 4)
        )
    if problems:
        raise InputError(problems)
    return lines


def space_text(
    name: str,
    origin: str,
    loop: str,
    parameters: Sequence[Parameter],
    goals: Sequence[tuple[str, str]],
    notes: Sequence[str] = (),
    trials: int = TRIALS,
    initial: Sequence[Mapping[str, Any]] = (),
    scheduler: str = "",
) -> str:
    """Return the text of a space file.

    Args:
        name: name of the study or the objective.
        origin: the options of `sweeps init`, such as `--from-optuna study.db`.
        loop: the training loop, as `module:function`.
        parameters: the parameters.
        goals: metric and goal of each objective.
        notes: notes for the comment at the beginning of the file.
        trials: number of trials.
        initial: configurations to try first.
        scheduler: value of the key `scheduler`; "" to leave the key out.
    """
    head = comment_lines(f"Written by `sweeps init {origin}`.")
    for note in notes:
        head += ["#", *comment_lines(note)]
    objectives = [f"{{metric: {quoted(metric)}, goal: {goal}}}" for metric, goal in goals]
    lines = [*head, f"name: {quoted(sweep_name(name))}", f"trainer: {{loop: {quoted(loop)}}}", ""]
    lines.append(
        f"objective: {objectives[0]}"
        if len(objectives) == 1
        else f"objective: [{', '.join(objectives)}]"
    )
    lines += [f"scheduler: {scheduler}"] if scheduler else []
    lines.append(f"limits: {{max_trials: {trials}}}")
    if initial:
        lines += [
            "search:",
            line("initial_points:", "the best trials of the study are run first", 2),
        ]
        lines += [
            f"    - {quoted({f'params.{key}': value for key, value in point.items()})}"
            for point in initial
        ]
    return "\n".join([*lines, "", "space:", "  params:", *params_lines(parameters)]) + "\n"


@dataclass(frozen=True)
class StudyTexts:
    """The files for a study.

    Attributes:
        space: text of the space file. `LOOP_MODULE` stands for the name of the module with the loop.
        loop: text of this module.
    """

    space: str
    loop: str


LOOP = '''"""The training loop of the study `{study}`. Written by `sweeps init`: the study has no code, so move your objective here."""

import ray.train


def train(config):
    """Train with the values of one trial, such as config[{first!r}], and report the result."""
    raise NotImplementedError("move the body of your objective here, and end it with: ray.train.report({metrics})")
'''


def study_texts(study: Study, name: str, origin: str) -> StudyTexts:
    """Return the space file of a study, and a module for the loop. The best trials of the study are run first.

    Raises:
        InputError: the study has no trial with parameters, or a parameter has no counterpart in a space file.
    """
    trials = [trial for trial in study.get_trials(deepcopy=False) if trial.distributions]
    if not trials:
        raise InputError(
            Problem("--from-optuna", f"the study `{study.study_name}` has no trial with parameters")
        )
    parameters, notes = parameters_of([(trial.params, trial.distributions) for trial in trials])
    directions = [direction.name.lower() for direction in study.directions]
    goals = list(zip(_metrics(study), directions, strict=True))
    initial = best_points(
        study, {parameter.name: parameter.distribution for parameter in parameters}
    )
    best = {0: "", 1: " Its best trial is run first."}.get(
        len(initial), f" Its {len(initial)} best trials are run first."
    )
    notes = [*notes, f"The study `{study.study_name}` has {len(trials)} trials.{best}"]
    space = space_text(
        name,
        origin,
        "LOOP_MODULE:train",
        parameters,
        goals,
        notes,
        max(TRIALS, len(trials)),
        initial,
    )
    metrics = "{" + ", ".join(f'\\"{metric}\\": ...' for metric, _ in goals) + "}"
    return StudyTexts(
        space, LOOP.format(study=study.study_name, first=parameters[0].name, metrics=metrics)
    )


def best_points(
    study: Study, distributions: Mapping[str, BaseDistribution]
) -> list[dict[str, Any]]:
    """Return the different configurations of the best trials, at most `BEST`, the best first.

    The best trials of several objectives are those on the Pareto front. Infeasible trials, and values outside the ranges, are left out.

    Args:
        study: the study.
        distributions: distribution of each parameter in the space file.
    """
    from optuna.study import StudyDirection
    from optuna.trial import TrialState

    if len(study.directions) > 1:
        best = study.best_trials
    else:
        trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        feasible = [
            trial for trial in trials if all(value <= 0 for value in trial.constraints.values())
        ]
        sign = -1 if study.direction == StudyDirection.MAXIMIZE else 1
        best = sorted(
            (trial for trial in feasible if trial.value is not None),
            key=lambda trial: sign * (trial.value or 0.0),
        )
    points: list[dict[str, Any]] = []
    for trial in best:
        inside = all(
            name in distributions and _contains(distributions[name], value)
            for name, value in trial.params.items()
        )
        if trial.params and inside and trial.params not in points:
            points.append(dict(trial.params))
    return points[:BEST]


def _contains(distribution: BaseDistribution, value: Any) -> bool:
    """Return whether a distribution has a value."""
    try:
        return bool(distribution._contains(distribution.to_internal_repr(value)))
    except ValueError:  # a choice without this option
        return False


def _metrics(study: Study) -> list[str]:
    """Return the names of the study's metrics."""
    if study.metric_names:
        return list(study.metric_names)
    count = len(study.directions)
    return ["objective"] if count == 1 else [f"objective_{i}" for i in range(count)]

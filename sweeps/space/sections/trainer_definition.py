"""Read how a trainer is described, without importing its module.

A user's module has a `TRAINER` literal. A built-in trainer has a data file with the same keys, such
as `trainers/xgboost.yaml`. `TrainerDefinition` explains the keys. A loop in a module without a
literal may have any parameters.
"""

import ast
import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sweeps.core.errors import InputError, Problem
from sweeps.core.plugins import references, trainer_file
from sweeps.core.text.suggestions import did_you_mean
from sweeps.space.parse.section_checks import adapter, fragments
from sweeps.space.schema.parameter_schema import Fragment, fragment_problem, rule_of

from .key_types import AnyTask, Backend

NAME = "TRAINER"
FORM = (
    f'write `{NAME} = {{"loop": "train_func", ...}}` with constants only, because the file is '
    "read without being run"
)


@dataclass(frozen=True)
class TrainerDefinition:
    """The `TRAINER` literal or the data file of a trainer.

    Attributes:
        loop: Name of the training loop, which is a function of the module.
        backend: The process group that the ranks need.
        load: Name of the module's function that loads a checkpoint's model. None if the literal
            names no such function.
        resume_files: Names of files in a checkpoint that only a resumed training needs. A bundle
            omits these files.
        pickles: Names of files in a checkpoint that can run code when they are read. The loop signs
            these files with `sweeps.core.files.trust.sign`. `resume` and `export` refuse a
            checkpoint with such a file that this user's key has not signed.
        parameters: JSON Schema of each parameter, by the parameter's name; see `parameter_schema`.
        additional_parameters: True if `space.params` may also have parameters that `parameters`
            does not name.
        metrics: For each task, the metrics that the loop can report. A name without `valid-` or
            `train-` stands for both metrics.
        all_metrics: True if the loop can also report every metric of the task in
            `sweeps.core.metrics.METRICS`, as `valid-NAME`.
        additional_metrics: True if the loop can also report metrics that the user's own code
            defines.
        reads_numbers: True if every prepared column must be numeric.
        reads_categories: With `reads_numbers`, True if prepared columns may also have categories.
        needs_label: True if the space file must have `data.label`.
        weights: True if the loop uses the weights of `data.weight` and `data.class_weight`; see
            `Current.weight`. A loop in a module without a literal gets the weights, too.
        ranking: Regular expression for the values in `params` that need groups of rows, such as the
            objective `rank:ndcg`. A loop with this entry gets the column `sweeps_query` in train
            and valid if the space file has
            `data.group`. This column has the number of each row's group.
        streams: True if the loop can read its data as a stream (`data.ingest: stream`). If False,
            `sweeps validate` refuses a stream. A user's own loop needs no such entry.
        several_labels: True if the loop can predict several label columns; see `Current.label`. A
            loop in a module without a literal gets several columns, too.
        options: JSON Schema of each option, which is a constant in the section `trainer`, by the
            option's name; see `parameter_schema`. An option without a default is required. The loop
            finds the values in `Current.options`.
        selected_by: Name of the option that selects this built-in trainer in a section `trainer`
            without `name`.
        max_workers: Largest number of workers of a trial; None for no limit.
        environment: Environment variables that the workers have before they import the user's code.
            Maps the name of each variable to the option that has its value.
        aliases: Other names of parameters, each with the name in `parameters`. The loop gets a
            value under the name that the space file uses.
        packages: Names of the packages that the trainer imports and that may be missing.
        extra: Name of the extra that installs these packages.
    """

    loop: str = "train_func"
    backend: Backend = "none"
    load: str | None = None
    resume_files: tuple[str, ...] = ()
    pickles: tuple[str, ...] = ()
    parameters: Mapping[str, Fragment] = field(default_factory=dict)
    additional_parameters: bool = False
    metrics: Mapping[AnyTask, tuple[str, ...]] = field(default_factory=dict)
    all_metrics: bool = False
    additional_metrics: bool = False
    reads_numbers: bool = False
    reads_categories: bool = False
    needs_label: bool = False
    weights: bool = False
    ranking: str = ""
    streams: bool = False
    several_labels: bool = False
    options: Mapping[str, Fragment] = field(default_factory=dict)
    selected_by: str | None = None
    max_workers: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    packages: tuple[str, ...] = ()
    extra: str | None = None


# The definition of a loop in a module without a `TRAINER` literal, of which sweeps knows nothing.
UNKNOWN: TrainerDefinition = TrainerDefinition(
    additional_parameters=True, weights=True, several_labels=True
)


def has_definition(module: str, roots: Iterable[Path] = ()) -> bool:
    """Return True if a module is a built-in trainer or has a `TRAINER` literal.

    Args:
        module: Dotted name of the trainer's module.
        roots: Folders that are searched before `sys.path`.
    """
    return trainer_file.file_of(module) is not None or _assignment(module, roots) is not None


def definition_of(module: str, roots: Iterable[Path] = ()) -> TrainerDefinition:
    """Read the definition of a trainer. This function does not import the module.

    Args:
        module: Dotted name of the trainer's module.
        roots: Folders that are searched before `sys.path`.

    Returns:
        The definition. If the module has no literal, it is `UNKNOWN`.

    Raises:
        InputError: The literal breaks a rule. Every problem has its file, line and column.
    """
    if (file := trainer_file.file_of(module)) is not None:
        return _built_in(file)
    assignment = _assignment(module, roots)
    if assignment is None:
        return UNKNOWN
    path, node = assignment
    try:
        value = ast.literal_eval(node)
    except ValueError:
        raise InputError(_problem_at(path, node, NAME, f"must be a literal; {FORM}")) from None
    keys = {key.value: key for key in node.keys if isinstance(key, ast.Constant)}
    problems = [
        _problem_at(path, keys.get(key, node), f"{NAME}.{key}", text)
        for key, text in _broken_rules(value)
    ]
    if problems:
        raise InputError(problems)
    return _definition(value)


@functools.cache
def _built_in(file: Path) -> TrainerDefinition:
    """Return the definition in a data file of sweeps. A test checks that these files are valid."""
    return _definition(trainer_file.read(file.stem))


def _definition(value: Mapping[str, Any]) -> TrainerDefinition:
    """Return the definition with the keys of a literal, in which each alias is a parameter."""
    parameters = dict(value.get("parameters", {}))
    for alias, name in value.get("aliases", {}).items():
        parameters[alias] = {**parameters[name], "description": f"Alias of `{name}`"}
    defaults = {"additional_parameters": "parameters" not in value}
    definition: TrainerDefinition = adapter(TrainerDefinition).validate_python(
        {**defaults, **value, "parameters": parameters}
    )
    return definition


def _assignment(module: str, roots: Iterable[Path]) -> tuple[Path, ast.Dict] | None:
    """Return the file of a module and the dict that the module assigns to `TRAINER`.

    Values of other types are ignored.
    """
    path = references.source_of(module, roots)
    tree = None if path is None else references.parse_source(path)
    if path is None or tree is None:
        return None
    for node in tree.body:
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or not isinstance(
            node.value, ast.Dict
        ):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if any(isinstance(target, ast.Name) and target.id == NAME for target in targets):
            return path, node.value
    return None


def _broken_rules(value: dict[Any, Any]) -> list[tuple[str, str]]:
    """Return a pair (key, message) for each key of a literal that breaks a rule."""
    valid = list(TrainerDefinition.__dataclass_fields__)
    problems = [
        (str(key), f"unknown key; {did_you_mean(key, valid)}") for key in value if key not in valid
    ]
    try:
        adapter(TrainerDefinition).validate_python(
            {key: value[key] for key in valid if key in value}
        )
    except ValidationError as e:
        for error in e.errors():
            key = str(error["loc"][0])
            rule = f"must be {rule_of(fragments(TrainerDefinition)[key])}"
            if error["type"] == "value_error":  # of a validator of `key_types`, with its own text
                rule = str(error["ctx"]["error"])
            problems.append((key, f"{value[key]!r} is not allowed; the value {rule}"))
    for key in ("parameters", "options"):
        schemas = value.get(key)
        if not isinstance(schemas, dict):
            continue
        for name, fragment in schemas.items():
            if text := fragment_problem(fragment):
                problems.append((key, f"`{name}`: {text}"))
    if isinstance(aliases := value.get("aliases", {}), dict):
        unknown = [name for name in aliases.values() if name not in value.get("parameters", {})]
        problems += [("aliases", f"`{name}` is not in `parameters`") for name in unknown]
    return list(dict.fromkeys(problems))


def _problem_at(path: Path, node: ast.expr, key: str, text: str) -> Problem:
    """Return a problem with the place of `node`, which is the key or the value in the module."""
    return Problem(f"{path}:{node.lineno}:{node.col_offset + 1}", f"{key}: {text}")

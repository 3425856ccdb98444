"""Read the `TRAINER` literal, in which a trainer's module describes the trainer.

The module is not imported.

    TRAINER = {
        "loop": "train_func",               # name of the training loop; `train_func` is the default
        "backend": "torch",                 # the process group of its ranks, as for the key `trainer.backend`; the default is none
        "load": "load",                     # the function that loads a checkpoint's model; if absent, a sweep writes no bundle
        "resume_files": ["latest.pt"],      # files of a checkpoint that only a resumed training needs; a bundle omits these files
        "pickles": ["model.pkl"],           # files of a checkpoint that the loop signs, because reading them can run code
        "parameters": {"lr": {"type": "number", "exclusiveMinimum": 0, "default": 0.001,
        "description": "Learning rate."}}, "additional_parameters": False,     # True to allow other
        parameters; the default is False if there are `parameters`, else True "check":
        "unknown_parameters",      # the function with which `run` checks the names in `params`
        before the sweep starts "metrics": {"binary": ["valid-logloss"]},  # for each task: the
        metrics that the loop can report "all_metrics": True,                # True if the loop can
        also report every metric in `sweeps.core.metrics`, as `valid-NAME` "additional_metrics":
        True,         # True if the loop can also report metrics of the user's own code
        "checkpoint_bytes": "8 * features",  # size of a checkpoint, as arithmetic; `sweeps plan`
        evaluates it "reads_numbers": True,              # True if every prepared column must be
        numeric "reads_categories": True,           # with `reads_numbers`: True if columns of
        categories are allowed, too "needs_label": True,                # True if the space file
        must have `data.label` "weights": True,                    # True if the loop uses the
        weights of rows, the column `Current.weight` of train "streams": True,                    #
        True if the loop can read its data as a stream, see `data.ingest` "several_labels": True,
        # True if the loop can predict several columns; `Current.label` is then a list "options":
        {"model": {"format": "reference", "description": "Your network."}},  # further keys of the
        section `trainer` "selected_by": "model",             # the option that selects this
        built-in trainer without its name "examples": {"lr": {"loguniform": [1e-4, 0.1]}},  # values
        of options and parameters, or domains to tune with, for editors "max_workers": 1,
        # the largest number of workers of a trial "environment": {"KERAS_BACKEND": "framework"},  #
        environment variables of the workers, and the option with the value of each "packages":
        ["lightgbm"],           # the packages that the trainer imports "extra": "lightgbm",
        # the extra of sweeps that installs these packages
    }

A loop in a module without this literal may have any parameters.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sweeps.core import references
from sweeps.core.errors import InputError, Problem
from sweeps.core.parameter_schema import Fragment, fragment_problem, rule_of
from sweeps.core.suggestions import did_you_mean
from sweeps.space.problems import adapter, fragments
from sweeps.space.section_models import AnyTask, Backend

NAME = "TRAINER"
FORM = (
    f'write `{NAME} = {{"loop": "train_func", ...}}` with constants only, because the file is '
    "read without being run"
)


@dataclass(frozen=True)
class TrainerDefinition:
    """The `TRAINER` literal of a trainer's module.

    Attributes:
        loop: Name of the training loop, which is a function of the module.
        backend: The process group that the ranks need.
        load: Name of the module's function that loads a checkpoint's model. None if the literal
            names no such function.
        resume_files: Names of files in a checkpoint that only a resumed training needs. A bundle
            omits these files.
        pickles: Names of files in a checkpoint that can run code when they are read. The loop signs
            these files with `sweeps.core.trust.sign`. `resume` and `export` refuse a checkpoint
            with such a file that this user's key has not signed.
        parameters: JSON Schema of each parameter, by the parameter's name; see `parameter_schema`.
        additional_parameters: True if `space.params` may also have parameters that `parameters`
            does not name.
        check: Name of the module's function that `run` calls before a sweep starts, with the
            options and the names in `params`. It returns a message for each wrong name, in a dict.
            None if there is no such function.
        metrics: For each task, the metrics that the loop can report. A name without `valid-` or
            `train-` stands for both metrics.
        all_metrics: True if the loop can also report every metric of the task in
            `sweeps.core.metrics.METRICS`, as `valid-NAME`.
        additional_metrics: True if the loop can also report metrics that the user's own code
            defines.
        checkpoint_bytes: Size of a checkpoint as arithmetic on parameters, `max_t`, `rows`,
            `features` and `outputs`.
        reads_numbers: True if every prepared column must be numeric.
        reads_categories: With `reads_numbers`, True if prepared columns may also have categories.
        needs_label: True if the space file must have `data.label`.
        weights: True if the loop uses the weights of `data.weight` and `data.class_weight`; see
            `Current.weight`. A loop in a module without a literal gets the weights, too.
        ranking: Regular expression for the values in `params` that need groups of rows, such as the
            objective `rank:ndcg`. A loop with this entry gets the column `sweeps_query` in train
            and valid if the space file has
            `data.group`: the number of each row's group.
        streams: True if the loop can read its data as a stream (`data.ingest: stream`). If False,
            `sweeps validate` refuses a stream. A user's own loop needs no such entry.
        several_labels: True if the loop can predict several label columns; see `Current.label`. A
            loop in a module without a literal gets several columns, too.
        options: JSON Schema of each option, which is a constant in the section `trainer`, by the
            option's name; see `parameter_schema`. An option without a default is required. The loop
            finds the values in `Current.options`.
        examples: A value of each option and parameter, or a domain with which the parameter is
            often tuned. Editors show the examples.
        selected_by: Name of the option that selects this built-in trainer in a section `trainer`
            without `name`.
        max_workers: Largest number of workers of a trial; None for no limit.
        environment: Environment variables that the workers have before they import the user's code.
            Maps the name of each variable to the option that has its value.
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
    check: str | None = None
    metrics: Mapping[AnyTask, tuple[str, ...]] = field(default_factory=dict)
    all_metrics: bool = False
    additional_metrics: bool = False
    checkpoint_bytes: str | None = None
    reads_numbers: bool = False
    reads_categories: bool = False
    needs_label: bool = False
    weights: bool = False
    ranking: str = ""
    streams: bool = False
    several_labels: bool = False
    options: Mapping[str, Fragment] = field(default_factory=dict)
    examples: Mapping[str, Any] = field(default_factory=dict)
    selected_by: str | None = None
    max_workers: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    packages: tuple[str, ...] = ()
    extra: str | None = None


# The definition of a loop in a module without a `TRAINER` literal, of which sweeps knows nothing.
UNKNOWN = TrainerDefinition(additional_parameters=True, weights=True, several_labels=True)


def has_definition(module: str, roots: Iterable[Path] = ()) -> bool:
    """Return True if a module has a `TRAINER` literal.

    Args:
        module: Dotted name of the trainer's module.
        roots: Folders that are searched before `sys.path`.
    """
    return _assignment(module, roots) is not None


def definition_of(module: str, roots: Iterable[Path] = ()) -> TrainerDefinition:
    """Read the definition of a trainer from the source of its module.

    This function does not run the module.

    Args:
        module: Dotted name of the trainer's module.
        roots: Folders that are searched before `sys.path`.

    Returns:
        The definition. If the module has no literal, it is `UNKNOWN`.

    Raises:
        InputError: The literal breaks a rule. Every problem has its file, line and column.
    """
    assignment = _assignment(module, roots)
    if assignment is None:
        return UNKNOWN
    path, node = assignment
    try:
        value = ast.literal_eval(node)
    except ValueError:
        raise InputError(_problem(path, node, NAME, f"must be a literal; {FORM}")) from None
    keys = {key.value: key for key in node.keys if isinstance(key, ast.Constant)}
    problems = [
        _problem(path, keys.get(key, node), f"{NAME}.{key}", text)
        for key, text in _literal_problems(value)
    ]
    if problems:
        raise InputError(problems)
    value.setdefault("additional_parameters", "parameters" not in value)
    definition: TrainerDefinition = adapter(TrainerDefinition).validate_python(value)
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


def _literal_problems(value: dict[Any, Any]) -> list[tuple[str, str]]:
    """Return a pair (key, message) for each key of a literal that breaks a rule."""
    valid = list(TrainerDefinition.__dataclass_fields__)
    problems = [
        (str(key), f"unknown key; {did_you_mean(str(key), valid)}")
        for key in value
        if key not in valid
    ]
    try:
        adapter(TrainerDefinition).validate_python(
            {key: each for key, each in value.items() if key in valid}
        )
    except ValidationError as e:
        for error in e.errors():
            key = str(error["loc"][0])
            rule = (
                str(error["ctx"]["error"])
                if error["type"] == "value_error"
                else f"must be {rule_of(fragments(TrainerDefinition)[key])}"
            )
            problems.append((key, f"{value[key]!r} is not allowed; the value {rule}"))
    for key in ("parameters", "options"):
        for name, fragment in value[key].items() if isinstance(value.get(key), dict) else ():
            if text := fragment_problem(fragment):
                problems.append((key, f"`{name}`: {text}"))
    return list(dict.fromkeys(problems))


def _problem(path: Path, node: ast.expr, key: str, text: str) -> Problem:
    return Problem(f"{path}:{node.lineno}:{node.col_offset + 1}", f"{key}: {text}")

"""The command of the trainer `command`: its placeholders and its files.

An example is `[python, train.py, --lr, "{params.lr}"]`. The placeholders are:

    {params.NAME}           the value of a parameter; dots lead into nested mappings
    {args}                  as an argument of its own: `--NAME=VALUE` for each parameter
    {params}                all parameters as JSON
    {trial}, {seed}, ...    facts about the trial; see `FACTS`
    {{NAME}}                the text {NAME}

Text and numbers stand as they are, booleans as `True` and `False`, lists and mappings as JSON.
Other braces stay as they are.
"""

import itertools
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sweeps.core.text.suggestions import closest
from sweeps.core.trial import flatten_params

from .references import source_of

ARGS = "{args}"
# A command that starts with one of these names runs with the interpreter of the worker.
INTERPRETERS = ("python", "python3")
# Placeholders that do not name a parameter, with the meaning of each.
FACTS: Mapping[str, str] = {
    "trial": "the trial's id, such as `0007`",
    "seed": "the trial's seed",
    "scaling.num_workers": "the number of workers of the trial",
    "checkpoint_dir": "the folder in `SWEEPS_CHECKPOINT_DIR`",
    "data_dir": "the folder in `SWEEPS_DATA_DIR`",
}
_NAME = r"([^\W\d][^{}\s\"':,]*)"
_PLACEHOLDER = re.compile(rf"\{{\{{{_NAME}\}}\}}|\{{{_NAME}\}}")


def named_values(params: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return every value in nested parameters by its dotted name.

    The values include each nested mapping as a whole.

    >>> named_values({"net": {"depth": 2}})
    {'net': {'depth': 2}, 'net.depth': 2}
    """
    values: dict[str, Any] = {}
    for name, value in params.items():
        values[f"{prefix}{name}"] = value
        if isinstance(value, Mapping):
            values |= named_values(value, f"{prefix}{name}.")
    return values


def fill(
    command: Sequence[str | int | float], params: Mapping[str, Any], facts: Mapping[str, Any]
) -> list[str]:
    """Return the command of a trial.

    A trial may lack a parameter, because the parameter depends on a condition. An argument that
    names such a parameter is left out. If this argument is nothing but the placeholder, the option
    before it, such as `--momentum`, is left out as well.

    Args:
        command: The command with placeholders.
        params: The trial's parameters.
        facts: Value of each name in `FACTS`.

    >>> fill(["python", "train.py", "--lr", "{params.lr}"], {"lr": 0.1}, {})
    ['python', 'train.py', '--lr', '0.1']
    """
    values = {
        "params": params,
        **{f"params.{name}": value for name, value in named_values(params).items()},
        **facts,
    }
    filled: list[str] = []
    for argument in map(str, command):
        if argument == ARGS:
            filled += [f"--{name}={as_text(value)}" for name, value in flatten_params(params)]
        elif all(name in values for name in _placeholder_names(argument)):
            filled.append(
                _PLACEHOLDER.sub(
                    lambda m: f"{{{m[1]}}}" if m[1] else as_text(values[m[2]]), argument
                )
            )
        elif _PLACEHOLDER.fullmatch(argument) and filled and filled[-1].startswith("-"):
            filled.pop()
    return filled


def as_text(value: Any) -> str:
    """Return a parameter's value as an argument of a command.

    >>> as_text(1e-5), as_text(True), as_text([1, 2])
    ('1e-05', 'True', '[1, 2]')
    """
    return json.dumps(value) if isinstance(value, (Mapping, list, tuple)) else str(value)


def problems(
    command: Sequence[str | int | float], names: Collection[str]
) -> Iterator[tuple[int, str]]:
    """Check the placeholders of a command.

    Args:
        command: The command with placeholders.
        names: Dotted names of all parameters that a trial may have, also those of nested mappings.

    Yields:
        For each wrong placeholder, the index of the argument and the message.
    """
    known = ["args", "params", *(f"params.{name}" for name in names), *FACTS]
    for index, argument in enumerate(map(str, command)):
        for name in _placeholder_names(argument):
            if name == "args" and argument != ARGS:
                form = f'[python, train.py, "{ARGS}"]'
                yield (
                    index,
                    f"`{ARGS}` must be an argument of its own, such as {form}, got {argument!r}",
                )
            elif name not in known:
                match = f"params.{name}" if name in names else closest(name, known)
                hint = f"valid: {', '.join(f'{{{valid}}}' for valid in known)};"
                if match:
                    hint = f"did you mean `{{{match}}}`?"
                escape = f"For the text {{{name}}}, write {{{{{name}}}}}"
                yield index, f"unknown placeholder `{{{name}}}`; {hint} {escape}"


def unused(command: Sequence[str | int | float], names: Collection[str]) -> list[str]:
    """Return the parameters whose values appear nowhere in the command.

    Args:
        command: The command with placeholders.
        names: Dotted names of all parameters that a trial may have, also those of nested mappings.

    >>> unused(["train", "{params.net}"], ["net", "net.depth", "lr"])
    ['lr']
    """
    placeholders = {name for argument in map(str, command) for name in _placeholder_names(argument)}
    if placeholders & {"args", "params"}:
        return []

    def is_mapping(name: str) -> bool:
        return any(other.startswith(f"{name}.") for other in names)

    def is_used(name: str) -> bool:
        # `{params.net}` uses `net.depth`, too.
        return any(f"params.{name}.".startswith(f"{used}.") for used in placeholders)

    return [name for name in names if not is_mapping(name) and not is_used(name)]


def code_files(command: Sequence[str | int | float], root: Path) -> list[Path]:
    """Return the files in a folder that a command names.

    They are scripts and other files that it names by their paths, and modules after `-m`.

    Args:
        command: The command with placeholders.
        root: Folder to which relative paths refer.
    """
    files = []
    for previous, argument in itertools.pairwise(["", *map(str, command)]):
        file = root / argument
        if previous == "-m" and all(part.isidentifier() for part in argument.split(".")):
            source = source_of(argument, [root])
            if source is not None and source.is_relative_to(root):
                file = source
        if file.is_file():
            files.append(file)
    return files


def folder_of(command: Sequence[str | int | float], roots: Sequence[Path]) -> Path:
    """Return the working directory of a command.

    It is the first folder in which the command names a file, or else the first folder.

    Args:
        command: The command with placeholders.
        roots: Folders to look in, at least one.
    """
    return next((root for root in roots if code_files(command, root)), roots[0])


def _placeholder_names(argument: str) -> list[str]:
    """Return the names of the placeholders in an argument."""
    return [match[2] for match in _PLACEHOLDER.finditer(argument) if match[2]]

"""Check the options of a trainer that are commands.

The script, the placeholders, and the parameters that a command leaves out are checked.
"""

import itertools
from collections.abc import Sequence
from pathlib import Path

from sweeps.core.plugins.command_template import ARGS, INTERPRETERS, problems, unused
from sweeps.core.plugins.references import absent_allowed
from sweeps.core.text.suggestions import did_you_mean
from sweeps.space.model.domains import Dimension
from sweeps.space.model.templates import Template, children
from sweeps.space.parse.nodes import Node
from sweeps.space.schema.parameter_schema import COMMAND_FORMAT, allows

from .trainer_spec import TrainerSpec

# Options of Python after which the next word is not the script.
_FLAGS_WITH_VALUE = {"-m", "-c", "-X", "-W"}


def command_options(trainer: TrainerSpec) -> dict[str, Sequence[str | int | float]]:
    """Return the value of each option of a trainer that is a valid command, by option name."""
    commands = {
        name: fragment
        for name, fragment in trainer.definition.options.items()
        if fragment.get("format") == COMMAND_FORMAT
    }
    values = {name: trainer.options.get(name) for name in commands}
    return {
        name: value
        for name, value in values.items()
        if value is not None and allows(commands[name], value)
    }


def parameter_names(template: Template, prefix: str = "") -> dict[str, None]:
    """Return the dotted names of all parameters that a trial may have, in the file's order.

    The parameters of nested mappings are included.

    >>> list(parameter_names({"net": {"depth": 2}}))
    ['net', 'net.depth']
    """
    names: dict[str, None] = {}
    if isinstance(template, Dimension):
        for option in children(template):
            names |= parameter_names(option, prefix)
    elif isinstance(template, dict):
        for key, value in template.items():
            names |= {f"{prefix}{key}": None} | parameter_names(value, f"{prefix}{key}.")
    return names


def check_commands(
    root: Node, trainer: TrainerSpec, params: Template, roots: Sequence[Path]
) -> None:
    """Add a problem for each mistake in the commands of a trainer.

    Args:
        root: The space file.
        trainer: The trainer.
        params: Template of the trainer's parameters.
        roots: Folders in which the command's files are looked up.
    """
    names = parameter_names(params or {})
    for option, command in command_options(trainer).items():
        place = f"{trainer.path}.{option}"
        for index, text in problems(command, names):
            root.wrong_inside(f"{place}.{index}", text)
        for name in unused(command, names):
            text = (
                f'`{place}` does not use this parameter; write "{{params.{name}}}" as an '
                f'argument, or "{ARGS}" for all parameters'
            )
            root.find(f"space.{trainer.params_key}.{name}").wrong_key(text)
        if missing := _missing_script(command, roots):
            index, text = missing
            root.wrong_inside(f"{place}.{index}", text)


def command_hint(node: Node) -> str:
    """Return a hint about a value that is no command, such as a text or an unquoted placeholder.

    Return "" without a hint.
    """
    if isinstance(node.value, str):
        words = [f'"{word}"' if "{" in word else word for word in node.value.split()]
        return f"; write [{', '.join(words)}]"
    unquoted = [child for child in node.value if child.is_map] if node.is_list else []
    if unquoted:  # YAML reads `{params.lr}` as a mapping
        name = next(iter(unquoted[0].value), "params.lr")
        return f'; put quotes around a placeholder, such as "{{{name}}}"'
    return ""


def _missing_script(
    command: Sequence[str | int | float], roots: Sequence[Path]
) -> tuple[int, str] | None:
    """Return the index of a missing Python script that a command runs, and a message.

    Return None if the command runs no such script.
    """
    program, *arguments = map(str, command)
    flags = list(itertools.takewhile(lambda word: word.startswith("-"), arguments))
    if program not in INTERPRETERS or flags == arguments or set(flags) & _FLAGS_WITH_VALUE:
        return None
    script = arguments[len(flags)]
    exists = any((root / script).is_file() for root in roots)
    if "{" in script or absent_allowed.get() or exists:
        return None
    files = sorted({file.name for root in roots for file in root.glob("*.py")})
    hint = did_you_mean(script, files) if files else "these folders have no Python file"
    folders = " or ".join(dict.fromkeys(map(str, roots)))
    return 1 + len(flags), f"no file `{script}` in {folders}; {hint}"

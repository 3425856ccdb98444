"""Load a space file into a `Space`, or report all its problems.

This runs no user code and imports no framework.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sweeps.core.errors import InputError
from sweeps.space.model.space_model import Space
from sweeps.space.python.passed_space import PLACE, read_passed
from sweeps.space.python.table_overrides import ROWS, overrides_of
from sweeps.space.yaml.yaml12 import parse, read_text

from .key_suggestions import foreign_file
from .nodes import Problems, locate
from .space_source import SpaceSource, overridden_tree
from .space_validator import SpaceValidator
from .top_level_keys import TOP
from .variable_values import Variables, remember_secrets, replace_variables


@dataclass(frozen=True)
class Recorded:
    """Facts about a space from the folder of a sweep that has already started.

    Attributes:
        algorithm: The algorithm that was chosen for `search.algorithm: auto`.
        variables: The environment variables that the file used. They replace the current ones.
        functions: The folder with the functions that a script passed; None if there are none.
    """

    algorithm: str
    variables: Mapping[str, str] = field(default_factory=dict)
    functions: Path | None = None


def load(
    space: str | os.PathLike[str] | Mapping[str, Any] | Space | SpaceSource,
    overrides: Iterable[str] = (),
    base: str | Path | None = None,
    recorded: Recorded | None = None,
    tables: Mapping[str, Any] | None = None,
) -> Space:
    """Read and validate a search space.

    Args:
        space: A space file, or a dict with the same keys, whose domains may be made by functions
            such as `sweeps.loguniform`. Or a `Space`, to change it with `overrides`. Messages about
            problems show the path of the file, or the key path in the dict.
        overrides: Overrides of the form `key.path=YAML value`. They are applied in order, before
            the space is checked.
        base: Folder for relative paths, in which the user's modules are also searched. The default
            is the file's folder; for a dict, the folder of the script that runs, or the working
            directory of a notebook.
        recorded: The record of a sweep that has already started. Facts about this machine, which
            may have changed since then, are not checked. None for a new sweep.
        tables: Tables that a script passed, by their key of the section `data`.

    Raises:
        InputError: The space or an override is invalid. The error has all problems that were found,
            in the order of the file.
    """
    problems = Problems()
    source = _with_arguments(_source_of(space), overrides, base, recorded=recorded, tables=tables)
    # The tree names a file in place of each table that a script passed.
    table_files = overrides_of(Path(f"{key}{ROWS}") for key in source.tables)
    root = overridden_tree(source.root, (*table_files, *source.overrides), problems)
    if len(problems):
        raise InputError(problems.sorted())
    # Problems with absent sections are reported at the start of the file.
    root = replace(root, key_mark=root.mark._replace(line=1, column=1))
    root = locate(root, problems)
    text = foreign_file(root.value) if recorded is None and root.is_map else None
    if text is not None:
        raise InputError(str(root.mark), text)
    environment = {**os.environ, **(recorded.variables if recorded is not None else {})}
    variables = Variables(environment, optional=recorded is not None)
    root = replace_variables(root, variables)
    remember_secrets(root)
    if len(problems):
        raise InputError(problems.sorted())
    algorithm = None if recorded is None else recorded.algorithm
    loaded = SpaceValidator(root, problems, source, algorithm).space()
    return replace(
        loaded,
        notes=tuple(dict.fromkeys((*loaded.notes, *source.notes))),
        variables=variables.values,
        secrets=tuple(variables.secrets),
        missing_secrets=tuple(variables.missing),
    )


def _source_of(space: Any) -> SpaceSource:
    """Return the text of a space that was given to `load`, and its tree.

    Raises:
        InputError: The file cannot be read, is not YAML, or is not a mapping.
    """
    if isinstance(space, Mapping):
        return read_passed(space)
    if isinstance(space, Space):
        return SpaceSource(
            path=space.path,
            text=space.text,
            root=space.tree,
            base=space.data.base,
            overrides=space.overrides,
            functions=space.functions,
            tables=space.tables,
            notes=space.notes,
        )
    if isinstance(space, SpaceSource):
        return space
    if not isinstance(space, (str, os.PathLike)):
        raise InputError(
            PLACE,
            "must be the path of a space file, a dict or a sweeps.Space, or a table and `label=`, "
            f"got {type(space).__name__}",
        )
    path = Path(space).absolute()
    text = read_text(Path(space), str(space))
    tree = parse(text, str(space))
    if not tree.is_map:
        rule = f"a space file must be a mapping with keys {', '.join(TOP)}"
        raise InputError(str(tree.mark), f"{rule}, got {tree.show()}")
    return SpaceSource(path, text, tree, path.parent)


def _with_arguments(
    source: SpaceSource,
    overrides: Iterable[str],
    base: str | Path | None,
    recorded: Recorded | None,
    tables: Mapping[str, Any] | None,
) -> SpaceSource:
    """Return a source to which the arguments of `load` are added."""
    return replace(
        source,
        overrides=(*source.overrides, *overrides),
        tables={**source.tables, **(tables or {})},
        functions=source.functions if recorded is None else recorded.functions,
        base=source.base if base is None else Path(base).absolute(),
    )

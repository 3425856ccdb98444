"""Turn a search space that a Python script passes, as a dict, into the text of a space file.

From the text on, such a space is treated like a file: one parser, one validation, one record in the
sweep's folder. Only the places in messages differ: they are key paths, such as `space.params.eta`.

The dict may have three kinds of values that a file cannot have: functions and classes where a file
has `module:attr`, tables for `data.train`, `data.valid` and `data.test`, and values of NumPy.
"""

import itertools
import sys
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

from sweeps.core.errors import InputError, Problem
from sweeps.core.plugins.library_code import is_library_file
from sweeps.space.model.domains import BRANCHING
from sweeps.space.parse.nodes import Mark
from sweeps.space.parse.space_source import SpaceSource
from sweeps.space.sections.trainer_choice import LABEL
from sweeps.space.yaml.yaml12 import MAX_BYTES, MAX_DEPTH, MAX_NODES, TOO_DEEP
from sweeps.space.yaml.yaml_writer import block, node_of

from . import passed_functions
from .passed_functions import Function
from .table_overrides import KEYS

# Place of a problem that concerns the whole dict.
PLACE = "space"
# Name of a sweep whose space has no name, if there is no script whose name it can take.
NAME = "sweep"
SCALARS = (str, bool, int, float)
# Stands for the name of the generated module, which is known only when all functions are.
_MODULE = "sweeps_module_of_passed_functions"


def read_passed(space: Mapping[str, Any]) -> SpaceSource:
    """Turn a dict into a space.

    Args:
        space: The dict, with the keys of a space file.

    Raises:
        InputError: A value has no form in YAML, or a function cannot be stored. The error has all
            these problems.
    """
    path = script_path()
    converter = _Converter((path.parent, Path.cwd()))
    plain = converter.convert(space)
    text = block(plain)
    if len(text.encode()) > MAX_BYTES:
        raise InputError(
            PLACE,
            f"has more than {MAX_BYTES:,} bytes as YAML; pass tables with `data`, and long values "
            "in a file",
        )
    lines = itertools.count(1)  # problems are sorted in the order of the dict
    return SpaceSource(
        path=path,
        text=text,
        root=node_of(plain, lambda key: Mark(PLACE, next(lines), 1, key or PLACE)),
        base=path.parent,
        functions=converter.folder,
        tables=converter.tables,
        notes=converter.notes,
    )


def script_path() -> Path:
    """Return the path of the script that runs.

    If there is no script of the user's, return the path `sweep` in the working directory. A
    notebook has no script, and neither has an installed program such as pytest.
    """
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    file = Path(main).resolve() if main else None
    if (
        file is None
        or not file.is_file()
        or is_library_file(file)
        or file.is_relative_to(Path(sys.prefix).resolve())
    ):
        return Path.cwd() / NAME
    return file


class _Converter:
    """Converts one dict to the text of a space file.

    `roots` are the folders from which the user's modules are imported.

    Attributes:
        tables: The tables that the dict contains.
        folder: Folder of the generated module; None if there is none.
        notes: Messages for the user.
    """

    def __init__(self, roots: tuple[Path, ...]):
        self.roots = roots
        self.tables: dict[str, Any] = {}
        self.folder: Path | None = None
        self.notes: tuple[str, ...] = ()
        self._problems: list[Problem] = []
        self._stored: dict[str, Function] = {}  # functions for the generated module, by name
        self._first = ""  # key path of the first of them

    def convert(self, space: Mapping[str, Any]) -> dict[str, Any]:
        """Return the space with the values that YAML has."""
        space = dict(space)
        if "trainer" in space:
            space["trainer"] = _trainer_section(space["trainer"])
        data = space.get("data")
        if isinstance(data, Mapping):
            self.tables = {
                key: data[key] for key in KEYS if key in data and not _is_source(data[key])
            }
            space["data"] = {key: value for key, value in data.items() if key not in self.tables}
        plain = self._plain(space, "", 0)
        if self._problems:
            raise InputError(self._problems)
        if self._stored:
            self.folder = passed_functions.new_folder()
            module = passed_functions.write_module(self._stored, self._first, self.folder)
            plain = _renamed(plain, module)
            names = ", ".join(f"`{name}`" for name in self._stored)
            verb = "is" if len(self._stored) == 1 else "are"
            note = (
                f"{self._first}: {names} {verb} stored in the sweep's folder; `sweeps resume` and "
                "`rerun` use this copy, even if you change your code later"
            )
            self.notes = (note,)
        return dict(plain)

    def _plain(self, value: Any, path: str, depth: int) -> Any:
        """Return a part of the dict with the values that YAML has.

        Add a problem for each value that has no form in YAML.
        """
        if depth > MAX_DEPTH:
            self._add_problem(path, TOO_DEEP)
        elif isinstance(value, Mapping):
            return self._plain_mapping(value, path, depth)
        elif isinstance(value, (list, tuple, range)):
            return [self._plain(inner, f"{path}.{i}", depth + 1) for i, inner in enumerate(value)]
        elif passed_functions.is_function(value):
            return passed_functions.importable_name(value, self.roots) or self._store(value, path)
        elif isinstance(value, PurePath):
            return str(value)
        elif (numpy := _from_numpy(value)) is not value:
            return self._plain(numpy, path, depth)
        elif isinstance(value, str):
            return str.__str__(value)  # an enum of texts has another `str`
        elif value is not None:
            for kind in (bool, int, float):
                if isinstance(value, kind):
                    return kind(value)
            self._add_problem(path, _type_problem(value))
        return None

    def _plain_mapping(self, value: Mapping[Any, Any], path: str, depth: int) -> dict[Any, Any]:
        """Return a mapping with the values that YAML has; see `_plain`."""
        plain = {}
        for key, inner in value.items():
            below = f"{path}.{getattr(key, '__name__', key)}" if path else str(key)
            if isinstance(key, (Mapping, list, tuple, range)):
                self._add_problem(
                    path, f"the key {key!r} must be a text, a number, a function or a class"
                )
            elif text := _too_large(inner):
                self._add_problem(below, text)
            else:
                plain[self._plain(key, below, depth)] = self._plain(inner, below, depth + 1)
        return plain

    def _store(self, function: Function, path: str) -> str:
        """Store a function in the generated module, and return its name `module:attr`."""
        names = [name for name, stored in self._stored.items() if stored == function]
        name = names[0] if names else passed_functions.free_name(function, self._stored)
        self._stored[name] = function
        self._first = self._first or path
        return f"{_MODULE}:{name}"

    def _add_problem(self, path: str, text: str) -> None:
        """Add a problem of the value at a key path; "" for the whole dict."""
        self._problems.append(Problem(path or PLACE, text))


def _too_large(value: Any) -> str:
    """Return a message about a value that is too large for a space file; "" for any other value."""
    plain = _from_numpy(value)
    if not isinstance(plain, (str, list, tuple)):
        return ""
    text = repr(plain)
    values = 1 if isinstance(plain, str) else text.count(", ")  # about this many
    if len(text) <= MAX_BYTES and values < MAX_NODES:
        return ""
    return (
        f"has about {len(text) / 1e6:.1f} MB, which is too large for a space; pass tables with "
        "`data`, and read other large values in the loop"
    )


def _renamed(value: Any, module: str) -> Any:
    """Return a value in which each text names the generated module by its final name."""
    if isinstance(value, dict):
        return {_renamed(key, module): _renamed(inner, module) for key, inner in value.items()}
    if isinstance(value, list):
        return [_renamed(inner, module) for inner in value]
    return value.replace(_MODULE, module) if isinstance(value, str) else value


def _is_source(value: Any) -> bool:
    """Return whether a value of `data` is a source that a space file can have, not a table."""
    value = _from_numpy(value)
    return (
        value is None
        or isinstance(value, (*SCALARS, PurePath, Mapping, list, tuple))
        or passed_functions.is_function(value)
    )


def _from_numpy(value: Any) -> Any:
    """Return the Python value of a scalar or an array of NumPy. Return any other value as it is."""
    if type(value).__module__ != "numpy" or not hasattr(value, "tolist"):
        return value
    return value.tolist()


def _type_problem(value: Any) -> str:
    """Return the message about a value that YAML does not have."""
    kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    if kind.startswith(("ray.tune.", "optuna.distributions.")):
        return (
            f"is a domain of another tool ({kind}); write a domain of sweeps, such as "
            "sweeps.loguniform(1e-4, 1)"
        )
    rule = (
        "must be a number, a text, a list, a dict, a domain such as sweeps.loguniform(1e-4, 1), a "
        "function or a class"
    )
    fix = ""
    if isinstance(value, (set, frozenset)):
        fix = "; write it as a list"
    elif hasattr(value, "fit"):
        fix = "; write the class itself, without `()`"
    return f"is an object of {kind}, but {rule}{fix}"


def _trainer_section(trainer: Any) -> Any:
    """Return the section `trainer`, in which each function is a mapping.

    If there are several trainers, the label of a function is its name.
    """
    if passed_functions.is_function(trainer):
        return {"estimator" if hasattr(trainer, "fit") else "loop": trainer}
    if not isinstance(trainer, Mapping):
        return trainer
    section = dict(trainer)
    for kind in BRANCHING:
        if isinstance(section.get(kind), (list, tuple)):
            section[kind] = [
                {LABEL: each.__name__, **_trainer_section(each)}
                if passed_functions.is_function(each) and hasattr(each, "__name__")
                else each
                for each in section[kind]
            ]
    return section

"""References of the form `module:attr`, which users write to name their own code.

Only `resolve` imports the module that a reference names. The other functions read the module's
source, so that a space file can be checked without running user code.
"""

import ast
import contextlib
import contextvars
import functools
import importlib
import importlib.util
import symtable
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from sweeps.core import installed_package
from sweeps.core.text.suggestions import did_you_mean

from .library_code import is_library_file

# Regular expression of a reference, for JSON Schemas.
PATTERN = r"^[^\W\d][\w.]*:[^\W\d][\w.]*$"
PARSE_TRIES = 5
# Longest text of a value or an error of the user's code.
MOST_CHARACTERS = 200

# True in a block of `absent_modules_allowed`
absent_allowed = contextvars.ContextVar("absent_allowed", default=False)


class RefError(Exception):
    """A text is not a reference `module:attr`, or the module or the attribute does not exist.

    The message says which.
    """


def is_reference(text: str) -> bool:
    """Return whether a text has the form `module:attr`. Module and attribute may be dotted."""
    module, colon, attr = text.partition(":")
    return bool(colon) and all(
        part.isidentifier() for part in (*module.split("."), *attr.split("."))
    )


def parse(ref: str) -> tuple[str, str]:
    """Split a reference into module and attribute. Both may be dotted.

    Raises:
        RefError: The text is not of the form `module:attr`.
    """
    if not is_reference(ref):
        raise RefError(
            f"`{ref}` is not a reference; write `{_without_suffix(ref) or 'module:attr'}`"
        )
    module, _, attr = ref.partition(":")
    return module, attr


def _without_suffix(ref: str) -> str:
    """Return the reference for a file and an attribute, such as `fit:train` for `fit.py:train`.

    Return "" if the text names no file.
    """
    file, _, attr = ref.partition(":")
    reference = f"{file.removesuffix('.py').removeprefix('./').replace('/', '.')}:{attr or 'attr'}"
    return reference if file.endswith(".py") and is_reference(reference) else ""


def resolve(ref: str) -> Any:
    """Import the module of a reference, and return the attribute that the reference names.

    The import runs the module's code.

    Raises:
        RefError: The text is not a reference, the module does not exist or raises an error, or the
            module has no such attribute. In the last case, the message lists the classes and
            functions in the module.
    """
    module_name, attr = parse(ref)
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as e:  # the module is the user's and may raise anything
        absent = e.name if isinstance(e, ModuleNotFoundError) else None
        # The absent module is this module or one of its parents, and not one that it imports.
        if absent and f"{module_name}.".startswith(f"{absent}."):
            raise RefError(f"`{ref}`: no module `{absent}`") from e
        raise RefError(f"`{ref}` cannot be imported: {describe_error(e)}") from e
    value: Any = module
    for part in attr.split("."):
        if not hasattr(value, part):
            names = sorted(
                n for n, v in vars(module).items() if not n.startswith("_") and callable(v)
            )
            raise RefError(
                f"`{ref}`: `{module_name}` has no `{attr}`; the module defines: "
                f"{', '.join(names) or 'nothing'}"
            )
        value = getattr(value, part)
    return value


def describe_error(error: BaseException) -> str:
    """Return an error in one line, with the last line of the user's own code that led to it."""
    message = short(str, error)
    text = type(error).__name__ + (f": {message}" if message else "")
    if isinstance(error, SyntaxError):
        return text  # the message names the file and the line
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if is_users_file(frame.filename):
            return f"{text} ({Path(frame.filename).name}, line {frame.lineno})"
    return text


def short(convert: Callable[[Any], str], value: Any) -> str:
    """Return `str` or `repr` of a value of the user's code in one line. A long line is cut."""
    try:
        text = " ".join(convert(value).split())
    except Exception as e:
        text = f"{type(e).__name__} in {convert.__name__}()"
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}…"


def is_users_file(file: str) -> bool:
    """Return whether a source file is part of neither sweeps, Python nor an installed package."""
    path = Path(file)
    ours = path.is_relative_to(installed_package.FOLDER)
    return path.is_file() and not ours and not is_library_file(path)


def source_of(module: str, roots: Iterable[Path] = ()) -> Path | None:
    """Find the file of a module without importing the module or its parents.

    Args:
        module: The dotted name of the module.
        roots: Folders to search before `sys.path`.

    Returns:
        The source file, or the shared library (`.so`) of a compiled module. For a module that is
        built into Python, the file of the interpreter. None if the module was not found.
    """
    if module in sys.builtin_module_names:
        return Path(sys.executable)
    first, *inner = module.split(".")
    folders = [*map(str, roots), *sys.path]
    if first == __name__.partition(".")[0]:
        # The user may have a folder called `sweeps`. Modules of sweeps always come from this
        # installation.
        folders = [str(installed_package.FOLDER.parent)]
    spec = PathFinder.find_spec(first, folders)
    if spec is None:
        try:  # editable installs are found only by their own import finders
            spec = importlib.util.find_spec(first)
        except (ImportError, ValueError):
            return None
    for name in inner:
        if spec is None:
            return None
        spec = PathFinder.find_spec(name, list(spec.submodule_search_locations or ()))
    return Path(spec.origin) if spec is not None and spec.origin else None


def _absent_message(module: str, roots: Iterable[Path]) -> str:
    """Return the message that a module does not exist, with the folders that were searched."""
    folders = ", ".join(dict.fromkeys(_as_typed(root.absolute()) for root in roots))
    places = f" in {folders} or among the installed packages" if folders else ""
    return f"no module `{module}`{places}"


def _as_typed(folder: Path) -> str:
    """Return a folder's path as a user would type it.

    An example is `./src/` for a folder in the working directory.
    """
    here = Path.cwd()
    if not folder.is_relative_to(here):
        return f"{folder}/"
    return f"./{folder.relative_to(here)}".removesuffix("/.") + "/"


def syntax_tree(source: str | bytes) -> ast.Module:
    """Parse Python source code as `ast.parse` does.

    Raises:
        SyntaxError: The source is not valid Python.
        ValueError: The source contains a null byte.
    """
    for _ in range(PARSE_TRIES - 1):
        # Python before 3.11.8 and 3.12.2 raises this error if another thread parses at the same
        # time (CPython issue 106905).
        with contextlib.suppress(SystemError):
            return ast.parse(source)
    return ast.parse(source)


def parse_source(path: Path) -> ast.Module | None:
    """Parse a Python source file.

    Return None if the file is compiled, cannot be read or has a syntax error.
    """
    if path.suffix != ".py":
        return None
    try:
        return syntax_tree(path.read_bytes())
    # Python 3.11 raises a ValueError if the file contains a null byte.
    except (SyntaxError, ValueError, OSError):
        return None


@functools.lru_cache(maxsize=64)
def _defined_names(path: Path) -> frozenset[str] | None:
    """Return the names that a source file defines at its top level.

    Return None if the names cannot be read from the file: it is compiled or has a syntax error,
    imports `*`, or defines `__getattr__`.
    """
    if (tree := parse_source(path)) is None:
        return None
    imports = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    if any(node.names[0].name == "*" for node in imports):
        return None
    try:
        table = symtable.symtable(ast.unparse(tree), str(path), "exec")
    except SyntaxError:  # such as a name that is used before its `global` statement
        return None
    names = {
        symbol.get_name()
        for symbol in table.get_symbols()
        if symbol.is_assigned() or symbol.is_imported()
    }
    return None if "__getattr__" in names else frozenset(names)


@contextlib.contextmanager
def absent_modules_allowed() -> Iterator[None]:
    """Accept modules in references, and scripts in commands, that are not found.

    Use this block where a sweep is only shown, perhaps on a machine without the user's code.
    """
    token = absent_allowed.set(True)
    try:
        yield
    finally:
        absent_allowed.reset(token)


def problem(ref: str, roots: Iterable[Path] = ()) -> str | None:
    """Check a reference without running the module's code.

    Return a message that says what is wrong; None if nothing was found.

    If a module may define names that its source does not show, every attribute of the module is
    accepted.

    Args:
        ref: The reference, `module:attr`.
        roots: Folders to search before `sys.path`.
    """
    try:
        module, attr = parse(ref)
    except RefError as e:
        return str(e)
    roots = tuple(roots)
    path = source_of(module, roots)
    if path is None:
        if absent_allowed.get():
            return None
        corrected = _without_suffix(ref)
        hint = f"; write `{corrected}`, without `.py`" if corrected else ""
        return f"`{ref}`: {_absent_message(module, roots)}{hint}"
    defined = _defined_names(path)
    first = attr.split(".")[0]
    if defined is not None and first not in defined:
        public = sorted(n for n in defined if not n.startswith("_"))
        return (
            f"`{ref}`: `{module}` has no `{first}`; "
            f"{did_you_mean(first, public) if public else 'the module defines nothing'}"
        )
    return None


def base_classes(ref: str, roots: Iterable[Path] = ()) -> set[str]:
    """Return the names of all base classes of a class, as its module's source writes them.

    The result is empty if the module has no class of this name. It has the base classes that come
    from other modules, but not the base classes of those.

    Args:
        ref: The reference, `module:attr`.
        roots: Folders to search before `sys.path`.
    """
    module, attr = parse(ref)
    path = source_of(module, roots)
    tree = None if path is None else parse_source(path)
    body = tree.body if tree else ()
    classes = {node.name: node for node in body if isinstance(node, ast.ClassDef)}
    bases: set[str] = set()
    todo = [attr]
    while todo:
        if (node := classes.pop(todo.pop(), None)) is not None:
            names = [ast.unparse(base) for base in node.bases]
            bases.update(names)
            todo += names
    return bases

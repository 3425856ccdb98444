"""Store the functions and classes that a Python script passes to `sweeps.run`.

The stored functions let `resume` and `rerun` work without the script. A function of a module is
named as `module:attr`, as in a space file. A function of the script itself, of a notebook, or
inside another function has no such name. cloudpickle stores it by value in a generated module. The
workers, `resume` and a bundle import this module like any other. Its name contains a hash of the
functions, so that two of these modules never have the same name.
"""

import base64
import dis
import functools
import hashlib
import inspect
import io
import keyword
import pickletools
import re
import shutil
import sys
import tempfile
import textwrap
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sweeps.core.errors import InputError
from sweeps.core.files import trust
from sweeps.core.files.atomic_files import write_text
from sweeps.core.plugins import references

# The largest size of the functions with all values that they use. Each worker reads them.
MOST_BYTES = 10 * 2**20
_TEMPLATE = '''\
# Functions of a Python script that called `sweeps.run`, with the values that they use. \
sweeps wrote this file; do not change it.
# The code that runs is in `_PICKLED`. Python {version} wrote it, and only Python {version} can \
read it. For readers, this is its source:
#
{source}
import sys

if sys.version_info[:2] != {numbers}:
    raise ImportError("the function `{first}` was stored by Python {version}, and only this \
version of Python can run it")

import base64
import contextlib
import pickle

import cloudpickle

# The modules that the functions use, so that a bundle has these modules and requires \
their packages.
{imports}


def _import_later():
    # Nothing calls this function. A bundle reads its imports to find the required packages.
{later}


_PICKLED = """
{pickled}
"""
{targets} = pickle.loads(base64.b64decode(_PICKLED))
for _each in ({targets}):
    with contextlib.suppress(AttributeError, TypeError):
        _each.__module__ = __name__  # so that other pickles can name these classes
'''


# A function, a method or a class.
Function = Callable[..., Any]
Functions = Mapping[str, Function]


def is_function(value: Any) -> bool:
    """Return whether a value is a function, a method or a class."""
    return isinstance(value, (type, functools.partial)) or inspect.isroutine(value)


def importable_name(function: Function, roots: Sequence[Path]) -> str | None:
    """Return the name of a function or class as `module:attr`.

    Return None if no module has it under this name.

    Args:
        function: The function or class.
        roots: Folders from which the user's modules are imported, before those in `sys.path`.
    """
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", "")
    if not module or module == "__main__" or not references.is_reference(f"{module}:{name}"):
        return None
    if _attribute(module, name) is not function or references.source_of(module, roots) is None:
        return None
    parts = module.split(".")
    if any(part.startswith("_") for part in parts):
        # Take the first package that also has it: `sklearn.svm._classes:SVC` is `sklearn.svm:SVC`.
        packages = (".".join(parts[:length]) for length in range(1, len(parts) + 1))
        module = next(package for package in packages if _attribute(package, name) is function)
    return f"{module}:{name}"


def _attribute(module: str, name: str) -> Any:
    """Return an attribute of an imported module by its dotted name, or None if there is none."""
    value: Any = sys.modules.get(module)
    for part in name.split("."):
        value = getattr(value, part, None)
    return value


def write_module(functions: Functions, place: str, folder: Path) -> str:
    """Write functions and classes, and the values that they use, to a module in a folder.

    Return the module's name.

    Args:
        functions: The functions and classes, by the name that each has in the module.
        place: Key of the first function, for messages.
        folder: The folder.

    Raises:
        InputError: The functions use a value that cannot be pickled, or their size is over
            `MOST_BYTES`.
    """
    pickled, recorder, functions = _pickle(functions, place)
    first = next(iter(functions))
    module = f"{first}_{hashlib.sha256(pickled).hexdigest()[:8]}"
    text = _TEMPLATE.format(
        first=first,
        version="{}.{}".format(*sys.version_info),
        numbers=sys.version_info[:2],
        source="\n#\n".join(
            textwrap.indent(_source(function).rstrip(), "# ", lambda line: True)
            for function in functions.values()
        ),
        imports=_import_lines(recorder.modules, ""),
        later=_import_lines(recorder.later, "    ") or "    pass",
        pickled="\n".join(textwrap.wrap(base64.b64encode(pickled).decode(), 120)),
        targets=", ".join(functions) + ",",
    )
    write_text(folder / f"{module}.py", text)
    return module


def _import_lines(modules: Iterable[str], indent: str) -> str:
    """Return statements that import modules, without those of Python itself."""
    known = {*sys.stdlib_module_names, "cloudpickle"}
    names = (name for name in sorted(modules) if name.partition(".")[0] not in known)
    return "\n".join(f"{indent}import {name}" for name in names)


def free_name(function: Function, taken: Functions) -> str:
    """Return a function's name for a generated module, different from the names in `taken`."""
    inner = function.func if isinstance(function, functools.partial) else function
    name = re.sub(r"\W", "", getattr(inner, "__name__", "")).strip("_")
    if not name.isidentifier() or keyword.iskeyword(name):  # such as `lambda`
        name = "function"
    free = name
    number = 2
    while free in taken:
        free = f"{name}_{number}"
        number += 1
    return free


def _pickle(functions: Functions, place: str) -> tuple[bytes, Any, Functions]:
    """Pickle functions by value.

    Returns:
        The pickle of a tuple; the pickler, see `_recorder`; and the members of the tuple by name.
        These are the functions, followed by the classes that they use and that no module has.
    """
    members = dict(functions)
    pickled_members = 0
    # Pickle again until the pickle has all classes as members, which the module then defines.
    while len(members) > pickled_members:  # other pickles name such a class by its module
        recorder = _recorder()
        pickled_members = len(members)
        try:
            recorder.dump(tuple(members.values()))
        except Exception as e:
            reason = next(iter(str(e).splitlines()), "") or type(e).__name__
            raise InputError(
                place,
                f"the function uses a value that cannot be sent to workers: {reason}; create this "
                "value inside the function",
            ) from e
        for cls in recorder.by_value:
            # The name of a class inside a function or a class is no identifier.
            if cls not in members.values() and cls.__qualname__.isidentifier():
                members.setdefault(cls.__qualname__, cls)
    pickled = recorder.file.getvalue()
    recorder.modules |= _named_modules(pickled)
    if len(pickled) > MOST_BYTES:
        size = (
            f"the function and the values that it uses have {len(pickled) / 2**20:.0f} MB, but at "
            f"most {MOST_BYTES // 2**20} MB are allowed"
        )
        raise InputError(
            place,
            f"{size}{_largest_value(functions)}; pass tables with `data`, or read them inside the "
            "function",
        )
    return pickled, recorder, members


def _recorder() -> Any:
    """Return a pickler of cloudpickle that records what it pickles.

    `modules` are the modules that the functions use as objects. `later` are those that the
    functions import when they run. `by_value` are the classes that are pickled by value.
    """
    import cloudpickle

    class Recorder(cloudpickle.Pickler):  # type: ignore[misc]
        def __init__(self) -> None:
            self.file = io.BytesIO()
            self.modules: set[str] = set()
            self.later: set[str] = set()
            self.by_value: list[type] = []
            super().__init__(self.file)

        def reducer_override(self, value: Any) -> Any:
            """Return how cloudpickle pickles a value, and record the value."""
            reduced = super().reducer_override(value)
            # Otherwise the value is pickled as a name, or in the usual way.
            by_value = reduced is not NotImplemented and not isinstance(reduced, str)
            if isinstance(value, types.ModuleType) and value.__name__ != "__main__":
                self.modules.add(value.__name__)
            elif isinstance(value, types.FunctionType) and by_value:
                self.later.update(_imported(value.__code__))
            elif (
                isinstance(value, type) and by_value and not value.__module__.startswith("builtins")
            ):
                self.by_value.append(value)
            return reduced

    return Recorder()


def _named_modules(pickled: bytes) -> set[str]:
    """Return the modules of the functions and classes that a pickle refers to by name.

    Compiled modules are included. The pickle is not loaded.
    """
    memo: list[str] = []  # values that the pickle may put on the stack again; "" if not a text
    texts = ["", ""]  # the last two texts on the stack
    modules = set()
    previous = ""  # name of the previous opcode
    value: Any
    for opcode, value, _ in pickletools.genops(pickled):
        if "BINUNICODE" in opcode.name:
            texts = [texts[1], str(value)]
        elif opcode.name in ("BINGET", "LONG_BINGET"):
            texts = [texts[1], memo[int(value or 0)]]
        elif opcode.name == "MEMOIZE":
            memo.append(texts[1] if "BINUNICODE" in previous else "")
        elif opcode.name == "STACK_GLOBAL":
            # The two values on top of the stack are the names of the module and of its member.
            modules.add(texts[0])
        previous = opcode.name
    return modules - {"__main__"}


def _imported(code: types.CodeType) -> Iterator[str]:
    """Yield the names of the modules that a function imports when it runs.

    Imports inside functions that it defines are included.
    """
    package = ""
    for instruction in dis.get_instructions(code):
        name = instruction.argval
        if instruction.opname == "IMPORT_NAME":
            if references.is_reference(f"{name}:a"):  # False for a relative import
                package = name
                yield package
        elif (
            instruction.opname == "IMPORT_FROM"
            and references.source_of(f"{package}.{name}", ()) is not None
        ):
            yield f"{package}.{name}"  # `from package import module`
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _imported(constant)


def _source(function: Function) -> str:
    """Return the source of a function, or a text in its place if Python does not know it."""
    try:
        return textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        return f"(the source of {getattr(function, '__qualname__', function)} is not known)"


def _largest_value(functions: Functions) -> str:
    """Return a text that names the largest global value that the functions use.

    Return "" if none is over half of `MOST_BYTES`.
    """
    import cloudpickle

    sizes: dict[str, int] = {}
    for function in functions.values():
        values = getattr(function, "__globals__", {})  # all global values of its module
        for name in getattr(getattr(function, "__code__", None), "co_names", ()):
            if name in values and not isinstance(values[name], types.ModuleType):
                sizes[name] = len(cloudpickle.dumps(values[name]))
    largest = max(sizes, key=lambda name: sizes[name], default="")
    if not largest or sizes[largest] <= MOST_BYTES // 2:
        return ""
    return f"; the largest is `{largest}` with {sizes[largest] / 2**20:.0f} MB"


# ---- the generated module in the sweep's folder


@functools.cache
def _scratch() -> tempfile.TemporaryDirectory[str]:
    """Return the folder from which this process and its workers import generated modules.

    It is removed when this process ends.
    """
    return tempfile.TemporaryDirectory(prefix="sweeps-functions-")


def new_folder() -> Path:
    """Return a new, empty folder for a generated module."""
    return Path(tempfile.mkdtemp(dir=_scratch().name))


def save_module(source: Path, folder: Path) -> None:
    """Copy a generated module to a sweep's folder, and sign it."""
    folder.mkdir()
    for file in source.glob("*.py"):
        trust.sign(Path(shutil.copy(file, folder)))


def checked_copy(folder: Path, trusted: bool) -> Path:
    """Copy the generated module of a sweep's folder to a new folder, from which it can be imported.

    Args:
        folder: The folder of the module in the sweep's folder.
        trusted: True to accept a module that this user's key has not signed.

    Raises:
        UntrustedFile: The module is not signed with this user's key.
    """
    copy = new_folder()
    for file in sorted(folder.glob("*.py")):
        (copy / file.name).write_bytes(trust.read(file, trusted))
    return copy

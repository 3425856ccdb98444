"""Write the files of `sweeps init`, after a check that they are valid."""

from collections.abc import Mapping
from pathlib import Path

from sweeps.core.errors import InputError
from sweeps.core.files.atomic_files import write_atomically, write_text
from sweeps.core.plugins.references import absent_modules_allowed
from sweeps.space import Space, load


def refuse_existing(paths: list[Path], force: bool) -> None:
    """Raise an InputError if one of the files exists, unless `force` is true."""
    existing = [path for path in paths if path.exists()]
    if existing and not force:
        names = ", ".join(map(str, existing))
        raise InputError(
            names, "already exists; name another FILE, or overwrite the file with --force"
        )


def write_files(file: Path, text: str, modules: Mapping[Path, str], force: bool) -> Space:
    """Write a space file and its Python modules, and return the space. Missing folders are made.

    If one of the texts is not valid, no file is written or changed. A script that the space file
    names may be elsewhere.

    Args:
        file: Path of the space file.
        text: Its text.
        modules: Text of each Python module, by its path.
        force: True to overwrite files that exist.

    Raises:
        InputError: A file exists and `force` is false, a text is not valid, or a file cannot be
            written.
    """
    refuse_existing([file, *modules], force)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with write_atomically(file) as draft:
            write_text(draft, text)
            _check(draft, modules)
            for path, code in modules.items():
                write_text(path, code)
    except InputError as e:
        reason = f"cannot be written as a valid space file: {e.problems[0].text}"
        raise InputError(str(file), reason) from None
    except OSError as e:
        raise InputError(str(file), f"cannot be written: {e.strerror or e}") from None
    with absent_modules_allowed():
        return load(file)


def _check(file: Path, modules: Mapping[Path, str]) -> None:
    """Raise an InputError if a space file or the text of a module is not valid."""
    with absent_modules_allowed():  # the modules are written after the check
        load(file)
    for path, code in modules.items():
        try:
            compile(code, path, "exec")
        except SyntaxError as e:
            raise InputError(str(path), f"{path.name}: {e.msg} (line {e.lineno})") from None

"""Find the files of a data source. This module needs neither Ray nor pandas."""

from __future__ import annotations

import contextlib
import fnmatch
import glob
import io
import itertools
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import unquote

import pyarrow as pa

from sweeps.core.errors import InputError, first_line
from sweeps.core.files import stores
from sweeps.core.text.secrets import masked
from sweeps.core.text.suggestions import closest, did_you_mean
from sweeps.data.checks.named_columns import split_rules
from sweeps.space.sections.data_models import READ_DEFAULTS, ReadKeys

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

    from sweeps.space import DataSpec

# Format of a data file, by the end of its name without `.gz`
_FORMATS = {
    ".csv": ".csv",
    ".tsv": ".tsv",
    ".jsonl": ".jsonl",
    ".ndjson": ".jsonl",
    ".parquet": ".parquet",
    ".pq": ".parquet",
}
SUFFIXES = ".csv, .tsv, .jsonl, .ndjson (each also with .gz), .parquet, .pq"
# Calls of pandas that read other files, and the suffixes of these files
_PANDAS_CALLS = {
    'read_excel("{}")': ".xlsx .xlsm .xlsb .xls .ods",
    'read_csv("{}")': ".csv.bz2 .csv.xz .csv.zst .csv.zip .tsv.bz2 .tsv.xz .tsv.zst .zip",
    'read_csv("{}", sep=None, engine="python")': ".txt .dat .data .tab .psv",
    'read_json("{}")': ".json",
    'read_feather("{}")': ".feather .arrow .ipc",
    'read_orc("{}")': ".orc",
    'read_sas("{}")': ".sas7bdat .xpt",
    'read_stata("{}")': ".dta",
    'read_spss("{}")': ".sav .zsav",
    'read_pickle("{}")': ".pkl .pickle",
    'read_sql("SELECT * FROM my_table", "sqlite:///{}")': ".db .sqlite .sqlite3",
}
_SCHEMES = ("file", "gs", "s3", "hdfs", "abfs", "abfss")


@dataclass(frozen=True)
class Source:
    """A data source, as the space file names it.

    Attributes:
        name: `sklearn:NAME`, a path, glob, folder or URI, or `module:function`.
        base: Folder in which relative paths and modules are looked up first, before the working
            directory.
        place: Key of the space file that names the source, such as `data.train`, for messages.
        args: Keyword arguments of the function, if the source is `module:function`.
        read: Settings for reading text files.
    """

    name: str
    base: Path
    place: str
    args: Mapping[str, Any] = field(default_factory=dict)
    read: ReadKeys = READ_DEFAULTS


def sources_of(spec: DataSpec) -> dict[str, Source]:
    """Return the source of train, and those of valid and test if they have their own."""
    names_and_args = {"train": (spec.train, spec.args)}
    for key, rule in split_rules(spec).items():
        if rule.path is not None:
            names_and_args[key] = (rule.path, rule.args)
    return {
        key: Source(name, spec.base, f"data.{key}", args=args, read=spec.read)
        for key, (name, args) in names_and_args.items()
    }


@dataclass(frozen=True)
class SourceFiles:
    """The files of a data source.

    Attributes:
        source: The source as written in the space file, for messages.
        place: Key of the space file that names the source, such as `data.train`, for messages.
        system: Arrow's file system.
        paths: Paths of the files in `system`, sorted. There is at least one.
        folder: The source's path if the source is a folder; otherwise None.
        base: Folder that messages leave out at the beginning of a path. Empty if messages show
            whole paths.
        read: Settings for reading text files.
    """

    source: str
    place: str
    system: FileSystem
    paths: tuple[str, ...]
    folder: str | None
    base: str = ""
    read: ReadKeys = READ_DEFAULTS

    @property
    def format(self) -> str:
        """Format of the files; see `file_format`."""
        return file_format(self.paths[0])

    @property
    def is_text(self) -> bool:
        """True for CSV and TSV files."""
        return self.format in (".csv", ".tsv")

    @property
    def separator(self) -> str:
        """The character that separates the values of text files."""
        return self.read.separator or ("\t" if self.format == ".tsv" else ",")

    def open_text(self, path: str, skip: int) -> io.TextIOWrapper:
        """Open a text file after some lines.

        A byte that cannot be decoded becomes a surrogate character.
        """
        encoding = self.read.encoding
        if encoding == "utf-8":
            encoding = "utf-8-sig"  # skips a byte order mark
        stream = self.system.open_input_stream(path)
        text = io.TextIOWrapper(stream, encoding, "surrogateescape", newline="")
        for _ in range(skip):
            text.readline()
        return text

    def partition_values(self, path: str) -> dict[str, str]:
        """Return the values of the columns that a file's subfolders define.

        For example, `year=2020/x.csv` gives `{"year": "2020"}`.
        """
        if self.folder is None:
            return {}
        folders = PurePosixPath(path.removeprefix(self.folder)).parent.parts
        return dict(unquote(part).split("=", 1) for part in folders if "=" in part)

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """Names of the columns that subfolders define: `year` for a subfolder `year=2020/`.

        Empty if the source is not a folder.
        """
        return tuple(
            dict.fromkeys(name for path in self.paths for name in self.partition_values(path))
        )

    def display_name(self, path: str) -> str:
        """Return the name of a file in messages.

        It is the source if the source has only one file, and otherwise the path without `base`.
        """
        return self.source if len(self.paths) == 1 else path.removeprefix(self.base)


def raise_problem(place: str, text: str, cause: BaseException | None = None) -> NoReturn:
    """Raise an error about a data source.

    The message is cut to one short line, because it may quote a damaged file.

    Raises:
        InputError: Always.
    """
    words = " ".join(masked(text).split())  # secrets are masked before the text is cut
    line = "".join(c if c.isprintable() else "?" for c in words)
    raise InputError(place, line if len(line) <= 500 else f"{line[:500]} ...") from cause


@contextlib.contextmanager
def read_errors(place: str, name: str) -> Iterator[None]:
    """Turn an error that reading raises in the `with` block into an error about a data source.

    Args:
        place: Key of the space file that names the source.
        name: Name of the file or source for the message.

    Raises:
        InputError: The file cannot be read.
    """
    try:
        yield
    except (OSError, pa.ArrowException, ValueError) as e:
        raise_problem(place, f"`{name}` cannot be read: {first_line(e)}", e)


def find_files(source: Source) -> SourceFiles:
    """Find the files of a path, folder, glob or URI.

    Raises:
        InputError: There are no files, or they cannot be listed.
    """
    from pyarrow import fs

    base = ""
    if "://" in source.name:
        check_scheme(source.name, source.place)
        system, paths, folder = _find_remote(source.name, source.place)
    else:
        system = fs.LocalFileSystem()
        paths, folder = _find_local(source.name, source.base, source.place)
        base = f"{source.base.absolute()}/"
    return SourceFiles(
        source.name,
        source.place,
        system,
        paths=tuple(paths),
        folder=folder,
        base=base,
        read=source.read,
    )


def _find_local(source: str, base: Path, place: str) -> tuple[list[str], str | None]:
    """Return the sorted files of a path, folder or glob.

    Also return the folder, or None if the source is not a folder.
    """
    candidates = [base / source, Path(source)]
    is_glob = glob.has_magic(source)
    with read_errors(place, source):
        for path in candidates:
            if path.is_file():
                return [str(path.absolute())], None
            if path.is_dir():
                return _data_files(path, source, place), str(path.absolute())
            if path.exists():  # reading a pipe or a device may never end
                raise_problem(place, f"`{source}` is not a regular file")
            if os.path.lexists(path):
                raise_problem(place, f"`{source}` is a broken link to {os.readlink(path)}")
            paths = map(Path, glob.glob(str(path), recursive=True) if is_glob else ())
            if files := sorted(str(p.absolute()) for p in paths if p.is_file()):
                return files, None
        if is_glob:
            raise_problem(place, f"no file matches `{source}`")
        siblings = sorted(p.name for p in candidates[0].parent.glob("*"))
    text = f"`{source}` does not exist"
    match = closest(Path(source).name, siblings)
    if not any(path.parent.is_dir() for path in candidates):
        text += f"; there is no folder `{Path(source).parent}`"
    elif match is not None:
        text += f"; did you mean `{match}`?"
    raise_problem(place, text)


def _data_files(folder: Path, source: str, place: str) -> list[str]:
    """Return the sorted data files in a folder, without hidden files and folders.

    `source` and `place` are for messages.
    """
    files = [
        str(path.absolute())
        for path in folder.rglob("*")
        if path.is_file()
        and file_format(path.name)
        and not any(part[0] in "._" for part in path.relative_to(folder).parts)
    ]
    if not files:
        raise_problem(place, f"folder `{source}` has no data file; valid suffixes: {SUFFIXES}")
    return sorted(files)


def check_scheme(source: str, place: str) -> str:
    """Return the scheme of a URI, such as "s3", if Arrow can read such URIs.

    The function does not connect to the URI.

    Raises:
        InputError: Arrow cannot read this scheme.
    """
    scheme = source.partition("://")[0]
    if scheme not in _SCHEMES:
        hint = did_you_mean(scheme, _SCHEMES)
        raise_problem(place, f"`{source}`: unknown scheme `{scheme}`; {hint}")
    return scheme


def _find_remote(source: str, place: str) -> tuple[FileSystem, list[str], str | None]:
    """Return the file system of a URI, and its sorted files and folder as `_find_local` does."""
    from pyarrow import fs

    with read_errors(place, source):
        system, path = _open_uri(source)
        root = path
        is_glob = glob.has_magic(path)
        if is_glob:
            parts = PurePosixPath(path).parts
            fixed = itertools.takewhile(lambda part: not glob.has_magic(part), parts)
            root = str(PurePosixPath(*fixed))
        else:
            info = system.get_file_info(path)
            if info.is_file:
                return system, [path], None
            if info.type == fs.FileType.NotFound:
                raise_problem(place, f"`{source}` does not exist")
        selector = fs.FileSelector(root, recursive=True, allow_not_found=True)
        infos = [info for info in system.get_file_info(selector) if info.is_file]
        if is_glob:
            files = [info.path for info in infos if fnmatch.fnmatchcase(info.path, path)]
            empty = f"no file matches `{source}`"
        else:
            data_files = [info for info in infos if file_format(info.base_name)]
            files = [info.path for info in data_files if info.base_name[0] not in "._"]
            empty = f"folder `{source}` has no data file"
    if not files:
        raise_problem(place, empty)
    return system, sorted(files), None if is_glob else path


def _open_uri(uri: str) -> tuple[FileSystem, str]:
    """Return Arrow's file system for a URI, and the path in it.

    In the path, `*` and `[` may be part of a glob.
    """
    from pyarrow import fs

    if stores.is_address(uri) and "@" not in uri and "?" not in uri:
        path = uri.removeprefix(stores.SCHEME)
        return stores.filesystem(path.partition("/")[0]), path.rstrip("/")
    if "*" in uri:  # Arrow refuses the characters of a glob in a URI.
        uri = uri.replace("*", "%2A").replace("[", "%5B")
    system, path = fs.FileSystem.from_uri(uri)
    return system, path.replace("%2A", "*").replace("%5B", "[")


def file_format(name: str) -> str:
    """Return the format of a data file as its plain suffix: `.csv`, `.tsv`, `.jsonl` or `.parquet`.

    Return "" for other names.

    >>> file_format("a.CSV.gz"), file_format("a.pq"), file_format("a.xlsx")
    ('.csv', '.parquet', '')
    """
    plain = name.lower().removesuffix(".gz")
    return next((kind for suffix, kind in _FORMATS.items() if plain.endswith(suffix)), "")


def unsupported_text(name: str) -> str:
    """Return a message about a file whose format sweeps does not read.

    The message names a loader that reads the file, if pandas can read it.
    """
    valid = f"unsupported suffix; valid: {SUFFIXES}"
    for call, suffixes in _PANDAS_CALLS.items():
        if name.lower().endswith(tuple(suffixes.split())):
            return (
                f"{valid}; read it with a loader, three lines in `my_loader.py`: `import pandas`, "
                "`def rows():`, "
                f"`    return pandas.{call.format(name)}`; then write `data.train: "
                '"my_loader:rows"`'
            )
    return valid

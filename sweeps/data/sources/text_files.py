"""Read text files of data without Ray and pandas."""

from __future__ import annotations

import io
import itertools
import json
from typing import TYPE_CHECKING

import pyarrow as pa

from sweeps.core.errors import first_line
from sweeps.data.sources.data_files import SourceFiles

if TYPE_CHECKING:
    from pydantic import JsonValue


def separator_of(files: SourceFiles) -> str:
    """Return the character that separates the values of text files."""
    return files.read.separator or ("\t" if files.format == ".tsv" else ",")


def open_text(files: SourceFiles, path: str, skip: int) -> io.TextIOWrapper:
    """Open a text file after some lines.

    A byte that cannot be decoded becomes a surrogate character.
    """
    encoding = files.read.encoding
    stream = files.system.open_input_stream(path)
    text = io.TextIOWrapper(
        stream, encoding + "-sig" * (encoding == "utf-8"), "surrogateescape", newline=""
    )
    for _ in range(skip):
        text.readline()
    return text


def json_table(files: SourceFiles, path: str) -> pa.Table:
    """Read a file of JSON lines. A key that a line lacks is a missing value.

    Raises:
        ValueError: A line is no object, or the values of a key have different types.
    """
    rows: list[dict[str, JsonValue]] = []
    with files.system.open_input_stream(path) as stream:
        for number, line in enumerate(io.TextIOWrapper(stream, "utf-8-sig"), 1):
            try:
                rows += [{**json.loads(line)}] if line.strip() else []
            except (TypeError, ValueError):
                text = f"line {number} is not a JSON object: `{line.strip()[:40]}`"
                raise ValueError(text) from None
    names = dict.fromkeys(itertools.chain(*rows))
    columns = {}
    for name in names:
        try:
            columns[name] = pa.array([row.get(name) for row in rows])
        except pa.ArrowException as e:
            text = f"`{name}` holds values of different types ({first_line(e)})"
            raise ValueError(f"{text}; give each column values of one type") from e
    return pa.table(columns)

"""Find what is wrong with the shape of a text file: its encoding, separator, header or rows.

Pure functions; the lines are given.

Lines are counted as an editor counts them: from 1, with the header, blank lines and line feeds in
quotes.
"""

import contextlib
import csv
import itertools
import re
import statistics
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from sweeps.data.columns.column_types import ALWAYS_MISSING
from sweeps.data.columns.missing import WORDS
from sweeps.space.sections.data_models import READ_DEFAULTS, ReadKeys
from sweeps.space.yaml.yaml_writer import flow

Row = tuple[int, list[str]]  # the number of the row's first line, and its values

Fix = dict[str, str | int | list[str]]  # keys of `data.read`

_SEPARATORS = ";\t|, "
# Values that may stand in a column of numbers
_MISSING = {*ALWAYS_MISSING, *WORDS}
# A letter, but not the `e` of a number such as 1e-05
_LETTER = re.compile(r"[^\W\d_eE]|(?<![\d.])[eE]|[eE](?![+-]?\d)")
_DECIMAL_COMMA = re.compile(r"\s*[+-]?\d*,\d+\s*")
# A cell below the header such as [kg], or a blank one
_UNIT = re.compile(r"([\[(].*[\])])?")
# Bytes that cannot be decoded are read as these characters, from U+DC80 for the byte 0x80 on
_BAD_BYTE = re.compile("[\udc80-\udcff]")
# For each encoding, a pattern that a text must have before the encoding is certain. Four accented
# letters in a row are another alphabet.
_ENCODINGS = {
    "utf-16": r"\A[ -~\xa0-\u04ff]{3}",
    "shift_jis": "[\u3041-\u30fa]{2}",
    "cp1252": r"(?s)\A(?!.*[\x00-\x08])(?!.*[\xc0-\xff]{4})",
}


def rows_of(lines: Iterable[str], separator: str, first: int = 1) -> Iterator[Row]:
    """Yield the rows that are not blank.

    A row that the module `csv` cannot read is the last one, and has no values.

    Args:
        lines: The lines, with their ends.
        separator: The character between two values.
        first: Number of the first line.
    """
    reader = csv.reader(lines, delimiter=separator)
    line = first
    with contextlib.suppress(csv.Error):
        for cells in reader:
            if cells:
                yield line, cells
            line = first + reader.line_num
        return
    yield line, []


def column_names(cells: Iterable[str]) -> list[str]:
    """Return the column names that pandas would use.

    An empty name at index N becomes `Unnamed: N`.
    """
    return [name or f"Unnamed: {i}" for i, name in enumerate(cells)]


def first_lines_problem(lines: Sequence[str], read: ReadKeys, separator: str) -> str | None:
    """Return what is wrong with the first lines of a text file, and how `data.read` corrects it.

    Return None if nothing is.

    Args:
        lines: The lines after those that `read` skips. At least one is not blank.
        read: Settings for reading the file.
        separator: The character between two values, as `read` or the suffix of the file gives it.
    """
    first = read.skip_lines + 1
    rows = list(rows_of(lines, separator, first))
    if text := bad_byte_problem(rows, read.encoding):
        return text
    text = ""
    fix: Fix = {}
    likely = separator
    if len(rows[0][1]) == 1 and not read.separator:
        likely = _guess_separator(lines, separator)
    if likely != separator:
        rows = list(rows_of(lines, likely, first))
        text = f"the values seem to be separated by {flow(likely)}; "
        fix["separator"] = likely
        if any(_DECIMAL_COMMA.fullmatch(cell) for _, cells in rows for cell in cells):
            fix["decimal"] = ","
    width = statistics.mode(len(cells) for _, cells in rows)
    _, header = rows[0]
    if not read.names and len(header) <= width:
        problem, header_fix = _header_problem(rows, width)
        text += problem
        fix |= header_fix
    table = [cells for _, cells in rows if len(cells) == len(header)]
    if read.names and not {*header} <= {*read.names} and _is_header(table):
        text += f"line {first} looks like names, not like values: `{','.join(header)[:60]}`; "
        fix["skip_lines"] = first
    if not fix:
        return None
    defaults = vars(READ_DEFAULTS)
    keys = {key: value for key, value in vars(read).items() if value != defaults[key]}
    return f"{text}add `data.read: {flow(keys | fix)}`"


def _guess_separator(lines: Sequence[str], separator: str) -> str:
    """Return the separator that most lines have; `separator` if this is not clear."""
    sniffer = csv.Sniffer()
    sniffer.preferred = [*_SEPARATORS]
    second_half = "".join(lines[len(lines) // 2 :])  # titles would mislead the sniffer
    with contextlib.suppress(csv.Error):
        return sniffer.sniff(second_half, _SEPARATORS).delimiter
    return separator


def _header_problem(rows: Sequence[Row], width: int) -> tuple[str, Fix]:
    """Return what is wrong with the header of a table, and the keys of `data.read` for it.

    Args:
        rows: The rows from the first line on, which is not wider than the table.
        width: The number of values in most rows.
    """
    text = ""
    fix: Fix = {}
    start, cells = rows[0]
    # A title that ends with separators is as wide as the table, but has only its first value.
    ignored = 1 if width > 2 else 0
    table = [row for row in rows if len(row[1]) == width and any(row[1][ignored:])]
    line, header = table[0]
    lacks_header = _lacks_header([values for _, values in table])
    # The first line is a header without a name for the first column or for an empty last one.
    lacks_one_name = width > 2 and len(cells) == width - 1 and all(cells)
    if lacks_header and lacks_one_name and line == rows[1][0]:
        text += f"line {start} has {len(cells)} names, but the rows have {width} values; "
        last_is_empty = not any(values[-1] for _, values in table)
        fix["skip_lines"] = start
        fix["names"] = [*cells, "empty"] if last_is_empty else ["row", *cells]
        lacks_header = False
    elif line > start:
        text += f"the table seems to begin in line {line}; "
        fix["skip_lines"] = line - 1
    if lacks_header:
        text += (
            f"line {line} looks like values, not like names: `{','.join(header)[:60]}`; if "
            "this line is no header, name the columns: "
        )
        fix["names"] = [f"c{i + 1}" for i in range(width)]
    if len(table) > 1 and "names" not in fix:
        units_line, units = table[1]
        if any(units) and all(map(_UNIT.fullmatch, units)):
            text += f"line {units_line} has units, not values; "
            fix |= {"skip_lines": units_line, "names": header}
    return text, fix


def _is_header(rows: Sequence[Sequence[str]]) -> bool:
    """Return whether the first row has only words, and a column below it has only numbers."""
    below = [{*values} - _MISSING for values in zip(*rows[1:], strict=True)]
    numbers = [values and not any(map(_LETTER.search, values)) for values in below]
    return all(map(_LETTER.search, rows[0])) and any(numbers)


def _lacks_header(rows: Sequence[Sequence[str]]) -> bool:
    """Return whether the first row looks like the rows below it.

    All rows have the same number of values.

    Names may be numbers: a single 0 or year, or numbers at equal distances, as in a table that
    pandas wrote without names.
    """
    repeated: list[bool] = []  # for each column, whether its first value occurs again
    numbers: list[str] = []  # the numbers in the first row
    for cell, *values in zip(*rows, strict=True):
        are_words = [bool(_LETTER.search(value)) for value in values if value not in _MISSING]
        if cell in _MISSING or not are_words:
            continue
        repeated.append(cell in values)
        if not _LETTER.search(cell):
            numbers.append(cell)
        elif sum(are_words) < len(are_words) / 2:
            return False  # a name above numbers
    if 2 * sum(repeated) >= len(repeated):  # names seldom occur again as values
        return bool(repeated)
    if len(numbers) == 1:
        return not re.fullmatch(r"0|(19|20)\d\d", numbers[0])
    try:
        steps = {*np.diff([float(number) for number in numbers]).round(9)}
    except ValueError:
        return True
    # Names such as 2019, 2020 and 2021 have equal distances. Without numbers, there are no steps.
    is_series = steps <= {1} or (len(steps) == 1 and len(numbers) > 2)
    return not is_series


def rows_problem(
    rows: Iterator[Row], names: Sequence[str], encoding: str, file: str = "rows.csv"
) -> str | None:
    """Return what is wrong with the rows of a text file; None if nothing is.

    Args:
        rows: The rows below the header.
        names: The names of the columns, from `column_names`.
        encoding: The encoding with which the file was read.
        file: Name of the file.
    """
    repeats = []
    for line, cells in rows:
        if _BAD_BYTE.search("".join(cells)):
            return bad_byte_problem([(line, cells), *itertools.islice(rows, 1000)], encoding)
        if len(cells) != len(names):
            return (
                f"line {line} has {len(cells)} values, but there are {len(names)} names; correct "
                "this line, or put quotes around a value that contains a separator or a line feed"
            )
        if column_names(cells) == names:
            repeats.append(line)
    if not repeats:
        return None
    verb = "row repeats" if len(repeats) == 1 else "rows repeat"
    return (
        f"{len(repeats)} {verb} the header (first: line {repeats[0]}); leave them out with "
        f"`awk 'NR == 1 {{h = $0}} NR == 1 || $0 != h' {file} > clean.csv`"
    )


def bad_byte_problem(rows: Sequence[Row], encoding: str) -> str | None:
    """Return a message about the first byte that cannot be decoded, with the likely encoding.

    Return None if there is no such byte.
    """
    for line, cells in rows:
        if match := _BAD_BYTE.search("".join(cells)):
            byte = f"byte 0x{ord(match[0]) - 0xDC00:02x}, line {line}"
            sample = "\n".join(cell for _, cells in rows for cell in cells)
            advice = encoding_advice(sample.encode(encoding, "surrogateescape"))
            return f"it is not {encoding.upper()} text ({byte}); {advice}"
    return None


def encoding_advice(data: bytes) -> str:
    """Return what to do about a file with bytes that are not UTF-8."""
    for name, pattern in _ENCODINGS.items():
        with contextlib.suppress(UnicodeDecodeError):
            if re.search(pattern, data.decode(name)):
                return (
                    f"it is probably {name}: add `data.read: {{encoding: {name}}}`, or convert it "
                    f"with `iconv -f {name} -t utf-8`"
                )
    return (
        "name its encoding, such as `data.read: {encoding: cp1252}`, or convert the file to UTF-8"
    )

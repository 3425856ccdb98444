"""The shape of text files: what is wrong with the first lines and with all rows, and how
`data.read` corrects it.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sweeps.core.errors import InputError
from sweeps.data.load_data import load_splits
from sweeps.data.sources.data_files import Source, find_files, unsupported_text
from sweeps.data.sources.file_blocks import COLUMN_BLOCK
from sweeps.data.sources.schema_probe import probe_schemas
from sweeps.data.sources.sources import read_source
from sweeps.data.sources.text_shape import (
    column_names,
    encoding_advice,
    first_lines_problem,
    rows_of,
    rows_problem,
)
from sweeps.data.summary.early_summary import TableReader
from sweeps.space.sections.data_models import READ_DEFAULTS, DataSpec, ReadKeys, Split


def problem(text: str, separator: str = ",", read: ReadKeys = READ_DEFAULTS) -> str | None:
    return first_lines_problem(text.splitlines(keepends=True), read, separator)


def fix(text: str, separator: str = ",") -> str:
    message = problem(text, separator)
    return "" if message is None else message.partition("`data.read: ")[2].rstrip("`")


# ---- the header


@pytest.mark.parametrize(
    "text",
    [
        "5.1,3.5,1.4,a\n4.9,3.0,1.4,a\n6.2,2.9,4.3,b\n",
        "ann,34,52000,yes\nbob,51,48000,no\ncid,29,61500,yes\n",
        "2020-01-01,north,12\n2020-01-02,south,9\n2020-01-03,north,14\n",
        "red,small,yes\nblue,large,no\nred,large,yes\nblue,small,yes\n",
        "12:30,$4.50,7\n12:45,$3.20,5\n13:00,$4.10,7\n",
        "0,1\n1,0\n0,0\n1,1\n0,1\n",
        "?,12.5,1\n3,NA,0\n4,11.0,1\n",
        ",3.5,x\n1,2.5,y\n2,1.5,x\n",
        "1.5e+02\n7.5e+01\n1.4e+02\n2.0e+02\n",
        "2019,5,1\n2020,7,0\n2021,4,1\n2019,6,1\n",
        '"1","a,b","yes"\n"2","c","no"\n"7","a,b","yes"\n',
    ],
)
def test_a_first_line_of_values_is_no_header(text: str) -> None:
    width = len(next(rows_of(text.splitlines(), ","))[1])
    assert fix(text) == f"{{names: [{', '.join(f'c{i + 1}' for i in range(width))}]}}"


@pytest.mark.parametrize(
    "text",
    [
        "a,b\n1,2\n3,4\n",
        ",a,b\n0,1,x\n1,2,y\n",
        "a,b,,\n1,2,,\n3,4,,\n",
        "0,1,2,label\n0.5,0.1,7.5,a\n0.4,0.2,7.1,b\n",
        "0,1,2,3\n0.5,0.1,7.5,1\n0.4,0.2,7.1,0\n",
        "region,2019,2020,2021\nnorth,1.5,2.5,3.5\nsouth,4.5,5.5,6.5\n",
        "sample,400,410,420,430\ns1,0.11,0.12,0.13,0.14\ns2,0.21,0.22,0.23,0.24\n",
        "name,color\nann,red\nbob,blue\ncid,red\n",
        "#,name,power\n1,x,40\n2,y,50\n",
        "<DATE>,<OPEN>\n20200101,1.5\n20200102,1.6\n",
        "name,0\nx,1.5\ny,2.5\n",
        "y,x\ny,1\nn,2\ny,3\n",
        "only\n1\n2\n",
        "a,b\n",
        "price,note\n$5,n/a\n$6,NA\n",
    ],
)
def test_names_of_columns_may_be_odd(text: str) -> None:
    assert problem(text) is None


def test_a_header_is_named_by_the_key_names_even_if_it_is_odd() -> None:
    text = "5.1,2.7\n4.9,3.0\n6.2,2.9\n"
    assert problem(text, read=ReadKeys(names=("5.1", "2.7"))) is None
    assert "`5.1,2.7`" in str(problem(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Report\na,b,c\n1,2,x\n3,4,y\n", "{skip_lines: 1}"),
        ("Report\n\nMade by me,\na,b,c\n1,2,x\n3,4,y\n", "{skip_lines: 3}"),
        ("Report,,\n,,\na,b,c\n1,2,x\n3,4,y\n", "{skip_lines: 2}"),
        ('"Two\nlines"\na,b,c\n1,2,x\n3,4,y\n', "{skip_lines: 2}"),
        ("# comment\n# more\na,b\n1,2\n3,4\n", "{skip_lines: 2}"),
        ("x,k,y\n[kg],[m],[-]\n1,2,a\n3,4,b\n", "{skip_lines: 2, names: [x, k, y]}"),
        ("Report\n1.5,2,x\n3,4,y\n5,4,x\n", "{skip_lines: 1, names: [c1, c2, c3]}"),
        # a header that lacks the name of a column, as R writes it
        ("a,b\nx,21,6\ny,30,4\nz,44,7\n", "{skip_lines: 1, names: [row, a, b]}"),
    ],
)
def test_titles_above_the_table(text: str, expected: str) -> None:
    assert fix(text) == expected


@pytest.mark.parametrize(
    ("text", "separator", "expected"),
    [
        ("a;b;y\n1;2;0\n3;4;1\n", ",", '{separator: ";"}'),
        ("a;b;y\n1,5;2,5;0\n3,5;4,5;1\n", ",", '{separator: ";", decimal: ","}'),
        (
            "Umsatz\n\na;b;y\n1,5;x;0\n3,5;z;1\n2,5;x;0\n",
            ",",
            '{separator: ";", decimal: ",", skip_lines: 2}',
        ),
        ("a\tb\n1\t2\n3\t4\n", ",", r'{separator: "\t"}'),
        ("a|b|c\n1|2|x, y\n3|4|z\n", ",", '{separator: "|"}'),
        ("a,b\n1,2\n3,4\n", "\t", '{separator: ","}'),
        ("a b\n1 2\n3 4\n", ",", '{separator: " "}'),
    ],
)
def test_another_separator(text: str, separator: str, expected: str) -> None:
    assert fix(text, separator) == expected


def test_the_keys_that_are_given_stay_in_the_advice() -> None:
    read = ReadKeys(separator=";", encoding="cp1252")
    assert str(problem("Title\na;b\n1;2\n3;4\n", ";", read)).endswith(
        '`data.read: {separator: ";", encoding: cp1252, skip_lines: 1}`'
    )


def test_header_wider_than_rows_is_left_to_row_check() -> None:
    assert problem("a,b,c\n1,2\n3,4\n") is None


# ---- all rows


def check(text: str, encoding: str = "utf-8") -> str | None:
    rows = rows_of(text.splitlines(keepends=True), ",")
    return rows_problem(rows, column_names(next(rows)[1]), encoding)


def test_a_header_with_one_name_fewer_than_the_values() -> None:
    rows = "x,k,y\n0.2,9,a{0}\n0.3,8,b{0}\n0.4,8,a{0}\n"
    assert fix(rows.format(",")) == "{skip_lines: 1, names: [x, k, y, empty]}"
    numbered = "x,y\n1,0.5,a\n2,0.7,b\n3,0.1,a\n"
    assert fix(numbered) == "{skip_lines: 1, names: [row, x, y]}"
    assert fix("Sales, 2024\na,b,c\n1,2,3\n4,5,6\n") == "{skip_lines: 1}"


def test_names_are_not_given_to_a_file_that_has_a_header() -> None:
    rows = "x,k,y\n0.2,9,a\n0.3,8,b\n"
    message = problem(rows, read=ReadKeys(names=("a", "b", "c")))
    assert (
        message is not None and "line 1 looks like names" in message and "skip_lines: 1" in message
    )
    assert problem(rows, read=ReadKeys(names=("x", "k", "y", "extra"))) is None
    assert problem("red,small\nblue,large\n", read=ReadKeys(names=("a", "b"))) is None


@pytest.mark.parametrize(
    ("content", "skip", "message"),
    [
        (
            b"x,y\n1,2\n3\0,4\n",
            0,
            "line 3 has a NUL byte: it is no text, or remove the byte with `tr -d '\\0'`",
        ),
        (b"x,y\n1,2\n", 9, "it has only blank lines after the 9 lines of `skip_lines`"),
    ],
)
def test_a_nul_byte_and_too_many_skipped_lines_are_named(
    tmp_path: Path, content: bytes, skip: int, message: str
) -> None:
    (tmp_path / "rows.csv").write_bytes(content)
    files = find_files(Source("rows.csv", tmp_path, "data.train", read=ReadKeys(skip_lines=skip)))
    with pytest.raises(InputError) as e:
        probe_schemas(files)
    assert message in e.value.problems[0].text


def test_lines_are_counted_as_an_editor_counts_them() -> None:
    text = 'a,b\n\n"1\n2",3\n\n4,5,6\n'
    assert str(check(text)).startswith("line 6 has 3 values, but there are 2 names")
    assert check(text.replace("4,5,6", "4,5")) is None
    assert "(first: line 6)" in str(check(text.replace("4,5,6", "a,b")))


def test_repeated_headers_are_counted() -> None:
    text = "a,b,\n1,2,\na,b,\n3,4,\na,b,\n"
    assert str(check(text)).startswith("2 rows repeat the header (first: line 3)")


def test_a_value_that_the_module_csv_cannot_read_is_named() -> None:
    assert str(check('a,b\n1,"' + "x" * 200_000 + '"\n')).startswith("line 2 has 0 values")


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        ("name\ncafé\n".encode("cp1252"), "cp1252"),
        ("it\x92s £5\n".encode("latin-1"), "cp1252"),
        ("name,y\nx,1\n".encode("utf-16"), "utf-16"),
        ("name,y\nx,1\n".encode("utf-16-le"), "utf-16"),
        ("名前\nさくら\n".encode("shift_jis"), "shift_jis"),
        ("имя\nПривет\n".encode("cp1251"), None),
        (b"\x00\x01\x02\xff", None),
    ],
)
def test_an_encoding_is_named_if_it_is_certain(data: Any, encoding: str | None) -> None:
    advice = encoding_advice(data)
    assert f"it is probably {encoding}" in advice if encoding else "name its encoding" in advice


# ---- reading


def refused(folder: Path, name: str, content: bytes | str, read: ReadKeys = READ_DEFAULTS) -> str:
    (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    texts = []
    for reader in (read_source, TableReader(False), TableReader(True)):  # run, plan and init
        with pytest.raises(InputError) as e:
            reader(Source(name, folder, "data.train", read=read))
        texts.append(e.value.problems[0].text)
    assert len(set(texts)) == 1
    return texts[0]


def rows(folder: Path, name: str, content: bytes | str, **read: Any) -> pa.Table:
    (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return read_source(Source(name, folder, "data.train", read=ReadKeys(**read)))


LATE = "a,b\n" + "".join(f"{i},plain\n" for i in range(9000))


@pytest.mark.parametrize("suffix", ["csv", "csv.gz"])
def test_a_late_byte_is_a_problem(tmp_path: Path, suffix: str) -> None:
    content = (LATE + "9000,café\n9001,thé\n").encode("cp1252")
    content = gzip.compress(content, mtime=0) if suffix.endswith("gz") else content
    assert (
        "it is not UTF-8 text (byte 0xe9, line 9002); it is probably cp1252: "
        "add `data.read: {encoding: cp1252}`"
    ) in refused(tmp_path, f"rows.{suffix}", content)
    table = read_source(Source(f"rows.{suffix}", tmp_path, "x", read=ReadKeys(encoding="cp1252")))
    assert table["b"].to_pylist()[-2:] == ["café", "thé"]


def test_a_late_header_and_a_late_broken_row_are_problems(tmp_path: Path) -> None:
    assert "2 rows repeat the header (first: line 9002)" in refused(
        tmp_path, "rows.csv", LATE + LATE + LATE
    )
    assert "line 9002 has 3 values" in refused(tmp_path, "rows.csv", LATE + "1,2,3\n")


@pytest.mark.parametrize(
    ("content", "read"),
    [
        ("1,u\n2,v\n", {"names": ["a", "b"]}),
        ("a,b\n1,u\n2,v\n", {"names": ["a", "b"]}),
        ("Title\n\nx,y\n1,u\n2,v\n", {"names": ["a", "b"], "skip_lines": 3}),
        ("Title\n\na,b\n1,u\n2,v\n", {"skip_lines": 2}),
        ("Title\r\n\r\na,b\r\n1,u\r\n2,v\r\n", {"skip_lines": 2}),
        ("a;b\n1;u\n2;v\n", {"separator": ";"}),
        ("\ufeffa,b\n1,u\n2,v\n", {}),
        ("\ufeff1,u\n2,v\n", {"names": ["a", "b"]}),
        ("a,b\n1,u\n2,v\n".encode("utf-16"), {"encoding": "utf-16"}),
    ],
)
def test_one_key_says_what_the_file_cannot(tmp_path: Path, content: Any, read: Any) -> None:
    assert rows(tmp_path, "rows.csv", content, **read).to_pydict() == {"a": [1, 2], "b": ["u", "v"]}


def test_decimal_commas(tmp_path: Path) -> None:
    text = "a;b;c;d;e\n1,5;1.234,5;1.234;x,5y;\n-,25;2.000.000;5;1,5,5;7,0\n"
    table = rows(tmp_path, "rows.csv", text, separator=";", decimal=",")
    assert table.to_pydict() == {
        "a": [1.5, -0.25],
        "b": [1234.5, 2000000.0],
        "c": [1234, 5],
        "d": ["x,5y", "1,5,5"],
        "e": [None, 7.0],
    }


def test_rows_longer_than_a_block_are_read_with_the_keys(tmp_path: Path) -> None:
    long = "x" * (COLUMN_BLOCK + 10)
    table = rows(tmp_path, "rows.csv", f"title\na;b\n1;u\n2;{long}\n", separator=";", skip_lines=1)
    assert table["a"].to_pylist() == [1, 2] and table["b"].to_pylist()[1] == long


def test_files_of_one_source_may_have_their_columns_in_another_order(tmp_path: Path) -> None:
    (tmp_path / "year=2020").mkdir()
    (tmp_path / "year=2020" / "1.csv").write_text("a,b\n1,x\n")
    (tmp_path / "year=2020" / "2.csv").write_text("b,a\ny,2\n")
    table = read_source(Source(".", tmp_path, "data.train"))
    assert table.to_pydict() == {"a": [1, 2], "b": ["x", "y"], "year": [2020, 2020]}


def test_columns_without_names_and_values_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,,y,,\n" + "".join(f"{i},k,{i % 2},,\n" for i in range(9)))
    spec = DataSpec("rows.csv", "y", Split("fraction", fraction=0.3), None, None, tmp_path)
    splits = load_splits(spec)
    assert splits.features == ("a", "Unnamed: 1") and splits.notes == (
        "left out `Unnamed: 3`, which has no name and no values",
        "left out `Unnamed: 4`, which has no name and no values",
    )


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.ndjson", "rows.JSONL.gz"])
def test_json_lines(tmp_path: Path, name: str) -> None:
    lines = [{"a": 1, "b": "2020-01-01"}, {"b": None, "a": 2.5, "c": True}, {"a": None, "b": "007"}]
    text = "\n\n".join(map(json.dumps, lines)).encode()
    table = rows(tmp_path, name, gzip.compress(text, mtime=0) if name.endswith("gz") else text)
    assert table.to_pydict() == {
        "a": [1.0, 2.5, None],
        "b": ["2020-01-01", None, "007"],
        "c": [None, True, None],
    }


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("book.xlsx", 'pandas.read_excel("book.xlsx")'),
        ("rows.ods", "pandas.read_excel"),
        ("rows.feather", "pandas.read_feather"),
        ("rows.sas7bdat", "pandas.read_sas"),
        ("rows.db", 'pandas.read_sql("SELECT * FROM my_table", "sqlite:///rows.db")'),
        ("rows.txt", 'pandas.read_csv("rows.txt", sep=None, engine="python")'),
    ],
)
def test_other_formats_are_named_with_a_loader(tmp_path: Path, name: str, call: str) -> None:
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(InputError) as e:
        read_source(Source(name, tmp_path, "data.train"))
    assert call in str(e.value) and 'data.train: "my_loader:rows"' in str(e.value)
    assert "loader" not in unsupported_text("rows.unknown")


def test_a_file_is_read_with_its_keys(tmp_path: Path) -> None:
    (tmp_path / "rows.tsv").write_text("a\n")
    read = ReadKeys(decimal=",")
    assert find_files(Source("rows.tsv", tmp_path, "data.train", read=read)).read is read

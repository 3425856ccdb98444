"""The key `data.read` of the space file."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweeps.bundle.sweep_models import SweepModels
from sweeps.core.errors import InputError
from sweeps.space import load
from sweeps.space.sections.data_models import READ_DEFAULTS, ReadKeys
from sweeps.study.study_store import StudyStore
from tests.bad_input import top


def read(folder: Path, keys: str) -> ReadKeys:
    text = f"{{train: rows.csv, label: y, valid: 0.25, read: {keys}}}"
    (folder / "space.yaml").write_text(top(data=text))
    return load(folder / "space.yaml", []).data.read


def test_keys_are_read(tmp_path: Path) -> None:
    keys = r'{names: [a, "", y], skip_lines: 2, separator: "\t", decimal: ",", encoding: cp1252}'
    assert read(tmp_path, keys) == ReadKeys(("a", "", "y"), 2, "\t", ",", "cp1252")
    assert read(tmp_path, "{}") == read(tmp_path, "null") == READ_DEFAULTS


def test_a_bundle_knows_the_keys(tmp_path: Path) -> None:
    read(tmp_path, '{separator: ";"}')
    space = load(tmp_path / "space.yaml", [])
    facts = SweepModels(StudyStore(tmp_path, space), space, ()).facts("")
    assert ReadKeys(**facts["read"]) == ReadKeys(separator=";")


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ("{sep: x}", "data.read.sep: unknown key; "),
        ("{separator: ab}", 'data.read.separator: must be one character, such as ";"'),
        ("{separator: é}", "data.read.separator: must be one character"),
        ("{encoding: cp99}", "data.read.encoding: must be an encoding of Python, such as utf-8"),
        ("{encoding: base64}", "data.read.encoding: must be an encoding of Python"),
        ("{decimal: x}", "data.read.decimal: must be . or ,, got x"),
        ("[a]", "data.read: must be a mapping with keys names, skip_lines, separator"),
    ],
)
def test_a_wrong_key_gets_one_line(tmp_path: Path, keys: str, text: str) -> None:
    with pytest.raises(InputError) as e:
        read(tmp_path, keys)
    (problem,) = e.value.problems
    assert text in str(problem)

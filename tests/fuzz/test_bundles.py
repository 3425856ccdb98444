"""Damaged manifests and metadata of bundles are refused in a line, and nothing of them is run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.bundle import integrity, manifest
from tests.fuzz.harness import damage, damaged, fuzzed, held
from tests.fuzz.test_space_files import trees

TEXT = {"MLmodel": "flavors: {}\n", "conda.yaml": "dependencies: []\n"}


def list_files(folder: Path, files: dict[str, str]) -> None:
    (folder / "manifest.json").write_text(json.dumps({"format": 2, "files": files}))
    integrity.write_hashes(folder)


def verified(folder: Path) -> bool:
    return not isinstance(
        held(folder, lambda: integrity.verify_hashes(folder), (integrity.IntegrityError,)),
        integrity.IntegrityError,
    )


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A folder with the files of a bundle, sealed, that would fail to load."""
    folder = tmp_path / "in"
    (folder / "code").mkdir(parents=True)
    for name, text in TEXT.items():
        (folder / name).write_text(text)
    (folder / "code" / "bomb.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    list_files(folder, manifest.hash_files(folder))
    return folder


@pytest.mark.parametrize("name", ["manifest.sha256", "manifest.json", "MLmodel"])
def test_damaged_bytes(bundle: Path, name: str) -> None:
    whole = (bundle / name).read_bytes()

    @fuzzed
    @given(damage)
    def check(how: list[tuple[float, int, bytes]]) -> None:
        changed = damaged(whole, how)
        (bundle / name).write_bytes(changed)
        assert verified(bundle) == (changed == whole)
        held(bundle, lambda: manifest.Manifest.read(bundle))

    check()


def test_lists_that_name_other_places(bundle: Path) -> None:
    files = manifest.hash_files(bundle)

    @fuzzed
    @given(st.text(alphabet="./ab\\\n\t~$*", min_size=1, max_size=20))
    def check(name: str) -> None:
        list_files(bundle, files | {name: "0" * 64})
        assert not verified(bundle)

    check()


def test_manifests_of_any_shape(bundle: Path) -> None:
    @fuzzed
    @given(trees)
    def check(tree: object) -> None:
        (bundle / "manifest.json").write_text(json.dumps(tree))
        held(bundle, lambda: manifest.Manifest.read(bundle))

    check()

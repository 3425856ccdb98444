"""Files of a sweep's folder: links are not followed, and pipes do not block."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from sweeps.core.errors import UnreadableFile
from sweeps.core.files.folder_lock import FolderLock, is_driven
from sweeps.core.files.json_files import read_json
from sweeps.core.files.regular_files import (
    FILE,
    FOLDER,
    kind_of,
    open_regular,
    read_bytes,
    unreadable,
)
from sweeps.core.files.sweep_folder import LOCK, refuse_other_entries

KINDS = ["a folder", "a link", "a pipe", "a socket"]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a path in a sweep's folder, beside a secret file."""
    (tmp_path / "secret").write_text("{}")
    (tmp_path / "sweep").mkdir()
    return tmp_path / "sweep" / "file"


def plant(place: Path, kind: str) -> None:
    if kind == "a folder":
        place.mkdir()
    elif kind == "a link":
        place.symlink_to(place.parent.parent / "secret")
    elif kind == "a pipe":
        os.mkfifo(place)
    else:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(place))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", ["rb", "ab", "r+b"])
def test_only_a_regular_file_is_opened(place: Any, kind: Any, mode: str) -> None:
    plant(place, kind)
    expected = f"{place}: is {kind}, but must be a file"
    with pytest.raises(UnreadableFile) as e, open(place, mode, opener=open_regular):
        pass
    assert str(e.value).startswith(expected) and "\n" not in str(e.value)
    with pytest.raises(UnreadableFile):
        read_bytes(place)
    assert kind_of(place) == kind and read_json(place) is None
    assert (place.parent.parent / "secret").read_text() == "{}"


def test_a_refused_file_does_not_stay_open(place: Path) -> None:
    plant(place, "a pipe")
    before = os.listdir("/proc/self/fd")
    for _ in range(3):
        with pytest.raises(UnreadableFile):
            os.close(open_regular(place, os.O_RDONLY))
    assert os.listdir("/proc/self/fd") == before


def test_a_file_that_cannot_be_read_has_a_reason(place: Path) -> None:
    error = unreadable(place, OSError(13, "Permission denied"))
    assert str(error).startswith(f"{place}: cannot be read: Permission denied; check the perm")


def test_a_regular_file_is_read_and_a_missing_file_is_an_error(place: Any) -> None:
    assert kind_of(place) is None
    with pytest.raises(FileNotFoundError):
        read_bytes(place)
    place.write_bytes(b"5")
    assert read_bytes(place) == b"5" and read_json(place) == 5
    assert kind_of(place) == FILE and kind_of(place.parent) == FOLDER


@pytest.mark.parametrize("kind", KINDS)
def test_a_lock_of_another_kind_is_no_driver_and_cannot_be_locked(place: Any, kind: Any) -> None:
    plant(place.with_name(LOCK), kind)
    assert not is_driven(place.parent)
    with pytest.raises(UnreadableFile, match=f"is {kind}, but must be a file"):
        FolderLock(place.parent)


@pytest.mark.parametrize(
    "name",
    [
        "origin.json",
        "code-2.diff",
        "sweep.log",
        "commands",
        "tune",
        "trials/0003",
        "trials/0003/logs",
        "trials/0003/files",
        "trials/0003/checkpoint_000001",
        "trials/0003/logs/rank-0.log",
        "trials/0003/mlflow.json",
        "tables/train.lazy.mac",
        "functions/train_1.py",
        "prepared/facts.json",
        "prepared/0a/preprocessor.json",
        "tensorboard/0003",
    ],
)
@pytest.mark.parametrize("kind", ["a link", "a pipe"])
def test_each_entry_of_a_sweep_must_be_of_its_kind(place: Any, name: str, kind: str) -> None:
    wrong = place.parent / name
    wrong.parent.mkdir(parents=True, exist_ok=True)
    plant(wrong, kind)
    with pytest.raises(UnreadableFile, match=f"{wrong}: is {kind}, but must be a f"):
        refuse_other_entries(place.parent)


def test_entries_that_sweeps_does_not_use_are_allowed(place: Any) -> None:
    (place.parent / "trials" / "0003" / "files").mkdir(parents=True)
    for name in ("notes", "trials/latest", "trials/0003/files/latest", ".space.yaml.part"):
        (place.parent / name).symlink_to(place)
    refuse_other_entries(place.parent)

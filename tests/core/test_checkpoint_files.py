"""The contract of a trial's checkpoints, on disk and in a store."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sweeps.core.files import stores
from sweeps.core.files.checkpoint_files import (
    checkpoint_exists,
    checkpoint_names,
    checkpoint_root_in,
    checkpoint_sizes,
    copy_checkpoint,
    delete_checkpoint,
    local_checkpoint,
    upload_checkpoint,
)
from tests.s3 import storage

FIRST = "checkpoint_000001"
SECOND = "checkpoint_000002_of_0004"
SWEEPS = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    with storage() as server:
        yield server


@pytest.fixture(params=["disk", "s3"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The folder of a trial's checkpoints: a path, or an address in a store."""
    folder = tmp_path / "churn" / "trials" / "0003"
    folder.mkdir(parents=True)
    if request.param == "disk":
        return checkpoint_root_in(None, folder)
    request.getfixturevalue("server")
    return checkpoint_root_in(f"s3://bucket/{next(SWEEPS)}", folder)


@pytest.fixture
def save(tmp_path: Path) -> Callable[[str], None]:
    """Write a checkpoint of five bytes in two files."""

    def save(checkpoint: str) -> None:
        is_stored = checkpoint.startswith("s3://")
        folder = tmp_path / "new" if is_stored else Path(checkpoint)
        (folder / "deep").mkdir(parents=True)
        (folder / "model").write_bytes(b"123")
        (folder / "deep" / "state").write_bytes(b"45")
        if is_stored:
            upload_checkpoint(folder, checkpoint)
            shutil.rmtree(folder)

    return save


def files_of(checkpoint: str) -> dict[str, bytes]:
    with local_checkpoint(checkpoint) as folder:
        return {
            str(file.relative_to(folder)): file.read_bytes()
            for file in folder.rglob("*")
            if file.is_file()
        }


def test_the_root_is_a_path_or_an_address() -> None:
    assert (
        checkpoint_root_in(None, "sweeps-runs/churn/trials/0003") == "sweeps-runs/churn/trials/0003"
    )
    address = checkpoint_root_in("s3://bucket/churn", "sweeps-runs/churn/trials/0003")
    assert address == "s3://bucket/churn/trials/0003"


def test_a_trial_without_checkpoints_has_no_names(root: Any) -> None:
    assert checkpoint_names(root) == []
    assert checkpoint_sizes(root) == {}


def test_checkpoints_are_listed_with_their_sizes(root: Any, save: Any) -> None:
    save(f"{root}/{SECOND}")
    save(f"{root}/{FIRST}")
    assert checkpoint_names(root) == [FIRST, SECOND]
    assert checkpoint_sizes(root) == {FIRST: 5, SECOND: 5}
    assert checkpoint_exists(f"{root}/{FIRST}")


def test_a_checkpoint_is_read_as_a_local_folder(root: Any, save: Any) -> None:
    save(f"{root}/{FIRST}")
    assert files_of(f"{root}/{FIRST}") == {"model": b"123", "deep/state": b"45"}
    with local_checkpoint(f"{root}/{FIRST}") as folder:
        pass
    assert folder.exists() == (not root.startswith("s3://")), "a copy of stored files is deleted"


def test_a_copy_stays_when_its_source_is_deleted(root: Any, save: Any) -> None:
    save(f"{root}/{FIRST}")
    assert copy_checkpoint(f"{root}/{FIRST}", f"{root}/{SECOND}") == f"{root}/{SECOND}"
    assert delete_checkpoint(f"{root}/{FIRST}")
    assert checkpoint_names(root) == [SECOND]
    assert files_of(f"{root}/{SECOND}") == {"model": b"123", "deep/state": b"45"}


def test_a_checkpoint_is_deleted_alone_and_deleted_again(root: Any, save: Any) -> None:
    save(f"{root}/{FIRST}")
    save(f"{root}/{SECOND}")
    for _ in range(2):
        assert delete_checkpoint(f"{root}/{FIRST}")
        assert not checkpoint_exists(f"{root}/{FIRST}")
    assert checkpoint_names(root) == [SECOND]


def test_a_missing_checkpoint_is_named(root: Any) -> None:
    missing = f"{root}/{FIRST}"
    with (
        pytest.raises(FileNotFoundError, match=f"checkpoint {missing} was deleted"),
        local_checkpoint(missing),
    ):
        pass
    with pytest.raises(FileNotFoundError):
        copy_checkpoint(missing, f"{root}/{SECOND}")
    assert checkpoint_names(root) == []


@pytest.mark.parametrize("root", ["s3"], indirect=True)
def test_a_storage_that_does_not_answer_deletes_nothing(
    root: str, save: Any, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(f"{root}/{FIRST}")
    opened = stores.open_store
    monkeypatch.setattr(stores, "open_store", lambda address: opened(address, patient=False))
    with server.failing():
        assert not delete_checkpoint(f"{root}/{FIRST}")
    assert checkpoint_names(root) == [FIRST]


@pytest.mark.parametrize("links", [True, False], ids=["linked", "copied"])
def test_files_of_a_copy_on_disk_are_linked_if_possible(
    tmp_path: Path, save: Any, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    def refuse(*args: Any) -> None:
        raise OSError(errno.EPERM, "no hard links here")

    source = tmp_path / FIRST
    target = tmp_path / SECOND
    save(str(source))
    (target.with_name(f"{target.name}.part") / "torn").mkdir(parents=True)
    if not links:
        monkeypatch.setattr(os, "link", refuse)
    assert copy_checkpoint(source, str(target)) == str(target)
    assert sorted(path.name for path in target.rglob("*")) == ["deep", "model", "state"]
    assert (target / "deep" / "state").samefile(source / "deep" / "state") is links


def test_an_interrupted_deletion_on_disk_leaves_no_checkpoint(
    tmp_path: Path, save: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = tmp_path / FIRST
    save(str(checkpoint))
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda *args, **options: None)
        assert not delete_checkpoint(checkpoint)
    assert not checkpoint.exists()
    rest = tmp_path / f"{FIRST}.gone"
    assert checkpoint_sizes(tmp_path) == {rest.name: 5}
    assert delete_checkpoint(rest)
    assert not list(tmp_path.glob("checkpoint_*"))

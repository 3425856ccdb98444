"""The contract of a store, on each file system on which the tests use one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from sweeps.core.errors import StoreError
from sweeps.core.files.stores import Store, open_store
from tests.s3 import Storage, storage

PREFIXES = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[Storage]:
    with storage() as server:
        yield server


@pytest.fixture
def bucket_store(server: Any) -> Store:
    """An empty store in S3, whose requests are not repeated."""
    return open_store(f"s3://bucket/sweeps/{next(PREFIXES)}", patient=False)


@pytest.fixture
def folder_store(tmp_path: Path) -> Store:
    """An empty store on disk, as tests without a server use it."""
    return Store(fs.LocalFileSystem(), str(tmp_path / "store"), "s3://bucket/sweeps")


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest) -> Store:
    fixture = {"folder": "folder_store", "s3": "bucket_store"}[request.param]
    store: Store = request.getfixturevalue(fixture)
    return store


@pytest.fixture
def local(tmp_path: Path) -> Any:
    """A folder with two files, one of them in a folder of its own."""
    local = tmp_path / "local"
    (local / "b").mkdir(parents=True)
    (local / "one").write_bytes(b"1")
    (local / "b" / "two").write_bytes(b"22")
    return local


def below(store: Store, name: str) -> Store:
    """Return the store at an address below the one of a store."""
    return Store(store.system, f"{store.root}/{name}", f"{store.address}/{name}")


def content_of(store: Store, name: str, tmp_path: Path) -> bytes:
    store.get(name, tmp_path / "read")
    return (tmp_path / "read").read_bytes()


def test_an_empty_store_has_no_files(store: Any) -> None:
    assert store.files() == {}
    assert store.files("trials") == {}
    assert store.file("trials") is None


def test_a_file_comes_back_as_it_was(store: Any, local: Any, tmp_path: Path) -> None:
    store.put(local / "one", "single")
    assert store.files() == {"single": 1}
    assert store.file("single").size == 1
    assert content_of(store, "single", tmp_path) == b"1"


def test_a_folder_comes_back_as_it_was(store: Any, local: Any, tmp_path: Path) -> None:
    store.put(local, "trials/a")
    assert store.files() == {"trials/a/one": 1, "trials/a/b/two": 2}
    assert store.files("trials/a") == {"one": 1, "b/two": 2}
    assert store.file("trials/a") is None, "a folder is no file"
    store.get("trials/a", tmp_path / "back")
    files = {
        str(file.relative_to(tmp_path / "back")): file.read_bytes()
        for file in (tmp_path / "back").rglob("*")
        if file.is_file()
    }
    assert files == {"one": b"1", "b/two": b"22"}


def test_files_below_a_name_are_not_those_with_a_longer_name(store: Any, local: Any) -> None:
    store.put(local, "trials/0001")
    store.put(local, "trials/00012")
    assert set(store.files("trials/0001")) == {"one", "b/two"}
    store.delete("trials/0001")
    assert set(store.files("trials")) == {"00012/one", "00012/b/two"}


def test_a_file_is_not_listed_below_itself(store: Any, local: Any) -> None:
    store.put(local / "one", "single")
    assert store.files("single") == {}


def test_a_file_is_overwritten(store: Any, local: Any, tmp_path: Path) -> None:
    store.put(local / "b" / "two", "single")
    store.put(local / "one", "single")
    assert store.files() == {"single": 1}
    assert content_of(store, "single", tmp_path) == b"1"


def test_a_source_that_does_not_exist_is_ignored(store: Any, tmp_path: Path) -> None:
    store.put(tmp_path / "none", "single")
    assert store.files() == {}


def test_a_missing_file_is_named(store: Any, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=f"{store.address}/single does not exist"):
        store.get("single", tmp_path / "file")
    assert not (tmp_path / "file").exists()
    with pytest.raises(FileNotFoundError, match=f"{store.address} does not exist"):
        store.copy_to(below(store, "copy"))


def test_files_and_folders_are_deleted_and_deleted_again(store: Any, local: Any) -> None:
    store.put(local, "trials/a")
    store.put(local / "one", "single")
    for _ in range(2):
        store.delete("single")
        assert set(store.files()) == {"trials/a/one", "trials/a/b/two"}
    for _ in range(2):
        store.delete("trials/a")
        assert store.files() == {}
    store.put(local / "one", "single")
    store.delete()
    assert store.files() == {}


def test_all_files_are_copied_to_another_address(store: Any, local: Any) -> None:
    store.put(local, "trials/a")
    below(store, "trials/a").copy_to(below(store, "trials/b"))
    assert store.files("trials/b") == store.files("trials/a") == {"one": 1, "b/two": 2}


@pytest.mark.parametrize(
    "name", ["with space", "ü-日本", "100%25", "a+b&c=d", "it's", ".hidden", "#1?", "x" * 200]
)
def test_names_may_have_unusual_characters(
    store: Any, local: Any, tmp_path: Path, name: Any
) -> None:
    store.put(local, f"trials/{name}")
    store.put(local / "one", f"trials/{name}/{name}")
    assert store.files() == {
        f"trials/{name}/one": 1,
        f"trials/{name}/b/two": 2,
        f"trials/{name}/{name}": 1,
    }
    assert content_of(store, f"trials/{name}/{name}", tmp_path) == b"1"
    store.delete(f"trials/{name}/{name}")
    assert set(store.files(f"trials/{name}")) == {"one", "b/two"}


def large_file(tmp_path: Path) -> tuple[bytes, Path]:
    """Return the content and the path of a file that is sent to S3 in several requests."""
    content = bytes(range(256)) * (24 * 2**20 // 256)
    (tmp_path / "large").write_bytes(content)
    return content, tmp_path / "large"


def test_a_large_file_comes_back_as_it_was(store: Any, tmp_path: Path) -> None:
    content, file = large_file(tmp_path)
    store.put(file, "large")
    assert store.files() == {"large": len(content)}
    assert content_of(store, "large", tmp_path) == content


@pytest.mark.parametrize("answers", [0, 1, 2, 4])
def test_an_interrupted_write_leaves_the_earlier_file_or_none(
    server: Any, bucket_store: Any, local: Any, tmp_path: Path, answers: int
) -> None:
    content, file = large_file(tmp_path)
    bucket_store.put(local / "one", "earlier")
    for name in ("earlier", "new"):
        expected = f"^{bucket_store.address}/{name} cannot be written: "
        with server.failing(after=answers), pytest.raises(StoreError, match=expected):
            bucket_store.put(file, name)
        assert bucket_store.files() == {"earlier": 1}
    bucket_store.put(file, "new")
    assert bucket_store.files() == {"earlier": 1, "new": len(content)}


def test_a_storage_that_does_not_answer_is_a_store_error(
    server: Any, bucket_store: Any, local: Any, tmp_path: Path
) -> None:
    bucket_store.put(local, "trials/a")
    requests: tuple[Callable[[], object], ...] = (
        lambda: bucket_store.put(local / "one", "single"),
        lambda: bucket_store.get("trials/a", tmp_path / "back"),
        lambda: bucket_store.file("trials/a/one"),
        lambda: bucket_store.files(),
        lambda: bucket_store.copy_to(below(bucket_store, "copy")),
        lambda: bucket_store.delete("trials/a"),
    )
    for request in requests:
        expected = f"^{bucket_store.address}.* cannot be "
        with server.failing(), pytest.raises(StoreError, match=expected):
            request()
    assert set(bucket_store.files()) == {"trials/a/one", "trials/a/b/two"}


@pytest.mark.parametrize("name", ["../outside", "b/../../outside"])
def test_a_file_whose_name_leads_out_of_its_folder_is_refused(
    server: Any, bucket_store: Any, tmp_path: Path, name: str
) -> None:
    root = bucket_store.root.removeprefix("bucket/")
    server.put(f"{root}/trials/a/{name}", b"1")
    with pytest.raises(StoreError, match="leads out of its folder; delete this object"):
        bucket_store.get("trials/a", tmp_path / "deep" / "back")
    assert not list(tmp_path.rglob("outside"))


def test_concurrent_deletion_of_folder_is_no_error(folder_store: Any, local: Any) -> None:
    folder_store.put(local / "one", "folder/one")
    system = folder_store.system

    class Raced:
        get_file_info = system.get_file_info

        def delete_dir(self, path: Any) -> None:
            system.delete_dir(path)  # The other thread.
            system.delete_dir(path)

    folder_store.system = Raced()
    folder_store.delete("folder")
    folder_store.system = system
    assert folder_store.files() == {}

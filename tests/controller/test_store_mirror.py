"""Which files of a sweep are copied to its store, when, and who may resume a sweep in a store."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.core.errors import InputError, StoreError, SweepLocked, SweepsError
from sweeps.core.files import stores
from sweeps.core.files.file_format import FORMAT
from sweeps.core.files.stores import Store
from sweeps.core.host.processes import start_time
from sweeps.runs import api
from sweeps.stored import store_mirror, stored_sweeps
from sweeps.stored.store_driver import DEAD_AFTER, Driver, read_driver
from sweeps.stored.store_mirror import (
    StoreMirror,
    changed_files,
    copy_order,
    find_files,
    is_copied,
)
from tests.commands import space_of
from tests.s3 import folder_as_bucket
from tests.waiting import wait_until

NAME = "churn-20260102-120000"
ADDRESS = f"s3://bucket/{NAME}"


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A folder in place of the bucket."""
    return folder_as_bucket(tmp_path / "bucket", (stores, store_mirror, stored_sweeps), monkeypatch)


@pytest.fixture
def folder(tmp_path: Path) -> Any:
    folder = tmp_path / "runs" / NAME
    (folder / "bundle" / "model").mkdir(parents=True)
    (folder / "origin.json").write_text(json.dumps({"format": FORMAT, "store": ADDRESS}))
    (folder / "study.journal").write_text("1\n2\n3")
    (folder / "bundle" / "model" / "weights").write_text("w")
    (folder / "bundle" / "manifest.json").write_text("{}")
    (folder / "lock").write_text("1")
    (folder / ".part").write_text("1")
    (folder / "trials" / "0000").mkdir(parents=True)
    (folder / "trials" / "0000" / "log").write_text("1")
    return folder


def names_in(bucket: Any) -> set[str]:
    return {
        path.relative_to(bucket / NAME).as_posix()
        for path in (bucket / NAME).rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize(
    "name",
    [
        "lock",
        "ray.json",
        "trials/0000/x",
        ".a/b",
        "prepared/.x.part",
        "tune/x",
        "driver.json",
        "commands/1.json",
    ],
)
def test_files_of_this_machine_stay(name: str) -> None:
    assert not is_copied(name)


FILES = st.dictionaries(
    st.sampled_from(["a", "b/manifest.json", "origin.json", "result.json"]),
    st.tuples(st.integers(0, 2), st.just(0)),
)


@given(before=FILES, now=FILES, result=st.tuples(st.integers(0, 2), st.just(0)))
def test_after_a_round_the_store_has_the_files_of_the_folder(
    before: Any, now: Any, result: Any
) -> None:
    changed, gone = changed_files(before, now, result)
    after = {name: state for name, state in before.items() if name not in gone} | {
        name: now[name] for name in changed
    }
    waits = {"result.json"} if now.get("result.json") != result else set()
    assert {n: s for n, s in after.items() if n not in waits} == {
        n: s for n, s in now.items() if n not in waits
    }
    assert changed == copy_order(changed)
    if "result.json" in changed:
        assert now["result.json"] == result and changed[-1] == "result.json", (
            "the study is there before the result that counts it"
        )


def test_a_round_copies_whole_lines_of_the_study_and_deletes_what_is_gone(
    bucket: Any, folder: Any
) -> None:
    mirror = StoreMirror(folder, ADDRESS)
    mirror.detach()
    assert names_in(bucket) == {
        "origin.json",
        "study.journal",
        "bundle/manifest.json",
        "bundle/model/weights",
        "driver.json",
    }
    assert (bucket / NAME / "study.journal").read_text() == "1\n2\n"
    (folder / "study.journal").write_text("1\n2\n3\n")
    (folder / "result.json").write_text("{}")
    mirror.save_study()
    assert (
        bucket / NAME / "study.journal"
    ).read_text() == "1\n2\n3\n" and "result.json" not in names_in(bucket)
    (folder / "bundle" / "manifest.json").unlink()
    mirror.close(patient=False)
    assert names_in(bucket) == {
        "origin.json",
        "study.journal",
        "bundle/model/weights",
        "result.json",
        "driver.json",
    }
    assert mirror.problem is None
    driver = read_driver(stores.open_store(ADDRESS))
    assert driver is not None and driver.ended and driver.is_here
    assert not [name for name in os.listdir(folder) if name.startswith(".") and name != ".part"]


def test_at_the_end_a_silent_storage_leaves_a_note(
    folder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Silent:
        def __getattr__(self, name: Any) -> None:
            raise StoreError(f"{ADDRESS} cannot be written: no")

    monkeypatch.setattr(store_mirror, "open_store", lambda address, patient=True: Silent())
    mirror = StoreMirror(folder, ADDRESS)
    with pytest.raises(StoreError):
        mirror.start()
    mirror.close(patient=True)
    assert mirror.problem is not None and mirror.problem.startswith(
        f"{ADDRESS} cannot be written: no; the newest files are only in {folder}"
    )


@pytest.mark.parametrize(
    "left",
    [
        {"host": "elsewhere", "pid": 7},
        {"host": "elsewhere", "pid": 7, "ended": True},
    ],
    ids=["the other process runs", "it has ended"],
)
def test_silent_process_changes_nothing_after_takeover(bucket: Any, folder: Any, left: Any) -> None:
    stores.allow(ADDRESS)
    text = "process 7 on elsewhere has taken over this sweep; this process has stopped"
    with pytest.raises(SweepsError, match=text), store_mirror.mirror_to_store(folder) as mirror:
        (bucket / NAME / "study.journal").write_text("of the other process")
        (bucket / NAME / "driver.json").write_text(json.dumps(left))
        (folder / "study.journal").write_text("1\n2\n3\n4\n")
        assert mirror is not None
        with pytest.raises(StoreError, match="has taken over this sweep"):
            mirror.save_study()
        assert mirror.taken_over
    assert (bucket / NAME / "study.journal").read_text() == "of the other process"


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "x" * 2**17,
        '{"host": 1, "pid": 1}',
        '{"host": "a", "pid": true}',
        '{"host": "\\u0000", "pid": 1}',
    ],
)
def test_an_odd_driver_file_names_nobody_and_is_written_again(
    bucket: Any, folder: Any, content: Any
) -> None:
    (bucket / NAME).mkdir()
    (bucket / NAME / "driver.json").write_text(content)
    store = stores.open_store(ADDRESS)
    assert read_driver(store) is None
    mirror = StoreMirror(folder, ADDRESS)
    mirror.detach()
    (bucket / NAME / "driver.json").write_text(content)
    mirror.detach()
    driver = read_driver(store)
    assert driver is not None and driver.is_here and not mirror.taken_over


def test_a_folder_in_place_of_the_driver_file_names_nobody(bucket: Any) -> None:
    (bucket / NAME / "driver.json" / "x").mkdir(parents=True)
    (bucket / NAME / "driver.json" / "y").write_text("{}")
    assert read_driver(stores.open_store(ADDRESS)) is None


def test_the_driver_is_renewed_while_a_large_file_is_copied(
    bucket: Any, folder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise another machine could take over the sweep after a minute."""
    monkeypatch.setattr(store_mirror, "INTERVAL", 0.01)
    mirror, driver = StoreMirror(folder, ADDRESS), bucket / NAME / "driver.json"
    mirror.start()
    (folder / "large").write_text("x")
    put, renewed = Store.put, []

    def seen() -> float:
        return driver.stat().st_mtime if driver.exists() else 0.0

    def waits(store: Any, source: Any, name: Any) -> None:
        if name == "large":
            before = wait_until(seen, 10, "driver.json")
            renewed.append(wait_until(lambda: seen() > before, 10, "driver.json to be renewed"))
        put(store, source, name)

    monkeypatch.setattr(Store, "put", waits)
    wait_until(lambda: "large" in names_in(bucket), 20, "the file to be copied")
    mirror.close(patient=False)
    assert renewed and mirror.problem is None


def test_a_sweep_without_a_store_has_no_mirror(tmp_path: Path) -> None:
    with store_mirror.mirror_to_store(tmp_path) as mirror:
        assert mirror is None


HERE = Driver.here()


@pytest.mark.parametrize(
    ("driver", "silence"),
    [
        (Driver("there", 1, seen=97.0), 3.0),
        (Driver("there", 1, seen=100.0 - DEAD_AFTER), None),
        (Driver("there", 1, seen=97.0, ended=True), None),
        (Driver("there", 1, seen=100.0 + 86400.0), 0.0),
        (Driver(HERE.host, 2**22 + 1, 5.0, seen=97.0), None),
        (Driver(HERE.host, os.getppid(), start_time(os.getppid()), seen=97.0), 3.0),
        (Driver(HERE.host, os.getppid(), start_time(os.getppid()), seen=100.0 - 86400.0), 86400.0),
        (Driver(HERE.host, os.getppid(), -1.0, seen=97.0), None),
        (HERE, None),
    ],
)
def test_a_driver_lives_until_it_ends_or_is_silent_on_another_machine(
    driver: Any, silence: float | None
) -> None:
    """The driver of this machine lives as long as its process, also if the clock jumps."""
    assert driver.silence(100.0) == silence


def test_only_the_clock_of_the_storage_counts(bucket: Any) -> None:
    (bucket / NAME).mkdir()
    file = bucket / NAME / "driver.json"
    file.write_text(json.dumps({"host": "elsewhere", "pid": 7, "seen": time.time() + 86400}))
    os.utime(file, (100, 100))
    driver = read_driver(stores.open_store(ADDRESS))
    assert driver == Driver("elsewhere", 7, seen=100.0)


def test_a_sweep_that_runs_elsewhere_cannot_be_fetched(
    bucket: Any, folder: Any, tmp_path: Path
) -> None:
    StoreMirror(folder, ADDRESS).close(patient=False)
    (bucket / NAME / "driver.json").write_text(json.dumps({"host": "elsewhere", "pid": 7}))
    with pytest.raises(SweepLocked, match="process 7 on elsewhere was running this sweep"):
        stored_sweeps.fetch(ADDRESS, tmp_path / "other")
    (bucket / NAME / "driver.json").write_text(json.dumps(asdict(Driver.here())))
    fetched = stored_sweeps.fetch(ADDRESS, tmp_path / "other")
    assert fetched == tmp_path / "other" / NAME and set(find_files(fetched)) == names_in(bucket) - {
        "driver.json"
    }
    assert stores.store_of(fetched) == ADDRESS and not list((tmp_path / "other").glob(".*"))


@pytest.mark.parametrize(
    ("local", "stored", "after"),
    [
        ("1\n2\n3\n", "1\n2\n", "1\n2\n3\n"),
        ("1\n", "1\n2\n", "1\n2\n"),
        ("1\n2\n3\n", "1\n9\n", "1\n9\n"),
        ("1\n", "1\n", "1\n"),
        ("1\n", "", "1\n"),
    ],
)
def test_a_local_study_stays_only_if_it_continues_the_study_in_the_store(
    bucket: Any, folder: Any, local: str, stored: str, after: str
) -> None:
    StoreMirror(folder, ADDRESS).close(patient=False)
    (bucket / NAME / "driver.json").unlink()
    (bucket / NAME / "study.journal").write_text(stored)
    if not stored:
        (bucket / NAME / "study.journal").unlink()
    (folder / "study.journal").write_text(local)
    (folder / "report.html").write_text("later than the store")
    assert stored_sweeps.fetch(ADDRESS, folder.parent) == folder
    assert (folder / "study.journal").read_text() == after
    assert (folder / "report.html").exists() == local.startswith(stored) and (
        folder / "trials" / "0000" / "log"
    ).exists()


def test_a_folder_of_another_sweep_is_not_overwritten(bucket: Any, folder: Any) -> None:
    StoreMirror(folder, ADDRESS).close(patient=False)
    (folder / "origin.json").write_text("{}")
    with pytest.raises(InputError, match="belongs to a sweep on this disk"):
        stored_sweeps.fetch(ADDRESS, folder.parent)


def test_a_store_must_name_itself(bucket: Any, tmp_path: Path) -> None:
    (bucket / NAME).mkdir()
    (bucket / NAME / "origin.json").write_text(
        json.dumps({"format": FORMAT, "store": "s3://bucket/of-somebody-else"})
    )
    with pytest.raises(InputError, match="names the store s3://bucket/of-somebody-else"):
        stored_sweeps.fetch(ADDRESS, tmp_path / "other")
    assert not list((tmp_path / "other").iterdir())


def test_names_in_a_store(bucket: Any) -> None:
    for name in ("churn-20260102-120000", "churn-20260103-120000", "wine-20260101-120000"):
        (bucket / "all" / name).mkdir(parents=True)
        (bucket / "all" / name / "origin.json").write_text("{}")

    def find(sweep: Any) -> Any:
        return stored_sweeps.find(sweep, "s3://bucket/all")

    assert find("churn") == find("latest") == "s3://bucket/all/churn-20260103-120000"
    assert (
        find("wi")
        == "s3://bucket/all/wine-20260101-120000"
        == stored_sweeps.find("s3://bucket/all/wine-20260101-120000/", ".")
    )
    with pytest.raises(InputError, match="several sweeps in s3://bucket/all match"):
        find("churn-2026")
    with pytest.raises(InputError, match="no sweep in s3://bucket/all matches"):
        find("iris")


def test_a_new_sweep_leaves_the_files_of_another_sweep_with_its_name(
    bucket: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two machines may start the same space file in the same second."""
    monkeypatch.chdir(tmp_path)
    (bucket / NAME).mkdir()
    (bucket / NAME / "origin.json").write_text("of the other sweep")

    def create(root: Any, name: Any, started: Any) -> Any:
        (tmp_path / "runs" / NAME).mkdir(parents=True)
        return tmp_path / "runs" / NAME

    monkeypatch.setattr(api, "create_sweep_folder", create)
    with pytest.raises(InputError, match=f"{ADDRESS} has files already"):
        api.run(space_of(tmp_path, "plain"), dir="s3://bucket")
    assert (bucket / NAME / "origin.json").read_text() == "of the other sweep" and not (
        tmp_path / "runs" / NAME
    ).exists()

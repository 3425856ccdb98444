"""A study in a real PostgreSQL: the same trials as in the journal, and its password nowhere."""

from __future__ import annotations

import errno
import io
import json
import os
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy.exc

from sweeps import InputError
from sweeps.core.errors import DamagedStudy
from sweeps.core.files.file_format import FORMAT
from sweeps.core.text.secrets import without_password
from sweeps.search import optuna_asker
from sweeps.search.search_loop import SearchLoop
from sweeps.space.python.saved_space import save_space
from sweeps.study import record_reader, storage
from sweeps.study.journal import Journal
from sweeps.study.study_store import StudyStore
from tests.commands import command, space_of
from tests.postgres import PASSWORD, server
from tests.search.deaths import Killed
from tests.search.test_crash import BODY, drive, outcome
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with server() as running:
        yield running


@pytest.fixture
def fresh_url(url: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The URL; what a test tells this process of its password is forgotten."""
    monkeypatch.setattr(storage, "_full_urls", {})
    return url


def folder_in(space: Any, folder: Path, url: str) -> Path:
    folder.mkdir()
    save_space(folder, space, 1.0, **storage.new_settings(url, folder.name))
    return folder


KINDS: dict[str, dict[str, Any]] = {
    "asha": {"max_trials": 6},
    "repeats": {"max_trials": 3, "scheduler": "{name: none, max_t: 9}", "extra": "repeats: 2"},
}


@pytest.mark.integration
@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", ["asha", pytest.param("repeats", marks=pytest.mark.extended)])
def test_a_study_in_postgresql_is_the_same_and_goes_on_after_a_kill(
    make_space: Any, fresh_url: Any, tmp_path: Path, kind: str
) -> None:
    space = make_space(BODY, **KINDS[kind])
    (tmp_path / "journal").mkdir()
    expected = outcome(drive(space, tmp_path / "journal"))
    folder = folder_in(space, tmp_path / "kept", fresh_url)
    for owner, name, nth in ((optuna_asker, "suggest", 5), (StudyStore, "end", 2)):
        whole, count = getattr(owner, name), 0

        def dying(*args: Any, whole: Any = whole, nth: Any = nth, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            if count == nth:
                raise Killed
            return whole(*args, **kwargs)

        with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
            patch.setattr(owner, name, dying)
            drive(space, folder)
    assert outcome(drive(space, folder)) == expected
    assert (
        PASSWORD not in (folder / "origin.json").read_text()
        and not (folder / "study.journal").exists()
    )
    shown = record_reader.read(folder)
    assert shown is not None and len(shown.trials) == 6
    other = folder_in(space, tmp_path / "other", fresh_url)
    assert record_reader.read(other) is None and SearchLoop.open(other, space).to_run == 6, (
        "a sweep has a study of its own"
    )


@pytest.mark.integration
def test_a_wrong_password_is_said_without_it(fresh_url: Any) -> None:
    wrong = fresh_url.replace(PASSWORD, "wr0ng")
    with pytest.raises(InputError, match="password authentication failed") as e:
        storage.connect(wrong)
    assert "wr0ng" not in str(e.value) and "$PGPASSWORD" in str(e.value)


@pytest.mark.long
@pytest.mark.timeout(240)
def test_sweep_in_postgresql_works_and_hides_password(
    fresh_url: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = space_of(tmp_path, "plain", limits="max_trials: 2")
    said: list[str] = []

    def run(*args: object, code: int = 0) -> str:
        out, err = (process := command(*args)).communicate(timeout=100)
        assert process.returncode == code, err
        said.extend((out, err))
        return out

    result = json.loads(
        run("run", file, "--dir", tmp_path / "runs", "--storage", fresh_url, "--json")
    )
    folder = Path(result["dir"])
    run("show", folder, code=2)  # without the password
    assert "taken from $PGPASSWORD" in said[-1]
    more = json.loads(run("resume", folder, "--storage", fresh_url, "--add-trials", "1", "--json"))
    assert more["trials"]["completed"] == 3
    assert "3 completed" in run("resume", folder, "--storage", fresh_url)
    monkeypatch.setitem(os.environ, "PGPASSWORD", PASSWORD)
    assert len(json.loads(run("show", folder, "--json"))["all"]) == 3
    run("export", folder, "--trial", "0")
    assert (
        "the study of this sweep is in "
        in (run("resume", folder, "--storage", fresh_url + "2", code=2), said[-1])[1]
    )
    for text in said:
        assert PASSWORD not in text
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or PASSWORD.encode() not in path.read_bytes(), path


@pytest.mark.timeout(60)
@pytest.mark.parametrize("method", [3, 5], ids=["plain text", "MD5"])
@pytest.mark.parametrize("is_given", [False, True], ids=["from a folder", "given by the user"])
def test_a_strangers_server_does_not_learn_the_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: int, is_given: bool
) -> None:
    monkeypatch.setattr(storage, "_full_urls", {})
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    monkeypatch.delenv("PGREQUIREAUTH", raising=False)
    received = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def ask_for_the_password() -> None:
            client, _ = server.accept()
            with client:
                client.recv(1000)  # the request for TLS
                client.sendall(b"N")
                client.recv(1000)  # the name of the user
                salt = b"salt" if method == 5 else b""
                client.sendall(b"R" + struct.pack("!II", 8 + len(salt), method) + salt)
                received.append(client.recv(1000))

        thread = threading.Thread(target=ask_for_the_password)
        thread.start()
        url = f"postgresql://me@127.0.0.1:{server.getsockname()[1]}/db?gssencmode=disable"
        if is_given:
            storage.remember_secrets(url)
        with pytest.raises(InputError, match="--storage") as e:
            storage.connect(url)
        thread.join(20)
    assert (b"p" in received[0][:1]) == is_given
    assert ("set PGREQUIREAUTH" in str(e.value)) == (not is_given)


@pytest.mark.parametrize(
    "url", ["postgres://h/d", "mysql://me:hidden@h/d", "study.db", "sqlite:///x.db"]
)
def test_any_other_url_is_refused(url: str) -> None:
    with pytest.raises(InputError, match="--storage: must be postgresql://") as e:
        storage.new_settings(url, "x")
    assert "hidden" not in str(e.value)


def test_the_password_is_kept_for_this_process_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "_full_urls", {})
    url = "postgresql://me:a%40b@host/db?password=x"
    bare = without_password(url)
    assert bare == "postgresql://me@host/db"
    (tmp_path / "origin.json").write_text(
        json.dumps({"format": FORMAT, "storage": bare, "study": "s-1"})
    )
    assert storage.place_of(tmp_path) == (bare, "s-1")
    assert storage.remember_secrets("postgresql://me:a%40b@host/db") == bare
    assert storage.place_of(tmp_path) == ("postgresql://me:a%40b@host/db", "s-1")


def test_a_record_that_could_not_be_written_leaves_no_part_of_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path / "journal")
    journal.append_logs([{"a": 1}])

    class Full(io.FileIO):
        def write(self, data: Any) -> Any:
            if len(data) > 8:
                return super().write(bytes(data[:8]))
            raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patch:
        patch.setattr(
            "sweeps.study.journal.open",
            lambda path, mode, **how: Full(path, mode),
            raising=False,
        )
        with pytest.raises(OSError, match="no space"):
            journal.append_logs([{"b": 2}, {"c": 3}])
    journal.append_logs([{"d": 4}])
    assert [json.loads(line) for line in (tmp_path / "journal").read_text().splitlines()] == [
        {"a": 1},
        {"d": 4},
    ]


def test_the_reason_why_a_study_is_not_written_is_one_line() -> None:
    full = RuntimeError("Optuna's")
    full.__cause__ = OSError(errno.ENOSPC, "x")
    assert storage.outage(full) == "the sweep's folder cannot be written: No space left on device"
    away = RuntimeError("Optuna's")
    away.__context__ = sqlalchemy.exc.OperationalError(
        "select", {}, Exception("server closed the connection\nhint")
    )
    assert (
        storage.outage(away) == "the study's database does not answer: server closed the connection"
    )
    assert (
        storage.outage(OSError(errno.EPERM, "x")) is None
        and storage.outage(ValueError("x")) is None
    )


@pytest.mark.faults
@pytest.mark.timeout(180)
def test_lost_database_ends_sweep_in_one_line_and_resume_continues(
    tmp_path: Path,
) -> None:
    file = space_of(tmp_path, "held", limits="max_trials: 2, max_concurrent_trials: 1")
    with server() as url:
        process = command("run", file, "--dir", tmp_path / "runs", "--storage", url)
        wait_until(lambda: list(tmp_path.glob("own-0000.two")), 120, "the first trial to hold")
    (tmp_path / "go").touch()
    _, err = process.communicate(timeout=100)
    last = err.strip().splitlines()[-1]
    assert process.returncode == 1 and "Traceback" not in err and PASSWORD not in err, err
    assert "the study's database does not answer: " in last and "; to continue the sweep: " in last


def test_an_error_of_optuna_names_the_last_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(journal: Journal) -> None:
        journal.line = 7
        raise ValueError("no such trial")

    monkeypatch.setattr("sweeps.study.journal.JournalStorage", fail)
    (tmp_path / "study.journal").touch()
    rule = r"study.journal:7: is a record that Optuna cannot load: ValueError: no such trial"
    with pytest.raises(DamagedStudy, match=rule):
        Journal(tmp_path / "study.journal").storage()

"""Commands to a sweep whose process runs on another machine and shares only a store."""

from __future__ import annotations

import json
import threading

import pytest

from sweeps.controller import store_driver
from sweeps.controller.commands import (
    MAX_BYTES,
    Answer,
    CommandQueue,
    Enqueue,
    Pause,
    answer_name,
    read_answer,
)
from sweeps.controller.control import SweepControl
from sweeps.controller.store_commands import CommandExchange, StoreChannel
from sweeps.core import stores
from sweeps.core.errors import SweepsError
from sweeps.core.file_format import FORMAT
from sweeps.core.sweep_folder import COMMANDS
from tests.commands import invoke
from tests.controller.test_store_mirror import ADDRESS, NAME, bucket, folder

__all__ = ["bucket", "folder"]


@pytest.fixture
def driver(bucket):
    """Say in the store that a process on another machine runs the sweep.

    The function that the fixture returns ends the process.
    """
    file = bucket / NAME / "driver.json"
    file.parent.mkdir()
    driver = {"host": "there", "pid": 1}
    file.write_text(json.dumps(driver))
    (bucket / NAME / "origin.json").write_text(json.dumps({"format": FORMAT, "store": ADDRESS}))
    return lambda: file.write_text(json.dumps(driver | {"ended": True}))


def stored(bucket) -> set[str]:
    queue = bucket / NAME / COMMANDS
    return {path.name for path in queue.iterdir()} if queue.exists() else set()


def test_a_command_goes_through_the_store_and_its_answer_comes_back(bucket, folder, driver):
    store = stores.open_store(ADDRESS)
    channel, exchange, queue = StoreChannel(store), CommandExchange(folder), CommandQueue(folder)
    exchange.exchange(store)
    assert channel.is_driven()
    name = channel.send(Pause())
    assert channel.answer(name) is None and stored(bucket) == {name}
    exchange.exchange(store)
    assert not stored(bucket) and (folder / COMMANDS / name).exists()
    queue.poll(lambda command, id: Answer(f"{command.command} {id}"))
    exchange.exchange(store)
    assert channel.answer(name) == Answer(f"pause {name.removesuffix('.json')}")
    assert not stored(bucket) and not list((folder / COMMANDS).iterdir())
    taken_back = channel.send(Pause())
    channel.withdraw(taken_back)
    exchange.exchange(store)
    assert not list((folder / COMMANDS).iterdir())
    driver()
    assert not channel.is_driven()


def test_only_commands_are_taken_from_the_store(bucket, folder, driver):
    store, queue = stores.open_store(ADDRESS), bucket / NAME / COMMANDS
    queue.mkdir()
    large, answer, other = f"{1:020d}-1.json", f"{2:020d}-1.answer", "stop.json"
    (queue / large).write_bytes(b" " * (MAX_BYTES + 1))
    (queue / answer).write_text("{}")
    (queue / other).write_text("{}")
    CommandExchange(folder).exchange(store)
    assert stored(bucket) == {large, other}, "an answer of an earlier process is deleted"
    assert not (folder / COMMANDS).exists()


def test_a_configuration_in_the_store_waits_for_the_next_process(bucket, folder, driver):
    store = stores.open_store(ADDRESS)
    channel, exchange = StoreChannel(store), CommandExchange(folder)
    names = [channel.send(Pause()), channel.send(Enqueue({"eta": 0.5}))]
    exchange.exchange(store)
    CommandQueue(folder).discard_stale()
    exchange.exchange(store)
    answer = channel.answer(names[0])
    assert answer is not None and "sent to an earlier process" in answer.problems[0]
    assert (
        read_answer(folder / COMMANDS / names[1]) is None
        and (folder / COMMANDS / names[1]).exists()
    )


def test_entries_of_another_kind_do_not_stop_the_exchange(bucket, folder, driver, tmp_path):
    channel, exchange = StoreChannel(stores.open_store(ADDRESS)), CommandExchange(folder)
    names = [channel.send(Pause()), channel.send(Pause())]
    local = folder / COMMANDS
    (local / names[0]).mkdir(parents=True)
    (tmp_path / "secret").write_text("secret")
    (local / answer_name(names[1])).symlink_to(tmp_path / "secret")
    exchange.exchange(stores.open_store(ADDRESS))
    exchange.exchange(stores.open_store(ADDRESS))
    assert not stored(bucket), "a link is not copied to the store"
    assert (local / names[1]).is_file() and (local / names[0]).is_dir()


def test_the_command_line_controls_a_sweep_of_another_machine(
    bucket, folder, driver, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(StoreChannel, "interval", 0.01)
    store, ended = stores.open_store(ADDRESS), threading.Event()
    exchange, queue = CommandExchange(folder), CommandQueue(folder)

    def run() -> None:
        while not ended.wait(0.01):
            exchange.exchange(store)
            queue.poll(lambda command, name: Answer("paused; no new trial starts"))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        for args in ((ADDRESS,), ("churn", "--dir", "s3://bucket")):
            assert invoke("pause", *args).output == f"{NAME}: paused; no new trial starts\n"
    finally:
        ended.set()
        thread.join()
    driver()
    with pytest.raises(SweepsError, match="no process runs this sweep"):
        SweepControl.of(ADDRESS).pause()


def test_a_sweep_whose_driver_was_deleted_still_takes_commands(bucket, folder, driver, monkeypatch):
    """The process that runs the sweep writes the file again within seconds."""
    file = bucket / NAME / "driver.json"
    content = file.read_text()
    file.unlink()
    monkeypatch.setattr(store_driver.time, "sleep", lambda seconds: file.write_text(content))
    assert StoreChannel(stores.open_store(ADDRESS)).is_driven()

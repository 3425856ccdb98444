"""Send HTTP requests as another account of this machine, or from another address."""

from __future__ import annotations

import contextlib
import ctypes
import http.client
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

NOBODY = 65534
CLONE_NEWNET = 0x40000000


@dataclass(frozen=True)
class Answer:
    """The answer to a request.

    Attributes:
        status: The HTTP status; 0 if nothing listens.
        text: The body, or the reason why there is no answer.
    """

    status: int
    text: str


def request(
    address: str, port: int, method: str, path: str, body: Any = None, **headers: str
) -> Answer:
    """Send a request from this process. `_` in the name of a header stands for `-`."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    sent.setdefault("Content-Type", "application/json")
    connection = http.client.HTTPConnection(address, port, timeout=20)
    try:
        connection.request(method, path, None if body is None else json.dumps(body), sent)
        answer = connection.getresponse()
        return Answer(answer.status, answer.read().decode(errors="replace"))
    except OSError as e:
        return Answer(0, str(e))
    finally:
        connection.close()


def as_nobody(function: Callable[[], Answer]) -> Answer:
    """Call a function in a child process that runs under the account `nobody`."""
    if os.getuid() != 0:
        pytest.skip("only root can run code under another account")

    def become_nobody() -> None:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)

    return _in_child(function, become_nobody)


class OtherHost:
    """A network namespace of the test, with an address of its own.

    Attributes:
        address: Address of this machine, as the other host sees it.
    """

    def __init__(self, name: str, address: str):
        self.name = name
        self.address = address

    def call(self, function: Callable[[], Answer]) -> Answer:
        """Call a function in a child process on the other host."""

        def enter() -> None:
            libc = ctypes.CDLL(None, use_errno=True)
            with open(f"/run/netns/{self.name}") as namespace:
                if libc.setns(namespace.fileno(), CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), "setns")

        return _in_child(function, enter)


@contextlib.contextmanager
def other_host() -> Iterator[OtherHost]:
    """Make a network namespace that is connected with this machine, and remove it at the end."""
    name = f"sweeps{os.getpid()}"
    ours = f"sw{os.getpid() % 10**8}"
    if os.getuid() != 0 or shutil.which("ip") is None:
        pytest.skip("needs root and the command `ip`, as `apt-get install iproute2` brings it")
    if subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode != 0:
        pytest.skip("this machine allows no network namespaces")
    try:
        inside = ["ip", "-n", name]
        for command in (
            ["ip", "link", "add", ours, "type", "veth", "peer", "name", "eth0", "netns", name],
            ["ip", "address", "add", "10.213.7.1/30", "dev", ours],
            ["ip", "link", "set", ours, "up"],
            [*inside, "address", "add", "10.213.7.2/30", "dev", "eth0"],
            [*inside, "link", "set", "eth0", "up"],
            [*inside, "link", "set", "lo", "up"],
        ):
            subprocess.run(command, check=True, capture_output=True)
        yield OtherHost(name, "10.213.7.1")
    finally:
        subprocess.run(["ip", "link", "delete", ours], capture_output=True)
        subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def _in_child(function: Callable[[], Answer], prepare: Callable[[], None]) -> Answer:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        code = 1
        try:
            prepare()
            answer = function()
            os.write(writing, json.dumps([answer.status, answer.text[:30_000]]).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    assert status == 0, "the child process failed"
    return Answer(*json.loads(text))

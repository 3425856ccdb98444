"""Send HTTP requests as another account of this machine."""

from __future__ import annotations

import encodings.idna  # noqa: F401  # `nobody` may not be able to read Python's library
import http.client
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

NOBODY = 65534


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

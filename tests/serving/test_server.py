"""`sweeps serve` as a user types it: where it listens, what it answers, how it ends."""

from __future__ import annotations

import contextlib
import http.client
import signal
import socket
import threading
import urllib.error
from pathlib import Path

import numpy as np
import pytest

from tests.commands import command
from tests.serving.slow import exported, post, rows, started
from tests.waiting import wait_until

pytestmark = [pytest.mark.timeout(90), pytest.mark.integration]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    with exported(tmp_path_factory.mktemp("served"), "served") as found:
        yield found


def deaf(url: str) -> bool:
    """Whether nobody listens there."""
    host, port = url.removeprefix("http://").split(":")
    with socket.socket() as s:
        s.settimeout(1)
        return s.connect_ex((host, int(port))) != 0


def test_answers_on_loopback_and_drains_what_is_in_flight(bundle, tmp_path, monkeypatch):
    path, kept = bundle
    begun, go = tmp_path / "begun", tmp_path / "go"
    monkeypatch.setenv("SWEEPS_TEST_BEGUN", str(begun))
    monkeypatch.setenv("SWEEPS_TEST_GO", str(go))
    process, url = started(path, "--max-bytes", "5000")
    assert url.startswith("http://127.0.0.1:")
    got = post(url, rows(kept["raw"]))
    np.testing.assert_allclose([r["probability_yes"] for r in got], kept["expected"], rtol=1e-12)
    with pytest.raises(urllib.error.HTTPError) as e:
        post(url, b"[" + b" " * 6000 + b"]")
    assert e.value.code == 413

    slow: list = []
    asking = threading.Thread(target=lambda: slow.append(post(url, rows(kept["raw"].iloc[:3]))))
    asking.start()
    wait_until(begun.exists, 20, "the model to work")
    process.send_signal(signal.SIGTERM)
    wait_until(lambda: deaf(url), 20, "the server to take no more")
    assert asking.is_alive() and process.poll() is None
    go.touch()
    asking.join(20)
    assert len(slow[0]) == 3
    assert process.wait(20) == 0


def test_a_model_that_never_answers_does_not_keep_the_server(bundle, tmp_path, monkeypatch):
    path, kept = bundle
    begun = tmp_path / "begun"
    monkeypatch.setenv("SWEEPS_TEST_BEGUN", str(begun))
    monkeypatch.setenv("SWEEPS_TEST_GO", str(tmp_path / "never"))
    process, url = started(path)

    def ask() -> None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            post(url, rows(kept["raw"].iloc[:3]))

    asking = threading.Thread(target=ask)
    asking.start()
    wait_until(begun.exists, 20, "the model to work")
    process.send_signal(signal.SIGTERM)
    wait_until(lambda: deaf(url), 20, "the server to take no more")
    process.send_signal(signal.SIGINT)  # a second signal waits for nothing that is in flight
    process.wait(20)
    asking.join(20)
    assert not asking.is_alive()


def test_a_server_goes_without_ray_and_without_what_trains(bundle):
    path, kept = bundle
    process, url = started(path)
    post(url, rows(kept["raw"]))
    mapped = Path(f"/proc/{process.pid}/maps").read_text()
    assert "/pandas/" in mapped and not [name for name in ("ray", "torch", "xgboost") if f"/{name}/" in mapped]
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0


def test_what_cannot_be_served_is_one_line(bundle, tmp_path):
    def said(*args: object) -> tuple[int, str]:
        process = command("serve", *args)
        text = process.communicate(timeout=40)[1]
        return process.returncode, text

    code, text = said(tmp_path / "none")
    assert code == 2 and text == f"{tmp_path / 'none'}: there is no such folder\n"
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        code, text = said(bundle[0], "--port", s.getsockname()[1])
    assert code == 2 and text.count("\n") == 1 and "cannot be listened on: Address already in use" in text

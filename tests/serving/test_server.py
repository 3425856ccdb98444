"""`sweeps serve` as a user types it: where it listens, what it answers, how it ends."""

from __future__ import annotations

import contextlib
import http.client
import re
import shlex
import signal
import socket
import threading
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.commands import command, invoke
from tests.serving.slow import exported, post, rows, started
from tests.waiting import wait_until

pytestmark = [pytest.mark.timeout(90), pytest.mark.integration]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with exported(tmp_path_factory.mktemp("served"), "served") as bundle:
        yield bundle


def deaf(url: str) -> bool:
    """Whether nobody listens there."""
    host, port = url.removeprefix("http://").split(":")
    with socket.socket() as s:
        s.settimeout(1)
        return s.connect_ex((host, int(port))) != 0


def test_answers_on_loopback_and_drains_what_is_in_flight(
    bundle: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, kept = bundle
    entered, go = tmp_path / "begun", tmp_path / "go"
    monkeypatch.setenv("SWEEPS_TEST_BEGUN", str(entered))
    monkeypatch.setenv("SWEEPS_TEST_GO", str(go))
    process, url = started(path, "--max-bytes", "5000")
    assert url.startswith("http://127.0.0.1:")
    got = post(url, rows(kept["raw"]))
    np.testing.assert_allclose([r["probability_yes"] for r in got], kept["expected"], rtol=1e-12)
    with pytest.raises(urllib.error.HTTPError) as e:
        post(url, b"[" + b" " * 6000 + b"]")
    assert e.value.code == 413

    slow: list[Any] = []
    asking = threading.Thread(target=lambda: slow.append(post(url, rows(kept["raw"].iloc[:3]))))
    asking.start()
    wait_until(entered.exists, 20, "the model to work")
    process.send_signal(signal.SIGTERM)
    wait_until(lambda: deaf(url), 20, "the server to take no more")
    assert asking.is_alive() and process.poll() is None
    go.touch()
    asking.join(20)
    assert len(slow[0]) == 3
    assert process.wait(20) == 0


def test_a_model_that_never_answers_does_not_keep_the_server(
    bundle: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, kept = bundle
    entered = tmp_path / "begun"
    monkeypatch.setenv("SWEEPS_TEST_BEGUN", str(entered))
    monkeypatch.setenv("SWEEPS_TEST_GO", str(tmp_path / "never"))
    process, url = started(path)

    def ask() -> None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            post(url, rows(kept["raw"].iloc[:3]))

    asking = threading.Thread(target=ask)
    asking.start()
    wait_until(entered.exists, 20, "the model to work")
    process.send_signal(signal.SIGTERM)
    wait_until(lambda: deaf(url), 20, "the server to take no more")
    process.send_signal(signal.SIGINT)  # a second signal waits for nothing that is in flight
    assert process.wait(20) == 0 and process.stderr.read() == ""
    asking.join(20)
    assert not asking.is_alive()


def test_printed_curl_command_gets_prediction_without_ray(bundle: Any) -> None:
    process = command("serve", bundle[0], "--port", "0")
    assert process.stderr is not None
    assert process.stderr.readline().startswith("serving ")
    assert process.stderr.readline() == "try it:\n"
    words = shlex.split(process.stderr.readline())
    assert (
        words[0] == "curl" and len(post(words[2].removesuffix("/predict"), words[-1].encode())) == 1
    )
    mapped = Path(f"/proc/{process.pid}/maps").read_text()
    assert "/pandas/" in mapped and not [
        name for name in ("ray", "torch", "xgboost") if f"/{name}/" in mapped
    ]
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0 and process.stderr.read() == ""


def test_r11_token_from_environment_or_file_is_required(
    bundle: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, kept = bundle
    (tmp_path / "token").write_text("se-cr.et\n")
    process, url = started(
        path, "--token-file", tmp_path / "token", "--allowed-hosts", "127.0.0.1,*.example.com"
    )
    with pytest.raises(urllib.error.HTTPError) as e:
        post(url, rows(kept["raw"]))
    assert e.value.code == 401 and e.value.headers["WWW-Authenticate"] == "Bearer"
    assert len(post(url, rows(kept["raw"]), Authorization="Bearer se-cr.et")) == len(kept["raw"])
    with pytest.raises(urllib.error.HTTPError) as e:
        post(url, rows(kept["raw"]), Authorization="Bearer se-cr.et", Host="evil.example")
    assert e.value.code == 400
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0 and process.stderr.read() == ""

    open_to_all = command("serve", path, "--host", "0.0.0.0", "--port", "0")
    monkeypatch.setenv("SWEEPS_SERVE_TOKEN", "x")
    closed_to_all = command("serve", path, "--host", "0.0.0.0", "--port", "0")
    assert open_to_all.stderr is not None
    assert open_to_all.stderr.readline().startswith("--host: ")
    for process in (open_to_all, closed_to_all):
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line.startswith("serving ")
        port = re.search(r" at http://\S+?:(\d+)", line)
        assert port is not None, line
        with pytest.raises(urllib.error.HTTPError) as e:
            post(f"http://127.0.0.1:{port[1]}", b"")
        assert (e.value.code == 401) == (process is closed_to_all)
    for process in (open_to_all, closed_to_all):
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def test_what_cannot_be_served_is_one_line(bundle: Any, tmp_path: Path) -> None:
    def said(*args: object) -> tuple[int, str]:
        done = invoke("serve", *args)
        return done.exit_code, done.stderr

    code, text = said(bundle[0], "--allowed-hosts", "http://a,b:80")
    assert code == 2 and text.startswith("--allowed-hosts: `http://a`")
    code, text = said(tmp_path / "none")
    assert code == 2 and text == f"{tmp_path / 'none'}: the folder does not exist\n"
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        process = command("serve", bundle[0], "--port", s.getsockname()[1])
        text = process.communicate(timeout=40)[1]
    assert process.returncode == 2 and text.count("\n") == 1 and "Address already in use" in text

"""The application under Ray Serve: the answers of the one process, and nothing left when it has
ended.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import re
import signal
import socket
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pytest

from sweeps.bundle.model import load_bundle
from sweeps.core.errors import InputError
from sweeps.serving import replicas
from sweeps.serving.access import Access
from sweeps.serving.app import make_app
from sweeps.serving.limits import Limits
from tests.serving import malformed, served, sockets
from tests.serving.asking import ask
from tests.serving.slow import exported, post, rows, started
from tests.waiting import wait_until

# ---- pure, or nearly


def told(app) -> list[str]:
    """The series of `/metrics` after a request."""
    asyncio.run(ask(app, "/predict", json.dumps([malformed.GOOD]).encode()))
    return [
        line
        for line in asyncio.run(ask(app, "/metrics", method="GET"))[1].splitlines()
        if not line.startswith("#")
    ]


def test_every_series_of_a_replica_names_it():
    alone, one = told(make_app(served.bundle())), told(make_app(served.bundle(), replica="x1"))
    assert 'sweeps_requests_total{path="/predict",replica="x1",status="200"} 1.0' in one
    assert all('replica="x1"' in line for line in one) and not any(
        "replica" in line for line in alone
    )
    assert [re.split("[{ ]", line)[0] for line in one] == [
        re.split("[{ ]", line)[0] for line in alone
    ]


def test_the_first_signal_asks_and_the_second_interrupts():
    over, before = threading.Event(), signal.getsignal(signal.SIGTERM)
    with replicas._set_on_signal(over):
        signal.raise_signal(signal.SIGTERM)
        assert over.is_set()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) is before


def serve(path: Path, port: int = 8000, address: str | None = None) -> None:
    replicas.serve(path, "127.0.0.1", port, print, Limits(100, 100), Access(), 2, address)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Ray Serve's own use of pydantic
def test_what_cannot_be_served_is_said_before_ray_starts(tmp_path, monkeypatch):
    with pytest.raises(InputError, match="--port: 0 is not allowed with --address"):
        serve(tmp_path, 0, "127.0.0.1:6379")
    with pytest.raises(InputError, match="the folder does not exist"):
        serve(tmp_path / "none")
    monkeypatch.setitem(sys.modules, "ray.serve", None)
    with pytest.raises(
        InputError,
        match=r"^--replicas: needs the package `ray\.serve`: pip install 'sweeps-ray\[serve\]'$",
    ):
        serve(tmp_path)


# ---- two replicas

BEARS = {"Authorization": "Bearer good"}


def over_http(url: str, case: malformed.Case) -> tuple[int, object]:
    """As `ask`, over a socket."""
    parts = isinstance(case.body, list) and case.body and isinstance(case.body[0], bytes)
    body = (
        iter(case.body)
        if parts
        else case.body
        if isinstance(case.body, bytes)
        else json.dumps(case.body).encode()
    )
    headers = {"Content-Type": "application/json", **BEARS} | case.headers
    request = urllib.request.Request(url + case.path, body, headers, method=case.method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            status, raw = answer.status, answer.read()
    except urllib.error.HTTPError as e:
        status, raw = e.code, e.read()
    try:
        return status, json.loads(raw)
    except ValueError:
        return status, raw.decode()


@pytest.mark.integration
@pytest.mark.long
@pytest.mark.timeout(200)
def test_two_replicas_answer_as_one_process_and_leave_nothing(tmp_path, monkeypatch):
    begun, go = tmp_path / "begun", tmp_path / "go"
    monkeypatch.setenv("SWEEPS_TEST_BEGUN", str(begun))
    monkeypatch.setenv("SWEEPS_TEST_GO", str(go))
    with exported(tmp_path, "replicas") as (path, kept):
        monkeypatch.setenv("SWEEPS_SERVE_TOKEN", "good")
        own = (
            "--max-bytes",
            str(malformed.MAX_BYTES),
            "--max-rows",
            "5",
            "--receive-timeout",
            "5",
            "--allowed-hosts",
            "127.0.0.1",
        )
        process, url = started(path, "--replicas", "2", *own)
        assert url.startswith("http://127.0.0.1:")
        # a request whose length is not what is sent is no request to a server
        cases = [case for case in malformed.CASES if "content-length" not in case.headers]
        five = json.loads(rows(kept["raw"].iloc[:5]))["records"]
        good = [
            malformed.Case("records", {"records": five}),
            malformed.Case(
                "columns", {"columns": {name: [row[name] for row in five] for name in five[0]}}
            ),
            malformed.Case("schema", None, path="/schema", method="GET"),
            malformed.Case("the model's own fields", None, path="/openapi.json", method="GET"),
        ]
        monkeypatch.delitem(
            sys.modules, "model_replicas"
        )  # the export has imported it as it was before
        app = make_app(load_bundle(path), Limits(malformed.MAX_BYTES, 5), example=False)
        for case in [*good, *cases]:
            parts = isinstance(case.body, list) and case.body and isinstance(case.body[0], bytes)
            body = (
                case.body
                if parts or isinstance(case.body, bytes)
                else json.dumps(case.body).encode()
            )
            expected = asyncio.run(ask(app, case.path, body, case.method, case.headers))
            assert over_http(url, case) == expected, case.what

        # r11: a token, hosts, and a body that is half sent
        health = malformed.Case("health", None, path="/health", method="GET")
        for changed, status in (
            ({"Authorization": "Bearer bad"}, 401),
            ({"Host": "evil.example"}, 400),
        ):
            assert over_http(url, dataclasses.replace(good[2], headers=changed))[0] == status
            assert over_http(url, dataclasses.replace(health, headers=changed)) == (
                200,
                {"status": "ok"},
            )
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=30) as client:
            client.sendall(sockets.request(Host=host, Authorization="Bearer good")[:-5])
            assert sockets.answer(client)[0] == 408

        def names() -> set[str]:
            with urllib.request.urlopen(
                urllib.request.Request(f"{url}/metrics", headers=BEARS), timeout=30
            ) as answer:
                seen.update(re.findall('replica="([^"]+)"', answer.read().decode()))
            return seen

        seen: set[str] = set()
        wait_until(lambda: len(names()) == 2, 30, "both replicas to be asked")

        members = psutil.Process(process.pid).children(recursive=True)
        assert any("raylet" in p.name() for p in members)
        slow: list = []
        asking = threading.Thread(
            target=lambda: slow.append(post(url, rows(kept["raw"].iloc[:3]), **BEARS))
        )
        asking.start()
        wait_until(begun.exists, 30, "the model to work")
        process.send_signal(signal.SIGTERM)

        def deaf() -> bool:
            try:
                urllib.request.urlopen(f"{url}/health", timeout=5).close()
            except (urllib.error.URLError, OSError):
                return True
            return False

        wait_until(deaf, 30, "the server to take no more")
        assert asking.is_alive() and process.poll() is None
        go.touch()
        asking.join(30)
        assert len(slow[0]) == 3
        assert process.wait(60) == 0, process.stderr.read()
        _, left = psutil.wait_procs(members, timeout=20)
        assert not left, left

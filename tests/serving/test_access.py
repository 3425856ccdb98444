"""Who may ask: by the Host header, and by a bearer token."""

from __future__ import annotations

import asyncio
import hmac
import json
from pathlib import Path

import pytest

from sweeps.core.errors import InputError
from sweeps.serving import access
from sweeps.serving.access import Access, open_to_others, token_of
from sweeps.serving.prediction_app import make_app
from tests.serving import served
from tests.serving.asking import ask
from tests.serving.malformed import GOOD

ALL = (
    ("/predict", "POST"),
    ("/schema", "GET"),
    ("/metrics", "GET"),
    ("/docs", "GET"),
    ("/openapi.json", "GET"),
    ("/none", "GET"),
)


def status(given: Access, path: str = "/schema", method: str = "GET", **headers: str) -> int:
    body = json.dumps([GOOD]).encode() if method == "POST" else b""
    named = {name.lower(): value for name, value in headers.items()}
    app = make_app(served.bundle(), access=given)
    code: int = asyncio.run(ask(app, path, body, method, named))[0]
    return code


@pytest.mark.parametrize(
    "sent",
    [
        "",
        "Bearer",
        "Bearer wrong",
        "bearer ",
        "Basic good",
        "good",
        "Bearer good good",
        "Bearer goo",
        "Bearer goodd",
    ],
)
def test_r11_without_the_token_nothing_but_health_is_answered(sent: str) -> None:
    given = Access.of(None, "good")
    for path, method in ALL:
        assert status(given, path, method, Authorization=sent) == 401


def test_r11_with_the_token_all_is_answered() -> None:
    given = Access.of(None, "good")
    statuses = [status(given, path, method, Authorization="Bearer good") for path, method in ALL]
    assert statuses == [200, 200, 200, 200, 200, 404]
    assert status(given, Authorization="bearer  good ") == 200


def test_r11_health_needs_neither_token_nor_host() -> None:
    app = make_app(served.bundle(), access=Access.of("example.com", "good"))
    assert asyncio.run(ask(app, "/health", method="GET")) == (200, {"status": "ok"})


def test_r11_what_is_refused_is_counted_and_says_why() -> None:
    app = make_app(served.bundle(), access=Access.of(None, "good"))
    code, answer = asyncio.run(ask(app, "/predict", b"[]"))
    assert code == 401 and "Authorization" in answer["detail"][0]["rule"]
    text = asyncio.run(
        ask(app, "/metrics", method="GET", headers={"authorization": "Bearer good"})
    )[1]
    assert 'sweeps_requests_total{path="/predict",status="401"} 1.0' in text


def test_r11_the_token_is_compared_in_constant_time_and_kept_as_a_digest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(a: bytes, b: bytes) -> bool:
        compared.append((a, b))
        return a == b

    monkeypatch.setattr("sweeps.serving.access.hmac.compare_digest", compare)
    given = Access.of(None, "good")
    good, bad = b"Bearer good", "Bearer gööd".encode("latin-1")
    assert given.allows({"type": "http", "headers": [(b"authorization", good)]})
    assert not given.allows({"type": "http", "headers": [(b"authorization", bad)]})
    assert not given.allows({"type": "http", "headers": []})
    assert {len(a) for pair in compared for a in pair} == {32} and hmac is vars(access)["hmac"]
    assert "good" not in repr(given)


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        ("example.com", 200),
        ("EXAMPLE.com:8000", 200),
        ("a.sweeps.test", 200),
        ("a.b.sweeps.test:1", 200),
        ("[::1]:8000", 200),
        ("10.0.0.7", 200),
        ("", 400),
        ("sweeps.test", 400),
        ("evilsweeps.test", 400),
        ("example.com.evil.test", 400),
        ("example.com:x", 400),
        ("example.com:80@evil", 400),
        ("[::2]", 400),
        ("::1", 400),
    ],
)
def test_r11_the_host_header_must_name_an_allowed_host(sent: str, code: int) -> None:
    assert status(Access.of("Example.com, *.sweeps.test,[::1],10.0.0.7", None), Host=sent) == code


@pytest.mark.parametrize(
    "hosts", ["", "a,,b", "http://a", "a:80", "*", "a.*.b", "::1", "a/b", "a b"]
)
def test_r11_hosts_that_are_none_are_refused(hosts: str) -> None:
    with pytest.raises(InputError) as e:
        Access.of(hosts, None)
    assert {problem.place for problem in e.value.problems} == {"--allowed-hosts"}


def test_r11_a_token_comes_from_one_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "token"
    file.write_text("from.file=\n")
    monkeypatch.delenv(access.TOKEN_VARIABLE, raising=False)
    assert token_of(None, None) is None
    monkeypatch.setenv(access.TOKEN_VARIABLE, "from-environment")
    assert token_of(None, None) == "from-environment"
    assert token_of("from+option", None) == "from+option"
    assert token_of(None, file) == "from.file="
    with pytest.raises(InputError, match="--token-file"):
        token_of("x", file)


@pytest.mark.parametrize("bad", ["", "two words", "tab\t", "é", "a=b"])
def test_r11_a_token_that_is_none_is_refused_and_not_shown(
    bad: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text(bad + "\n")
    monkeypatch.setenv(access.TOKEN_VARIABLE, bad)
    for place, given in (
        ("--token", (bad, None)),
        ("--token-file", (None, tmp_path / "token")),
        (access.TOKEN_VARIABLE, (None, None)),
    ):
        if bad == "tab\t" and place == "--token-file":
            continue  # white space at the end of a file is no part of the token
        with pytest.raises(InputError) as e:
            token_of(*given)
        (problem,) = e.value.problems
        assert problem.place.startswith(place) and (not bad or bad not in str(problem))
    with pytest.raises(InputError) as e:
        token_of(None, tmp_path / "none")
    assert e.value.problems[0].place == f"--token-file {tmp_path / 'none'}"


@pytest.mark.parametrize(
    ("host", "is_open"),
    [
        ("127.0.0.1", False),
        ("localhost", False),
        ("::1", False),
        ("127.9.9.9", False),
        ("0.0.0.0", True),
        ("", True),
    ],
)
def test_r11_what_other_machines_can_reach(host: str, is_open: bool) -> None:
    assert open_to_others(host) is is_open

"""Slow and many clients: what each is answered, when it is closed, and that nobody else waits for
it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import resource
import threading

import pytest
import uvicorn
from uvicorn.server import ServerState

from sweeps.core.errors import InputError
from sweeps.serving import limits as numbers
from sweeps.serving import server as serving
from sweeps.serving.limited_server import Connection
from sweeps.serving.limits import Limits, Phase, allowed
from tests.serving.malformed import GOOD
from tests.serving.sockets import ROW, Held, answer, closed, request, running
from tests.waiting import wait_until

pytestmark = [pytest.mark.timeout(60)]
SHORT = Limits(receive_seconds=0.5)


@pytest.fixture(autouse=True)
def nothing_is_logged(caplog, capfd):
    """No client makes the server print a traceback."""
    yield
    assert "Traceback" not in capfd.readouterr().err
    assert not [record for record in caplog.records if record.exc_info]


# ---- one client that is slow


def test_r11_half_sent_headers_are_408():
    with running(limits=SHORT) as server:
        client = server.connect(b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-")
        status, headers, body = answer(client)
        assert (status, headers["connection"]) == (408, "close") and "headers" in body["detail"][0][
            "rule"
        ]
        assert closed(client)


def test_r11_headers_that_come_byte_by_byte_are_408():
    """Every byte is new, and yet the time counts from the first."""
    with running(limits=SHORT) as server:
        client = server.connect(b"GET /health HTTP/1.1\r\nX: ")
        client.settimeout(0.05)
        for _ in range(200):
            client.sendall(b"x")
            try:
                assert client.recv(1, 2) == b"H"  # MSG_PEEK
                break
            except TimeoutError:
                continue
        client.settimeout(15)
        assert answer(client)[0] == 408


@pytest.mark.parametrize("length", ["Content-Length: 4000", "Transfer-Encoding: chunked"])
def test_r11_half_sent_bodies_are_408(length):
    with running(limits=SHORT) as server:
        client = server.connect(
            f"POST /predict HTTP/1.1\r\nHost: x\r\n{length}\r\n\r\n1\r\n[\r\n".encode()
        )
        status, headers, body = answer(client)
        assert (status, headers["connection"]) == (408, "close") and "body" in body["detail"][0][
            "rule"
        ]
        assert closed(client)


def test_r11_a_body_that_never_ends_is_not_read_for_ever_after_its_answer():
    """413 comes at once.

    What the client sends on is thrown away for a while, so that it reads the answer.
    """
    with running(limits=Limits(max_bytes=2000, receive_seconds=0.5)) as server:
        client = server.connect(
            b"POST /predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        client.sendall(b"bb8\r\n" + b" " * 3000 + b"\r\n")
        assert answer(client)[0] == 413
        client.settimeout(0.05)

        def over() -> bool:
            try:
                client.sendall(b"1\r\n \r\n")
                return client.recv(1) == b""
            except TimeoutError:
                return False
            except OSError:
                return True

        wait_until(over, 15, "the connection to be closed")


def test_r11_connections_that_send_nothing_are_closed():
    with running(limits=SHORT) as server:
        assert closed(server.connect())


def test_r11_an_answer_that_nobody_reads_ends_its_connection():
    with running(limits=Limits(receive_seconds=1)) as server:
        client = server.connect()
        client.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            for _ in range(2000):  # the answers are some 100 MB, which no kernel keeps
                client.send(request(b"", "/openapi.json", "GET") * 20)
        wait_until(lambda: not server.connections(), 20, "the connection to be closed")


def test_r11_two_requests_at_once_are_answered_in_turn():
    with running() as server:
        client = server.connect(request() + request(b"", "/health", "GET") + request())
        statuses = [answer(client) for _ in range(3)]
        assert [status for status, _, _ in statuses] == [
            200,
            200,
            200,
        ] and "predictions" in statuses[2][2]


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 400_000, 431),
        (b"GET /" + b"x" * 400_000, 431),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400),
        (b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400),
        (
            b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            400,
        ),
        (b"POST /predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
        (b"POST /predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
    ],
)
def test_r11_no_http_is_answered_as_json(sent, status):
    with running() as server:
        client = server.connect()
        with contextlib.suppress(ConnectionError):  # it answered in the middle
            client.sendall(sent)
        found, headers, body = answer(client)
        assert (found, headers["connection"]) == (status, "close") and body["detail"][0]["rule"]


def test_r11_a_bad_chunk_after_the_answer_closes():
    """uvicorn's own way to refuse it fails with a traceback."""
    with running() as server:
        client = server.connect(
            b"POST /nowhere HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n[\r\n"
        )
        assert answer(client)[0] == 404
        client.sendall(b"zz\r\n")
        assert closed(client)


def test_r11_a_length_that_lies():
    """A body that is longer than its length is another request, and a bad one."""
    with running() as server:
        client = server.connect(request(Content_Length=str(len(ROW) - 1)) + b"\r\n\r\n")
        assert [answer(client)[0], answer(client)[0]] == [400, 400]
        assert closed(client)


def test_r11_a_client_that_goes_while_its_rows_are_predicted_harms_nobody():
    model = Held()
    with running(model) as server:
        client = server.connect(request())
        assert model.begun.wait(15)
        client.close()
        wait_until(lambda: not server.connections(), 15, "the server to see it")
        model.go.set()
        assert answer(server.connect(request()))[0] == 200


# ---- many clients


def test_r11_connections_above_the_limit_wait_and_are_answered():
    model = Held()
    with running(model, Limits(max_connections=3)) as server:
        clients = [server.connect(request()) for _ in range(8)]
        assert model.begun.wait(15)
        wait_until(lambda: server.server.paused, 15, "the limit to be reached")
        wait_until(lambda: server.connections() == 3, 15, "those within the limit")
        model.go.set()
        seen = []
        for client in clients:
            seen.append(answer(client)[0])
            client.close()
        assert seen == [200] * 8


def test_r11_slow_clients_hold_their_connections_for_a_time_alone():
    with running(limits=Limits(max_connections=5, receive_seconds=0.5)) as server:
        slow = [server.connect(b"GET /hea") for _ in range(5)]
        assert answer(server.connect(request(b"", "/health", "GET")))[0] == 200
        assert [answer(client)[0] for client in slow] == [408] * 5


class Wire(asyncio.Transport):
    """A connection to nobody."""

    def __init__(self) -> None:
        super().__init__()
        self.reads, self.written = True, b""

    def write(self, data):
        self.written += bytes(data)

    def is_closing(self):
        return False

    def pause_reading(self):
        self.reads = False

    def resume_reading(self):
        self.reads = True


def test_r11_what_a_client_sends_at_once_is_read_in_pieces_so_that_others_have_their_turn():
    """A megabyte in chunks of one byte takes seconds to read."""
    total = 50_000

    async def read() -> None:
        size, turns, wire = 0, 0, Wire()

        async def app(scope, receive, send):
            nonlocal size
            while (message := await receive()).get("more_body"):
                size += len(message["body"])
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body", "body": b""})

        config = uvicorn.Config(app, log_config=None, log_level="error", interface="asgi3")
        config.load()
        connection = Connection(
            Limits(), None, config=config, server_state=ServerState(), app_state={}
        )
        connection.connection_made(wire)
        connection.data_received(
            b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
            + b"1\r\n \r\n" * total
        )
        assert not wire.reads
        while size < total:
            before = size
            await asyncio.sleep(0)
            turns += 1
            assert size - before < 10_000
        connection.data_received(b"0\r\n\r\n")
        await asyncio.gather(*connection.tasks)
        assert turns > 10 and wire.reads and wire.written.startswith(b"HTTP/1.1 204")
        connection.connection_lost(ConnectionResetError())

    asyncio.run(asyncio.wait_for(read(), 30))


def test_r11_a_large_body_is_read_whole():
    rows = [GOOD] * 8000
    body = json.dumps(rows).encode()
    with running() as server:
        status, _, found = answer(server.connect(request(body) + request()))
        assert status == 200 and len(found["predictions"]) == len(rows)


def test_r11_the_limit_of_open_files_is_raised_or_named(monkeypatch):
    kept = resource.getrlimit(resource.RLIMIT_NOFILE)
    asked = []
    monkeypatch.setattr(resource, "setrlimit", lambda what, pair: asked.append(pair))
    monkeypatch.setattr(resource, "getrlimit", lambda what: (256, 4096))
    serving._raise_file_limit(500)
    assert asked == [(500 + serving.BACKLOG + serving.OTHER_FILES, 4096)]
    with pytest.raises(InputError) as e:
        serving._raise_file_limit(4000)
    assert str(e.value) == (
        "--max-connections: 4000 connections are too many: this process may open 4096 files, and "
        "needs 256 for other uses; "
        "give at most 3840, or raise `ulimit -Hn`"
    )
    monkeypatch.setattr(
        resource, "getrlimit", lambda what: (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    )
    serving._raise_file_limit(10**6)
    assert len(asked) == 1 and kept


def test_r11_a_server_without_file_descriptors_goes_on(monkeypatch):
    with running() as server:
        full = threading.Event()
        real = server.server.listener.accept
        listener = server.server.listener

        class Full:
            def __getattr__(self, name):
                return getattr(listener, name)

            def accept(self):
                if not full.is_set():
                    full.set()
                    raise OSError(24, os.strerror(24))
                return real()

        server.server.listener = Full()  # type: ignore[assignment]
        assert answer(server.connect(request(b"", "/health", "GET")))[0] == 200
        assert full.is_set()
        server.server.listener = listener


# ---- the end


def test_r11_the_end_answers_what_was_accepted_and_what_waits_in_the_kernels_queue():
    model = Held()
    with running(model, Limits(max_connections=10)) as server:
        clients = [server.connect(request()) for _ in range(40)]
        assert model.begun.wait(15)
        wait_until(lambda: server.server.paused, 15, "the limit to be reached")
        server.end()
        wait_until(lambda: server.connections() == 40, 15, "all to be accepted")
        model.go.set()
        found = [answer(client) for client in clients]
        assert [status for status, _, _ in found] == [200] * 40
        assert {headers.get("connection") for _, headers, _ in found} == {"close"}
        with pytest.raises(ConnectionError):
            server.connect(request())


def test_r11_the_end_answers_requests_that_were_sent_one_behind_the_other():
    model = Held()
    with running(model) as server:
        client = server.connect(request() * 3)
        assert model.begun.wait(15)
        server.end()
        wait_until(lambda: server.server.ending, 15, "the server to end")
        model.go.set()
        assert [answer(client)[0] for _ in range(3)] == [200] * 3
        assert closed(client)


def test_r11_the_end_waits_for_a_body_that_arrives(monkeypatch):
    with running() as server:
        whole = request()
        client = server.connect(whole[:-9])
        wait_until(server.connections, 15, "the connection")
        server.end()
        wait_until(lambda: server.server.ending, 15, "the server to end")
        client.sendall(whole[-9:])
        assert answer(client)[0] == 200


@pytest.mark.parametrize("sent", [b"GET /hea", request()[:-9]], ids=["headers", "body"])
def test_r11_the_end_does_not_wait_for_ever_for_what_is_half_sent(sent, monkeypatch):
    monkeypatch.setattr(numbers, "REST_SECONDS", 0.3)
    with running() as server:
        client = server.connect(sent)
        wait_until(server.connections, 15, "the connection")
        server.end()
        assert answer(client)[0] == 503


def test_r11_the_end_closes_connections_that_are_idle(monkeypatch):
    monkeypatch.setattr(numbers, "IDLE_SECONDS", 0.2)
    with running() as server:
        client = server.connect(request())
        answer(client)
        server.end()
        assert closed(client)


def test_r11_a_model_that_never_answers_gets_503_when_the_time_is_over():
    model = Held()
    with running(model, drain_seconds=0.3) as server:
        clients = [server.connect(request()) for _ in range(3)]
        assert model.begun.wait(15)
        server.end()
        for client in clients:
            status, _, body = answer(client)
            assert status == 503 and "detail" in body
        server.thread.join(10)
        assert not server.thread.is_alive()
        model.go.set()


# ---- the rule


@pytest.mark.parametrize(
    ("phase", "ending", "seconds"), list(itertools.product(Phase, [False, True], [1, 30, 1000]))
)
def test_r11_every_phase_but_work_has_an_end(phase, ending, seconds):
    found = allowed(phase, Limits(receive_seconds=seconds), ending)
    if phase is Phase.WORK:
        assert found is None
    else:
        assert found is not None and 0 < found <= seconds
        assert not ending or found <= numbers.REST_SECONDS
    assert numbers.REST_SECONDS < numbers.DRAIN_SECONDS < numbers.GRACE_SECONDS


def test_the_row_of_these_tests_is_a_good_one():
    assert json.loads(ROW) == [GOOD]

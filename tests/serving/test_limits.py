"""Many clients and large bodies: uvicorn's limits, as `sweeps serve` sets them."""

from __future__ import annotations

import json

import pytest

from sweeps.serving.limits import RequestLimits
from tests.serving.malformed import GOOD
from tests.serving.sockets import Held, answer, request, running
from tests.waiting import wait_until

pytestmark = [pytest.mark.timeout(60)]


def test_requests_above_the_limit_get_503_and_the_others_are_answered() -> None:
    model = Held()
    with running(model, RequestLimits(max_connections=3)) as server:
        first = server.connect(request())
        assert model.entered.wait(15)
        second = server.connect(request())
        wait_until(lambda: len(server.server.server_state.tasks) == 2, 15, "the second request")
        more = [server.connect(request()) for _ in range(3)]
        assert [answer(client)[0] for client in more] == [503] * 3
        model.go.set()
        assert [answer(client)[0] for client in (first, second)] == [200, 200]


def test_a_large_body_is_read_whole() -> None:
    rows = [GOOD] * 8000
    with running() as server:
        status, _, body = answer(server.connect(request(json.dumps(rows).encode()) + request()))
        assert status == 200 and len(body["predictions"]) == len(rows)


def test_the_end_answers_what_has_arrived() -> None:
    model = Held()
    with running(model) as server:
        clients = [server.connect(request()) for _ in range(10)]
        assert model.entered.wait(15)
        wait_until(lambda: len(server.server.server_state.tasks) == 10, 15, "the requests")
        server.end()
        model.go.set()
        assert [answer(client)[0] for client in clients] == [200] * 10

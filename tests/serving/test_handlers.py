"""A server leaves the logging of its process as it is."""

from __future__ import annotations

import logging
import socket

from sweeps.dashboard import server as dashboard
from sweeps.serving.app import make_app
from sweeps.serving.limited_server import Server
from sweeps.serving.limits import Limits
from tests.serving import served


def test_handlers_of_other_loggers_stay_open(tmp_path):
    """uvicorn's own configuration closes all handlers. absl's handler then closes a stream of the
    process.
    """
    handler = logging.FileHandler(tmp_path / "log")
    with socket.socket() as listener:
        Server(make_app(served.bundle(), Limits()), listener, Limits())
        dashboard._server(None, None, print)
    assert handler.stream is not None and not handler.stream.closed
    handler.close()


def test_errors_reach_the_log(caplog):
    with socket.socket() as listener:
        Server(make_app(served.bundle(), Limits()), listener, Limits())
    logger = logging.getLogger("uvicorn.error")
    logger.error("Exception in ASGI application")
    logger.info("Started server process")
    logging.getLogger("uvicorn.access").error("GET /health")
    assert [record.getMessage() for record in caplog.records] == ["Exception in ASGI application"]

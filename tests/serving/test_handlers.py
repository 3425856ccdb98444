"""A server leaves the logging of its process as it is."""

from __future__ import annotations

import logging
import signal
from pathlib import Path

import pytest
import uvicorn

from sweeps.dashboard import dashboard_server
from sweeps.dashboard.dashboard_server import PageOptions
from sweeps.serving.limits import RequestLimits
from sweeps.serving.prediction_app import make_app
from sweeps.serving.prediction_server import make_server
from tests.serving import served


def test_handlers_of_other_loggers_stay_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """uvicorn's own configuration closes all handlers."""
    handler = logging.FileHandler(tmp_path / "log")
    make_server(make_app(served.bundle()), RequestLimits())
    monkeypatch.setattr(uvicorn.Server, "run", lambda server, listeners: None)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    dashboard_server.serve(tmp_path, PageOptions(port=0), lambda text: None)
    assert handler.stream is not None and not handler.stream.closed
    handler.close()


def test_errors_reach_the_log(caplog: pytest.LogCaptureFixture) -> None:
    make_server(make_app(served.bundle()), RequestLimits())
    logger = logging.getLogger("uvicorn.error")
    logger.error("Exception in ASGI application")
    logger.info("Started server process")
    logging.getLogger("uvicorn.access").error("GET /health")
    assert [record.getMessage() for record in caplog.records] == ["Exception in ASGI application"]

"""The webhook posts one summary at the end of a sweep, and shows no secret when it fails."""

from __future__ import annotations

import http.server
import json
import socket
import threading

import pytest

from sweeps.study.events import SweepEnded
from sweeps.testing.pytest_trackers import START, sample_events
from sweeps.tracking import TrackerHub
from sweeps.tracking.webhook import WebhookTracker


@pytest.fixture
def server():
    """A server that keeps what it gets and answers with `server.status`."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.server.posts.append((self.path, dict(self.headers), json.loads(body)))
            self.send_response(self.server.status)
            self.end_headers()

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.posts, server.status = [], 200
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def play(url, events, timeout=5.0):
    hub = TrackerHub([("webhook", WebhookTracker(WebhookTracker.Options(url, timeout)))])
    for event in events:
        hub.publish(event)
    return hub.close(15.0)


def test_one_summary_is_posted_at_the_end(server, tmp_path):
    assert (
        play(f"http://127.0.0.1:{server.server_port}/hook?token=t", sample_events(tmp_path)) == ()
    )
    ((path, headers, body),) = server.posts
    assert path == "/hook?token=t" and headers["Content-Type"] == "application/json"
    assert (body["sweep"], body["status"]) == ("sample-20231114-221320", "completed")
    assert body["result"]["best"]["value"] == 0.25 and body["result"]["trials"]["failed"] == 1


def test_a_sweep_that_failed_is_posted_too(server, tmp_path):
    play(
        f"http://127.0.0.1:{server.server_port}/",
        [*sample_events(tmp_path)[:-1], SweepEnded(START, None)],
    )
    assert (server.posts[0][2]["status"], server.posts[0][2]["result"]) == ("failed", None)


def test_a_variable_of_the_environment_holds_the_secret(server, tmp_path, monkeypatch):
    monkeypatch.setenv("MY_HOOK", f"http://me:hunter2@127.0.0.1:{server.server_port}/hook")
    assert play("$MY_HOOK", sample_events(tmp_path)) == ()
    assert server.posts[0][1]["Authorization"] == "Basic bWU6aHVudGVyMg=="


@pytest.mark.parametrize("url", ["$MISSING_HOOK", "ftp://host/x"])
def test_a_url_that_is_none_is_refused(url):
    with pytest.raises(ValueError, match="must begin with http"):
        WebhookTracker(WebhookTracker.Options(url))


def test_an_error_status_is_a_note_without_the_path(server, tmp_path):
    server.status = 500
    (note,) = play(
        f"http://me:hunter2@127.0.0.1:{server.server_port}/hunter2?token=hunter2",
        sample_events(tmp_path),
    )
    assert "ConnectionError: http://127.0.0.1/… answered 500" in note and "hunter2" not in note


def test_a_server_that_does_not_answer_costs_a_bounded_time(tmp_path):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        (note,) = play(
            f"http://127.0.0.1:{silent.getsockname()[1]}/hunter2",
            sample_events(tmp_path),
            timeout=0.3,
        )
    assert "did not answer: " in note and "timed out" in note and "hunter2" not in note

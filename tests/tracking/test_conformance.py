"""The built-in trackers pass the conformance suite that users can run on theirs."""

from __future__ import annotations

import http.server
import json
import threading

import pytest

from sweeps.core.sweep_folder import SweepFolder
from sweeps.testing.pytest_trackers import TrackerTests
from sweeps.tracking import Destination, MlflowTracker, default_uri
from sweeps.tracking.jsonl import JsonLinesTracker
from sweeps.tracking.tensorboard import TensorBoardTracker
from sweeps.tracking.webhook import WebhookTracker

pytestmark = pytest.mark.timeout(120)


class TestJsonLinesTracker(TrackerTests):
    def create_tracker(self, folder):
        return JsonLinesTracker(JsonLinesTracker.Options())

    def ended_trials(self, sweep_folder):
        lines = map(json.loads, SweepFolder(sweep_folder).events.read_text().splitlines())
        return [
            int(line["trial"])
            for line in lines
            if line["type"] == "TrialEnded" and line["state"] != "INTERRUPTED"
        ]


class TestTensorBoardTracker(TrackerTests):
    def create_tracker(self, folder):
        return TensorBoardTracker(TensorBoardTracker.Options())


class TestWebhookTracker(TrackerTests):
    @pytest.fixture(autouse=True)
    def server(self):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *args):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{server.server_port}/hook"
        yield
        server.shutdown()
        server.server_close()

    def create_tracker(self, folder):
        return WebhookTracker(WebhookTracker.Options(self.url))


@pytest.mark.integration
@pytest.mark.usefixtures("empty_database")
class TestMlflowTracker(TrackerTests):
    def create_tracker(self, folder):
        return MlflowTracker(
            Destination(
                default_uri(folder), folder, "sample", "sample-20231114-221320", 1_700_000_000.0
            )
        )

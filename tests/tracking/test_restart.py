"""An MLflow server that goes away in the middle of a sweep and comes back gets every metric, once."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import command, space_of
from tests.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]


@pytest.fixture
def serve(tmp_path):
    """Return a function that starts MLflow's server, each time on the same port and database."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    started: list[subprocess.Popen] = []

    def serve() -> tuple[str, subprocess.Popen]:
        store = ["--port", str(port), "--backend-store-uri", f"sqlite:///{tmp_path / 'server.db'}", "--workers", "1"]
        env = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true"}
        with open(tmp_path / "server.log", "a") as log:
            full = [sys.executable, "-m", "mlflow", "server", *store]
            server = subprocess.Popen(full, cwd=tmp_path, env=env, stdout=log, stderr=log, start_new_session=True)
        started.append(server)
        wait_until(lambda: listens(port), 90, "MLflow's server to listen")
        return f"http://127.0.0.1:{port}", server

    yield serve
    for server in started:
        end(server)


def listens(port: int) -> bool:
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


def end(server: subprocess.Popen) -> None:
    if server.poll() is None:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait(20)


def test_a_server_that_comes_back_gets_what_it_missed(tmp_path, serve):
    from mlflow.tracking import MlflowClient

    uri, server = serve()
    file = space_of(tmp_path, "held", limits="max_trials: 4, max_concurrent_trials: 1")
    process = command("run", file, "--dir", tmp_path / "runs", "--tracking-uri", uri, "--json")
    wait_until(lambda: list(tmp_path.glob("own-0000.two")), 120, "the first trial to hold")
    client = MlflowClient(uri)
    wait_until(lambda: client.search_runs(["1"], "tags.`sweeps.trial` = '0000'"), 60, "MLflow to have the first trial")
    end(server)
    (tmp_path / "go").touch()
    log = next((tmp_path / "runs").glob("own-*/sweep.log"))
    wait_until(lambda: "sweeps keeps trying" in log.read_text(), 90, "the sweep to miss the server")
    wait_until(lambda: list(tmp_path.glob("own-0003.started-at-0*")), 90, "the last trial to begin while the server is away")
    serve()
    out, err = process.communicate(timeout=150)
    assert process.returncode == 0, err
    result = json.loads(out)
    assert "notes" not in result
    shown = json.loads(command("show", Path(result["dir"]), "--json").communicate(timeout=60)[0])
    runs = {r.data.tags["sweeps.trial"]: r for r in client.search_runs(["1"], "tags.`sweeps.kind` = 'trial'")}
    assert len(client.search_runs(["1"])) == 5 and set(runs) == {t["trial"] for t in shown["all"]}
    for t in shown["all"]:
        history = client.get_metric_history(runs[t["trial"]].info.run_id, "loss")
        assert [[m.step, m.value] for m in history] == t["curve"] and runs[t["trial"]].info.status == "FINISHED"

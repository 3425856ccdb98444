"""An MLflow server that goes away in mid-sweep and comes back gets every metric, once."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import mlflow_server
from tests.commands import command, space_of
from tests.ports import free_port
from tests.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Any]:
    """Return a function that starts MLflow's server, each time on the same port and database."""
    port = free_port()
    started: list[subprocess.Popen[bytes]] = []

    def serve() -> tuple[str, subprocess.Popen[bytes]]:
        started.append(mlflow_server.start(tmp_path, port))
        wait_until(lambda: mlflow_server.listens(port), 90, "MLflow's server to listen")
        return f"http://127.0.0.1:{port}", started[-1]

    yield serve
    for server in started:
        mlflow_server.end(server)


def test_a_server_that_comes_back_gets_what_it_missed(tmp_path: Path, serve: Any) -> None:
    from mlflow.tracking import MlflowClient

    uri, server = serve()
    file = space_of(tmp_path, "held", limits="max_trials: 4, max_concurrent_trials: 1")
    process = command("run", file, "--dir", tmp_path / "runs", "--tracking-uri", uri, "--json")
    wait_until(lambda: list(tmp_path.glob("own-0000.two")), 120, "the first trial to hold")
    client = MlflowClient(uri)
    wait_until(
        lambda: client.search_runs(["1"], "tags.`sweeps.trial` = '0000'"),
        60,
        "MLflow to have the first trial",
    )
    mlflow_server.end(server)
    (tmp_path / "go").touch()
    log = next((tmp_path / "runs").glob("own-*/sweep.log"))
    wait_until(lambda: "sweeps keeps trying" in log.read_text(), 90, "the sweep to miss the server")
    wait_until(
        lambda: list(tmp_path.glob("own-0003.started-at-0*")),
        90,
        "the last trial to begin while the server is away",
    )
    serve()
    out, err = process.communicate(timeout=150)
    assert process.returncode == 0, err
    result = json.loads(out)
    assert "notes" not in result
    shown = json.loads(command("show", Path(result["dir"]), "--json").communicate(timeout=60)[0])
    runs = {
        r.data.tags["sweeps.trial"]: r
        for r in client.search_runs(["1"], "tags.`sweeps.kind` = 'trial'")
    }
    assert len(client.search_runs(["1"])) == 5 and set(runs) == {t["trial"] for t in shown["all"]}
    for t in shown["all"]:
        history = client.get_metric_history(runs[t["trial"]].info.run_id, "loss")
        assert [[m.step, m.value] for m in history] == t["curve"] and runs[
            t["trial"]
        ].info.status == "FINISHED"

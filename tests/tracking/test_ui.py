"""The links to the pages of sweeps in MLflow."""

from __future__ import annotations

import socket
import threading

import pytest

from sweeps.core.errors import SweepsError
from sweeps.tracking import Destination, MlflowTracker, default_uri
from sweeps.tracking.events import SweepEnded
from sweeps.tracking.mlflow import ui
from sweeps.tracking.mlflow.ui import check_server, find_links, links_of
from tests.tracking.made import START, sweep_result, sweep_started


@pytest.mark.integration
def test_the_links_of_each_sweep_are_found(tmp_path):
    uri = default_uri(tmp_path)
    tracker = MlflowTracker(Destination(uri, tmp_path, "made", "made-1", START))
    tracker.handle(sweep_started(tmp_path))
    tracker.handle(SweepEnded(START + 1, sweep_result(tmp_path)))
    assert tracker.close()
    (links,) = find_links(uri, "mlflow").items()
    assert links[0] == "made-1"
    assert links[1]["charts"].startswith("mlflow/#/experiments/1/runs?viewStateShareKey=made-1&")


def test_a_run_without_the_name_of_its_sweep_has_no_links(tmp_path):
    from mlflow.tracking import MlflowClient

    client = MlflowClient(default_uri(tmp_path))
    client.create_run("0", tags={"sweeps.kind": "sweep"})
    assert find_links(default_uri(tmp_path), "mlflow") == {}


def test_a_file_that_is_no_database_is_named(tmp_path):
    (tmp_path / "mlflow.db").write_text("no database" * 100)
    with pytest.raises(SweepsError, match="file is not a database") as e:
        find_links(default_uri(tmp_path), "mlflow")
    assert "\n" not in str(e.value)


def test_links_lead_to_saved_views():
    assert "viewStateShareKey=made-2" in links_of("http://h:1", "1", "run2", "made-2")["charts"]


def test_a_server_that_does_not_answer_is_reported_within_seconds(monkeypatch):
    monkeypatch.setattr(ui, "ANSWER_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        reason = rf"^MLflow at http://me@127.0.0.1:{port} does not answer: timed out$"
        with pytest.raises(SweepsError, match=reason):
            check_server(f"http://me:secret@127.0.0.1:{port}")
    reason = rf"^MLflow at http://127.0.0.1:{port} does not answer: .*refused"
    with pytest.raises(SweepsError, match=reason):
        check_server(f"http://127.0.0.1:{port}")


def test_a_server_that_asks_for_a_password_counts_as_an_answer():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def refuse() -> None:
            asked, _ = server.accept()
            with asked:
                asked.recv(1000)
                asked.sendall(
                    b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                )

        thread = threading.Thread(target=refuse)
        thread.start()
        check_server(f"http://127.0.0.1:{server.getsockname()[1]}")
        thread.join(5)
        assert not thread.is_alive()

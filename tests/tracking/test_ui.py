"""MLflow's web interface beside the page of `sweeps ui`, which leaves no process."""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from sweeps.core.errors import InputError, SweepsError
from sweeps.tracking import Destination, MlflowTracker, default_uri
from sweeps.tracking.events import SweepEnded
from sweeps.tracking.mlflow import ui
from sweeps.tracking.mlflow.ui import (
    Sweep,
    choose_sweep,
    free_port,
    links,
    links_by_name,
    running_server,
)
from tests.tracking.made import START, sweep_result, sweep_started
from tests.waiting import wait_until

OLD, NEW = (Sweep(f"made-{n}", f"run{n}", "1", float(n)) for n in (1, 2))


def run(root: Path, host: str = "127.0.0.1", port: int = 0, uri: str | None = None) -> None:
    with running_server(root, host, port, uri, threading.Event()):
        pass


def refused(**asked) -> str:
    with pytest.raises(InputError) as e:
        run(**asked)
    assert "\n" not in str(e.value) and e.value.exit_code == 2
    return str(e.value)


def test_the_newest_sweep_or_the_named_one_is_chosen():
    assert choose_sweep([OLD, NEW], None) is NEW and choose_sweep([], None) is None
    assert choose_sweep([OLD, NEW], "made-1") is OLD
    assert choose_sweep([OLD, NEW], "sweeps-runs/made-1/") is OLD
    other = dataclasses.replace(OLD, name="other-1")
    assert (
        choose_sweep([OLD, NEW, other], "oth") is other
        and choose_sweep([OLD, NEW], "latest") is NEW
    )
    with pytest.raises(
        InputError, match="--sweep: the names of several sweeps start with `made`: made-2, made-1"
    ):
        choose_sweep([OLD, NEW, other], "made")
    with pytest.raises(InputError, match="no sweep `made-12`; did you mean `made-2`"):
        choose_sweep([OLD, NEW], "made-12")


def test_links_lead_to_saved_views():
    assert "viewStateShareKey=made-2" in links("http://h:1", NEW)["charts"]
    assert links_by_name("http://h:1", [OLD, NEW])["made-2"] == links("http://h:1", NEW)


def test_a_root_without_sweeps_is_refused(tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert (
        refused(root=tmp_path)
        == f"{tmp_path}: the folder has no mlflow.db, so MLflow has recorded no sweep in it"
    )


def test_ports_and_hosts_that_cannot_be_used_are_refused(tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (tmp_path / "mlflow.db").touch()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert (
            refused(root=tmp_path, port=port)
            == f"--mlflow-port: {port}: Address already in use; choose another port, or 0 for any free port"
        )
    assert (
        refused(root=tmp_path, port=70000)
        == "--mlflow-port: 70000 is not a port; a port must be from 0 to 65535"
    )
    assert (
        refused(root=tmp_path, host="192.0.2.1")
        == "--host: `192.0.2.1` is not an address of this machine"
    )
    assert refused(root=tmp_path, host="no host").startswith(
        "--host: `no host` is not an address of this machine"
    )
    assert free_port("127.0.0.1", 0) > 1023


def test_a_server_that_does_not_answer_is_reported_within_seconds(tmp_path, monkeypatch):
    monkeypatch.setattr(ui, "ANSWER_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(
            SweepsError, match=rf"^MLflow at http://me@127.0.0.1:{port} does not answer: timed out$"
        ):
            run(tmp_path, uri=f"http://me:secret@127.0.0.1:{port}")
    with pytest.raises(
        SweepsError, match=rf"^MLflow at http://127.0.0.1:{port} does not answer: .*refused"
    ):
        run(tmp_path, uri=f"http://127.0.0.1:{port}")


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
        ui._check_server(f"http://127.0.0.1:{server.getsockname()[1]}")
        thread.join(5)
        assert not thread.is_alive()


@pytest.mark.long
@pytest.mark.timeout(120)
def test_ctrl_c_ends_the_page_and_mlflow(tmp_path):
    tracker = MlflowTracker(
        Destination(default_uri(tmp_path), tmp_path, "made", "made-1", 1_700_000_000.0)
    )
    tracker.handle(sweep_started(tmp_path))
    tracker.handle(SweepEnded(START + 1, sweep_result(tmp_path)))
    assert tracker.close()
    typed = [
        sys.executable,
        "-m",
        "sweeps.cli",
        "ui",
        "--dir",
        str(tmp_path),
        "--port",
        "0",
        "--mlflow-port",
        "0",
    ]
    env = {name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"}
    said = tmp_path / "said"
    with said.open("w") as out:
        served = subprocess.Popen(
            typed, cwd=Path(__file__).parents[2], env=env, stdout=out, stderr=out
        )
    try:
        wait_until(
            lambda: "all sweeps" in said.read_text() or served.poll() is not None, 90, "links"
        )
        assert served.poll() is None, said.read_text()
        servers = psutil.Process(served.pid).children(recursive=True)
        assert len(servers) >= 2
        served.send_signal(signal.SIGINT)
        assert served.wait(20) == 0
    finally:
        served.kill()
    assert not [p for p in servers if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    lines = said.read_text().splitlines()
    assert lines[0].startswith("the page of the sweeps is at http://127.0.0.1:")
    assert (
        lines[2] == "made-1"
        and "viewStateShareKey=made-1" in lines[3]
        and "Traceback" not in said.read_text()
    )

"""`sweeps ui` as other accounts, other machines and browsers meet it."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
import webbrowser
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import uvicorn

from sweeps.core.errors import InputError
from sweeps.core.files.folder_lock import FolderLock
from sweeps.dashboard import dashboard_app
from sweeps.dashboard.dashboard_server import PageOptions, serve
from tests.dashboard.sweep_folders import sweep_folder
from tests.strangers import as_nobody, request
from tests.waiting import wait_until

NAME = "made-20260102-120000"


@dataclass(frozen=True)
class Ui:
    """A running `sweeps ui`.

    Attributes:
        process: The process.
        root: The root folder of all sweeps.
        said: Lines that the command has printed.
        port: The port of the page.
        token: The token that the command has printed; "" for none.
    """

    process: psutil.Process
    root: Path
    said: Path
    port: int
    token: str

    def request(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """Send a request from this account and this machine."""
        return request("127.0.0.1", self.port, method, path, body, **headers)

    @property
    def bearer(self) -> str:
        return f"Bearer {self.token}"


@contextlib.contextmanager
def running_ui(root: Path) -> Iterator[Ui]:
    """Run `sweeps ui` for a sweep that seems to run."""
    folder = sweep_folder(root, 3, NAME, running=1)
    typed = ["-m", "sweeps.cli", "ui", "--dir", str(root), "--port", "0"]
    said = root / "said"
    lock = FolderLock(folder)
    with said.open("w") as out:
        started = subprocess.Popen([sys.executable, *typed], stdout=out, stderr=out)
    try:
        wait_until(
            lambda: "Ctrl-C" in said.read_text() or started.poll() is not None, 90, "the page"
        )
        address = re.search(r":(\d+)/(?:\?token=([\w-]+))?", said.read_text())
        assert address is not None, said.read_text()
        yield Ui(
            psutil.Process(started.pid),
            root,
            said,
            port=int(address[1]),
            token=address[2] or "",
        )
    finally:
        started.send_signal(signal.SIGINT)
        try:
            assert started.wait(20) == 0, said.read_text()
        finally:
            started.kill()
            lock.release()
    assert "Traceback" not in said.read_text()


def listening_ports(process: psutil.Process) -> set[int]:
    """Return the TCP ports on which a process and its descendants listen."""
    processes = [process, *process.children(recursive=True)]
    connections = [connection for each in processes for connection in each.net_connections("tcp")]
    return {one.laddr.port for one in connections if one.status == psutil.CONN_LISTEN}


@pytest.mark.integration
@pytest.mark.timeout(180)
def test_another_account_reaches_no_sweep(tmp_path: Path) -> None:
    with running_ui(tmp_path) as ui:
        assert len(ui.token) >= 32 and listening_ports(ui.process) == {ui.port}
        send = partial(request, "127.0.0.1", ui.port)
        command = {"command": "stop"}
        attacks = [
            partial(send, "POST", f"/api/sweeps/{NAME}/commands", command, X_Sweeps="1"),
            partial(send, "GET", f"/api/sweeps/{NAME}"),
        ]
        assert [as_nobody(attack).status for attack in attacks] == [401] * len(attacks)
        assert not (tmp_path / NAME / "commands").exists()
        assert ui.request("GET", f"/api/sweeps/{NAME}", Authorization=ui.bearer).status == 200


@pytest.fixture
def no_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a server end at once."""
    monkeypatch.setattr(uvicorn.Server, "run", lambda server, listeners: None)
    monkeypatch.setattr(signal, "signal", lambda *_: None)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("options", "pattern", "may_command"),
    [
        (PageOptions(port=0), r"http://127.0.0.1:\d+/\?token=[\w-]{32};", True),
        (PageOptions(port=0, needs_token=False), r"http://127.0.0.1:\d+/;", True),
        (PageOptions(port=0, token="mine"), r"http://127.0.0.1:\d+/;", True),
        (PageOptions(host="0.0.0.0", port=0), r"http://127.0.0.1:\d+/;", False),
    ],
)
def test_token_is_printed_if_commands_are_possible_and_none_is_set(
    no_requests: Any,
    options: Any,
    pattern: str,
    may_command: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dashboards = []

    class RecordedDashboard(dashboard_app.Dashboard):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            dashboards.append(self)

    monkeypatch.setattr(dashboard_app, "Dashboard", RecordedDashboard)
    said: list[str] = []
    serve(tmp_path, options, said.append)
    assert re.search(pattern, said[-1]), said
    assert dashboards[0].may_command == may_command


def test_the_command_line_of_a_browser_has_no_token(
    no_requests: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = []

    def open_browser(address: Any) -> None:
        assert "secret" not in address
        file = Path(address.removeprefix("file://"))
        files.append(file)
        assert file.stat().st_mode & 0o077 == 0
        assert "/?token=secret&amp;x" in file.read_text()

    monkeypatch.setattr(webbrowser, "open", open_browser)
    options = PageOptions(port=0, token="secret&x", open_browser=True)
    serve(tmp_path, options, lambda text: None)
    assert not files[0].exists()


def test_a_root_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"--dir: \S+/file is not a folder$"):
        serve(tmp_path / "file", PageOptions(), print)

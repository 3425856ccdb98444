"""The endpoints of the page: data, commands, and who may use them."""

from __future__ import annotations

import asyncio
import html
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from fastapi.testclient import TestClient

from sweeps.cli import main
from sweeps.controller.commands import Answer, Enqueue, Stop, parse
from sweeps.core.files.folder_lock import FolderLock
from sweeps.core.files.sweep_folder import COMMANDS
from sweeps.dashboard import dashboard_app
from sweeps.dashboard.dashboard_app import Dashboard, make_app
from sweeps.dashboard.page_content import Column, TableQuery, TrialTable
from sweeps.dashboard.sweep_reader import SweepReader
from sweeps.serving.access import Access
from sweeps.sweep_report.plots import FIGURES
from sweeps.sweep_report.traces import TITLES
from tests.dashboard.sweep_folders import sweep_folder

NAME = "made-20260102-120000"
AT = f"/api/sweeps/{NAME}"
SENT = {"x-sweeps": "1"}
DIMENSIONS = ["preprocessor", "num_workers", "eta", "max_depth", "booster"]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Write a sweep once. Tests that change it use a copy."""
    root = tmp_path_factory.mktemp("runs")
    sweep_folder(root, 40, NAME, running=2)
    return root


@pytest.fixture
def root(recorded: Any, tmp_path: Path) -> Any:
    return shutil.copytree(recorded, tmp_path / "runs")


def client(
    root: Path, access: Access | None = None, may_command: bool = True, **more: Any
) -> TestClient:
    app = make_app(Dashboard(root, may_command), access or Access())
    return TestClient(app, base_url="http://localhost:5050", **more)


def cells(text: str) -> list[list[str]]:
    """Return the texts of the table of trials, row by row."""
    rows = re.findall(r"<tr data-trial=.*?</tr>", text, re.DOTALL)
    return [
        [html.unescape(re.sub("<[^>]*>", "", cell)) for cell in re.findall(r"<td.*?</td>", row)]
        for row in rows
    ]


def test_the_start_page_lists_the_sweeps(root: Any) -> None:
    sweep_folder(root, 3, "other-20260102-120000")
    (root / "notes").mkdir()
    listed = client(root).get("/api/sweeps").text
    names = re.findall(r'<a href="#([^"]*)">', listed)
    assert sorted(names) == [NAME, "other-20260102-120000"] and listed.count(">killed<") == 2
    assert "no sweeps yet" in client(root / "none").get("/api/sweeps").text


def test_the_start_page_leads_to_mlflow(root: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert "mlflow" not in client(root).get("/api/sweeps").text.lower()
    (root / "mlflow.db").touch()
    command = f"mlflow server --backend-store-uri sqlite:///{root / 'mlflow.db'}"
    assert command in html.unescape(client(root).get("/api/sweeps").text)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://me:secret@mlflow.example.org/x")
    listed = client(root).get("/api/sweeps").text
    assert 'href="https://me@mlflow.example.org/x"' in listed and "secret" not in listed


def test_a_sweep_has_a_table_of_its_trials(root: Any) -> None:
    shown = client(root).get(AT).text
    labels = re.findall(r'<button type="button" data-set="sort[^>]*>(.*?)</button>', shown)
    assert labels == ["trial", "state", "mlogloss", "steps", "seconds", *DIMENSIONS]
    rows = cells(shown)
    assert len(rows) == 25 and rows[0][:2] == ["0039", "INTERRUPTED"]
    assert "1–25 of 40 trials" in shown and "Pareto" not in shown and "data-command" not in shown
    assert len(cells(client(root).get(f"{AT}?page=1").text)) == 15


@pytest.mark.parametrize(
    ("query", "column", "fits"),
    [
        ("filter=state=COMPLETE&sort=value.0&down=false", 1, "COMPLETE".__eq__),
        ("filter=ETA<0.1&sort=value.0&down=false", 7, lambda text: float(text) < 0.1),
        ("filter=dart&sort=value.0&down=false", 9, "dart".__eq__),
        ("filter=params.booster!=dart&sort=value.0&down=false", 9, "gbtree".__eq__),
    ],
)
def test_the_table_is_filtered_and_sorted(root: Any, query: str, column: int, fits: Any) -> None:
    rows = cells(client(root).get(f"{AT}?{query}").text)
    assert rows and all(fits(row[column]) for row in rows)
    values = [float(row[2]) for row in rows]
    assert values == sorted(values)


def test_no_text_of_a_sweep_is_read_as_html(root: Any) -> None:
    name = "params.<b>"
    columns = [Column("trial", "trial"), Column(name, "<b>")]
    table = TrialTable(columns, [["0001", "<i>&amp;"]], count=1, total=1)
    snapshot = SweepReader(root / NAME).snapshot()
    page = dashboard_app.render(
        "sweep.html",
        summary=replace(snapshot.summary, name="<u>"),
        facts=[("<s>", "<s>")],
        notes=["<p>"],
        table=table,
        query=TableQuery(),
        may_command=True,
        titles=TITLES,
        dimensions={name: "<b>"},
    )
    shown = bytes(page.body).decode()
    assert not re.search("<[ius]>", shown)
    assert all(f"&lt;{tag}&gt;" in shown for tag in "biusp")


def test_every_figure_is_served(root: Any) -> None:
    server = client(root)
    for key in FIGURES:
        figure = server.get(f"{AT}/figures/{key}").json()
        assert figure["key"] == key and figure["note"]
        # This sweep has one objective, and has not exported a model.
        assert bool(figure["plot"]) == (key not in ("pareto", "winner"))
    sliced = server.get(f"{AT}/figures/slice?name=params.eta").json()["plot"]
    assert sliced["layout"]["xaxis"]["type"] == "log"
    curves = server.get(f"{AT}/figures/curves?trials=0003,0004").json()["plot"]["data"]
    assert [trace["name"] for trace in curves] == ["0003", "0004"]
    assert server.get(f"{AT}/figures/pie").status_code == 404


def test_a_trial_is_shown_with_its_configuration_and_log(root: Any) -> None:
    server = client(root)
    shown = server.get(f"{AT}/trials/7").text
    for name in ("preprocessor", "eta", "max_depth", "scaling.num_workers"):
        assert f"<td>{name}</td>" in shown
    assert "training trial 0007 &lt;b&gt;</pre>" in shown
    shutil.rmtree(root / NAME / "trials" / "0007")
    assert "has not started" in server.get(f"{AT}/trials/7").text
    assert server.get(f"{AT}/trials/4711").status_code == 404


@pytest.mark.parametrize("name", ["none", "..", "%2e%2e", f"..%2fruns%2f{NAME}"])
def test_only_sweeps_of_the_root_are_read(root: Any, name: Any) -> None:
    for path in ("", "/trials/1", "/figures/history"):
        assert client(root).get(f"/api/sweeps/{name}{path}").status_code == 404


def test_commands_reach_a_running_sweep(root: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server = client(root)
    monkeypatch.setattr(dashboard_app, "ANSWER_SECONDS", 0.01)  # nothing answers
    assert (
        server.post(
            f"{AT}/commands", json={"command": "stop", "trial": "0039"}, headers=SENT
        ).status_code
        == 409
    )  # it does not run
    lock = FolderLock(root / NAME)
    try:
        assert "Stop the sweep" in server.get(AT).text
        for command in (
            {"command": "stop", "trial": "0039"},
            {"command": "enqueue", "parameters": {"params.eta": 0.1}},
        ):
            assert server.post(f"{AT}/commands", json=command, headers=SENT).status_code == 202
        wrong = server.post(f"{AT}/commands", json={"command": "explode"}, headers=SENT)
        assert (
            wrong.status_code == 422
            and "does not contain a valid command" in wrong.json()["detail"]
        )
        assert server.post(f"{AT}/commands", content=b"x" * 70_000, headers=SENT).status_code == 413
    finally:
        lock.release()
    sent = [parse(file.read_text()) for file in sorted((root / NAME / COMMANDS).glob("*.json"))]
    assert sent == [Stop("0039"), Enqueue({"params.eta": 0.1})]


@pytest.mark.parametrize(
    "answer, status, text",
    [
        (Answer("paused; 2 trials run"), 202, "paused; 2 trials run"),
        (Answer(problems=("eta: 7 is above 1",), invalid=True), 422, "eta: 7 is above 1"),
        (Answer(problems=("the sweep is paused already",)), 409, "the sweep is paused already"),
    ],
)
def test_the_answer_of_the_sweep_is_shown(
    root: Any, monkeypatch: pytest.MonkeyPatch, answer: Any, status: int, text: str
) -> None:
    monkeypatch.setattr(dashboard_app, "ask", lambda *given: answer)
    lock = FolderLock(root / NAME)
    try:
        got = client(root).post(f"{AT}/commands", json={"command": "pause"}, headers=SENT)
    finally:
        lock.release()
    assert got.status_code == status and text in (got.json().get("text"), got.json().get("detail"))


def test_another_site_cannot_send_commands(root: Any) -> None:
    lock = FolderLock(root / NAME)
    try:
        server = client(root, Access(("localhost",)))
        stop = {"command": "stop"}
        assert (
            server.post(f"{AT}/commands", json=stop).status_code == 403
        )  # as a form of another site would send it
        asked = server.options(
            f"{AT}/commands",
            headers={"origin": "http://evil.example", "access-control-request-headers": "x-sweeps"},
        )
        assert (
            "access-control-allow-headers" not in asked.headers
            and "access-control-allow-origin" not in asked.headers
        )
        rebound = server.post(f"{AT}/commands", json=stop, headers={**SENT, "host": "evil.example"})
        assert rebound.status_code == 400
        assert server.get("/", headers={"host": "evil.example"}).status_code == 400
        refused = client(root, may_command=False).post(f"{AT}/commands", json=stop, headers=SENT)
        assert refused.status_code == 403 and "--token-file" in refused.json()["detail"]
    finally:
        lock.release()
    assert not (root / NAME / COMMANDS).exists()


def test_data_needs_the_token_and_the_files_of_the_page_do_not(root: Any) -> None:
    server = client(root, Access.of(None, "secret"))
    assert server.get("/").status_code == 200 and server.get("/page/page.js").status_code == 200
    for path in (
        "/api/sweeps",
        AT,
        f"{AT}/figures/history",
        f"{AT}/trials/1",
        "/api/events",
    ):
        assert server.get(path).status_code == 401, path
    assert server.post(f"{AT}/commands", json={"command": "stop"}, headers=SENT).status_code == 401
    assert server.get(AT, headers={"authorization": "Bearer secret"}).status_code == 200


def test_the_page_needs_no_network(root: Any) -> None:
    server = client(root)
    page = server.get("/")
    assert (
        "default-src 'self'" in page.headers["content-security-policy"]
        and "frame-ancestors 'none'" in page.headers["content-security-policy"]
    )
    for file in (
        "page/page.js",
        "page/server.js",
        "page/page.css",
        "report/figures.js",
        "report/look.css",
    ):
        answer = server.get(f"/{file}")
        assert (
            answer.status_code == 200
            and file in page.text
            and "//" not in answer.text.replace("// ", "").replace("https://", "//", 1)
        )
    assert server.get("/plotly.min.js").text.startswith("/**\n* plotly.js")


def test_events_follow_changes_and_end_with_the_server(
    root: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dashboard_app, "POLL_SECONDS", 0.01)
    dashboard = Dashboard(root, True)

    async def listen() -> list[str]:
        stream = aiter((await dashboard.events(NAME)).body_iterator)
        events = [str(await anext(stream))]
        (root / NAME / "stages.json").write_text("{}")
        events.append(str(await anext(stream)))
        dashboard.ended = True
        return [*events, *[str(event) async for event in stream]]

    events = asyncio.run(asyncio.wait_for(listen(), 10))
    assert len(events) == 2 and all(event.startswith("event: change\n") for event in events)


def test_a_damaged_sweep_is_shown_with_the_reason(root: Any) -> None:
    (root / NAME / "study.journal").write_text('{"op_code": 99}\nnonsense\n')
    server = client(root)
    shown = server.get(AT).text
    assert cells(shown) == [] and "study.journal" in shown
    assert server.get(f"{AT}/figures/history").json()["note"] == "The study cannot be read."
    assert NAME in server.get("/api/sweeps").text
    (root / NAME / "origin.json").write_text("[]")
    assert server.get("/api/sweeps").status_code == server.get(AT).status_code == 200
    for text in (server.get(AT).text, CliRunner().invoke(main, ["show", str(root / NAME)]).output):
        assert NAME in text and "None" not in text

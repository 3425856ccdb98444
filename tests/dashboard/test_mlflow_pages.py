"""Which requests reach MLflow behind the page, and from which clients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, Request
from fastapi.testclient import TestClient

from sweeps.dashboard.dashboard_app import Dashboard, make_app
from sweeps.dashboard.mlflow_pages import MlflowPages, is_allowed
from sweeps.serving.access import Access

API = "/ajax-api/2.0/mlflow"
READS = [
    ("GET", "/"),
    ("GET", "/static-files/static/js/main.js"),
    ("GET", "/get-artifact"),
    ("GET", "/model-versions/get-artifact"),
    ("POST", "/graphql"),
    ("GET", f"{API}/runs/get"),
    ("POST", f"{API}/runs/search"),
    ("POST", f"{API}/experiments/search-datasets"),
    ("GET", "/api/2.0/mlflow/artifacts/list"),
    ("POST", "/api/3.0/mlflow/traces/search"),
    ("GET", f"{API}/logged-models/m-1/artifacts/files"),
    ("GET", "/ajax-api/3.0/mlflow/ui-telemetry"),
]
WRITES = [
    ("POST", f"{API}/runs/delete"),
    ("POST", "/api/2.0/mlflow/experiments/create"),
    ("POST", f"{API}/experiments/set-experiment-tag"),
    ("PATCH", f"{API}/registered-models/update"),
    ("DELETE", f"{API}/logged-models/m-1"),
]
NEVER = [
    ("POST", f"{API}/upload-artifact"),
    ("PUT", "/api/2.0/mlflow-artifacts/artifacts/x"),
    ("GET", "/api/2.0/mlflow-artifacts/artifacts/x"),
    ("POST", f"{API}/artifacts/presigned-upload-url"),
    ("POST", f"{API}/runs/create-promptlab-run"),
    ("POST", "/gateway/x/mlflow/invocations"),
    ("GET", "/ajax-api/3.0/mlflow/assistant/config"),
    ("POST", "/api/2.0/mlflow/webhooks"),
    ("POST", "/v1/traces"),
    ("GET", "/../api/sweeps"),
]


@pytest.mark.parametrize(("method", "path"), READS + WRITES)
def test_records_are_read_and_changed(method: Any, path: Any) -> None:
    assert is_allowed(method, path)


@pytest.mark.parametrize(("method", "path"), NEVER)
def test_uploads_and_other_interfaces_are_refused(method: Any, path: Any) -> None:
    assert not is_allowed(method, path)


class Served:
    """The page with a stand-in for MLflow, which records what it gets."""

    def __init__(self, root: Any) -> None:
        self.root = root
        access = Access.of("localhost", "secret")
        self.pages = MlflowPages(access)
        self.got: list[tuple[str, str, bytes]] = []
        mlflow = FastAPI()

        async def answer(request: Request) -> dict[str, str]:
            path = request.url.path.removeprefix("/mlflow")
            self.got.append((request.method, path, await request.body()))
            return {"from": "mlflow"}

        mlflow.add_api_route("/{path:path}", answer, methods=["GET", "POST", "PUT", "DELETE"])
        self.pages.app = mlflow
        app = make_app(Dashboard(root, may_command=True), access, self.pages)
        self.client = TestClient(app, base_url="http://localhost:5050", follow_redirects=False)

    def status(self, method: Any, path: Any, **more: Any) -> int:
        return self.client.request(method, f"/mlflow{path}", **more).status_code


TOKEN = {"authorization": "Bearer secret"}


@pytest.fixture
def served(tmp_path: Path) -> Any:
    return Served(tmp_path)


def test_mlflow_needs_the_token_and_the_host_of_the_page(served: Any) -> None:
    assert served.status("GET", f"{API}/runs/get") == 401
    assert served.status("POST", f"{API}/runs/delete", json={}) == 401
    assert served.status("GET", "/", headers={**TOKEN, "host": "evil.example"}) == 400
    assert served.got == []
    assert served.status("GET", f"{API}/runs/get", headers=TOKEN) == 200
    assert served.status("POST", f"{API}/runs/delete", json={"run_id": "1"}, headers=TOKEN) == 200
    assert served.got[1] == ("POST", f"{API}/runs/delete", b'{"run_id":"1"}')


def test_uploads_are_refused_with_the_token(served: Any) -> None:
    answer = served.client.post(f"/mlflow{API}/upload-artifact", content=b"x", headers=TOKEN)
    assert answer.status_code == 403 and "no uploads" in answer.text and served.got == []


def test_the_session_of_a_browser_is_for_mlflow_and_for_no_other_site(served: Any) -> None:
    assert served.status("POST", "/session") == 401
    started = served.client.post("/mlflow/session", headers=TOKEN)
    cookie = started.headers["set-cookie"]
    assert started.status_code == 204 and "secret" not in cookie
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie and "Path" not in cookie
    assert served.status("POST", f"{API}/runs/delete", json={}) == 200
    for site in ("http://localhost:3000", "http://evil.example", "null"):
        headers = {"origin": site}
        assert served.status("POST", f"{API}/runs/delete", json={}, headers=headers) == 403
    headers = {"origin": "http://localhost:5050"}
    assert served.status("POST", f"{API}/runs/delete", json={}, headers=headers) == 200
    assert served.client.get("/api/sweeps").status_code == 401
    other = Served(served.root)  # a server that was started again
    other.client.cookies = served.client.cookies
    assert other.status("GET", f"{API}/runs/get") == 401


def test_a_browser_without_a_session_is_sent_to_the_page(served: Any) -> None:
    asked = served.client.get("/mlflow/", headers={"accept": "text/html"})
    assert asked.status_code == 303 and asked.headers["location"] == "../?next=mlflow"
    asked = served.client.get("/mlflow", headers={**TOKEN, "accept": "text/html"})
    assert asked.headers["location"].endswith("mlflow/")


def test_readers_who_come_before_mlflow_is_loaded_see_its_state(served: Any) -> None:
    served.pages.app = None
    early = served.client.get("/mlflow/", headers=TOKEN)
    assert early.status_code == 503 and "MLflow is starting" in early.text
    assert early.headers["refresh"] == "2"
    headers = served.client.get("/mlflow/", headers=TOKEN).headers
    assert "frame-ancestors 'self'" in headers["content-security-policy"]

"""Which requests reach MLflow behind the page, and from which clients."""

from __future__ import annotations

import json
import re

import pytest
from fastapi import FastAPI, Request
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st

from sweeps.dashboard.app import Dashboard, make_app
from sweeps.dashboard.mlflow_pages import (
    MAX_BYTES,
    MlflowPages,
    is_inside,
    outside_location,
    refusal,
)
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
    ("HEAD", "/version"),
    ("GET", f"{API}/gateway-proxy"),
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
    ("POST", "/api/2.0/mlflow-artifacts/mpu/create/x"),
    ("POST", f"{API}/artifacts/presigned-upload-url"),
    ("PUT", f"{API}/logged-models/m-1/artifacts/x"),
    ("POST", f"{API}/runs/create-promptlab-run"),
    ("POST", f"{API}/gateway-proxy"),
    ("POST", "/gateway/x/mlflow/invocations"),
    ("GET", "/ajax-api/3.0/mlflow/assistant/config"),
    ("POST", "/ajax-api/3.0/mlflow/gateway/secrets/create"),
    ("POST", "/api/2.0/mlflow/webhooks"),
    ("POST", "/ajax-api/3.0/mlflow/scorer/invoke"),
    ("POST", "/v1/traces"),
    ("GET", "//"),
    ("GET", "/../api/sweeps"),
]


@pytest.mark.parametrize(("method", "path"), READS)
def test_reading_needs_no_right_to_write(method, path):
    assert refusal(method, path, may_write=False) is None


@pytest.mark.parametrize(("method", "path"), WRITES)
def test_records_change_only_with_the_right_to_write(method, path):
    assert refusal(method, path, may_write=True) is None
    assert "without a token" in refusal(method, path, may_write=False)


@pytest.mark.parametrize(("method", "path"), NEVER)
def test_uploads_and_other_interfaces_are_refused(method, path):
    assert "no uploads" in refusal(method, path, may_write=True)
    assert "no uploads" in refusal(method, path, may_write=False)


@pytest.mark.timeout(60)
def test_only_reading_handlers_of_mlflow_are_open_without_a_token():
    """A new version of MLflow may have new interfaces: each open one must be known to only read."""
    from mlflow.server import app

    opened = set()
    for rule in app.url_map.iter_rules():
        path = re.sub(r"<[^>]+>", "x", str(rule))
        for method in rule.methods - {"OPTIONS", "HEAD", "GET"}:
            if refusal(method, path, may_write=False) is None:
                opened.add(rule.endpoint.strip("_"))
    assert opened == {
        "graphql",
        "search_experiments",
        "search_runs",
        "search_logged_models",
        "get_latest_versions",
        "search_evaluation_datasets_handler",
        "serve_search_datasets",
        "batch_get_trace_infos",
        "query_trace_metrics",
        "search_traces_v3",
    }


@pytest.mark.parametrize(
    "location", ["file:///root/a", "/root/a/b", "/root", "file://localhost/root/a%20b"]
)
def test_locations_in_the_root_are_inside(location, tmp_path):
    assert is_inside(location.replace("/root", str(tmp_path)), tmp_path)


@pytest.mark.parametrize(
    "location",
    [
        "/etc",
        "file:///etc",
        "/root/../other",
        "file:///root/%2e%2e/other",
        "/rooted",
        "a",
        "s3://bucket/a",
        "http://host/root",
        "file://host/root/a",
        "mlflow-artifacts:/a",
        "",
    ],
)
def test_other_locations_are_outside(location, tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    assert not is_inside(location.replace("/root", str(root)), root)


def test_a_link_out_of_the_root_is_outside(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    (root / "link").symlink_to(tmp_path)
    assert not is_inside(str(root / "link" / "a"), root)


@given(
    name=st.sampled_from(["artifact_location", "artifactLocation", "source"]),
    other=st.dictionaries(st.text(), st.integers() | st.text() | st.none()),
    times=st.integers(1, 2),
)
def test_an_outside_location_is_found_however_it_is_written(name, other, times, tmp_path_factory):
    body = json.dumps({**other, name: "/etc/x"})
    if times == 2:
        body = json.dumps(body)
    assert outside_location(body.encode(), tmp_path_factory.getbasetemp()) == "/etc/x"


def test_models_of_runs_and_no_location_are_allowed(tmp_path):
    for body in ({}, {"source": "runs:/1/model"}, {"source": "models:/m-1"}, {"source": None}):
        assert outside_location(json.dumps(body).encode(), tmp_path) is None
    with pytest.raises(ValueError, match="object"):
        outside_location(b"[1]", tmp_path)


class Served:
    """The page with a stand-in for MLflow, which records what it gets."""

    def __init__(self, root, token):
        access = Access.of("localhost", token)
        self.pages = MlflowPages(root, access)
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

    def status(self, method, path, **more) -> int:
        return self.client.request(method, f"/mlflow{path}", **more).status_code


TOKEN = {"authorization": "Bearer secret"}


@pytest.fixture
def served(tmp_path):
    return Served(tmp_path, "secret")


def test_mlflow_needs_the_token_and_the_host_of_the_page(served):
    assert served.status("GET", f"{API}/runs/get") == 401
    assert served.status("POST", f"{API}/runs/delete", json={}) == 401
    assert served.status("GET", "/", headers={**TOKEN, "host": "evil.example"}) == 400
    assert served.got == []
    assert served.status("GET", f"{API}/runs/get", headers=TOKEN) == 200
    assert served.status("POST", f"{API}/runs/delete", json={"run_id": "1"}, headers=TOKEN) == 200
    assert served.got[1] == ("POST", f"{API}/runs/delete", b'{"run_id":"1"}')


def test_a_refusal_has_the_form_of_mlflows_errors(served):
    refused = served.client.get(f"/mlflow{API}/runs/get")
    assert refused.json()["error_code"] == "UNAUTHENTICATED"
    assert "Authorization: Bearer TOKEN" in refused.json()["message"]


def test_without_a_token_mlflow_only_reads(tmp_path):
    served = Served(tmp_path, None)
    assert served.status("POST", f"{API}/runs/search", json={}) == 200
    assert served.status("POST", f"{API}/runs/delete", json={}) == 403
    assert served.status("POST", "/session") == 403
    assert [path for _, path, _ in served.got] == [f"{API}/runs/search"]


def test_artifacts_outside_the_root_and_uploads_are_refused_with_the_token(served, tmp_path):
    create = f"{API}/experiments/create"
    for location in ("/etc", "file:///etc", "s3://bucket"):
        body = {"name": "a", "artifact_location": location}
        answer = served.client.post(f"/mlflow{create}", json=body, headers=TOKEN)
        assert answer.status_code == 403 and f"`{location}` lies outside" in answer.text
    assert served.status("POST", create, content=b"{", headers=TOKEN) == 400
    assert served.status("POST", f"{API}/upload-artifact", content=b"x", headers=TOKEN) == 403
    large = b" " * (MAX_BYTES + 1)
    assert served.status("POST", f"{API}/runs/log-batch", content=large, headers=TOKEN) == 413
    assert served.got == []
    inside = {"name": "a", "artifact_location": str(tmp_path / "mlartifacts")}
    assert served.status("POST", create, json=inside, headers=TOKEN) == 200


def test_the_session_of_a_browser_is_for_mlflow_and_for_no_other_site(served):
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
    other = Served(served.pages.root, "secret")  # a server that was started again
    other.client.cookies = served.client.cookies
    assert other.status("GET", f"{API}/runs/get") == 401


def test_a_browser_without_a_session_is_sent_to_the_page(served):
    asked = served.client.get("/mlflow/", headers={"accept": "text/html"})
    assert asked.status_code == 303 and asked.headers["location"] == "../?next=mlflow"
    asked = served.client.get("/mlflow", headers={**TOKEN, "accept": "text/html"})
    assert asked.headers["location"].endswith("mlflow/")


def test_readers_who_come_before_mlflow_is_loaded_see_its_state(served):
    served.pages.app = None
    early = served.client.get("/mlflow/", headers=TOKEN)
    assert early.status_code == 503 and "MLflow is starting" in early.text
    assert early.headers["refresh"] == "2"
    headers = served.client.get("/mlflow/", headers=TOKEN).headers
    assert "frame-ancestors 'self'" in headers["content-security-policy"]

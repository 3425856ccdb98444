"""MLflow's web interface, in the process of the page and behind the page's guard.

MLflow's server knows no token, and it accepts uploads and experiments whose artifacts lie anywhere.
So it listens on no port of its own: the page's server passes requests on, if they have the token
and belong to the interfaces that a reader of sweeps needs. All other requests are refused.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sweeps.serving.access import Access

# The path of MLflow's interface, relative to the page.
PATH = "mlflow"
MAX_BYTES = 10 * 2**20
# MLflow's pages need inline scripts and styles, which the policy of our own page forbids.
HEADERS = {
    "content-security-policy": "frame-ancestors 'self'; base-uri 'self'; form-action 'self'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
_API = r"/(?:ajax-)?api/\d\.0/mlflow"
_RECORDS = "experiments|runs|logged-models|registered-models|model-versions"
_READ = re.compile(
    r"/|/version|/(?:static-files|build)/.+|/(?:model-versions/)?get-artifact|/graphql"
    rf"|{_API}/(?:{_RECORDS}|artifacts|metrics|datasets|traces)(?:/.*)?"
    rf"|{_API}/(?:server-info|ui-telemetry|gateway-proxy)"
)
# Requests that only read, although their method is POST.
_SEARCH = re.compile(
    rf"/graphql|{_API}/(?:{_RECORDS}|datasets|traces)"
    r"/(?:search|search-datasets|get-latest-versions|batchGetInfos|metrics)"
)
_WRITE = re.compile(rf"{_API}/(?:{_RECORDS})(?:/.*)?")
_NO_WRITE = re.compile(r".*/(?:create-promptlab-run|upload-artifact|artifacts(?:/.*)?)")
# Fields that tell MLflow where artifacts lie. MLflow also accepts `artifactLocation`.
_LOCATIONS = ("artifactlocation", "source")
_CODES = {401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED"}
_OF_MLFLOW = ("runs", "models")  # schemes of addresses that lead to artifacts of other runs


def refusal(method: str, path: str, may_write: bool) -> str | None:
    """Return None if MLflow may get a request. Otherwise return the rule that the request breaks.

    Args:
        method: The method, such as `GET`.
        path: The path, relative to MLflow's interface.
        may_write: True if this client may change records.
    """
    if method in ("GET", "HEAD") and _READ.fullmatch(path):
        return None
    if method == "POST" and _SEARCH.fullmatch(path):
        return None
    if not _WRITE.fullmatch(path) or _NO_WRITE.fullmatch(path):
        return (
            "sweeps passes only requests for experiments, runs and models to MLflow, and no "
            "uploads; "
            "for others, start `mlflow server`"
        )
    if not may_write:
        return "a server without a token changes nothing in MLflow; start `sweeps ui` with a token"
    return None


def is_inside(location: str, root: Path) -> bool:
    """Return whether a location of artifacts is a path in `root`. Links are followed."""
    parts = urlsplit(location)
    if parts.scheme not in ("", "file") or parts.netloc not in ("", "localhost"):
        return False
    path = Path(unquote(parts.path) if parts.scheme else location)
    return path.is_absolute() and path.resolve().is_relative_to(root)


def outside_location(body: bytes, root: Path) -> str | None:
    """Return the first location of artifacts in a request that is not in `root`; None if all are.

    Args:
        body: The body of the request.
        root: Root folder of all sweeps.

    Raises:
        ValueError: The body is not a JSON object.
    """
    content = json.loads(body)
    if isinstance(content, str):  # MLflow accepts JSON that is encoded twice
        content = json.loads(content)
    if not isinstance(content, dict):
        raise ValueError("the body must be a JSON object")
    for name, value in content.items():
        if name.replace("_", "").lower() not in _LOCATIONS or value in (None, ""):
            continue
        is_of_mlflow = urlsplit(str(value)).scheme in _OF_MLFLOW
        if not is_of_mlflow and not is_inside(str(value), root):
            return str(value)
    return None


class MlflowPages:
    """ASGI application that passes the requests that are allowed to MLflow.

    A request must have the token, as for the page, or the cookie of a session. `POST session` with
    the token starts a session, because a browser sends no token when it follows a link.

    Args:
        root: Root folder of all sweeps.
        access: The allowed hosts and the token.

    Attributes:
        app: MLflow's application; None until it is loaded.
        state: Text for readers who come before it is loaded.
    """

    def __init__(self, root: Path, access: Access):
        self.root = root
        self.access = access
        self.app: ASGIApp | None = None
        self.state = "MLflow is starting."
        self._session = secrets.token_urlsafe(32)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            raise RuntimeError(f"{scope['type']} is not supported")
        request = Request(scope, receive)
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        answer = self._answer(request, path)
        if answer is None and request.method not in ("GET", "HEAD"):
            body = await _read(request)
            answer = self._refuse_body(path, body)
            receive = _received(body or b"")
        app = answer or self.app
        assert app is not None
        await app(scope, receive, send)

    def _answer(self, request: Request, path: str) -> Response | None:
        """Return the answer to a request that MLflow does not get; None for other requests."""
        refused = self.access.refusal(request.scope["headers"])
        has_token = self.access.digest is not None and refused is None
        if has_token and path == "/session" and request.method == "POST":
            return self._start_session(request)
        has_session = refused is not None and refused[0] == 401 and self._has_session(request)
        if refused is not None and not has_session:
            return self._ask_for_token(request, path, *refused)
        rule = refusal(request.method, path, may_write=self.access.digest is not None)
        if rule is None and has_session and not _is_same_origin(request):
            rule = "another site must not use the session of MLflow's pages"
        if rule is not None:
            return _refused(403, rule)
        if self.app is None:
            text = f"<!doctype html><title>MLflow</title><p>{self.state}</p>"
            return HTMLResponse(text, 503, {"refresh": "2", "retry-after": "2"})
        return None

    def _refuse_body(self, path: str, body: bytes | None) -> Response | None:
        if body is None:
            return _refused(413, f"a request to MLflow may have at most {MAX_BYTES} bytes")
        if not path.endswith("/create"):
            return None
        try:
            location = outside_location(body, self.root)
        except ValueError as e:
            return _refused(400, f"the body is not valid: {e}")
        if location is None:
            return None
        return _refused(
            403, f"`{location[:200]}` lies outside {self.root}; artifacts must be in it"
        )

    def _start_session(self, request: Request) -> Response:
        answer = Response(status_code=204)
        # Without `path`, the browser sends the cookie only to MLflow's pages, also behind a proxy
        # that adds a prefix.
        name = _cookie(request)
        answer.set_cookie(name, self._session, path=None, httponly=True, samesite="strict")
        return answer

    def _has_session(self, request: Request) -> bool:
        sent = request.cookies.get(_cookie(request), "")
        return secrets.compare_digest(sent.encode(), self._session.encode())

    def _ask_for_token(self, request: Request, path: str, status: int, rule: str) -> Response:
        """Send a browser to the page, which asks for the token and comes back."""
        is_page = request.method == "GET" and path == "/"
        if status == 401 and is_page and "text/html" in request.headers.get("accept", ""):
            return RedirectResponse(f"../?next={PATH}", 303)
        return _refused(status, rule)


def _refused(status: int, rule: str) -> Response:
    headers = {"www-authenticate": "Bearer"} if status == 401 else None
    # MLflow's client prints `message`.
    content = {"error_code": _CODES.get(status, "INVALID_PARAMETER_VALUE"), "message": rule}
    return JSONResponse(content | {"detail": [{"rule": rule}]}, status, headers)


def _cookie(request: Request) -> str:
    """Return the name of the cookie. Browsers do not keep the cookies of two ports apart."""
    return "sweeps-" + re.sub(r"[^\w.]", "-", request.headers.get("host", ""))


def _is_same_origin(request: Request) -> bool:
    origin = request.headers.get("origin")
    return origin is None or urlsplit(origin).netloc == request.headers.get("host")


async def _read(request: Request) -> bytes | None:
    """Return the body of a request; None if it is too large."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_BYTES:
            return None
    return bytes(body)


def _received(body: bytes) -> Receive:
    """Return a function from which an application receives a body that was read before."""

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    return receive


def load(root: Path, uri: str, is_own: bool) -> ASGIApp:
    """Import MLflow's server, which takes seconds, and return its application.

    Call this function once in a process, because MLflow keeps its settings in the process.

    Args:
        root: Root folder of all sweeps.
        uri: MLflow's tracking URI, which names a database.
        is_own: True if the database is that of the root. Its records may come from a stranger, so
            artifacts are then read only from the root.
    """
    # Without this address, MLflow's page of the gateway gets an empty list.
    os.environ.pop("MLFLOW_DEPLOYMENTS_TARGET", None)
    os.environ.update(
        {
            # MLflow's own rules would let other servers on this machine use a session.
            "MLFLOW_SERVER_DISABLE_SECURITY_MIDDLEWARE": "true",
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            "_MLFLOW_SERVER_FILE_STORE": uri,
            "_MLFLOW_SERVER_ARTIFACT_ROOT": (root / "mlartifacts").as_uri(),
        }
    )
    import logging
    import warnings

    logging.getLogger("mlflow").setLevel(logging.CRITICAL)  # answers have the errors
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from mlflow.server.fastapi_app import app

    _confine_artifacts(root, is_own)
    loaded: ASGIApp = app
    return loaded


def _confine_artifacts(root: Path, only_local: bool) -> None:
    """Let MLflow in this process read artifacts on this machine only if they lie in `root`."""
    from mlflow.exceptions import MlflowException
    from mlflow.store.artifact import artifact_repository_registry
    from mlflow.store.artifact.local_artifact_repo import LocalArtifactRepository

    class Confined(LocalArtifactRepository):
        """Artifacts in the root, which can only be read."""

        def __init__(self, artifact_uri: str, *more: Any, **named: Any):
            super().__init__(artifact_uri, *more, **named)
            self._check(self.artifact_dir)

        def get_local_path(self, artifact_path: str) -> str:
            path: str = super().get_local_path(artifact_path)
            self._check(path)
            return path

        def list_artifacts(self, path: str | None = None) -> Any:
            self._check(os.path.join(self.artifact_dir, path or ""))
            return super().list_artifacts(path)  # type: ignore[no-untyped-call]

        def _check(self, path: str) -> None:
            if not Path(path).resolve().is_relative_to(root):
                raise MlflowException(f"`{path}` lies outside {root}", error_code=3)

    registry: Any = artifact_repository_registry
    registered = registry.get_registered_artifact_repositories()
    for scheme in list(registered):
        if only_local and scheme not in _OF_MLFLOW:
            del registered[scheme]
    registered[""] = Confined
    registered["file"] = Confined

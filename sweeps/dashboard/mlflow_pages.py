"""MLflow's web interface, in the process of the page and behind the page's guard.

MLflow's server knows no token, accepts uploads, and reads artifacts that lie anywhere. So it
listens on no port of its own: the page's server passes requests on, if they have the token and
belong to the interfaces that a reader of sweeps needs. All other requests are refused.
"""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from markupsafe import escape
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from sweeps.serving.access import TOKEN_RULE, Access

# The path of MLflow's interface, relative to the page.
PATH = "mlflow"
# MLflow's pages need inline scripts and styles, which the policy of our own page forbids.
POLICY = "frame-ancestors 'self'; base-uri 'self'; form-action 'self'"
_API = r"/(?:ajax-)?api/\d\.0/mlflow"
_RECORDS = "experiments|runs|logged-models|registered-models|model-versions"
_READ = re.compile(
    r"/|/version|/(?:static-files|build)/.+|/(?:model-versions/)?get-artifact|/graphql"
    rf"|{_API}/(?:{_RECORDS}|artifacts|metrics|datasets|traces)(?:/.*)?"
    rf"|{_API}/(?:server-info|ui-telemetry|gateway-proxy)"
)
_WRITE = re.compile(rf"/graphql|{_API}/(?:{_RECORDS}|datasets|traces)(?:/.*)?")
_NO_WRITE = re.compile(r".*/(?:create-promptlab-run|upload-artifact|artifacts(?:/.*)?)")
_CODES = {401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED"}
_OF_MLFLOW = ("runs", "models")  # schemes of addresses that lead to artifacts of other runs


def is_allowed(method: str, path: str) -> bool:
    """Return whether MLflow may get a request. No request may upload anything.

    Args:
        method: The method, such as `GET`.
        path: The path, relative to MLflow's interface.
    """
    if method in ("GET", "HEAD"):
        return _READ.fullmatch(path) is not None
    return _WRITE.fullmatch(path) is not None and _NO_WRITE.fullmatch(path) is None


class MlflowPages:
    """ASGI application that passes the requests that are allowed to MLflow.

    A request must have the token, as for the page, or the cookie of a session. `POST session` with
    the token starts a session, because a browser sends no token when it follows a link.

    Args:
        access: The allowed hosts and the token, which must not be missing.

    Attributes:
        app: MLflow's application; None until it is loaded.
        state: Text for readers who come before it is loaded.
    """

    def __init__(self, access: Access):
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
        app = self._answer(request, path) or self.app
        if app is None:
            text = f"<!doctype html><title>MLflow</title><p>{escape(self.state)}</p>"
            app = HTMLResponse(text, 503, {"refresh": "2", "retry-after": "2"})
        await app(scope, receive, send)

    def _answer(self, request: Request, path: str) -> Response | None:
        """Return the answer to a request that MLflow does not get; None for other requests."""
        has_token = self.access.allows(request.scope)
        if has_token and path == "/session" and request.method == "POST":
            return self._start_session(request)
        if not has_token and not self._has_session(request):
            return self._ask_for_token(request, path)
        if not has_token and not _is_same_origin(request):
            return _refused(403, "another site must not use the session of MLflow's pages")
        if not is_allowed(request.method, path):
            return _refused(
                403,
                "sweeps passes only requests for experiments, runs and models to MLflow, and no "
                "uploads; for others, start `mlflow server`",
            )
        return None

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

    def _ask_for_token(self, request: Request, path: str) -> Response:
        """Send a browser to the page, which asks for the token and comes back."""
        is_page = request.method == "GET" and path == "/"
        if is_page and "text/html" in request.headers.get("accept", ""):
            return RedirectResponse(f"../?next={PATH}", 303)
        return _refused(401, TOKEN_RULE)


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

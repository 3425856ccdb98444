"""The ASGI application of a bundle: predictions, schemas, metrics, and FastAPI's page `/docs`."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pydantic_core
from fastapi import FastAPI, Request, Response
from fastapi_offline import FastAPIOffline
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from pydantic import JsonValue
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sweeps.bundle.bundle_model import Bundle
from sweeps.bundle.manifest import members_text
from sweeps.core.errors import InputError, Problem
from sweeps.core.label_columns import label_text
from sweeps.data.columns.column_values import InvalidColumnValue

from . import request_checks
from .access import Access, AllowedHosts, TokenGuard
from .batching import Batcher
from .example import Records, example_of
from .limits import RequestLimits
from .request_checks import JsonSchema, Refused

JSON = "application/json"
PATHS = ("/predict", "/health", "/schema", "/example", "/metrics")
DEFAULT_LIMITS = RequestLimits()
OPEN_ACCESS = Access()
ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"description": "The body is not JSON, or the Host header is not allowed."},
    401: {"description": "The token is missing or wrong."},
    413: {"description": "The body is too large, or it has too many rows."},
    415: {"description": "The content type is not JSON."},
    422: {"description": "Fields are missing or have invalid values."},
    503: {"description": "The server has too many connections."},
}


class Metrics:
    """Prometheus metrics of the server, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "sweeps_requests", "Answered requests.", ["path", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "sweeps_request_seconds",
            "Time from the first byte of the body to the answer.",
            ["path"],
            registry=self.registry,
        )
        self.rows = Counter("sweeps_rows", "Predicted rows.", registry=self.registry)
        self.unseen = Gauge(
            "sweeps_unseen_values",
            "Values that the model treats as missing: unknown categories, and texts that do not"
            " fit their rule.",
            ["column"],
            registry=self.registry,
        )


class RequestCounter:
    """ASGI middleware that counts requests.

    It is four times as fast as Starlette's `BaseHTTPMiddleware`.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics):
        self.app = app
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request to the application, and count its path and status."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        status = 500

        async def send_and_record(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self.app(scope, receive, send_and_record)
        finally:
            path = scope["path"] if scope["path"] in PATHS else "other"
            self.metrics.requests.labels(path, status).inc()


def _problem_body(problem: Problem) -> dict[str, JsonValue]:
    """Return a problem as an entry of the answer's `detail`; see `Refused.problems`."""
    if isinstance(problem, InvalidColumnValue):
        return {
            "field": problem.column,
            "row": problem.row,
            "rule": problem.rule,
            "value": request_checks.short(problem.value),
        }
    return {"rule": f"{problem.place}: {problem.text}"}


def _refusal(status: int, problems: Sequence[Mapping[str, JsonValue]]) -> Response:
    return Response(pydantic_core.to_json({"detail": problems}), status, media_type=JSON)


def make_app(
    bundle: Bundle,
    limits: RequestLimits = DEFAULT_LIMITS,
    access: Access = OPEN_ACCESS,
    example: bool = True,
) -> FastAPI:
    """Return the ASGI application that serves a bundle.

    Args:
        bundle: Bundle to serve, already loaded.
        limits: Limits on a request.
        access: The allowed hosts and the token.
        example: True to show one of the bundle's example rows at `/docs`, `/example` and
            `/openapi.json`.

    Raises:
        InputError: The bundle has no columns, because its training loop read its own data.
    """
    manifest = bundle.manifest
    if not manifest.columns:
        reason = (
            "cannot be served: the training loop read its own data, so the columns of a request"
            " are unknown; use `sweeps predict` or `sweeps.load_bundle`"
        )
        raise InputError(str(bundle.path), reason)
    predicts = label_text(manifest.label) or "a model's output"
    app = FastAPIOffline(
        redoc_url=None,
        title=str(manifest.training.get("sweep") or "sweeps"),
        description=f"Predict {predicts} from raw rows. Unknown fields are ignored.",
        version=manifest.created,
    )
    metrics = Metrics()
    # The last middleware is the outermost, so refused requests are counted, too.
    if access.hosts:
        app.add_middleware(AllowedHosts, allowed_hosts=access.hosts, www_redirect=False)
    app.add_middleware(TokenGuard, access=access)
    app.add_middleware(RequestCounter, metrics=metrics)
    schemas = request_checks.schemas(manifest, limits.max_rows)
    example_body = example_of(bundle) if example else None
    _add_predict(app, bundle, limits, metrics=metrics, schemas=schemas, example_body=example_body)
    _add_facts(app, bundle, metrics, schemas=schemas, example_body=example_body)
    return app


def _add_predict(
    app: FastAPI,
    bundle: Bundle,
    limits: RequestLimits,
    *,
    metrics: Metrics,
    schemas: tuple[JsonSchema, JsonSchema],
    example_body: Records | None,
) -> None:
    """Add the path `/predict`, and describe its requests and answers for OpenAPI.

    `schemas` has the schema of a request, and the schema of an answer.
    """
    request_schema, answer_schema = schemas
    content: dict[str, object] = {"schema": request_schema}
    if example_body is not None and None not in example_body["records"][0].values():
        content["example"] = example_body  # FastAPI leaves null out
    batcher = Batcher(bundle)

    @app.post(
        "/predict",
        summary="Predict rows",
        openapi_extra={"requestBody": {"required": True, "content": {JSON: content}}},
        responses={200: {"content": {JSON: {"schema": answer_schema}}}, **ERRORS},
    )
    async def predict(request: Request) -> Response:
        start = time.perf_counter()
        try:
            body = await _read_body(request, limits)
            rows = request_checks.read(body, bundle.manifest.columns, limits.max_rows)
            answer = await batcher.predict(rows)
            metrics.rows.inc(rows.count)
            return Response(answer, media_type=JSON)
        except Refused as e:
            return _refusal(e.status, e.problems)
        except InputError as e:
            return _refusal(422, [_problem_body(problem) for problem in e.problems])
        except ClientDisconnect:  # nginx uses 499 for this, too
            return Response(status_code=499)
        except asyncio.CancelledError:  # a second signal ends the server, and waits for no answer
            return Response(status_code=503)
        finally:
            metrics.seconds.labels("/predict").observe(time.perf_counter() - start)


def _add_facts(
    app: FastAPI,
    bundle: Bundle,
    metrics: Metrics,
    *,
    schemas: tuple[JsonSchema, JsonSchema],
    example_body: Records | None,
) -> None:
    """Add the paths that describe the server and its model; for `schemas`, see `_add_predict`."""
    manifest = bundle.manifest
    facts = {key: manifest.training.get(key) for key in ("sweep", "trial", "metric", "value")}
    facts["members"] = members_text(manifest.members) or None

    @app.get("/health", summary="Check that the server is running")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/schema", summary="The fields of a row and of an answer")
    async def schema() -> dict[str, Any]:
        columns = [
            {"name": c.name, "type": c.type, "rule": request_checks.kind_of(c).rule}
            for c in manifest.columns
        ]
        return {
            "model": {key: value for key, value in facts.items() if value is not None},
            "columns": columns,
            **manifest.model_dump(include={"label", "task", "classes", "positive"}),
            "request": schemas[0],
            "answer": schemas[1],
        }

    @app.get(
        "/example",
        summary="The body of an example request",
        responses={404: {"description": "The server shows no example row."}},
    )
    async def example() -> Any:
        return example_body or _refusal(404, [{"rule": "the server shows no example row"}])

    @app.get("/", include_in_schema=False)
    async def root() -> Response:
        return RedirectResponse("docs")  # relative, because a proxy may add a prefix

    @app.get("/metrics", summary="Metrics for Prometheus", response_class=PlainTextResponse)
    async def prometheus() -> Response:
        for name, count in bundle.unseen.items():
            metrics.unseen.labels(name).set(count)
        text = generate_latest(metrics.registry)
        return Response(text, media_type=CONTENT_TYPE_LATEST)


async def _read_body(request: Request, limits: RequestLimits) -> bytes:
    """Read the body of a request.

    Raises:
        Refused: The body is too large, or its content type is not JSON.
    """
    kind = request.headers.get("content-type", JSON).partition(";")[0].strip().lower()
    if kind != JSON and not kind.endswith("+json"):
        raise Refused(415, [{"rule": f"the body must be {JSON}, not {kind[:60]}"}])
    if request.headers.get("content-encoding", "identity") != "identity":
        raise Refused(415, [{"rule": "the body must not be compressed (Content-Encoding)"}])
    too_large = Refused(413, [{"rule": f"the body must have at most {limits.max_bytes} bytes"}])
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limits.max_bytes:
        raise too_large
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > limits.max_bytes:
            raise too_large
    return bytes(body)

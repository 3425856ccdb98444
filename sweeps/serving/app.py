"""The ASGI application of a bundle: `/predict`, `/health`, `/schema`, `/metrics`, and OpenAPI at `/docs`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping
from typing import Any

import numpy as np
import pydantic_core
from fastapi import FastAPI, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, Metric, generate_latest
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse

from sweeps.bundle.manifest import Manifest
from sweeps.bundle.model import Bundle
from sweeps.bundle.schema import InvalidValue
from sweeps.core.errors import InputError, Problem
from sweeps.serving import request_checks
from sweeps.serving.access import Access, Guard, Receive, Send
from sweeps.serving.batching import Batcher
from sweeps.serving.limits import Limits
from sweeps.serving.request_checks import Refused, Rows

log = logging.getLogger(__name__)

JSON = "application/json"
PATHS = ("/predict", "/health", "/schema", "/metrics")
DEFAULT, OPEN = Limits(), Access()


class Metrics:
    """What Prometheus is told, in a registry of its own.

    Args:
        replica: one of several that answer at one address; every series names it, so that what each was asked adds up.
    """

    def __init__(self, replica: str | None = None) -> None:
        self.replica = replica
        self.registry = CollectorRegistry()
        where: dict[str, Any] = {"registry": self.registry}
        self.requests = Counter("sweeps_requests", "Requests answered.", ["path", "status"], **where)
        self.seconds = Histogram("sweeps_request_seconds", "From a request's body to its answer.", ["path"], **where)
        self.rows = Counter("sweeps_rows", "Rows predicted.", **where)
        self.batch = Histogram("sweeps_batch_rows", "Rows that the model was asked at once.", buckets=[4**i for i in range(8)], **where)
        self.working = Gauge("sweeps_requests_in_flight", "Requests to /predict that are not answered yet.", **where)

    def collect(self) -> Iterator[Metric]:
        """For `generate_latest`."""
        for family in self.registry.collect():
            if self.replica is not None:
                family.samples = [s._replace(labels={"replica": self.replica, **s.labels}) for s in family.samples]
            yield family


class Counted:
    """ASGI middleware that counts requests. Starlette's middleware of one function takes four times as long."""

    def __init__(self, app: Callable[..., Awaitable[None]], metrics: Metrics):
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        status = 500

        async def noted(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self.app(scope, receive, noted)
        finally:
            self.metrics.requests.labels(scope["path"] if scope["path"] in PATHS else "other", status).inc()


def answer_all(bundle: Bundle, batch: list[Rows]) -> list[bytes]:
    """The answers to several requests, asked of the model at once.

    Raises:
        InputError: the preprocessor or the model, which may be a user's, refuses some of the rows.
    """
    joined = {c.name: [v for rows in batch for v in rows.values[c.name]] for c in bundle.manifest.columns}
    frame = bundle.predict_values(joined, sum(rows.count for rows in batch))
    found = {str(name): _plain(frame[name].to_numpy()) for name in frame.columns}
    answers, start = [], 0
    for rows in batch:
        part = {name: values[start : start + rows.count] for name, values in found.items()}
        said = part if rows.by_column else [dict(zip(part, values, strict=True)) for values in zip(*part.values(), strict=True)]
        answers.append(pydantic_core.to_json({"predictions": said}))
        start += rows.count
    return answers


def _told(problem: Problem) -> dict[str, Any]:
    """What is wrong with a value, as `checks` would say it."""
    if isinstance(problem, InvalidValue):
        return {"field": problem.column, "row": problem.row, "rule": problem.rule, "value": request_checks.short(problem.value)}
    return {"rule": f"{problem.place}: {problem.text}"}


def _plain(values: np.ndarray) -> list[Any]:
    """As JSON has them: a number that is none is null."""
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        return [v if np.isfinite(v) else None for v in values.tolist()]
    return values.tolist()


def require_columns(bundle: Bundle) -> None:
    """Refuse a bundle whose loop read its own data: nobody knows what a request must hold.

    Raises:
        InputError: the bundle is one of these.
    """
    if not bundle.manifest.columns:
        said = "its loop read its own data, so no columns are known to check requests by; use `sweeps predict` or `sweeps.load_bundle`"
        raise InputError(Problem(str(bundle.path), f"cannot be served: {said}"))


def make_app(bundle: Bundle, limits: Limits = DEFAULT, access: Access = OPEN, replica: str | None = None) -> FastAPI:
    """The application that serves a bundle.

    Args:
        bundle: loaded.
        limits: of a request.
        access: who may ask.
        replica: its name, if several answer at one address.

    Returns:
        The application. `state.give_up` answers 503 to every request that waits for the model.

    Raises:
        InputError: see `require_columns`.
    """
    require_columns(bundle)
    metrics, manifest = Metrics(replica), bundle.manifest

    def answered(batch: list[Rows]) -> list[bytes]:
        metrics.batch.observe(sum(rows.count for rows in batch))
        return answer_all(bundle, batch)

    batcher: Batcher[Rows] = Batcher(answered, lambda rows: rows.count)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        batcher.close()

    request_schema, answer_schema = request_checks.schemas(manifest.columns, manifest.classes, limits.max_rows)
    made = {k: manifest.made.get(k) for k in ("sweep", "trial", "metric", "value") if manifest.made.get(k) is not None}
    app = FastAPI(title=str(made.get("sweep", "sweeps")), description=_description(manifest), version=manifest.created, lifespan=lifespan)

    # The last one is the outermost: what is refused is counted, too
    app.add_middleware(Guard, access=access)
    app.add_middleware(Counted, metrics=metrics)
    app.state.give_up = lambda: batcher.give_up(lambda: Refused(503, [{"rule": "the server ended before the model had answered"}]))

    async def predict(request: Request) -> Response:
        start = time.perf_counter()
        metrics.working.inc()
        try:
            rows = request_checks.read(await _body(request, limits), manifest.columns, limits.max_rows)
            answer = await batcher.ask(rows)
            metrics.rows.inc(rows.count)
            return Response(answer, media_type=JSON)
        except Refused as e:
            ends = {"connection": "close"} if e.status == 408 else None
            return Response(pydantic_core.to_json(e.body()), e.status, ends, media_type=JSON)
        except InputError as e:
            return Response(pydantic_core.to_json({"detail": [_told(p) for p in e.problems]}), 422, media_type=JSON)
        except ClientDisconnect:  # nobody reads it; as nginx counts these
            return Response(status_code=499)
        finally:
            metrics.working.dec()
            metrics.seconds.labels("/predict").observe(time.perf_counter() - start)

    errors = {
        400: "No JSON, or a Host header that is not allowed.",
        401: "No token, or a wrong one.",
        408: "The body has not arrived in time.",
        413: "Too large.",
        415: "Not JSON.",
        422: "What is wrong, by field and row.",
        503: "The server ended before the model had answered.",
    }
    app.add_api_route(
        "/predict",
        predict,
        methods=["POST"],
        summary="Predict rows",
        openapi_extra={"requestBody": {"required": True, "content": {JSON: {"schema": request_schema}}}},
        responses={200: {"content": {JSON: {"schema": answer_schema}}}, **{code: {"description": text} for code, text in errors.items()}},
    )

    @app.get("/health", summary="Whether it answers")
    async def health() -> dict[str, Any]:
        return {"status": "ok", **made}

    @app.get("/schema", summary="The fields of a row, and of an answer")
    async def schema() -> dict[str, Any]:
        return {
            "columns": [{"name": c.name, "type": c.type, "rule": request_checks.rule_of(c)} for c in manifest.columns],
            "label": manifest.label,
            "task": manifest.task,
            "classes": manifest.classes,
            "request": request_schema,
            "answer": answer_schema,
        }

    @app.get("/metrics", summary="For Prometheus", response_class=PlainTextResponse)
    async def told() -> Response:
        return Response(generate_latest(metrics), media_type=CONTENT_TYPE_LATEST)

    return app


def _description(manifest: Manifest) -> str:
    predicts = f"`{manifest.label}`" if manifest.label else "a model's output"
    return f"Predicts {predicts} of raw rows. A field that is not of the model is ignored."


async def _body(request: Request, limits: Limits) -> bytes:
    """A request's body.

    Raises:
        Refused: it is too large, arrives too slowly, or says that it is no JSON.
    """
    kind = request.headers.get("content-type", JSON).partition(";")[0].strip().lower()
    if kind != JSON and not kind.endswith("+json"):
        raise Refused(415, [{"rule": f"the body must be {JSON}, not {kind[:60]}"}])
    if request.headers.get("content-encoding", "identity") != "identity":
        raise Refused(415, [{"rule": "the body must not be encoded"}])
    too_large = Refused(413, [{"rule": f"the body must have at most {limits.max_bytes} bytes"}])
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limits.max_bytes:
        raise too_large
    parts, size = [], 0
    try:
        async with asyncio.timeout(limits.receive_seconds):
            async for part in request.stream():
                size += len(part)
                if size > limits.max_bytes:
                    raise too_large
                parts.append(part)
    except TimeoutError:
        raise Refused(408, [{"rule": f"the body must arrive within {limits.receive_seconds:g} s"}]) from None
    return b"".join(parts)
